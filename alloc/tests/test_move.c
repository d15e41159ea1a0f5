/* A block that will be used gets the pages that free ones left elsewhere, and what the kernel refuses of that harms nothing. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/heap.h"
#include "../src/options.h"
#include "check.h"

#define MIB ((size_t)1 << 20)

enum { PAGE_BYTES = 4096, SHORT = 16, LONG = 32 };

static enum { AS_IT_IS, REFUSED, LEAVES_A_HOLE } kernel;

void *__real_mremap(void *from, size_t bytes, size_t to_bytes, int flags, void *to);

/* A kernel that fails late has unmapped what was there. */
void *__wrap_mremap(void *from, size_t bytes, size_t to_bytes, int flags, void *to)
{
	if (kernel == AS_IT_IS) {
		return __real_mremap(from, bytes, to_bytes, flags, to);
	}
	CHECK(kernel == REFUSED || munmap(to, bytes) == 0);
	errno = ENOMEM;
	return MAP_FAILED;
}

static char *take(size_t mib, int value)
{
	char *block = slip_malloc(mib * MIB);
	CHECK(block != NULL);
	if (value != 0) {
		memset(block, value, mib * MIB);
	}
	return block;
}

static bool is_all(const char *block, size_t mib, int value)
{
	for (size_t at = 0; at < mib * MIB; at++) {
		if (block[at] != (char)value) {
			return false;
		}
	}
	return true;
}

static size_t resident_mib(void *block, size_t mib)
{
	static unsigned char states[64 * MIB / PAGE_BYTES];
	size_t count = 0;
	CHECK(mincore(block, mib * MIB, states) == 0);
	for (size_t at = 0; at < mib * MIB / PAGE_BYTES; at++) {
		count += states[at] & 1;
	}
	return count * PAGE_BYTES / MIB;
}

/* Two blocks that are used, and the first of them free again. What is longer lies behind them. */
static char *leave_short(char **first)
{
	*first = take(SHORT, 1);
	char *second = take(SHORT, 2);
	slip_free(*first);
	CHECK(heap_count().kept_bytes == SHORT * MIB);
	return second;
}

static void give_both(char *one, char *other)
{
	slip_free(one);
	slip_free(other);
	CHECK(bytes_taken() == 0 && heap_count().kept_bytes == 0);
}

static void move_pages(void)
{
	char *first, *second = leave_short(&first);
	char *longer = take(LONG, 0);
	/* Another kernel may refuse, and then all is as before. */
	if (resident_mib(longer, LONG) == 0) {
		fputs("this kernel does not move pages\n", stderr);
		exit(77);
	}
	/* All but one, of 24 superslabs that are taken. */
	CHECK(resident_mib(longer, LONG) == SHORT - 2 && heap_count().kept_bytes == 2 * MIB);
	CHECK(resident_mib(second, SHORT) == SHORT && is_all(second, SHORT, 2));
	/* Where they were reads as zero. */
	heap_trim();
	char *again = slip_calloc(1, SHORT * MIB);
	CHECK(again == first && resident_mib(again, SHORT) == 0 && is_all(again, SHORT, 0));
	memset(longer, 3, LONG * MIB);
	CHECK(is_all(second, SHORT, 2) && is_all(again, SHORT, 0));
	slip_free(again);
	give_both(second, longer);
}

/* One that is to read as zero gets none, nor one that may never be used, because the one before it was not. */
static void leave_pages(void)
{
	char *first, *second = leave_short(&first);
	char *zero = slip_calloc(1, LONG * MIB);
	CHECK(resident_mib(zero, LONG) == 0 && zero[0] == 0 && zero[LONG * MIB - 1] == 0);
	char *next = take(LONG + SHORT, 0);
	CHECK(resident_mib(next, LONG + SHORT) == 0 && heap_count().kept_bytes == SHORT * MIB);
	slip_free(next);
	slip_free(zero);
	slip_free(second);
	CHECK(bytes_taken() == 0);
}

/* Blocks of all lengths, each of which holds its number until it is freed. */
static void move_at_random(void)
{
	enum { SLOTS = 12, MOST_MIB = 24 };
	struct {
		char *block;
		size_t mib;
	} slots[SLOTS] = {{0}};
	uint32_t state = 5;
	for (int number = 1; number <= 300; number++) {
		unsigned at = next_random(&state) % SLOTS;
		for (size_t page = 0; page < slots[at].mib * MIB; page += PAGE_BYTES) {
			CHECK(slots[at].block[page] == (char)(at + 1));
		}
		slip_free(slots[at].block);
		slots[at].mib = 1 + next_random(&state) % MOST_MIB;
		slots[at].block = next_random(&state) % 8 == 0 ? slip_calloc(slots[at].mib, MIB) : slip_malloc(slots[at].mib * MIB);
		CHECK(slots[at].block != NULL);
		for (size_t page = 0; page < slots[at].mib * MIB; page += PAGE_BYTES) {
			slots[at].block[page] = (char)(at + 1);
		}
		if (number % 50 == 0) {
			heap_decay();
		}
	}
	for (unsigned at = 0; at < SLOTS; at++) {
		slip_free(slots[at].block);
	}
	CHECK(bytes_taken() == 0);
}

/* It is asked once. */
static void be_refused(void)
{
	char *first, *second = leave_short(&first);
	char *longer = take(LONG, 0);
	CHECK(resident_mib(longer, LONG) == 0 && is_all(longer, LONG, 0));
	memset(longer, 3, LONG * MIB);
	kernel = AS_IT_IS;
	char *next = take(LONG, 0);
	CHECK(resident_mib(next, LONG) == 0 && is_all(second, SHORT, 2));
	slip_free(next);
	give_both(second, longer);
}

static void be_refused_by(int what)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		kernel = what;
		be_refused();
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	options.decay_ms = -1;
	options.huge_pages = false;
	be_refused_by(REFUSED);
	be_refused_by(LEAVES_A_HOLE);
	move_pages();
	leave_pages();
	move_at_random();
	return 0;
}
