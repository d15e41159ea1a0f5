#include "opcache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "SAPI.h"

static zend_function *get_status;

/* opcache's counters in its shared memory, in the order of zend_accel_shared_globals (ext/opcache/ZendAccelerator.h):
 * hits, misses, blacklist_misses, oom_restarts, hash_restarts, manual_restarts. */
static const zend_ulong *counters;
static const time_t *restart_time; /* last_restart_time, behind start_time */

/* The counters are within this many bytes of the start of the segment: the allocator's own head comes first. */
#define COUNTERS_WITHIN 65536
/* The restart times follow the counters and the head of the hash table of scripts. */
#define TIMES_WITHIN 256

void slip_opcache_startup(void)
{
	get_status = zend_hash_str_find_ptr(CG(function_table), ZEND_STRL("opcache_get_status"));
}

static bool status_with(zval *result, bool scripts)
{
	zval with_scripts;

	ZVAL_BOOL(&with_scripts, scripts);
	ZVAL_UNDEF(result);
	if (!get_status) {
		return false;
	}
	zend_call_known_function(get_status, NULL, NULL, result, 1, &with_scripts, NULL);
	return Z_TYPE_P(result) == IS_ARRAY;
}

static bool status(zval *result)
{
	return status_with(result, false);
}

static zend_long number(zval *array, const char *name)
{
	zval *value = zend_hash_str_find(Z_ARRVAL_P(array), name, strlen(name));
	return value && Z_TYPE_P(value) == IS_LONG ? Z_LVAL_P(value) : -1;
}

static bool is_true(zval *array, const char *name)
{
	zval *value = zend_hash_str_find(Z_ARRVAL_P(array), name, strlen(name));
	return value && Z_TYPE_P(value) == IS_TRUE;
}

static zval *part(zval *array, const char *name)
{
	zval *value = zend_hash_str_find(Z_ARRVAL_P(array), name, strlen(name));
	return value && Z_TYPE_P(value) == IS_ARRAY ? value : NULL;
}

/* Finds the counters by their values. In vain if opcache lays its memory out in another way: the function is asked then. */
static void locate(zval *statistics)
{
	zend_ulong wanted[6] = {number(statistics, "hits"), number(statistics, "misses"), number(statistics, "blacklist_misses"),
		number(statistics, "oom_restarts"), number(statistics, "hash_restarts"), number(statistics, "manual_restarts")};
	time_t times[2] = {number(statistics, "start_time"), number(statistics, "last_restart_time")};
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int found = 0;

	counters = NULL;
	restart_time = NULL;
	while (maps && fgets(line, sizeof line, maps)) {
		unsigned long start, end;
		char access[5];
		if (sscanf(line, "%lx-%lx %4s", &start, &end, access) != 3 || strcmp(access, "rw-s") != 0
				|| strstr(line, "slipstream-image")) {
			continue;
		}
		unsigned long last = end - start > COUNTERS_WITHIN ? start + COUNTERS_WITHIN : end;
		for (unsigned long at = start; at + sizeof wanted + TIMES_WITHIN <= last; at += sizeof *wanted) {
			if (memcmp((void *) at, wanted, sizeof wanted) != 0) {
				continue;
			}
			for (unsigned long behind = at + sizeof wanted; behind < at + sizeof wanted + TIMES_WITHIN; behind += 8) {
				if (memcmp((void *) behind, times, sizeof times) == 0) {
					counters = (const zend_ulong *) at;
					restart_time = (const time_t *) behind + 1;
					found++;
				}
			}
		}
	}
	if (maps) {
		fclose(maps);
	}
	if (found != 1) {
		counters = NULL;
	}
}

const char *slip_opcache_unfit(void)
{
	if (!get_status || !INI_BOOL("opcache.enable") || (strcmp(sapi_module.name, "cli") == 0 && !INI_BOOL("opcache.enable_cli"))) {
		return "opcache is off";
	}
	if (INI_STR("opcache.preload") && *INI_STR("opcache.preload")) {
		return "opcache.preload is set";
	}
	zval now, *jit;
	const char *reason = status(&now) && (jit = part(&now, "jit")) && is_true(jit, "on") ? "the JIT is on" : NULL;
	zval_ptr_dtor(&now);
	return reason;
}

bool slip_opcache_is_restarting(void)
{
	zval now, *statistics;
	bool restarting = !status(&now) || !is_true(&now, "opcache_enabled") || is_true(&now, "restart_pending")
		|| is_true(&now, "restart_in_progress");

	if (!restarting && (statistics = part(&now, "opcache_statistics"))) {
		locate(statistics);
	}
	zval_ptr_dtor(&now);
	return restarting;
}

bool slip_opcache_has_script(void)
{
	const zend_execute_data *frame = EG(current_execute_data)->prev_execute_data;
	return (!frame->func->op_array.refcount && !zend_llist_count(&CG(open_files))) || strcmp(sapi_module.name, "cli") == 0;
}

