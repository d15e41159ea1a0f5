#ifndef _GNU_SOURCE
# define _GNU_SOURCE
#endif
#include "state.h"

#include <link.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/spl/spl_exceptions.h"
#include "ext/standard/basic_functions.h"
#include "ext/standard/file.h"

#include "callbacks.h"
#include "heap.h"
#include "tables.h"

/* Superglobals that are built when code that names them is compiled. The image's code never is again. */
static const char *const auto_globals[] = {"_SERVER", "_ENV", "_REQUEST"};
#define AUTO_GLOBALS (sizeof auto_globals / sizeof *auto_globals)

/* How a setting is read, and how it is set. The first that the PHP lacks is left out. */
static const struct {
	const char *get, *set;
} setting_names[] = {
	{"date_default_timezone_get", "date_default_timezone_set"},
	{"mb_internal_encoding", "mb_internal_encoding"},
	{"mb_language", "mb_language"},
	{"mb_http_output", "mb_http_output"},
	{"mb_regex_encoding", "mb_regex_encoding"},
	{"mb_regex_set_options", "mb_regex_set_options"},
	{"mb_substitute_character", "mb_substitute_character"},
	{"mb_detect_order", "mb_detect_order"},
	{"libxml_use_internal_errors", "libxml_use_internal_errors"},
	{"spl_autoload_extensions", "spl_autoload_extensions"},
};
#define SETTINGS (sizeof setting_names / sizeof *setting_names)
_Static_assert(SETTINGS < SLIP_MAX_SETTINGS, "one more place is mysqli_report()'s");
#define SETTING_MYSQLI SETTINGS

static struct {
	zend_function *get, *set;
} settings[SLIP_MAX_SETTINGS];
static zend_function *autoload_functions, *autoload_register, *put_env;
static zend_class_entry *mysqli_driver;

/* What is in place in this request, or NULL. */
static const slip_state_t *in_place;

static zend_function *function(const char *name)
{
	return zend_hash_str_find_ptr(CG(function_table), name, strlen(name));
}

void slip_state_startup(void)
{
	for (size_t i = 0; i < SETTINGS; i++) {
		settings[i].get = function(setting_names[i].get);
		settings[i].set = function(setting_names[i].set);
	}
	settings[SETTING_MYSQLI].set = function("mysqli_report");
	mysqli_driver = zend_hash_str_find_ptr(CG(class_table), ZEND_STRL("mysqli_driver"));
	autoload_functions = function("spl_autoload_functions");
	autoload_register = function("spl_autoload_register");
	put_env = function("putenv");
}

static void call(zend_function *callee, zval *result, uint32_t count, zval *arguments)
{
	zval ignored;

	ZVAL_UNDEF(&ignored);
	zend_call_known_function(callee, NULL, NULL, result ? result : &ignored, count, arguments, NULL);
	if (!result) {
		zval_ptr_dtor(&ignored);
	}
}

/* An image must outlive the request in which it is taken, so it holds its own reference. */
static void append(slip_list_t *list, zend_string *name, zval *value)
{
	list->entries = safe_erealloc(list->entries, list->count + 1, sizeof *list->entries, 0);
	list->entries[list->count].name = zend_string_copy(name);
	ZVAL_COPY(&list->entries[list->count].value, value);
	list->count++;
}

static bool is_superglobal(zend_string *name)
{
	return zend_hash_exists(CG(auto_globals), name) || zend_string_equals_literal(name, "argv")
		|| zend_string_equals_literal(name, "argc");
}

static void take_globals(slip_state_t *state)
{
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL(zend_rebuild_symbol_table(), name, value) {
		ZVAL_DEINDIRECT(value);
		if (name && Z_TYPE_P(value) != IS_UNDEF && !is_superglobal(name)) {
			append(&state->globals, name, value);
			/* The reference that the symbol table has is the image's as well. */
			Z_TRY_DELREF(state->globals.entries[state->globals.count - 1].value);
		}
	} ZEND_HASH_FOREACH_END();
	for (size_t i = 0; i < AUTO_GLOBALS; i++) {
		if (zend_hash_str_exists(&EG(symbol_table), auto_globals[i], strlen(auto_globals[i]))) {
			state->auto_globals |= 1u << i;
		}
	}
}

