/* Stress: new threads in each round take blocks, keep some to their end, give some early, and swap some with other threads. Now and then a
 * block is large. All of a block is written, and read before it is given. */
#include "pattern.h"

#include <stdatomic.h>

enum {
	ROUNDS = 20,
	TRANSFERS = 1000,
	MOST_WORDS = 64,
	/* One block in so many is so many times as long. */
	LONG_EVERY = 100,
	LONG_TIMES = 16,
	LARGE_EVERY = 10000,
	LARGE_TIMES = 2048,
	FIRST_ROOM = 64,
};

/* Words that count up from the first. */
typedef struct {
	uint64_t words;
	uint64_t content[];
} item_t;

/* Grows by realloc(). */
typedef struct {
	item_t **items;
	size_t count, room;
} list_t;

static _Atomic(item_t *) transfers[TRANSFERS];
static long blocks_each;
static unsigned rounds_done;

static item_t *take_item(uint32_t *random)
{
	uint64_t words = 1 + next(random) % MOST_WORDS;
	uint32_t chance = next(random);
	words *= chance % LARGE_EVERY == 0 ? LARGE_TIMES : chance % LONG_EVERY == 0 ? LONG_TIMES : 1;
	item_t *item = malloc(sizeof *item + words * sizeof item->content[0]);
	if (item == NULL) {
		fail("no memory");
	}
	item->words = words;
	for (uint64_t at = 0; at < words; at++) {
		item->content[at] = (uintptr_t)item + at;
	}
	return item;
}

static void give_item(item_t *item)
{
	if (item == NULL) {
		return;
	}
	int is_whole = item->words > 0;
	for (uint64_t at = 0; at < item->words; at++) {
		is_whole = is_whole && item->content[at] == (uintptr_t)item + at;
	}
	if (!is_whole) {
		fail("a block has changed");
	}
	/* One that was handed out twice is given twice. Volatile, because compilers drop what is written before free(). */
	*(volatile uint64_t *)&item->words = 0;
	free(item);
}

static void append(list_t *list, item_t *item)
{
	if (list->count == list->room) {
		list->room = list->room == 0 ? FIRST_ROOM : list->room * 2;
		list->items = realloc(list->items, list->room * sizeof *list->items);
		if (list->items == NULL) {
			fail("no memory");
		}
	}
	list->items[list->count++] = item;
}

static void give_all(list_t *list)
{
	for (size_t at = 0; at < list->count; at++) {
		give_item(list->items[at]);
	}
	free(list->items);
}

static void *work(void *number)
{
	uint32_t random = seed_of((unsigned)(uintptr_t)number + rounds_done * MOST_THREADS);
	list_t passing = {0}, kept = {0};
	for (long taken = 0; taken < blocks_each; taken++) {
		append(next(&random) % 3 == 0 ? &kept : &passing, take_item(&random));
		if (passing.count > 0 && next(&random) % 3 != 0) {
			item_t **item = &passing.items[next(&random) % passing.count];
			give_item(*item);
			*item = NULL;
		}
		if (passing.count > 0 && next(&random) % 4 == 0) {
			item_t **item = &passing.items[next(&random) % passing.count];
			*item = atomic_exchange(&transfers[next(&random) % TRANSFERS], *item);
		}
	}
	give_all(&kept);
	give_all(&passing);
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	blocks_each = arguments.operations / ROUNDS / arguments.threads + 1;
	for (; rounds_done < ROUNDS; rounds_done++) {
		work_with(arguments.threads, work);
	}
	for (unsigned at = 0; at < TRANSFERS; at++) {
		give_item(transfers[at]);
	}
	return report(blocks_each * ROUNDS * arguments.threads);
}
