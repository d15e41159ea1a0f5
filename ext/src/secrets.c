#ifndef _GNU_SOURCE
# define _GNU_SOURCE
#endif
#include "secrets.h"

#include <ctype.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "SAPI.h"
#include "ext/standard/basic_functions.h"
#include "php_variables.h"
#include "php_globals.h"

#include "asleep.h"
#include "refuse.h"

/* Shorter values cannot be told from the application's own words, and are no secrets. */
#define MIN_BYTES 4
/* The same for a part of a value, with a digit in it and without. */
#define MIN_PART_BYTES 8
#define MIN_WORD_BYTES 16

/* Headers that say nothing about a user. All others are looked for. */
static const char *const harmless[] = {
	"HTTP_ACCEPT", "HTTP_ACCEPT_CHARSET", "HTTP_ACCEPT_ENCODING", "HTTP_ACCEPT_LANGUAGE", "HTTP_CACHE_CONTROL",
	"HTTP_CONNECTION", "HTTP_CONTENT_LENGTH", "HTTP_CONTENT_TYPE", "HTTP_DNT", "HTTP_HOST", "HTTP_KEEP_ALIVE",
	"HTTP_PRAGMA", "HTTP_TE", "HTTP_UPGRADE_INSECURE_REQUESTS", "HTTP_USER_AGENT", "HTTP_X_FORWARDED_PROTO",
};

/* Variables that carry a user's data without being a header. */
static const char *const sensitive[] = {"PHP_AUTH_DIGEST", "PHP_AUTH_PW", "PHP_AUTH_USER", "REMOTE_USER"};

/* Variables that hold the path of the request. */
static const char *const paths[] = {"ORIG_PATH_INFO", "PATH_INFO", "REQUEST_URI"};

typedef struct {
	const char *origin, *name, *bytes;
	size_t length;
} value_t;

typedef struct {
	value_t *values;
	size_t count, room;
} values_t;

static void add(values_t *values, const char *origin, const char *name, const char *bytes, size_t length)
{
	if (length < MIN_BYTES) {
		return;
	}
	if (values->count == values->room) {
		values->room = values->room ? 2 * values->room : 64;
		values->values = safe_perealloc(values->values, values->room, sizeof *values->values, 0, true);
	}
	values->values[values->count++] = (value_t) {origin, name, bytes, length};
}

/* Parts of a value: an application may have taken it apart. Short words and words without a digit are the language's own,
 * until they are long. */
static void add_parts(values_t *values, const char *origin, const char *name, const char *bytes, size_t length)
{
	for (size_t at = 0; at < length; at++) {
		size_t start = at;
		bool digit = false;
		for (; at < length && isalnum((unsigned char) bytes[at]); at++) {
			digit |= isdigit((unsigned char) bytes[at]) != 0;
		}
		size_t bytes_long = at - start;
		if (bytes_long < length && bytes_long >= (digit ? MIN_PART_BYTES : MIN_WORD_BYTES)) {
			add(values, origin, name, bytes + start, bytes_long);
		}
	}
}

static void add_all(values_t *values, const char *origin, const char *name, zval *value)
{
	zend_string *key;
	zval *element;

	ZVAL_DEREF(value);
	if (Z_TYPE_P(value) == IS_STRING) {
		add(values, origin, name, Z_STRVAL_P(value), Z_STRLEN_P(value));
		add_parts(values, origin, name, Z_STRVAL_P(value), Z_STRLEN_P(value));
	} else if (Z_TYPE_P(value) == IS_ARRAY) {
		ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(value), key, element) {
			add_all(values, origin, key ? ZSTR_VAL(key) : name, element);
		} ZEND_HASH_FOREACH_END();
	}
}

/* An address of this machine is no visitor's, and is what connections to local servers are made to. */
static bool is_local(const char *address)
{
	return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

static bool is_one_of(zend_string *name, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (zend_string_equals_cstr(name, names[i], strlen(names[i]))) {
			return true;
		}
	}
	return false;
}

