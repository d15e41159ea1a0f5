#ifndef SLIP_IMAGE_H
#define SLIP_IMAGE_H

#include "heap.h"
#include "key.h"
#include "rollback.h"
#include "state.h"

/* A resource that stays open between requests. */
typedef struct {
	zend_ulong handle;
	void *pointer;
	int fd, kept_fd; /* of a plain file: its number in the image, and our own duplicate */
	off_t position;
	php_stream *connection; /* to one of the servers, that rests at the end of a request, or NULL */
} slip_kept_t;

/* A saved state. Lives in process memory; `state` and what it leads to lie in the image. */
typedef struct {
	slip_heap_t *heap;
	slip_state_t *state;
	slip_rollback_t rollback;
	slip_settings_plan_t plan;
	slip_kept_t *kept;
	uint32_t kept_count;
	zend_string **strings; /* of the process, that the image refers to */
	size_t strings_count;
	slip_key_t key;
	char *writable; /* the file mapped for writing, until it is sealed */
	uint32_t objects;
	double taken_at;
} slip_image_t;

/* Takes the image of the request heap, and `key` over, which is taken now if it is empty. NULL if it was refused. */
slip_image_t *slip_image_take(slip_key_t *key);

/* Where the image's copy of a live address is. */
static inline void *slip_image_at(const slip_image_t *image, const void *address)
{
	return image->writable + ((const char *) address - image->heap->base);
}

static inline bool slip_image_covers(const slip_image_t *image, const void *address)
{
	return (uintptr_t) address - (uintptr_t) image->heap->base < image->rollback.bytes;
}

/* Makes it zero in the image, where a live address is in it. */
static inline void slip_image_wipe(const slip_image_t *image, const void *address, size_t bytes)
{
	if (slip_image_covers(image, address)) {
		memset(slip_image_at(image, address), 0, bytes);
	}
}

/* The same for the block of the request heap that begins there. */
static inline void slip_image_wipe_block(const slip_image_t *image, void *block)
{
	if (slip_image_covers(image, block)) {
		slip_image_wipe(image, block, zend_mm_block_size(image->heap->mm, block));
	}
}

/* `unused`: no request runs on it, or goes on with what it has kept open. */
void slip_image_free(slip_image_t *, bool unused);

#endif