static void put_globals(slip_state_t *state)
{
	zend_array *table = zend_rebuild_symbol_table();

	for (uint32_t i = 0; i < state->globals.count; i++) {
		slip_named_t *global = &state->globals.entries[i];
		zval *now = zend_hash_find(table, global->name);
		if (now) {
			ZVAL_DEINDIRECT(now);
			/* What the script has set before it asked for the state is the request's own. */
			if (Z_TYPE_P(now) == IS_UNDEF) {
				ZVAL_COPY_VALUE(now, &global->value);
			}
		} else {
			zend_hash_add_new(table, global->name, &global->value);
		}
	}
	for (size_t i = 0; i < AUTO_GLOBALS; i++) {
		if (state->auto_globals >> i & 1) {
			zend_is_auto_global_str(auto_globals[i], strlen(auto_globals[i]));
		}
	}
}

static zval *superglobal(const char *name)
{
	zval *value = zend_hash_str_find(&EG(symbol_table), name, strlen(name));
	if (value) {
		ZVAL_DEINDIRECT(value);
		ZVAL_DEREF(value);
	}
	return value && Z_TYPE_P(value) == IS_ARRAY ? value : NULL;
}

/* Keys that are in the superglobal but not in what the server has sent. */
static void take_added(slip_list_t *list, const char *name, int track)
{
	zval *now = superglobal(name), *sent = &PG(http_globals)[track];
	zend_string *key;
	zval *value;

	if (!now || Z_TYPE_P(sent) != IS_ARRAY || Z_ARR_P(now) == Z_ARR_P(sent)) {
		return;
	}
	ZEND_HASH_FOREACH_STR_KEY_VAL(Z_ARR_P(now), key, value) {
		if (key && !zend_hash_exists(Z_ARR_P(sent), key)) {
			append(list, key, value);
		}
	} ZEND_HASH_FOREACH_END();
}

static void put_added(slip_list_t *list, const char *name)
{
	zval *now = list->count ? superglobal(name) : NULL;
	if (!now) {
		return;
	}
	SEPARATE_ARRAY(now);
	for (uint32_t i = 0; i < list->count; i++) {
		zval *value = &list->entries[i].value;
		Z_TRY_ADDREF_P(value);
		zend_hash_update(Z_ARR_P(now), list->entries[i].name, value);
	}
}

static void take_ini(slip_state_t *state)
{
	zend_ini_entry *entry;

	if (!EG(modified_ini_directives)) {
		return;
	}
	ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry) {
		zval value;
		if (entry->value) {
			ZVAL_STR(&value, entry->value);
		} else {
			ZVAL_EMPTY_STRING(&value);
		}
		append(&state->ini, entry->name, &value);
	} ZEND_HASH_FOREACH_END();
}

static void put_ini(slip_state_t *state)
{
	for (uint32_t i = 0; i < state->ini.count; i++) {
		slip_named_t *saved = &state->ini.entries[i];
		zend_ini_entry *entry = zend_hash_find_ptr(EG(ini_directives), saved->name);
		if (entry && (!entry->value || !zend_string_equals(entry->value, Z_STR(saved->value)))) {
			zend_alter_ini_entry_ex(saved->name, Z_STR(saved->value), ZEND_INI_USER, ZEND_INI_STAGE_RUNTIME, false);
		}
	}
}

static void read_setting(size_t i, zval *value)
{
	ZVAL_UNDEF(value);
	if (i == SETTING_MYSQLI) {
		zval driver, result;
		if (mysqli_driver && object_init_ex(&driver, mysqli_driver) == SUCCESS) {
			ZVAL_COPY(value, zend_read_property(mysqli_driver, Z_OBJ(driver), ZEND_STRL("report_mode"), true, &result));
			zval_ptr_dtor(&driver);
		}
	} else if (settings[i].get && settings[i].set) {
		call(settings[i].get, value, 0, NULL);
	}
}

