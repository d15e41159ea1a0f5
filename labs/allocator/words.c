/* Counts the words of a text: `words OPERATIONS FILE`. Each operation has a table of its own, in a block of 1 MiB.
 *
 * Blocks come from the kernel and go back to it. There is a fast path that keeps them, and it is off: `WORDS_KEEP_BLOCKS=1` switches it on. Then
 * the program is the twin of what it was: it works as much, and maps nothing. Before `main`, and at the exit, there is work for the kernel that
 * has nothing to do with either: a dictionary of 64 MiB.
 *
 * Writes to FILE, as JSON, how many operations there were, how often it mapped and unmapped, and how much CPU time that took by its own clock:
 * a call that another program has interrupted is no longer for that. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BLOCK_BYTES = 1 << 20, KEPT_BLOCKS = 4, DICTIONARY_BYTES = 64 << 20, PAGE_BYTES = 4096, TEXT_BYTES = 1 << 15 };

/* Each function is one, so that the way to a call is known. */
#define SEPARATE __attribute__((noinline, noclone))

struct entry {
	uint64_t hash, count;
};

struct table {
	struct entry *entries;
	size_t mask;
};

static unsigned char *dictionary;
static char text[TEXT_BYTES];
static void *kept_blocks[KEPT_BLOCKS];
static int kept;
static bool keeps_blocks;
/* What is counted after a call makes it one that comes back. */
static unsigned long maps, unmaps, taken, given, opened, closed;
static uint64_t map_ns, unmap_ns;

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void load_dictionary(void)
{
	dictionary = mmap(NULL, DICTIONARY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (dictionary == MAP_FAILED)
		abort();
	for (size_t at = 0; at < DICTIONARY_BYTES; at += PAGE_BYTES)
		dictionary[at] = (unsigned char)at;
}

SEPARATE static void *map_block(void)
{
	uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	void *block = mmap(NULL, BLOCK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	map_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
	if (block == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	maps++;
	return block;
}

SEPARATE static void unmap_block(void *block)
{
	uint64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	munmap(block, BLOCK_BYTES);
	unmap_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
	unmaps++;
}

SEPARATE static void *block_take(void)
{
	void *block;
	if (kept) {
		block = kept_blocks[--kept];
		memset(block, 0, BLOCK_BYTES);
	} else {
		block = map_block();
	}
	taken++;
	return block;
}

SEPARATE static void block_give(void *block)
{
	if (keeps_blocks && kept < KEPT_BLOCKS)
		kept_blocks[kept++] = block;
	else
		unmap_block(block);
	given++;
}

SEPARATE static void table_open(struct table *table)
{
	table->entries = block_take();
	table->mask = BLOCK_BYTES / sizeof *table->entries - 1;
	opened++;
}

SEPARATE static void table_close(struct table *table)
{
	block_give(table->entries);
	closed++;
}

/* What is the program's own work. */
SEPARATE static uint64_t add_words(struct table *table)
{
	uint64_t hash = 0, most = 0;
	for (size_t at = 0; at < TEXT_BYTES; at++) {
		if (text[at] != ' ') {
			hash = (hash ^ (unsigned char)text[at]) * 1099511628211u;
			continue;
		}
		size_t place = hash & table->mask;
		while (table->entries[place].hash && table->entries[place].hash != hash)
			place = (place + 1) & table->mask;
		table->entries[place].hash = hash;
		if (++table->entries[place].count > most)
			most = table->entries[place].count;
		hash = 14695981039346656037u;
	}
	return most;
}

SEPARATE static uint64_t count_words(void)
{
	struct table table;
	uint64_t most;
	table_open(&table);
	most = add_words(&table);
	table_close(&table);
	return most;
}

static void write_text(void)
{
	uint64_t random = 88172645463325252u;
	for (size_t at = 0; at < TEXT_BYTES; at++) {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		text[at] = random % 6 ? (char)('a' + random % 23) : ' ';
	}
}

int main(int argc, char **argv)
{
	unsigned long operations = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
	const char *setting = getenv("WORDS_KEEP_BLOCKS");
	uint64_t sum = 0, begin, took;
	FILE *file;

	if (!operations) {
		fprintf(stderr, "usage: %s OPERATIONS FILE\n", argv[0]);
		return 2;
	}
	keeps_blocks = setting && strcmp(setting, "1") == 0;
	write_text();
	begin = clock_ns(CLOCK_MONOTONIC);
	for (unsigned long number = 0; number < operations; number++)
		sum += count_words();
	took = clock_ns(CLOCK_MONOTONIC) - begin;
	file = fopen(argv[2], "w");
	if (!file) {
		perror(argv[2]);
		return 1;
	}
	fprintf(file, "{\"operations\": %lu, \"maps\": %lu, \"unmaps\": %lu, \"map_ns\": %llu, \"unmap_ns\": %llu, \"run_ns\": %llu, \"sum\": %llu}\n",
		operations, maps, unmaps, (unsigned long long)map_ns, (unsigned long long)unmap_ns, (unsigned long long)took,
		(unsigned long long)(sum + dictionary[PAGE_BYTES] + taken + given + opened + closed));
	return fclose(file) != 0;
}
