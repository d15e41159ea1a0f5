#ifdef SLIPMALLOC_DEBUG

#include "unguarded.h"

#include "blocks.h"
#include "pattern.h"
#include "slab.h"

/* The word is one of these, the block's address and the bytes, so that no copy of another block's is taken for it. */
static const uint64_t TAKEN = 0x9d5b1e7ac3f28464, FREED = 0x6e84d1b7a95c2f31;

static uint64_t *word_of(const void *block, size_t holds)
{
	return (uint64_t *)((char *)block + holds) - 1;
}

static uint64_t seal(uint64_t key, const void *block)
{
	return key ^ (uintptr_t)block;
}

void *unguarded_take(size_t bytes, size_t alignment)
{
	/* Too many are as many too many with the word. */
	size_t with_word = bytes > PTRDIFF_MAX ? bytes : bytes + sizeof(uint64_t);
	char *block = blocks_take_aligned(alignment, with_word);
	if (block != NULL) {
		uint64_t *word = word_of(block, blocks_bytes("malloc", block));
		pattern_fill(block + bytes, (char *)word);
		*word = seal(TAKEN, block) ^ bytes;
	}
	return block;
}

size_t unguarded_bytes(const char *what, const void *block)
{
	size_t holds = blocks_bytes(what, block);
	const uint64_t *word = word_of(block, holds);
	uint64_t bytes = seal(TAKEN, block) ^ *word;
	if (*word == seal(FREED, block)) {
		misuse(what, block, "is not allocated");
	}
	const char *start = block;
	if (bytes > holds - sizeof *word || !pattern_is_whole(start + bytes, (const char *)word)) {
		misuse(what, block, PATTERN_BROKEN_BEHIND);
	}
	return bytes;
}

void unguarded_hide(void *block)
{
	uint64_t *word = word_of(block, blocks_bytes("free", block));
	pattern_fill(block, (char *)word);
	*word = seal(FREED, block);
}

void unguarded_release(void *block)
{
	const uint64_t *word = word_of(block, blocks_bytes(SLAB_FOUND_LATE, block));
	if (*word != seal(FREED, block) || !pattern_is_whole(block, (const char *)word)) {
		misuse(SLAB_FOUND_LATE, block, "was written after it was freed");
	}
	blocks_put(block);
}

void unguarded_give(void *block)
{
	blocks_put(block);
}

size_t unguarded_trim(void)
{
	return blocks_trim();
}

#endif
