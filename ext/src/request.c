#include "request.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/standard/basic_functions.h"
#include "php_output.h"
#include "zend_observer.h"

#include "callbacks.h"
#include "native.h"
#include "opcache.h"
#include "refuse.h"
#include "resources.h"
#include "settings.h"
#include "status.h"
#include "tables.h"

/* Requests in a row for which an image did not apply, after which it gives way to another one: of another host, for example. */
#define GIVES_WAY_AFTER 8

/* Snapshots refused in a row after which only each of so many requests is tried: looking for secrets reads the whole state. */
#define TRIES_BEFORE_PAUSE 64
#define PAUSE_REQUESTS 64

static slip_image_t *image;
static uint32_t refused; /* in a row */
static uint32_t misses;
static slip_files_t *files;
static slip_key_t key; /* of this request, if it is to boot */
static uint64_t opcache_generation;

static bool adopted;        /* this request runs on the image's memory */
static bool taken;          /* the image was taken in this request: it is not in place yet */
static bool booting;        /* restore_state() had nothing to restore: a snapshot is expected, in this request or the next */
static bool soiled;         /* the request heap's memory still holds what earlier requests have freed */
static bool discard;        /* the image goes at the end of the request */
static bool forked;         /* this process is a child of the one that the image belongs to */
static int output_level;    /* buffers that request start has opened */
static uint32_t first_resource; /* those below are request start's own: the request's body */
static zend_arena *last_arena;
static uint64_t spent_ns;   /* what the roll-back after the last request cost */

static zend_function *session_status;

/* The thread's CPU clock would be a system call of 1 us each time. Time that passes is not less. */
static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + now.tv_nsec;
}

static void in_child(void)
{
	forked = image != NULL;
}

const char *slip_request_startup(void)
{
	const char *reason = NULL;

	session_status = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("session_status"));
	slip_opcache_startup();
	slip_state_startup();
	slip_key_startup();
	if (!is_zend_mm()) {
		return "PHP does not use its own allocator (USE_ZEND_ALLOC=0)";
	}
	if (sysconf(_SC_PAGESIZE) != SLIP_PAGE_BYTES) {
		return "the pages of this machine do not have 4 KiB";
	}
	if ((reason = slip_heap_startup()) == NULL) {
		slip_native_startup();
		pthread_atfork(NULL, NULL, in_child);
	}
	return reason;
}

static void drop_image(void)
{
	slip_heap_t *heap = image->heap;

	slip_image_free(image, true);
	slip_files_free(files);
	image = NULL;
	files = NULL;
	forked = false;
	if (heap->frozen) {
		slip_heap_renew(heap);
	}
}

void slip_request_begin(void)
{
	slip_status.restored = adopted = booting = discard = taken = false;
	output_level = php_output_get_level();
	slip_key_free(&key);
	first_resource = EG(regular_list).nNumUsed;
	slip_callbacks_begin();
	if (!slip_status.disabled) {
		slip_key_begin();
	}
}

const slip_image_t *slip_request_image(void)
{
	return image;
}

/* ---- taking ---- */

static bool is_main_script(void)
{
	const zend_execute_data *caller = EG(current_execute_data)->prev_execute_data;
	return caller && caller->func && ZEND_USER_CODE(caller->func->type) && !caller->prev_execute_data;
}

static bool session_is_active(void)
{
	zval status;

	if (!session_status) {
		return false;
	}
	ZVAL_UNDEF(&status);
	zend_call_known_function(session_status, NULL, NULL, &status, 0, NULL, NULL);
	return Z_TYPE(status) == IS_LONG && Z_LVAL(status) == 2;
}

static bool has_output(void)
{
	zval length;

	if (SG(headers_sent) || php_output_get_level() != output_level) {
		return true;
	}
	return output_level && php_output_get_length(&length) == SUCCESS && Z_LVAL(length) > 0;
}

static bool has_entity_loader(void)
{
	static zend_module_entry *libxml;
	zval loader;

	if (!libxml && (libxml = zend_hash_str_find_ptr(&module_registry, ZEND_STRL("libxml"))) == NULL) {
		return false;
	}
	/* The context that libxml_set_streams_context() has set is the first of its globals. */
	if (libxml->globals_ptr && Z_TYPE_P((zval *) libxml->globals_ptr) != IS_UNDEF) {
		return true;
	}
	zend_function *get = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("libxml_get_external_entity_loader"));
	if (!get) {
		return false;
	}
	ZVAL_NULL(&loader);
	zend_call_known_function(get, NULL, NULL, &loader, 0, NULL, NULL);
	bool has = Z_TYPE(loader) != IS_NULL;
	zval_ptr_dtor(&loader);
	return has;
}