static uint64_t mix(uint64_t oom, uint64_t hash, uint64_t manual, uint64_t time)
{
	return ((oom * 1000003 + hash) * 1000003 + manual) * 1000003 + time;
}

uint64_t slip_opcache_generation(void)
{
	zval now, *statistics;
	uint64_t generation = 0;

	if (counters) {
		return mix(counters[3], counters[4], counters[5], *restart_time);
	}
	if (status(&now) && (statistics = part(&now, "opcache_statistics"))) {
		generation = mix(number(statistics, "oom_restarts"), number(statistics, "hash_restarts"),
			number(statistics, "manual_restarts"), number(statistics, "last_restart_time"));
	}
	zval_ptr_dtor(&now);
	return generation;
}

struct slip_files {
	time_t looked_at;
	size_t count;
	struct {
		char *path;
		struct timespec modified;
		off_t bytes;
	} files[];
};

/* The clock of files stands still for up to 10 ms (CONFIG_HZ=100). */
#define FILE_CLOCK_S 0.01

static double seconds(const struct timespec *time)
{
	return (double) time->tv_sec + (double) time->tv_nsec / 1e9;
}

/* Whether the file is not, or not for sure, what this request has loaded. opcache may have served what it was for as long as it
 * does not look; meanwhile another worker may have loaded the new one, so that opcache's time of it tells nothing. The time of
 * the last change counts, too: who copies a file may set the other one. */
static bool is_newer(const struct stat *status, zval *script)
{
	double modified = seconds(&status->st_mtim), changed = seconds(&status->st_ctim);

	return MAX(modified, changed) >= sapi_get_request_time() - FILE_CLOCK_S - INI_INT("opcache.revalidate_freq")
		|| (script && Z_TYPE_P(script) == IS_ARRAY && number(script, "timestamp") > 0
			&& number(script, "timestamp") != status->st_mtim.tv_sec);
}

/* opcache leaves out what was edited a moment ago: the image would hold a copy of its own for good. */
static bool is_left_out(const struct stat *status)
{
	zend_long protection = INI_INT("opcache.file_update_protection");
	return protection && status->st_mtim.tv_sec > (time_t) sapi_get_request_time() - protection;
}

/* Whether this request has compiled the file: what the compiler left is scattered over the heap, and the image half as large
 * again (350 pages became 564 in a Symfony application). */
static bool is_new(zval *script)
{
	return script && Z_TYPE_P(script) == IS_ARRAY && number(script, "hits") == 0;
}

slip_files_t *slip_files_take(HashTable *included, const char **reason)
{
	slip_files_t *files = calloc(1, sizeof *files + zend_hash_num_elements(included) * sizeof *files->files);
	bool serves = strcmp(sapi_module.name, "cli") != 0;
	bool validates = serves && INI_BOOL("opcache.validate_timestamps");
	zend_string *path;
	zval now, *scripts;

	*reason = files ? NULL : "out of memory";
	if (!files) {
		return NULL;
	}
	ZVAL_UNDEF(&now);
	scripts = serves && status_with(&now, true) ? part(&now, "scripts") : NULL;
	files->looked_at = (time_t) sapi_get_request_time();
	ZEND_HASH_FOREACH_STR_KEY(included, path) {
		struct stat status;
		/* A file in an archive or of a stream wrapper has no time that we could look at; opcache does not either. */
		if (path && stat(ZSTR_VAL(path), &status) == 0) {
			zval *script = scripts ? zend_hash_find(Z_ARRVAL_P(scripts), path) : NULL;
			if ((serves && is_left_out(&status)) || (validates && is_newer(&status, script))) {
				*reason = "a file was edited just now";
			} else if (!*reason && is_new(script)) {
				*reason = "a file was not in opcache yet";
			}
			files->files[files->count].path = strdup(ZSTR_VAL(path));
			if (!files->files[files->count].path) {
				*reason = "out of memory";
			}
			files->files[files->count].modified = status.st_mtim;
			files->files[files->count].bytes = status.st_size;
			files->count++;
		}
	} ZEND_HASH_FOREACH_END();
	zval_ptr_dtor(&now);
	if (*reason) {
		slip_files_free(files);
		return NULL;
	}
	return files;
}

bool slip_files_edited(slip_files_t *files)
{
	time_t now = (time_t) sapi_get_request_time();

	if (!INI_BOOL("opcache.validate_timestamps") || now - files->looked_at < INI_INT("opcache.revalidate_freq")) {
		return false;
	}
	files->looked_at = now;
	for (size_t i = 0; i < files->count; i++) {
		struct stat status;
		if (stat(files->files[i].path, &status) != 0 || status.st_size != files->files[i].bytes
				|| memcmp(&status.st_mtim, &files->files[i].modified, sizeof status.st_mtim) != 0) {
			return true;
		}
	}
	return false;
}

void slip_files_free(slip_files_t *files)
{
	for (size_t i = 0; files && i < files->count; i++) {
		free(files->files[i].path);
	}
	free(files);
}
