#ifndef _GNU_SOURCE
# define _GNU_SOURCE
#endif
#include "image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "SAPI.h"
#include "ext/pcre/php_pcre.h"
#include "ext/standard/basic_functions.h"
#include "php_output.h"
#include "zend_gc.h"

#include "native.h"
#include "objects.h"
#include "opcache.h"
#include "refuse.h"
#include "resources.h"
#include "secrets.h"

/* Added to a chunk's count of free pages in the image. The engine gives a chunk back when all its pages are free; one of
 * the image must never seem so. */
#define FREE_PAGES_OFFSET 1024

/* Collections after which there should be no root left. Destructors may make new ones, a few times. */
#define MAX_COLLECTIONS 10

static size_t page_of(const slip_image_t *image, const void *address)
{
	return ((const char *) address - image->heap->base) / SLIP_PAGE_BYTES;
}

static bool is_zero(const void *page)
{
	const uint64_t *words = page;
	for (size_t i = 0; i < SLIP_PAGE_BYTES / sizeof *words; i++) {
		if (words[i]) {
			return false;
		}
	}
	return true;
}

/* Pages of zeros stay holes in the file. */
static void save_pages(slip_image_t *image, const char *address, size_t pages)
{
	for (size_t i = 0; i < pages; i++, address += SLIP_PAGE_BYTES) {
		size_t page = page_of(image, address);
		image->rollback.in_use[page / 64] |= (uint64_t) 1 << (page % 64);
		image->rollback.used_pages++;
		if (!is_zero(address)) {
			memcpy(slip_image_at(image, address), address, SLIP_PAGE_BYTES);
		}
	}
}

static void save_chunk(slip_image_t *image, const char *chunk)
{
	const uint64_t *used = (const uint64_t *) (chunk + slip_layout.free_map);

	for (size_t page = 0; page < SLIP_CHUNK_PAGES; page++) {
		if (used[page / 64] >> (page % 64) & 1) {
			save_pages(image, chunk + page * SLIP_PAGE_BYTES, 1);
		}
	}
	/* The other heap frees the image's blocks from now on, and must never find room in between them: new blocks would
	 * dirty pages that nothing else writes. */
	slip_chunk_t *head = slip_image_at(image, chunk);
	head->heap = slip_heap_other()->mm;
	head->next = head->prev = (slip_chunk_t *) chunk;
	head->free_pages += FREE_PAGES_OFFSET;
}

static const slip_huge_t *find_huge(const slip_image_t *image, const void *address)
{
	const slip_huge_t *block = (const slip_huge_t *) SLIP_HEAP_WORD(image->heap->mm, huge_list);
	while (block && block->ptr != address) {
		block = block->next;
	}
	return block;
}

/* Which slots hold chunks of the heap. It keeps others, empty, for later: those are not part of the image. */
static void find_chunks(const slip_image_t *image, bool *is_chunk)
{
	const slip_chunk_t *first = (const slip_chunk_t *) image->heap->base, *chunk = first;

	do {
		if (slip_heap_owns(image->heap, chunk)) {
			is_chunk[((const char *) chunk - image->heap->base) / SLIP_CHUNK_BYTES] = true;
		}
		chunk = chunk->next;
	} while (chunk != first);
}

/* Slots up to the last one that holds something. */
static size_t slots_in_use(const slip_image_t *image, const bool *is_chunk)
{
	size_t slots = 0;

	for (size_t slot = 0; slot < image->heap->top; slot++) {
		const slip_huge_t *huge = find_huge(image, image->heap->base + slot * SLIP_CHUNK_BYTES);
		if (huge) {
			slots = slot + (huge->size + SLIP_CHUNK_BYTES - 1) / SLIP_CHUNK_BYTES;
		} else if (is_chunk[slot]) {
			slots = slot + 1;
		}
	}
	return slots;
}

/* Nothing of what was freed may stay: it can be anything, and the scan for secrets would find it. */
static void wipe_free_blocks(slip_image_t *image)
{
	void **lists = (void **) ((char *) image->heap->mm + slip_layout.free_slot);
	size_t budget = image->rollback.bytes / 8;

	for (int bin = 0; bin < SLIP_BINS; bin++) {
		for (void *block = lists[bin]; block && budget; budget--) {
			void *next = *(void **) block;
			slip_image_wipe(image, block, slip_bin_bytes(bin));
			block = next;
		}
	}
	memset(slip_image_at(image, lists), 0, SLIP_BINS * sizeof *lists);
}

