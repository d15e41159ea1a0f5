#include "resources.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/standard/file.h"
#include "php_streams.h"

#include "asleep.h"
#include "path.h"
#include "proc.h"
#include "refuse.h"
#include "streams.h"

/* Filters that keep all they have in the request heap. */
static const char *const allowed_filters[] = {"string.", "user-filter"};

static bool filters_allowed(const php_stream_filter *filter)
{
	for (; filter; filter = filter->next) {
		bool allowed = false;
		for (size_t i = 0; i < sizeof allowed_filters / sizeof *allowed_filters; i++) {
			allowed |= strncmp(filter->fops->label, allowed_filters[i], strlen(allowed_filters[i])) == 0;
		}
		if (!allowed) {
			return false;
		}
	}
	return true;
}

/* Whether the process has locked the file through this descriptor, as flock() does: the lock would last as long as the image.
 * Asked of the kernel, because a lock tried in one worker looks like the application's in another one. */
static bool is_locked(int fd)
{
	char path[64], text[4096];

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	int info = slip_proc_open(path);
	if (info < 0) {
		return false;
	}
	ssize_t length = read(info, text, sizeof text - 1);
	close(info);
	text[length > 0 ? length : 0] = '\0';
	return strstr(text, "\nlock:");
}

/* NULL, or why this stream cannot be kept. `fd` becomes that of a plain file. */
static const char *check_stream(php_stream *stream, int *fd)
{
	struct stat status;

	if (!filters_allowed(stream->readfilters.head) || !filters_allowed(stream->writefilters.head)) {
		return "a filter holds native memory";
	}
	if (stream->ops == &php_stream_memory_ops || stream->ops == &php_stream_temp_ops) {
		return NULL;
	}
	if (slip_streams_is_ours(stream)) {
		return slip_asleep_may(stream);
	}
	if (stream->ops != &php_stream_stdio_ops) {
		return "only plain files, streams in memory and connections to servers in slipstream.keep can be kept open";
	}
	if (_php_stream_cast(stream, PHP_STREAM_AS_FD_FOR_SELECT | PHP_STREAM_CAST_INTERNAL, (void **) fd, 0) != SUCCESS
			|| fstat(*fd, &status) != 0) {
		return "it is not a plain file";
	}
	if (*fd <= STDERR_FILENO) {
		/* STDIN, STDOUT and STDERR of the command line are there in every request. */
		*fd = -1;
		return NULL;
	}
	if (!S_ISREG(status.st_mode)) {
		return "it is not a plain file";
	}
	return is_locked(*fd) ? "the file is locked" : NULL;
}

/* The engine has the script's own file open until it has run, unless opcache had it already. */
static bool is_script(const zend_resource *resource)
{
	zend_llist_position position;
	zend_file_handle *handle = zend_llist_get_first_ex(&CG(open_files), &position);

	for (; handle; handle = zend_llist_get_next_ex(&CG(open_files), &position)) {
		if (handle->type == ZEND_HANDLE_STREAM && handle->handle.stream.handle == resource->ptr) {
			return true;
		}
	}
	return false;
}

/* What kind of stream it is, and to whom it leads: clients in C hold theirs where no variable leads to. */
static zend_string *name_of(const zend_resource *resource)
{
	zend_string *peer = NULL, *name;

	if (resource->type != php_file_le_stream()) {
		return ZSTR_EMPTY_ALLOC();
	}
	php_stream *stream = resource->ptr;
	if (php_stream_xport_get_name(stream, true, &peer, NULL, NULL) != 0 || !peer) {
		return zend_string_init(stream->ops->label, strlen(stream->ops->label), false);
	}
	name = zend_strpprintf(0, "%s to %s", stream->ops->label, ZSTR_VAL(peer));
	zend_string_release(peer);
	return name;
}