static void take_settings(slip_state_t *state)
{
	for (size_t i = 0; i <= SETTINGS; i++) {
		read_setting(i, &state->settings[i]);
	}
	state->locale = BG(locale_changed) ? estrdup(setlocale(LC_ALL, NULL)) : NULL;
	char directory[MAXPATHLEN];
	state->directory = VCWD_GETCWD(directory, sizeof directory) ? estrdup(directory) : NULL;
	state->umask = -1;
	if (BG(umask) != -1) {
		state->umask = umask(077);
		umask(state->umask);
	}
}

static void plan_settings(const slip_state_t *state, slip_settings_plan_t *plan)
{
	char directory[MAXPATHLEN];

	for (size_t i = 0; i <= SETTINGS; i++) {
		zval now;
		read_setting(i, &now);
		plan->set[i] = Z_TYPE(now) != IS_UNDEF && !zend_is_identical(&now, (zval *) &state->settings[i]);
		zval_ptr_dtor(&now);
	}
	plan->directory = state->directory
		&& (!VCWD_GETCWD(directory, sizeof directory) || strcmp(directory, state->directory) != 0);
	plan->known = true;
}

static void put_settings(slip_state_t *state, slip_settings_plan_t *plan)
{
	if (!plan->known) {
		plan_settings(state, plan);
	}
	for (size_t i = 0; i <= SETTINGS; i++) {
		if (plan->set[i]) {
			call(settings[i].set, NULL, 1, &state->settings[i]);
		}
	}
	if (state->locale) {
		setlocale(LC_ALL, state->locale);
		BG(locale_changed) = 1;
		zend_update_current_locale();
	}
	if (plan->directory && VCWD_CHDIR(state->directory) != 0) {
		/* The directory is gone: the script finds out as it would have after its own chdir(). */
	}
	if (state->umask != -1) {
		int before = umask(state->umask);
		if (BG(umask) == -1) {
			BG(umask) = before;
		}
	}
}

static void take_environment(slip_state_t *state)
{
	zend_string *name;

	ZEND_HASH_FOREACH_STR_KEY(&BG(putenv_ht), name) {
		const char *now = getenv(ZSTR_VAL(name));
		zend_string *line = now ? zend_strpprintf(0, "%s=%s", ZSTR_VAL(name), now) : zend_string_copy(name);
		zval value;
		ZVAL_STR(&value, line);
		append(&state->environment, name, &value);
	} ZEND_HASH_FOREACH_END();
}

/* ---- autoloaders ---- */

/* ext/spl keeps them in a table behind a static variable; registering each one anew costs 2 us. As in ext/spl/php_spl.c. */
typedef struct {
	zend_function *func_ptr;
	zend_object *obj, *closure;
	zend_class_entry *ce;
} autoloader_t;

static HashTable **autoload_slot;

/* Whether this is the table of exactly these callables. */
static bool is_autoload_table(const HashTable *table, HashTable *callables)
{
	zval *callable;
	uint32_t i = 0;

	if ((uintptr_t) table % 8 || !slip_heap_owns(slip_heap, table) || !slip_heap_owns(slip_heap, table + 1)
			|| GC_TYPE_INFO(table) != GC_ARRAY || HT_IS_PACKED(table)
			|| table->nNumOfElements != zend_hash_num_elements(callables) || table->nNumUsed > table->nTableSize
			|| !slip_heap_owns(slip_heap, table->arData) || !slip_heap_owns(slip_heap, table->arData + table->nNumUsed)) {
		return false;
	}
	ZEND_HASH_FOREACH_VAL(callables, callable) {
		while (i < table->nNumUsed && Z_TYPE(table->arData[i].val) == IS_UNDEF) {
			i++;
		}
		const autoloader_t *loader = i < table->nNumUsed ? Z_PTR(table->arData[i].val) : NULL;
		if (!loader || Z_TYPE(table->arData[i].val) != IS_PTR || !slip_heap_owns(slip_heap, loader)) {
			return false;
		}
		if (Z_TYPE_P(callable) == IS_OBJECT ? loader->closure != Z_OBJ_P(callable) && loader->obj != Z_OBJ_P(callable)
				: loader->closure != NULL) {
			return false;
		}
		i++;
	} ZEND_HASH_FOREACH_END();
	return true;
}