/* The image is restored into the main script's new frame: frames of this request, and what they left, are not needed. */
static void wipe_stack(slip_image_t *image)
{
	for (zend_vm_stack page = EG(vm_stack); page; page = page->prev) {
		slip_image_wipe(image, page, (char *) page->end - (char *) page);
	}
}

static void wipe_arenas(slip_image_t *image)
{
	for (zend_arena *arena = CG(arena); arena; arena = arena->prev) {
		slip_image_wipe(image, arena->ptr, arena->end - arena->ptr);
	}
}

/* Output buffers are the request's: empty ones, of which each byte may be left from a page of an earlier request. */
static void wipe_output(slip_image_t *image)
{
	php_output_handler **handlers = zend_stack_base(&OG(handlers));
	for (int i = 0; i < php_output_get_level(); i++) {
		slip_image_wipe(image, handlers[i]->buffer.data, handlers[i]->buffer.size);
	}
}

/* The engine's record of what putenv() has set points to the environment itself. A restore sets it by name. */
static void wipe_environment(slip_image_t *image)
{
	void *entry;

	ZEND_HASH_FOREACH_PTR(&BG(putenv_ht), entry) {
		slip_image_wipe_block(image, entry);
	} ZEND_HASH_FOREACH_END();
}

/* The engine's list of the files that it compiles: of this request, and with the libc's own structures. */
static void wipe_open_files(slip_image_t *image)
{
	for (zend_llist_element *element = CG(open_files).head; element; element = element->next) {
		slip_image_wipe_block(image, element);
	}
}

/* On the command line compiled patterns are kept for one request only, in a table of the request heap: elsewhere these blocks
 * are not of the image. */
static void wipe_patterns(slip_image_t *image)
{
	void *entry;

	ZEND_HASH_FOREACH_PTR(&PCRE_G(pcre_cache), entry) {
		slip_image_wipe_block(image, entry);
	} ZEND_HASH_FOREACH_END();
}

/* The collector marks what it has in its buffer, which is not part of the image. Live temporaries of the running frames are
 * put back into it after each collection. */
static void forget_temporaries(void)
{
	for (zend_execute_data *frame = EG(current_execute_data); frame; frame = frame->prev_execute_data) {
		if (!frame->func || !ZEND_USER_CODE(frame->func->type)) {
			continue;
		}
		const zend_op_array *code = &frame->func->op_array;
		uint32_t at = frame->opline - code->opcodes;
		for (int i = 0; i < code->last_live_range && code->live_range[i].start <= at; i++) {
			uint32_t kind = code->live_range[i].var & ZEND_LIVE_MASK;
			if (code->live_range[i].end > at && (kind == ZEND_LIVE_TMPVAR || kind == ZEND_LIVE_LOOP)) {
				zval *value = ZEND_CALL_VAR(frame, code->live_range[i].var & ~ZEND_LIVE_MASK);
				if (Z_REFCOUNTED_P(value)) {
					GC_REMOVE_FROM_BUFFER(Z_COUNTED_P(value));
				}
			}
		}
	}
}

static bool empty_collector(void)
{
	for (int i = 0; i < MAX_COLLECTIONS; i++) {
		zend_gc_status status;
		gc_collect_cycles();
		forget_temporaries();
		zend_gc_get_status(&status);
		if (!status.num_roots) {
			return true;
		}
	}
	return false;
}