static void collect(values_t *values)
{
	zend_string *name;
	zval *value;

	add_all(values, "cookie", "", &PG(http_globals)[TRACK_VARS_COOKIE]);
	add_all(values, "query parameter", "", &PG(http_globals)[TRACK_VARS_GET]);
	add_all(values, "body field", "", &PG(http_globals)[TRACK_VARS_POST]);
	if (SG(request_info).query_string) {
		add(values, "query", "QUERY_STRING", SG(request_info).query_string, strlen(SG(request_info).query_string));
	}
	if (SG(request_info).cookie_data) {
		add(values, "header", "Cookie", SG(request_info).cookie_data, strlen(SG(request_info).cookie_data));
	}
	if (SG(request_info).auth_user) {
		add(values, "header", "Authorization", SG(request_info).auth_user, strlen(SG(request_info).auth_user));
	}
	if (SG(request_info).auth_password) {
		add(values, "header", "Authorization", SG(request_info).auth_password, strlen(SG(request_info).auth_password));
	}
	if (Z_TYPE(PG(http_globals)[TRACK_VARS_SERVER]) == IS_ARRAY) {
		ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL(PG(http_globals)[TRACK_VARS_SERVER]), name, value) {
			if (!name || Z_TYPE_P(value) != IS_STRING) {
				continue;
			}
			bool header = ZSTR_LEN(name) > 5 && memcmp(ZSTR_VAL(name), "HTTP_", 5) == 0
				&& !is_one_of(name, harmless, sizeof harmless / sizeof *harmless);
			if (header || is_one_of(name, sensitive, sizeof sensitive / sizeof *sensitive)) {
				add(values, "header", ZSTR_VAL(name), Z_STRVAL_P(value), Z_STRLEN_P(value));
				add_parts(values, "header", ZSTR_VAL(name), Z_STRVAL_P(value), Z_STRLEN_P(value));
			} else if (is_one_of(name, paths, sizeof paths / sizeof *paths)) {
				/* As a whole it names a page, and applications hold the names of their pages. */
				add_parts(values, "path", ZSTR_VAL(name), Z_STRVAL_P(value), Z_STRLEN_P(value));
			} else if (zend_string_equals_literal(name, "REMOTE_ADDR") && !is_local(Z_STRVAL_P(value))) {
				add(values, "address", ZSTR_VAL(name), Z_STRVAL_P(value), Z_STRLEN_P(value));
			}
		} ZEND_HASH_FOREACH_END();
	}
}

/* ---- what only the superglobals refer to ---- */

/* How often each string and array was met in a superglobal. */
static void count_references(HashTable *met, zval *value)
{
	zval *element;

	if (!Z_REFCOUNTED_P(value)) {
		return;
	}
	zval one;
	ZVAL_LONG(&one, 1);
	zval *known = zend_hash_index_find(met, (zend_ulong) (uintptr_t) Z_COUNTED_P(value));
	if (known) {
		Z_LVAL_P(known)++;
		return;
	}
	zend_hash_index_add_new(met, (zend_ulong) (uintptr_t) Z_COUNTED_P(value), &one);
	if (Z_ISREF_P(value)) {
		count_references(met, Z_REFVAL_P(value));
	} else if (Z_TYPE_P(value) == IS_ARRAY) {
		zend_string *key;
		ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARRVAL_P(value), key, element) {
			zval key_value;
			if (key && !ZSTR_IS_INTERNED(key)) {
				ZVAL_STR(&key_value, key);
				count_references(met, &key_value);
			}
			count_references(met, element);
		} ZEND_HASH_FOREACH_END();
	}
}

typedef struct {
	const slip_image_t *image;
	HashTable *met;
} wipe_t;

static bool is_within(const void *address, const void *start, size_t bytes)
{
	return (uintptr_t) address - (uintptr_t) start < bytes;
}

/* Arrays that variables of the engine and of its extensions hold. ext/filter has the whole input as it came, in variables
 * that it does not export. What we restore are EG's and BG's; all else that these variables lead to is not put back, and so
 * is of no use in the image. AddressSanitizer would stop at the gaps that it leaves between variables. */
__attribute__((no_sanitize_address)) static int visit_segments(struct dl_phdr_info *object, size_t size, void *data)
{
	wipe_t *wipe = data;

	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		char *start = (char *) (object->dlpi_addr + segment->p_vaddr);
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W) || is_within(wipe, start, segment->p_memsz)) {
			continue; /* the last: our own */
		}
		start = (char *) (((uintptr_t) start + 7) & ~(uintptr_t) 7);
		for (char *at = start; at + sizeof(zval) <= start + segment->p_memsz; at += sizeof(void *)) {
			zval *value = (zval *) at;
			if (Z_TYPE_INFO_P(value) == IS_ARRAY_EX && slip_heap_owns(wipe->image->heap, Z_ARR_P(value))
					&& (uintptr_t) Z_ARR_P(value) % 8 == 0 && GC_TYPE(Z_ARR_P(value)) == IS_ARRAY
					&& !is_within(at, &executor_globals, sizeof executor_globals)
					&& !is_within(at, &basic_globals, sizeof basic_globals)) {
				count_references(wipe->met, value);
			}
		}
	}
	(void) size;
	return 0;
}