/* AddressSanitizer would stop at the gaps that it leaves between variables. */
__attribute__((no_sanitize_address)) static int find_autoload_slot(struct dl_phdr_info *object, size_t size, void *callables)
{
	HashTable **found = NULL;

	/* The first is the program, which ext/spl is always part of. */
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
		if (segment->p_type != PT_LOAD || !(segment->p_flags & PF_W)) {
			continue;
		}
		char *start = (char *) (((uintptr_t) object->dlpi_addr + segment->p_vaddr + 7) & ~(uintptr_t) 7);
		char *end = (char *) object->dlpi_addr + segment->p_vaddr + segment->p_memsz;
		for (HashTable **slot = (HashTable **) start; (char *) (slot + 1) <= end; slot++) {
			if (is_autoload_table(*slot, callables)) {
				if (found) {
					return 1; /* two: we know neither */
				}
				found = slot;
			}
		}
	}
	autoload_slot = found;
	return 1;
}

static void take_autoloaders(slip_state_t *state)
{
	call(autoload_functions, &state->autoloaders, 0, NULL);
	if (Z_TYPE(state->autoloaders) != IS_ARRAY || !zend_hash_num_elements(Z_ARRVAL(state->autoloaders))) {
		return;
	}
	autoload_slot = NULL;
	dl_iterate_phdr(find_autoload_slot, Z_ARRVAL(state->autoloaders));
	state->autoload_table = autoload_slot ? *autoload_slot : NULL;
}

static void put_autoloaders(slip_state_t *state)
{
	zval *loader;

	if (Z_TYPE(state->autoloaders) != IS_ARRAY) {
		return;
	}
	if (state->autoload_table && autoload_slot && !*autoload_slot) {
		*autoload_slot = state->autoload_table;
		return;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL(state->autoloaders), loader) {
		call(autoload_register, NULL, 1, loader);
	} ZEND_HASH_FOREACH_END();
}

void slip_state_hide_autoloaders(void)
{
	if (in_place && in_place->autoload_table && autoload_slot && *autoload_slot == in_place->autoload_table) {
		*autoload_slot = NULL;
	}
}

static void take_headers(slip_state_t *state)
{
	zend_llist_position position;
	sapi_headers_struct *headers = &SG(sapi_headers);
	zval none;

	ZVAL_NULL(&none);
	for (sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &position); header;
			header = zend_llist_get_next_ex(&headers->headers, &position)) {
		zend_string *line = zend_string_init(header->header, header->header_len, false);
		append(&state->headers, line, &none);
		zend_string_release(line);
	}
	state->response_code = headers->http_response_code;
	state->status_line = headers->http_status_line
		? zend_string_init(headers->http_status_line, strlen(headers->http_status_line), false) : NULL;
}

static size_t header_name_length(const char *line, size_t length)
{
	const char *colon = memchr(line, ':', length);
	return colon ? (size_t) (colon - line) : length;
}

/* Whether a header of this name is in the request's list, or in the image's. */
static bool list_has(zend_llist *list, const char *line, size_t name_length)
{
	zend_llist_position position;

	for (sapi_header_struct *header = zend_llist_get_first_ex(list, &position); header;
			header = zend_llist_get_next_ex(list, &position)) {
		if (header_name_length(header->header, header->header_len) == name_length
				&& strncasecmp(header->header, line, name_length) == 0) {
			return true;
		}
	}
	return false;
}