bool slip_resources_check(slip_image_t *image)
{
	zend_ulong handle;
	zval *entry;

	image->kept = calloc(EG(regular_list).nNumUsed + 1, sizeof *image->kept);
	if (!image->kept) {
		slip_refuse_quietly("memory", "out of memory");
		return false;
	}
	ZEND_HASH_FOREACH_NUM_KEY_VAL(&EG(regular_list), handle, entry) {
		zend_resource *resource = Z_PTR_P(entry);
		const char *type = zend_rsrc_list_get_rsrc_type(resource), *reason = NULL;
		slip_kept_t kept = {handle, resource, -1, -1, 0, NULL};

		if (resource->type < 0 || is_script(resource)) {
			continue; /* closed already, or not the script's */
		}
		if (resource->type == php_file_le_stream()) {
			reason = check_stream(resource->ptr, &kept.fd);
			kept.connection = slip_streams_is_ours(resource->ptr) ? resource->ptr : NULL;
		} else if (resource->type == php_file_le_stream_filter()) {
			reason = filters_allowed(resource->ptr) ? NULL : "it holds native memory";
		} else if (resource->type != php_le_stream_context() && (!type || strcmp(type, "stream factory") != 0)) {
			reason = "it holds native memory";
		}
		if (reason) {
			zend_string *path = slip_path_to(resource), *name = name_of(resource);
			slip_refuse("resource", "resource #" ZEND_LONG_FMT " of type %s (%s) cannot be part of a snapshot: %s; it is reached by %s",
				(zend_long) handle, type ? type : "unknown", ZSTR_VAL(name), reason, ZSTR_VAL(path));
			zend_string_release(name);
			zend_string_release(path);
			return false;
		}
		if (kept.fd >= 0) {
			kept.kept_fd = fcntl(kept.fd, F_DUPFD_CLOEXEC, 3);
			kept.position = lseek(kept.fd, 0, SEEK_CUR);
		}
		image->kept[image->kept_count++] = kept;
	} ZEND_HASH_FOREACH_END();
	return true;
}

void slip_resources_leave_out(slip_image_t *image)
{
	HashTable *list = &image->state->resources;
	HashTable *saved = &((slip_state_t *) slip_image_at(image, image->state))->resources;

	for (uint32_t i = 0; i < list->nNumUsed; i++) {
		zval *entry = HT_IS_PACKED(list) ? list->arPacked + i : &list->arData[i].val;
		if (Z_TYPE_P(entry) != IS_UNDEF && is_script(Z_PTR_P(entry))) {
			slip_image_wipe_block(image, ((php_stream *) Z_RES_P(entry)->ptr)->abstract);
			ZVAL_UNDEF((zval *) slip_image_at(image, entry));
			saved->nNumOfElements--;
		}
	}
}

void slip_resources_put_to_sleep(const slip_image_t *image)
{
	for (uint32_t i = 0; i < image->kept_count; i++) {
		const php_stream *stream = image->kept[i].connection;
		if (stream) {
			slip_asleep_put(stream, slip_image_at(image, stream), slip_image_at(image, stream->abstract));
		}
	}
}

void slip_resources_hide(const slip_image_t *image)
{
	/* Without its destructor, which would close them. Taken out and not emptied: a list that a request has made a hash finds
	 * an emptied bucket by its key all the same. */
	dtor_func_t destructor = EG(regular_list).pDestructor;
	EG(regular_list).pDestructor = NULL;
	for (uint32_t i = 0; i < image->kept_count; i++) {
		zval *entry = zend_hash_index_find(&EG(regular_list), image->kept[i].handle);
		if (entry && Z_PTR_P(entry) == image->kept[i].pointer) {
			const zend_resource *resource = Z_PTR_P(entry);
			if (resource->ptr && resource->ptr == image->kept[i].connection) {
				slip_asleep_rest(resource->ptr);
			}
			zend_hash_index_del(&EG(regular_list), image->kept[i].handle);
		}
	}
	EG(regular_list).pDestructor = destructor;
}

static bool is_same_file(int a, int b)
{
	struct stat one, other;
	return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool slip_resources_put_back(const slip_image_t *image)
{
	for (uint32_t i = 0; i < image->kept_count; i++) {
		const slip_kept_t *kept = &image->kept[i];
		if (kept->fd < 0) {
			continue;
		}
		if (fcntl(kept->fd, F_GETFD) < 0) {
			/* Closed by the request, and not in use since. */
			if (fcntl(kept->kept_fd, F_DUPFD_CLOEXEC, kept->fd) != kept->fd) {
				return false;
			}
		} else if (!is_same_file(kept->fd, kept->kept_fd)) {
			return false;
		}
		flock(kept->kept_fd, LOCK_UN);
		if (lseek(kept->kept_fd, kept->position, SEEK_SET) < 0) {
			return false;
		}
	}
	return true;
}

void slip_resources_release(slip_image_t *image, bool unused)
{
	for (uint32_t i = 0; i < image->kept_count; i++) {
		const slip_kept_t *kept = &image->kept[i];
		if (kept->connection) {
			slip_asleep_drop(kept->connection);
		}
		if (kept->kept_fd < 0) {
			continue;
		}
		if (unused && is_same_file(kept->fd, kept->kept_fd)) {
			close(kept->fd);
		}
		close(kept->kept_fd);
	}
	free(image->kept);
	image->kept = NULL;
	image->kept_count = 0;
}
