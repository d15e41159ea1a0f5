#include "status.h"

#include <stdarg.h>
#include <syslog.h>

#include "ext/standard/info.h"
#include "zend_exceptions.h"

#include "keep.h"
#include "native.h"
#include "refuse.h"

slip_status_t slip_status;
zend_class_entry *slip_snapshot_exception;

/* Upper bounds of the histogram, in microseconds; the last bucket has none. */
static const zend_long bounds_us[SLIP_HISTOGRAM - 1] = {5, 10, 20, 30, 40, 60, 80, 100, 150, 200, 300, 500, 1000, 2000, 5000};

zend_long slip_status_count(slip_reasons_t *reasons, const char *reason)
{
	int i = 0;

	while (i < reasons->used && strcmp(reasons->entries[i].reason, reason) != 0) {
		i++;
	}
	if (i == SLIP_MAX_REASONS) {
		return 0;
	}
	if (i == reasons->used) {
		reasons->entries[i].reason = reason;
		reasons->used++;
	}
	return ++reasons->entries[i].count;
}

static void remember(const char *message)
{
	snprintf(slip_status.last_refusal, sizeof slip_status.last_refusal, "%s", message);
}

void slip_refuse(const char *reason, const char *format, ...)
{
	va_list arguments;

	slip_status_count(&slip_status.refusals, reason);
	va_start(arguments, format);
	zend_string *message = zend_vstrpprintf(0, format, arguments);
	va_end(arguments);
	remember(ZSTR_VAL(message));
	if (!EG(exception)) {
		zend_throw_exception(slip_snapshot_exception, ZSTR_VAL(message), 0);
	}
	zend_string_release(message);
}

void slip_refuse_quietly(const char *reason, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	zend_string *message = zend_vstrpprintf(0, format, arguments);
	va_end(arguments);
	remember(ZSTR_VAL(message));
	if (slip_status_count(&slip_status.refusals, reason) == 1) {
		zend_string *line = zend_strpprintf(0, "Slipstream: no snapshot in this request: %s", ZSTR_VAL(message));
		php_log_err_with_severity(ZSTR_VAL(line), LOG_NOTICE);
		zend_string_release(line);
	}
	zend_string_release(message);
}

void slip_status_time(uint64_t ns)
{
	int i = 0;

	while (i < SLIP_HISTOGRAM - 1 && ns > (uint64_t) bounds_us[i] * 1000) {
		i++;
	}
	slip_status.histogram[i]++;
	slip_status.last_restore_ns = ns;
}

static void add_reasons(zval *array, const char *name, const slip_reasons_t *reasons)
{
	zval list;

	array_init(&list);
	for (int i = 0; i < reasons->used; i++) {
		add_assoc_long(&list, reasons->entries[i].reason, reasons->entries[i].count);
	}
	add_assoc_zval(array, name, &list);
}

static void add_image(zval *array, const slip_image_t *image)
{
	zval entry;

	if (!image) {
		add_assoc_null(array, "image");
		return;
	}
	array_init(&entry);
	add_assoc_string(&entry, "script", image->key.script);
	add_assoc_string(&entry, "host", image->key.host);
	add_assoc_double(&entry, "taken_at", image->taken_at);
	add_assoc_long(&entry, "bytes", image->rollback.bytes);
	add_assoc_long(&entry, "pages", image->rollback.used_pages);
	add_assoc_long(&entry, "objects", image->objects);
	add_assoc_long(&entry, "resources", image->kept_count);
	add_assoc_zval(array, "image", &entry);
}