/* What the script has sent before it asked for the state stays; what the boot sent is added. */
static void put_headers(slip_state_t *state)
{
	zend_llist *now = &SG(sapi_headers).headers;
	bool *known = safe_emalloc(state->headers.count + 1, sizeof *known, 0);

	for (uint32_t i = 0; i < state->headers.count; i++) {
		zend_string *line = state->headers.entries[i].name;
		known[i] = list_has(now, ZSTR_VAL(line), header_name_length(ZSTR_VAL(line), ZSTR_LEN(line)));
	}
	if (PG(expose_php) && list_has(now, ZEND_STRL("X-Powered-By"))) {
		bool kept = false;
		for (uint32_t i = 0; i < state->headers.count; i++) {
			kept |= strncasecmp(ZSTR_VAL(state->headers.entries[i].name), ZEND_STRL("X-Powered-By:")) == 0;
		}
		if (!kept) {
			sapi_header_line line = {.line = "X-Powered-By", .line_len = sizeof "X-Powered-By" - 1};
			sapi_header_op(SAPI_HEADER_DELETE, &line);
		}
	}
	for (uint32_t i = 0; i < state->headers.count; i++) {
		if (!known[i]) {
			zend_string *header = state->headers.entries[i].name;
			sapi_header_line line = {.line = ZSTR_VAL(header), .line_len = ZSTR_LEN(header)};
			sapi_header_op(SAPI_HEADER_ADD, &line);
		}
	}
	efree(known);
	if (state->status_line) {
		sapi_header_line line = {.line = ZSTR_VAL(state->status_line), .line_len = ZSTR_LEN(state->status_line)};
		sapi_header_op(SAPI_HEADER_REPLACE, &line);
	}
	SG(sapi_headers).http_response_code = state->response_code;
}

static void **map_slots(void)
{
#if PHP_VERSION_ID >= 80400
	return (void **) CG(map_ptr_real_base) + zend_map_ptr_static_size;
#else
	return CG(map_ptr_real_base);
#endif
}

static void take_map(slip_state_t *state)
{
	void **slots = map_slots();
	size_t values = 0;

	state->map_last = CG(map_ptr_last);
	state->map_set = ecalloc(state->map_last / 64 + 1, sizeof *state->map_set);
	for (size_t i = 0; i < state->map_last; i++) {
		state->map_set[i / 64] |= (uint64_t) (slots[i] != NULL) << (i % 64);
		values += slots[i] != NULL;
	}
	state->map_values = safe_emalloc(values, sizeof(void *), 0);
	values = 0;
	for (size_t i = 0; i < state->map_last; i++) {
		if (slots[i]) {
			state->map_values[values++] = slots[i];
		}
	}
}

/* Thousands of slots in each restore, mostly every second or third: a list of their places would be twice as long to read. */
static void put_map(slip_state_t *state)
{
	if (CG(map_ptr_last) < state->map_last) {
		zend_map_ptr_extend(state->map_last);
	}
	void **slots = map_slots(), *const *value = state->map_values;
	for (size_t i = 0; i <= state->map_last / 64; i++, slots += 64) {
		for (uint64_t set = state->map_set[i]; set; set &= set - 1) {
			slots[__builtin_ctzll(set)] = *value++;
		}
	}
}

/* When destructors are to run, a global that holds the only reference to an object of the image destroys it, and all below
 * it, page by page. If no object has a destructor that is for nothing: shutdown functions are the engine's last step before. */
static void pin_globals(zend_execute_data *execute_data, zval *return_value)
{
	slip_heap_t *frozen = slip_heap_other();
	zval *value;

	if (!in_place || in_place->has_destructors) {
		return;
	}
	ZEND_HASH_FOREACH_VAL(&EG(symbol_table), value) {
		ZVAL_DEINDIRECT(value);
		if (Z_TYPE_P(value) == IS_OBJECT && Z_REFCOUNT_P(value) == 1
				&& slip_heap_owns(frozen, Z_OBJ_P(value))) {
			Z_ADDREF_P(value);
		}
	} ZEND_HASH_FOREACH_END();
}

static void register_pin(void)
{
	static zend_internal_function pin = {.type = ZEND_INTERNAL_FUNCTION, .handler = pin_globals};
	php_shutdown_function_entry entry = {0};

	pin.function_name = ZSTR_EMPTY_ALLOC();
#if PHP_VERSION_ID < 80500 /* Only the cache is kept since then, and the call made from it. */
	entry.fci.size = sizeof entry.fci;
#endif
	entry.fci_cache.function_handler = (zend_function *) &pin;
	register_user_shutdown_function(ZEND_STRL("slipstream"), &entry);
}