static const char *first_header(const char *name)
{
	zend_llist_position position;
	sapi_header_struct *header = zend_llist_get_first_ex(&SG(sapi_headers).headers, &position);

	for (; header; header = zend_llist_get_next_ex(&SG(sapi_headers).headers, &position)) {
		if (header->header_len > strlen(name) && strncasecmp(header->header, name, strlen(name)) == 0) {
			return header->header;
		}
	}
	return NULL;
}

/* Conditions that do not need a look at the heap. Refuses. */
static bool may_be_taken(void)
{
	const char *reason;

	if (!is_main_script()) {
		slip_refuse("nested", "snapshot_state() must be called from the main script, outside of functions and included files");
	} else if ((reason = slip_opcache_unfit()) != NULL) {
		slip_refuse("opcache", "a snapshot needs opcache to hold the code: %s", reason);
	} else if (slip_opcache_is_restarting()) {
		slip_refuse_quietly("restart", "opcache is about to restart");
	} else if (ZEND_OBSERVER_ENABLED || zend_execute_internal || zend_execute_ex != execute_ex) {
		slip_refuse("observer", "an extension observes calls (a debugger, a profiler, an agent): it would not see what was restored");
	} else if (session_is_active()) {
		slip_refuse("session", "a session is active: it belongs to a user");
	} else if (has_output()) {
		slip_refuse("output", "output was made or an output buffer is open: later requests would lack it");
	} else if (SG(request_info).content_length > 0 || SG(request_info).request_body) {
		slip_refuse_quietly("secret", "the request has a body: a snapshot must not hold what belongs to a user");
	} else if (first_header("Set-Cookie:")) {
		slip_refuse("cookie", "the boot has set a cookie (Set-Cookie): every user would get the same");
	} else if (Z_TYPE(SG(callback_func)) != IS_UNDEF || (BG(user_tick_functions) && zend_llist_count(BG(user_tick_functions)))) {
		slip_refuse("handler", "a tick function or a callback of header_register_callback() is set, which cannot be saved");
	} else if (has_entity_loader()) {
		slip_refuse("handler", "libxml has an external entity loader or a stream context, which cannot be saved");
	} else if (EG(full_tables_cleanup)) {
		slip_refuse("dl", "an extension was loaded by dl()");
	} else if (EG(active_fiber)) {
		slip_refuse("fiber", "a fiber is running");
	} else {
		return true;
	}
	return false;
}

/* Whether the request boots without a try whose snapshot would be the nth that is refused in a row. */
static bool is_paused(uint32_t nth)
{
	return nth > TRIES_BEFORE_PAUSE && nth % PAUSE_REQUESTS;
}

void slip_request_snapshot(void)
{
	if (slip_status.disabled) {
		slip_status_count(&slip_status.refusals, "disabled");
		return;
	}
	if (adopted || taken || (image && misses < GIVES_WAY_AFTER)) {
		slip_status_count(&slip_status.refusals, "kept");
		return;
	}
	if (image) {
		drop_image();
	}
	refused++;
	if (is_paused(refused)) {
		slip_status_count(&slip_status.refusals, "paused");
		return;
	}
	if (!slip_callbacks_run_before_snapshot() || !may_be_taken()) {
		return;
	}
	if (soiled) {
		/* Free bytes between and inside of blocks would be saved, and only this request's values are looked for. */
		slip_refuse_quietly("soiled", "the memory still holds what earlier requests have left; it is emptied after this one");
		return;
	}
	const char *reason;
	if ((files = slip_files_take(&EG(included_files), &reason)) == NULL) {
		slip_refuse_quietly("files", "%s", reason);
		return;
	}
	if ((image = slip_image_take(&key)) == NULL) {
		slip_files_free(files);
		files = NULL;
		return;
	}
	refused = 0;
	opcache_generation = slip_opcache_generation();
	taken = true;
	slip_status.snapshots++;
}

/* ---- restoring ---- */

/* NULL, or why the image does not apply to this request. Whether it never will again. */
static const char *unfit(bool *stale)
{
	const char *reason;

	*stale = false;
	if (slip_status.disabled) {
		return "disabled";
	}
	if (!image || taken) {
		return "none";
	}
	if (adopted) {
		return "twice";
	}
	*stale = true;
	if (forked) {
		return "forked";
	}
	if (opcache_generation != slip_opcache_generation()) {
		return "opcache-restart";
	}
	if (files && slip_files_edited(files)) {
		return "edited";
	}
	*stale = false;
	if (!is_main_script()) {
		return "nested";
	}
	if ((reason = slip_key_differs(&image->key)) != NULL) {
		return reason;
	}
	return slip_state_fits(image->state, first_resource);
}

