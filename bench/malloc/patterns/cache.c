/* False sharing: each thread takes a small block, writes to it over and over and gives it, which two threads that have blocks in one line of
 * the cache do slowly. An operation is a write.
 *
 *   thrash    each thread takes its blocks itself (active sharing)
 *   scratch   the first block of each thread is taken by the main one, beside those of the others (passive sharing) */
#include "pattern.h"

enum { WRITES = 100000 };

static long objects_each;
static uint64_t *first[MOST_THREADS];

static uint64_t *take_object(void)
{
	uint64_t *object = malloc(sizeof *object);
	if (object == NULL) {
		fail("no memory");
	}
	*object = 0;
	return object;
}

static void *work(void *number)
{
	free(first[(uintptr_t)number]);
	for (long done = 0; done < objects_each; done++) {
		volatile uint64_t *object = take_object();
		for (unsigned write = 0; write < WRITES; write++) {
			(*object)++;
		}
		if (*object != WRITES) {
			fail("a block has changed");
		}
		free((void *)object);
	}
	return NULL;
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	objects_each = arguments.operations / WRITES / arguments.threads + 1;
	if (strcmp(arguments.mode, "scratch") == 0) {
		for (unsigned number = 0; number < arguments.threads; number++) {
			first[number] = take_object();
		}
	}
	work_with(arguments.threads, work);
	return report(objects_each * arguments.threads * WRITES);
}