slip_state_t *slip_state_take(void)
{
	slip_state_t *state = ecalloc(1, sizeof *state);

	register_pin();

	ZVAL_UNDEF(&state->autoloaders);
	ZVAL_UNDEF(&state->on_restore);
	take_autoloaders(state);
	take_settings(state);
	take_ini(state);
	take_environment(state);
	take_headers(state);
	take_added(&state->server, "_SERVER", TRACK_VARS_SERVER);
	take_added(&state->env, "_ENV", TRACK_VARS_ENV);
	take_globals(state);
	if (Z_TYPE(slip_on_restore) == IS_ARRAY) {
		ZVAL_COPY(&state->on_restore, &slip_on_restore);
	}

	state->shutdown_functions = BG(user_shutdown_function_names);
	state->stream_wrappers = FG(stream_wrappers);
	state->stream_filters = FG(stream_filters);
	state->user_filters = BG(user_filter_map);
	state->default_context = FG(default_context);
	state->error_handler = EG(user_error_handler);
	state->exception_handler = EG(user_exception_handler);
	state->error_handler_reporting = EG(user_error_handler_error_reporting);
	state->error_handler_reportings = EG(user_error_handlers_error_reporting);
	state->error_handlers = EG(user_error_handlers);
	state->exception_handlers = EG(user_exception_handlers);
	state->rtd_key_counter = CG(rtd_key_counter);

	state->classes = slip_table_copy(EG(class_table));
	state->functions = slip_table_copy(EG(function_table));
	state->constants = slip_table_copy(EG(zend_constants));
	take_map(state);

	state->iterators_count = EG(ht_iterators_count);
	state->iterators_used = EG(ht_iterators_used);
	state->iterators = safe_emalloc(EG(ht_iterators_count), sizeof *state->iterators, 0);
	memcpy(state->iterators, EG(ht_iterators), EG(ht_iterators_count) * sizeof *state->iterators);
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		const zend_object *object = EG(objects_store).object_buckets[i];
		state->has_destructors |= IS_OBJ_VALID(object) && object->ce->destructor;
	}
	/* Last: nothing may be allocated or created after these. */
	state->included_files = EG(included_files);
	state->resources = EG(regular_list);
	state->weakrefs = EG(weakrefs);
#if PHP_VERSION_ID >= 80400
	state->lazy_objects = EG(lazy_objects_store);
#endif
	state->objects = EG(objects_store);
	state->heap_size = SLIP_HEAP_WORD(slip_heap->mm, size);
	state->heap_bytes = SLIP_HEAP_WORD(slip_heap->mm, real_size);
	state->huge_list = (void *) SLIP_HEAP_WORD(slip_heap->mm, huge_list);
	return state;
}

static bool has_live_object(void)
{
	for (uint32_t i = 1; i < EG(objects_store).top; i++) {
		if (IS_OBJ_VALID(EG(objects_store).object_buckets[i])) {
			return true;
		}
	}
	return false;
}

const char *slip_state_fits(const slip_state_t *state, uint32_t first_resource)
{
	zend_string *name;

	if (has_live_object()) {
		return "objects-before";
	}
	if (zend_llist_count(&CG(open_files))) {
		return "uncached";
	}
	if (EG(regular_list).nNumUsed > first_resource || zend_hash_num_elements(&EG(weakrefs))) {
		return "resources-before";
	}
	if (Z_TYPE(EG(user_error_handler)) != IS_UNDEF || Z_TYPE(EG(user_exception_handler)) != IS_UNDEF
			|| BG(user_shutdown_function_names) || FG(stream_wrappers) || FG(stream_filters) || BG(user_filter_map)
			|| FG(default_context) || EG(ht_iterators_used) || zend_hash_num_elements(&BG(putenv_ht))) {
		return "handlers-before";
	}
	if (!slip_table_covers(&state->classes, EG(class_table), EG(persistent_classes_count), false)
			|| !slip_table_covers(&state->functions, EG(function_table), EG(persistent_functions_count), false)
			|| !slip_table_covers(&state->constants, EG(zend_constants), EG(persistent_constants_count), true)) {
		return "declared-before";
	}
	ZEND_HASH_FOREACH_STR_KEY(&EG(included_files), name) {
		if (!zend_hash_exists(&state->included_files, name)) {
			return "included-before";
		}
	} ZEND_HASH_FOREACH_END();
	return NULL;
}

