/* The page that other processes read: it is found without symbols, says what is so, and a forked child has its own. */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/depot.h"
#include "../src/heap.h"
#include "../src/options.h"
#include "../src/published.h"
#include "check.h"

enum { BLOCKS = 20000, BLOCK_BYTES = 100, STEPS = 20000, SLOTS = 300, ROOM = DEPOT_LEAST_ROOM };

static void *blocks[BLOCKS];

/* As a reader does it: right after what cannot be read, private and anonymous, and begins with the magic. */
static const published_t *find(void)
{
	char line[512];
	unsigned long start, end, end_of_unreadable = 0;
	const published_t *found = NULL;
	/* What else lies behind guards, the sanitizers do not want to be read by us. */
	int memory = open("/proc/self/mem", O_RDONLY);
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps != NULL && memory >= 0);
	while (fgets(line, sizeof line, maps) != NULL) {
		char mode[5];
		unsigned long inode;
		uint64_t begin;
		CHECK(sscanf(line, "%lx-%lx %4s %*s %*s %lu", &start, &end, mode, &inode) == 4);
		if (strcmp(mode, "rw-p") == 0 && inode == 0 && start == end_of_unreadable &&
		    pread(memory, &begin, sizeof begin, (off_t)start) == sizeof begin && begin == PUBLISHED_MAGIC) {
			CHECK(found == NULL);
			found = (const published_t *)start;
		}
		end_of_unreadable = mode[0] == '-' ? end : 0;
	}
	fclose(maps);
	close(memory);
	return found;
}

/* What is free and resident, from the maps and superslabs. No other thread runs. */
static size_t kept_bytes(void)
{
	size_t bytes = 0;
	for (size_t at = 0; at < atomic_load(&region.usable); at++) {
		const superslab_t *superslab = &region.superslabs[at];
		if (((region.recent[at / 64] | region.aged[at / 64]) >> at % 64 & 1) != 0) {
			bytes += SUPERSLAB_BYTES;
		} else if (superslab->kind == SUPERSLAB_SHARED) {
			bytes += (size_t)__builtin_popcount(superslab->free_slabs & ~superslab->zero_slabs) * SLAB_BYTES;
		}
	}
	return bytes;
}

static const published_class_t *class_for(const published_t *page, size_t bytes)
{
	const published_class_t *class = page->classes;
	while (class->block_bytes < bytes) {
		class++;
	}
	return class;
}

static void take_and_free(void)
{
	for (int at = 0; at < BLOCKS; at++) {
		CHECK((blocks[at] = slip_malloc(BLOCK_BYTES)) != NULL);
	}
}

static void free_all(void)
{
	for (int at = 0; at < BLOCKS; at++) {
		slip_free(blocks[at]);
	}
}

static void *use_a_cache(void *argument)
{
	slip_free(slip_malloc(10));
	CHECK(atomic_load(&published()->caches) == 2);
	return argument;
}

static void in_child(const published_t *page)
{
	uint64_t before = class_for(page, BLOCK_BYTES)->refills_missed;
	CHECK(page->forks == 1 && atomic_load(&page->caches) == 1);
	take_and_free();
	CHECK(class_for(page, BLOCK_BYTES)->refills_missed > before);
}

/* Small and large blocks, by turns with decay. */
static void use_all(const published_t *page)
{
	static void *slots[SLOTS];
	uint32_t state = 11;
	for (int step = 0; step < STEPS; step++) {
		void **slot = &slots[next_random(&state) % SLOTS];
		slip_free(*slot);
		*slot = slip_malloc(1 + next_random(&state) % (next_random(&state) % 8 == 0 ? 5000000 : 3000));
		if (step % 500 == 0) {
			heap_decay();
			CHECK(page->kept_bytes == kept_bytes());
		}
		if (step % 3000 == 0) {
			slip_malloc_trim(0);
			CHECK(page->kept_bytes == kept_bytes() && page->kept_bytes == 0);
		}
	}
	for (int at = 0; at < SLOTS; at++) {
		slip_free(slots[at]);
	}
}

int main(void)
{
	options.decay_ms = -1;
	options.huge_pages = false;
	CHECK(published()->class_count == 0);
	slip_free(slip_malloc(1));

	const published_t *page = find();
	CHECK(page != NULL && page == published());
	CHECK(page->version == 1 && page->bytes == sizeof *page && page->class_count == 58 && page->class_offset == 256);
	CHECK(page->classes[0].block_bytes == 16 && page->classes[57].block_bytes == 32768);
	CHECK(page->decay_ms == -1 && (page->flags & PUBLISHED_HUGE_PAGES) == 0);
	CHECK(page->region_bytes <= page->wanted_bytes && page->usable_bytes >= SUPERSLAB_BYTES && page->arena_bytes > 0);
	CHECK(atomic_load(&page->caches) == 1 && page->forks == 0);

	const published_class_t *class = class_for(page, BLOCK_BYTES);
	take_and_free();
	/* The caches hold two magazines at most. */
	CHECK(class->blocks_out >= BLOCKS && class->blocks_out <= BLOCKS + 250 && class->slabs > 0);
	CHECK(class->refills_missed > 0 && class->refills_hit == 0 && class->returns_kept == 0);
	free_all();
	CHECK(class->full_magazines == ROOM && class->magazine_blocks > ROOM * 100 && class->magazine_blocks <= ROOM * 125);
	CHECK(class->returns_kept == ROOM && class->returns_emptied > 0);
	CHECK(class->blocks_out >= class->magazine_blocks && class->blocks_out <= class->magazine_blocks + 250);
	take_and_free();
	CHECK(class->refills_hit == ROOM && class->full_magazines == 0 && class->magazine_blocks == 0);

	void *large = slip_malloc(100000);
	CHECK(atomic_load(&page->large_taken) == 1 && atomic_load(&page->large_given) == 0);
	slip_free(large);
	CHECK(atomic_load(&page->large_given) == 1);

	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, use_a_cache, NULL) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(atomic_load(&page->caches) == 1);

	int status;
	uint64_t before = class->refills_missed;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		in_child(page);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	CHECK(class->refills_missed == before && page->forks == 0);

	free_all();
	use_all(page);
	CHECK(page->reused_bytes > 0 && page->purged_bytes > 0 && page->purges > 0 && page->decay_turns > 0);
	CHECK(bytes_taken() == 0 && page->taken_bytes == 0 && page->kept_bytes == 0);
	for (unsigned at = 0; at < page->class_count; at++) {
		CHECK(page->classes[at].slabs == 0 && page->classes[at].blocks_out == 0);
	}
	CHECK(atomic_load(&page->failures) == 0);
	CHECK(slip_malloc(PTRDIFF_MAX) == NULL);
	CHECK(atomic_load(&page->failures) == 1 && atomic_load(&page->second_tries) == 1);
	return 0;
}
