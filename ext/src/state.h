#ifndef SLIP_STATE_H
#define SLIP_STATE_H

#include "php.h"
#include "zend_stack.h"
#if PHP_VERSION_ID >= 80400
# include "zend_lazy_objects.h"
#endif

/* One value under its name. The string and the value belong to whoever the list belongs to. */
typedef struct {
	zend_string *name;
	zval value;
} slip_named_t;

typedef struct {
	slip_named_t *entries;
	uint32_t count;
} slip_list_t;

/* A process setting that request start resets and that only functions can read and set. */
#define SLIP_MAX_SETTINGS 12

/* Which of them differ from what request start sets; found out at the first restore. Not part of the image. */
typedef struct {
	bool known;
	bool set[SLIP_MAX_SETTINGS];
	bool directory;
} slip_settings_plan_t;

/* What an image holds besides memory: every place outside of the request heap that leads into it, or that request start
 * resets. Lies in the image itself, and all it points to does too, or lives as long as the process. */
typedef struct {
	/* The engine's tables with everything that was declared; exchanged for the engine's own in O(1). */
	HashTable classes, functions, constants;
	HashTable included_files, resources, weakrefs;
#if PHP_VERSION_ID >= 80400
	zend_lazy_objects_store lazy_objects;
#endif
	zend_objects_store objects;
	bool has_destructors;
	/* The engine's map of per-request pointers: a bit for each slot that is set, and the values of those. */
	uint64_t *map_set;
	void **map_values;
	size_t map_last;
	uint32_t rtd_key_counter;
	HashTableIterator *iterators;
	uint32_t iterators_count, iterators_used;

	zval error_handler, exception_handler;
	int error_handler_reporting;
	zend_stack error_handler_reportings, error_handlers, exception_handlers;

	slip_list_t globals;
	uint32_t auto_globals; /* a bit for each superglobal of state.c's list that was built */
	slip_list_t server, env; /* keys that the boot added */

	slip_list_t ini;        /* name of the entry, value */
	zval settings[SLIP_MAX_SETTINGS];
	slip_list_t environment; /* name, value: putenv */
	zval autoloaders;       /* array of callables, or undefined */
	HashTable *autoload_table; /* the engine's own form of them, if it was found */
	char *locale, *directory;
	int umask;

	HashTable *shutdown_functions, *stream_wrappers, *stream_filters, *user_filters;
	php_stream_context *default_context;

	slip_list_t headers;    /* each whole line as name */
	int response_code;
	zend_string *status_line;

	zval on_restore;        /* array of callables, or undefined */

	/* Counters of the heap, and the list of its huge blocks. */
	size_t heap_size;
	size_t heap_bytes;
	void *huge_list;
} slip_state_t;

/* Finds the functions through which settings are read and set. Call when all modules have started. */
void slip_state_startup(void);

/* Writes down all of the above. It is put into the request heap, so that it becomes part of the image. */
slip_state_t *slip_state_take(void);

/* Puts it back into the engine of a request that has not got far. NULL, or the reason why this request cannot take it;
 * nothing has been changed then. Resources below `first_resource` are the request's own and stay. */
const char *slip_state_fits(const slip_state_t *, uint32_t first_resource);
void slip_state_put(slip_state_t *, slip_settings_plan_t *);

/* Before modules end the request: keeps from them what they would take apart for nothing. */
void slip_state_hide_autoloaders(void);

/* The request that it was put into is over. */
void slip_state_gone(void);

#endif