void slip_status_fill(zval *array, const slip_image_t *image)
{
	zval pages, times, histogram;
	bool started = image && image->heap->frozen;

	array_init(array);
	add_assoc_bool(array, "enabled", !slip_status.disabled);
	if (slip_status.disabled) {
		add_assoc_string(array, "reason", slip_status.disabled);
	} else {
		add_assoc_null(array, "reason");
	}
	if (started) {
		add_assoc_string(array, "mechanism", slip_mechanism_names[image->rollback.mechanism]);
	} else {
		add_assoc_null(array, "mechanism");
	}
	if (slip_status.mechanism_reason) {
		add_assoc_string(array, "mechanism_reason", slip_status.mechanism_reason);
	} else {
		add_assoc_null(array, "mechanism_reason");
	}
	add_assoc_bool(array, "native_pointers_found", slip_native_is_looked_for());
	add_image(array, image);
	add_assoc_long(array, "snapshots", slip_status.snapshots);
	add_assoc_long(array, "restores", slip_status.restores);
	add_assoc_bool(array, "restored", slip_status.restored);
	add_reasons(array, "fallbacks", &slip_status.fallbacks);
	add_reasons(array, "refusals", &slip_status.refusals);
	if (*slip_status.last_refusal) {
		add_assoc_string(array, "last_refusal", slip_status.last_refusal);
	} else {
		add_assoc_null(array, "last_refusal");
	}
	array_init(&pages);
	add_assoc_long(&pages, "last", started ? image->rollback.dirty_pages : 0);
	add_assoc_long(&pages, "learned", started ? image->rollback.learned_pages : 0);
	add_assoc_zval(array, "dirty_pages", &pages);
	array_init(&times);
	add_assoc_long(&times, "last", slip_status.last_restore_ns);
	array_init(&histogram);
	for (int i = 0; i < SLIP_HISTOGRAM; i++) {
		char name[32];
		snprintf(name, sizeof name, i < SLIP_HISTOGRAM - 1 ? "%" PRId64 "us" : "more", i < SLIP_HISTOGRAM - 1 ? (int64_t) bounds_us[i] : 0);
		add_assoc_long(&histogram, name, slip_status.histogram[i]);
	}
	add_assoc_zval(&times, "histogram", &histogram);
	add_assoc_zval(array, "restore_ns", &times);
	slip_keep_fill(array);
}

static void info_reasons(const char *title, const slip_reasons_t *reasons)
{
	zend_string *text = zend_empty_string;

	for (int i = 0; i < reasons->used; i++) {
		zend_string *longer = zend_strpprintf(0, "%s%s%s " ZEND_LONG_FMT, ZSTR_VAL(text), i ? ", " : "",
			reasons->entries[i].reason, reasons->entries[i].count);
		zend_string_release(text);
		text = longer;
	}
	php_info_print_table_row(2, title, reasons->used ? ZSTR_VAL(text) : "none");
	zend_string_release(text);
}

/* Only the buckets that hold something. */
static void info_histogram(void)
{
	zend_string *text = zend_empty_string;

	for (int i = 0; i < SLIP_HISTOGRAM; i++) {
		if (!slip_status.histogram[i]) {
			continue;
		}
		zend_long bound = bounds_us[MIN(i, SLIP_HISTOGRAM - 2)];
		zend_string *longer = zend_strpprintf(0, "%s%s%s " ZEND_LONG_FMT " us: " ZEND_LONG_FMT, ZSTR_VAL(text),
			ZSTR_LEN(text) ? ", " : "", i < SLIP_HISTOGRAM - 1 ? "up to" : "above", bound, slip_status.histogram[i]);
		zend_string_release(text);
		text = longer;
	}
	php_info_print_table_row(2, "Restores by time", ZSTR_LEN(text) ? ZSTR_VAL(text) : "none");
	zend_string_release(text);
}

void slip_status_info(const slip_image_t *image)
{
	char text[128];

	php_info_print_table_start();
	php_info_print_table_header(2, "Slipstream", slip_status.disabled ? "disabled" : "enabled");
	if (slip_status.disabled) {
		php_info_print_table_row(2, "Reason", slip_status.disabled);
	}
	php_info_print_table_row(2, "Pointers to native memory", slip_native_is_looked_for() ? "found" : "not found: malloc() is not glibc's");
	if (image) {
		php_info_print_table_row(2, "Image of", image->key.script);
		snprintf(text, sizeof text, "%zu KiB, %u objects", image->rollback.used_pages * (SLIP_PAGE_BYTES / 1024), image->objects);
		php_info_print_table_row(2, "Image", text);
		snprintf(text, sizeof text, "%s%s%s%s", slip_mechanism_names[image->rollback.mechanism],
			slip_status.mechanism_reason ? " (" : "", slip_status.mechanism_reason ? slip_status.mechanism_reason : "",
			slip_status.mechanism_reason ? ")" : "");
		php_info_print_table_row(2, "Mechanism", image->heap->frozen ? text : "not yet");
		snprintf(text, sizeof text, "%zu, of which %zu learned", image->rollback.dirty_pages, image->rollback.learned_pages);
		php_info_print_table_row(2, "Dirty pages of the last request", text);
	} else {
		php_info_print_table_row(2, "Image", "none");
	}
	snprintf(text, sizeof text, ZEND_LONG_FMT, slip_status.restores);
	php_info_print_table_row(2, "Restores of this worker", text);
	snprintf(text, sizeof text, "%.1f us", (double) slip_status.last_restore_ns / 1000);
	php_info_print_table_row(2, "Last restore", slip_status.restores ? text : "none");
	info_histogram();
	info_reasons("Normal boots by reason", &slip_status.fallbacks);
	info_reasons("Refused snapshots by reason", &slip_status.refusals);
	php_info_print_table_end();
	slip_keep_info();
}