void slip_secrets_wipe(slip_image_t *image)
{
	static const char *const names[] = {"_GET", "_POST", "_COOKIE", "_SERVER", "_ENV", "_REQUEST", "_FILES", "argv"};
	HashTable met;
	zend_ulong address;
	zval *count;

	zend_hash_init(&met, 256, NULL, NULL, true);
	for (int i = 0; i < NUM_TRACK_VARS; i++) {
		count_references(&met, &PG(http_globals)[i]);
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		zval *value = zend_hash_str_find(&EG(symbol_table), names[i], strlen(names[i]));
		if (value) {
			ZVAL_DEINDIRECT(value);
			count_references(&met, value);
		}
	}
	static wipe_t wipe;
	wipe = (wipe_t) {image, &met};
	dl_iterate_phdr(visit_segments, &wipe);
	ZEND_HASH_FOREACH_NUM_KEY_VAL(&met, address, count) {
		zend_refcounted *counted = (zend_refcounted *) (uintptr_t) address;
		/* What something else refers to as well stays, and is found by the check if it matters. */
		if (GC_REFCOUNT(counted) > Z_LVAL_P(count) || GC_FLAGS(counted) & GC_IMMUTABLE) {
			continue;
		}
		if (GC_TYPE(counted) == IS_STRING) {
			zend_string *string = (zend_string *) counted;
			slip_image_wipe(image, string, _ZSTR_STRUCT_SIZE(ZSTR_LEN(string)));
		} else if (GC_TYPE(counted) == IS_ARRAY) {
			HashTable *table = (HashTable *) counted;
			if (!(HT_FLAGS(table) & HASH_FLAG_UNINITIALIZED)) {
#if PHP_VERSION_ID >= 80200
				size_t bytes = HT_IS_PACKED(table) ? HT_PACKED_SIZE_EX(table->nTableSize, table->nTableMask) : HT_SIZE(table);
#endif
				slip_image_wipe(image, HT_GET_DATA_ADDR(table), bytes);
			}
			slip_image_wipe(image, table, sizeof *table);
		}
	} ZEND_HASH_FOREACH_END();
	zend_hash_destroy(&met);
	char *const own[] = {SG(request_info).auth_user, SG(request_info).auth_password, SG(request_info).auth_digest,
		SG(request_info).content_type_dup, SG(request_info).query_string, SG(request_info).cookie_data,
		SG(request_info).request_uri};
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		if (own[i]) {
			slip_image_wipe(image, own[i], strlen(own[i]));
		}
	}
}

static void refuse(const value_t *value)
{
	slip_refuse_quietly("secret", "the state contains the request's %s%s%s: a snapshot must not hold what belongs to a user", value->origin,
		*value->name ? " " : "", value->name);
}

bool slip_secrets_check(slip_image_t *image)
{
	values_t values = {0};
	bool clean = true;

	collect(&values);
	for (size_t i = 0; i < values.count && clean; i++) {
		const value_t *value = &values.values[i];
		if (slip_asleep_says(value->bytes, value->length)) {
			refuse(value);
			clean = false;
		}
	}
	for (size_t page = 0; page < image->rollback.bytes / SLIP_PAGE_BYTES && clean; page++) {
		if (!(image->rollback.in_use[page / 64] >> (page % 64) & 1)) {
			continue;
		}
		size_t last = page;
		while (last < image->rollback.bytes / SLIP_PAGE_BYTES && image->rollback.in_use[last / 64] >> (last % 64) & 1) {
			last++;
		}
		const char *bytes = image->writable + page * SLIP_PAGE_BYTES;
		for (size_t i = 0; i < values.count && clean; i++) {
			const value_t *value = &values.values[i];
			if (memmem(bytes, (last - page) * SLIP_PAGE_BYTES, value->bytes, value->length)) {
				refuse(value);
				clean = false;
			}
		}
		page = last;
	}
	free(values.values);
	return clean;
}