bool slip_request_restore(void)
{
	bool stale;
	uint64_t start_ns = now_ns();
	const char *reason = unfit(&stale);

	if (reason) {
		slip_status_count(&slip_status.fallbacks, reason);
		misses++;
		if (stale) {
			drop_image();
		}
		/* The request before the one that tries must empty the memory. */
		booting = (!image || misses + 1 >= GIVES_WAY_AFTER) && !slip_status.disabled
			&& !(is_paused(refused + 1) && is_paused(refused + 2));
		if (booting && !image) {
			/* What the server has sent, before the boot changes the environment. */
			slip_key_free(&key);
			slip_key_take(&key);
		}
		return false;
	}
	adopted = true;
	misses = 0;
	slip_state_put(image->state, &image->plan);
	slip_on_restore = image->state->on_restore;
	slip_status.restores++;
	slip_status.restored = true;
	slip_status_time(spent_ns + now_ns() - start_ns);
	slip_callbacks_run_on_restore(&slip_on_restore);
	return true;
}

void slip_request_discard(void)
{
	discard = image != NULL;
}

/* ---- the end of a request ---- */

void slip_request_end(void)
{
	if (adopted || taken) {
		slip_resources_hide(image);
	}
	if (adopted) {
		slip_state_hide_autoloaders();
		/* The callables are the image's. */
		ZVAL_UNDEF(&slip_on_restore);
	}
	slip_callbacks_end();
}

void slip_request_deactivate(void)
{
	slip_tables_take_back();
}

/* The next request may be the one that is saved, and must not show anything of those before. */
static void empty_heap(void)
{
	slip_heap_free_huge();
	slip_heap_wipe();
	soiled = false;
}

/* Nothing of the request is left but the blocks that the engine frees as a whole. */
static void at_clean_point(void)
{
	uint64_t start_ns = now_ns();
	bool right = !forked;

	if (!taken && !adopted) {
		empty_heap();
		return;
	}
	slip_state_gone();
	if (taken) {
		slip_heap_exchange(image->rollback.bytes / SLIP_CHUNK_BYTES);
		soiled = false;
		/* Files first: the roll-back opens descriptors of its own. */
		right = right && !discard && slip_resources_put_back(image)
			&& slip_rollback_start(&image->rollback, slip_wanted_mechanism(), &slip_status.mechanism_reason);
	} else {
		slip_heap_free_huge();
	}
	if (adopted && !discard && right) {
		right = slip_rollback_run(&image->rollback);
		/* After a fatal error anything may have happened. */
		if (right && CG(unclean_shutdown)) {
			right = slip_rollback_verify(&image->rollback);
		}
		right = right && slip_resources_put_back(image);
		slip_native_refresh(image);
	}
	if (!right || discard) {
		slip_status_count(&slip_status.fallbacks, discard ? "discarded" : forked ? "forked" : "rollback");
		drop_image();
		empty_heap();
	}
	adopted = taken = false;
	spent_ns = now_ns() - start_ns;
}

#if PHP_VERSION_ID >= 80400
# define DEBUG_ARGS ZEND_FILE_LINE_DC ZEND_FILE_LINE_ORIG_DC
# define DEBUG_CALL ZEND_FILE_LINE_RELAY_CC ZEND_FILE_LINE_ORIG_RELAY_CC
#else
# define DEBUG_ARGS
# define DEBUG_CALL ZEND_FILE_LINE_CC ZEND_FILE_LINE_EMPTY_CC
#endif

/* The engine's allocator as it is, but for one moment that has no hook of its own: the end of a request frees the arena
 * after the response was sent and before it resets the heap, and nothing of the request heap is used in between. */
static void *late_malloc(size_t bytes DEBUG_ARGS)
{
	return _zend_mm_alloc(zend_mm_get_heap(), bytes DEBUG_CALL);
}

static void *late_realloc(void *block, size_t bytes DEBUG_ARGS)
{
	return _zend_mm_realloc(zend_mm_get_heap(), block, bytes DEBUG_CALL);
}

static void late_free(void *block DEBUG_ARGS)
{
	_zend_mm_free(zend_mm_get_heap(), block DEBUG_CALL);
	if (block == last_arena) {
		zend_mm_set_custom_handlers(zend_mm_get_heap(), NULL, NULL, NULL);
		at_clean_point();
	}
}

void slip_request_after(void)
{
	/* The engine frees its table of interned strings after the arena, so the heap must stay. opcache leaves it empty. */
	if (!(HT_FLAGS(&CG(interned_strings)) & HASH_FLAG_UNINITIALIZED)) {
		booting = false;
		if (taken) {
			drop_image();
			taken = false;
		}
	}
	/* Emptying takes longer than most requests, and only a snapshot needs it. */
	soiled = true;
	if (!adopted && !taken && !booting) {
		return;
	}
	for (last_arena = CG(arena); last_arena->prev; last_arena = last_arena->prev) {
	}
	zend_mm_set_custom_handlers(zend_mm_get_heap(), late_malloc, late_free, late_realloc);
}