/* The counters of the request heap cover the image from now on, as if the request had allocated it. */
static void put_heap(slip_state_t *state)
{
	zend_mm_heap *mm = slip_heap->mm;
	slip_huge_t **huge = (slip_huge_t **) &SLIP_HEAP_WORD(mm, huge_list);

	SLIP_HEAP_WORD(mm, size) += state->heap_size;
	SLIP_HEAP_WORD(mm, real_size) += state->heap_bytes;
	if (SLIP_HEAP_WORD(mm, peak) < SLIP_HEAP_WORD(mm, size)) {
		SLIP_HEAP_WORD(mm, peak) = SLIP_HEAP_WORD(mm, size);
	}
	if (SLIP_HEAP_WORD(mm, real_peak) < SLIP_HEAP_WORD(mm, real_size)) {
		SLIP_HEAP_WORD(mm, real_peak) = SLIP_HEAP_WORD(mm, real_size);
	}
	while (*huge) {
		huge = &(*huge)->next;
	}
	*huge = state->huge_list;
}

/* The request's body is a resource already; it gets a number that the image does not use. */
static void put_resources(slip_state_t *state)
{
	HashTable own = EG(regular_list);
	zval *entry;

	EG(regular_list) = state->resources;
	ZEND_HASH_FOREACH_VAL(&own, entry) {
		zend_resource *resource = Z_PTR_P(entry);
		zend_long handle = zend_hash_next_free_element(&EG(regular_list));
		resource->handle = handle ? handle : 1;
		zend_hash_index_add_new(&EG(regular_list), resource->handle, entry);
	} ZEND_HASH_FOREACH_END();
	own.pDestructor = NULL;
	zend_hash_destroy(&own);
}

void slip_state_gone(void)
{
	in_place = NULL;
}

void slip_state_put(slip_state_t *state, slip_settings_plan_t *plan)
{
	in_place = state;
	put_heap(state);
	efree(EG(objects_store).object_buckets);
	EG(objects_store) = state->objects;
	put_resources(state);
	zend_hash_destroy(&EG(weakrefs));
	EG(weakrefs) = state->weakrefs;
#if PHP_VERSION_ID >= 80400
	EG(lazy_objects_store) = state->lazy_objects;
#endif
	zend_hash_destroy(&EG(included_files));
	EG(included_files) = state->included_files;
	put_map(state);
	slip_tables_put(&state->classes, &state->functions, &state->constants);
	if (CG(rtd_key_counter) < state->rtd_key_counter) {
		CG(rtd_key_counter) = state->rtd_key_counter;
	}
	EG(ht_iterators_used) = state->iterators_used;
	if (state->iterators_count > sizeof EG(ht_iterators_slots) / sizeof *EG(ht_iterators_slots)) {
		EG(ht_iterators) = state->iterators;
		EG(ht_iterators_count) = state->iterators_count;
	} else {
		memcpy(EG(ht_iterators_slots), state->iterators, sizeof EG(ht_iterators_slots));
	}
	EG(user_error_handler) = state->error_handler;
	EG(user_exception_handler) = state->exception_handler;
	EG(user_error_handler_error_reporting) = state->error_handler_reporting;
	EG(user_error_handlers_error_reporting) = state->error_handler_reportings;
	EG(user_error_handlers) = state->error_handlers;
	EG(user_exception_handlers) = state->exception_handlers;
	BG(user_shutdown_function_names) = state->shutdown_functions;
	FG(stream_wrappers) = state->stream_wrappers;
	FG(stream_filters) = state->stream_filters;
	BG(user_filter_map) = state->user_filters;
	FG(default_context) = state->default_context;

	put_globals(state);
	put_added(&state->server, "_SERVER");
	put_added(&state->env, "_ENV");
	put_headers(state);
	put_ini(state);
	for (uint32_t i = 0; i < state->environment.count; i++) {
		call(put_env, NULL, 1, &state->environment.entries[i].value);
	}
	put_settings(state, plan);
	put_autoloaders(state);
}