static bool open_file(slip_image_t *image, size_t slots)
{
	slip_rollback_t *rollback = &image->rollback;

	rollback->base = image->heap->base;
	rollback->bytes = slots * SLIP_CHUNK_BYTES;
	rollback->in_use = calloc(rollback->bytes / SLIP_PAGE_BYTES / 64, sizeof(uint64_t));
	rollback->fd = memfd_create("slipstream-image", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (!rollback->in_use || rollback->fd < 0 || ftruncate(rollback->fd, rollback->bytes) != 0) {
		return false;
	}
	image->writable = mmap(NULL, rollback->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rollback->fd, 0);
	return image->writable != MAP_FAILED;
}

/* False with errno. */
static bool save_memory(slip_image_t *image)
{
	bool *is_chunk = calloc(image->heap->top, sizeof *is_chunk);

	if (!is_chunk) {
		return false;
	}
	find_chunks(image, is_chunk);
	bool opened = open_file(image, slots_in_use(image, is_chunk));
	for (size_t slot = 0; opened && slot < image->rollback.bytes / SLIP_CHUNK_BYTES; slot++) {
		const char *address = image->heap->base + slot * SLIP_CHUNK_BYTES;
		const slip_huge_t *huge = find_huge(image, address);
		if (huge) {
			save_pages(image, address, huge->size / SLIP_PAGE_BYTES);
		} else if (is_chunk[slot]) {
			save_chunk(image, address);
		}
	}
	free(is_chunk);
	return opened;
}

static bool seal(slip_image_t *image)
{
	slip_rollback_t *rollback = &image->rollback;

	munmap(image->writable, rollback->bytes);
	image->writable = NULL;
	if (fcntl(rollback->fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		return false;
	}
	rollback->saved = mmap(NULL, rollback->bytes, PROT_READ, MAP_SHARED, rollback->fd, 0);
	return rollback->saved != MAP_FAILED;
}

void slip_image_free(slip_image_t *image, bool unused)
{
	slip_rollback_t *rollback = &image->rollback;

	slip_rollback_stop(rollback);
	if (image->writable && image->writable != MAP_FAILED) {
		munmap(image->writable, rollback->bytes);
	}
	if (rollback->saved && rollback->saved != MAP_FAILED) {
		munmap((void *) rollback->saved, rollback->bytes);
	}
	if (rollback->fd >= 0) {
		close(rollback->fd);
	}
	slip_resources_release(image, unused);
	slip_key_free(&image->key);
	free(rollback->in_use);
	free(image->strings);
	free(image);
}

slip_image_t *slip_image_take(slip_key_t *key)
{
	slip_image_t *image = calloc(1, sizeof *image);

	if (!image) {
		slip_refuse_quietly("memory", "out of memory");
		return NULL;
	}
	image->heap = slip_heap;
	image->rollback.fd = image->rollback.userfault_fd = image->rollback.pagemap_fd = -1;
	if (!empty_collector()) {
		slip_refuse("collector", "the garbage collector cannot be emptied");
		goto refused;
	}
	if (!slip_objects_check() || !slip_resources_check(image)) {
		goto refused;
	}
	if (!slip_opcache_has_script()) {
		slip_refuse_quietly("uncached", "the script was not in opcache yet");
		goto refused;
	}
	if (!key->script) {
		slip_key_take(key);
	}
	if (!key->script || !key->host) {
		slip_refuse_quietly("memory", "out of memory");
		goto refused;
	}
	image->key = *key;
	*key = (slip_key_t) {0};
	/* Pages of which all blocks are free are no longer in use then: a quarter of them, after the
	 * boot of a Symfony application. */
	zend_mm_gc(image->heap->mm);
	image->state = slip_state_take();
	if (image->heap->overflowed) {
		slip_refuse("size", "the state is larger than the address space reserved for images");
		goto refused;
	}
	if (!save_memory(image)) {
		slip_refuse_quietly("memory", "the image's file cannot be made: %s", strerror(errno));
		goto refused;
	}
	wipe_free_blocks(image);
	wipe_stack(image);
	wipe_arenas(image);
	wipe_output(image);
	wipe_environment(image);
	wipe_open_files(image);
	wipe_patterns(image);
	slip_resources_leave_out(image);
	slip_resources_put_to_sleep(image);
	slip_secrets_wipe(image);
	image->objects = slip_objects_hide(image);
	if (!slip_secrets_check(image)) {
		goto refused;
	}
	if (!slip_native_check(image)) {
		goto refused;
	}
	if (!seal(image)) {
		slip_refuse_quietly("memory", "the image's file cannot be sealed: %s", strerror(errno));
		goto refused;
	}
	image->taken_at = (double) time(NULL);
	return image;

refused:
	slip_image_free(image, false);
	return NULL;
}
