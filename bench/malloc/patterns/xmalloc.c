/* Producers and consumers, as many of each as THREADS: batches of small blocks are taken by one thread and given by another, so all memory
 * flows one way. */
#include "pattern.h"

enum { BATCH_BLOCKS = 4096, MOST_BATCHES = 10, BLOCK_BYTES = 64 };

typedef struct batch batch_t;
struct batch {
	batch_t *next;
	block_t *blocks[BATCH_BLOCKS];
};

static struct {
	pthread_mutex_t lock;
	pthread_cond_t has_room, has_some;
	batch_t *first;
	unsigned count;
	/* Batches that are not begun yet, and that no consumer has taken yet. */
	long to_produce, to_consume;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .has_room = PTHREAD_COND_INITIALIZER, .has_some = PTHREAD_COND_INITIALIZER};

static int take_turn(long *left)
{
	pthread_mutex_lock(&queue.lock);
	int has_turn = *left > 0;
	*left -= has_turn;
	pthread_mutex_unlock(&queue.lock);
	return has_turn;
}

static void *produce(void *number)
{
	(void)number;
	while (take_turn(&queue.to_produce)) {
		batch_t *batch = malloc(sizeof *batch);
		if (batch == NULL) {
			fail("no memory");
		}
		for (unsigned at = 0; at < BATCH_BLOCKS; at++) {
			batch->blocks[at] = take(BLOCK_BYTES);
		}
		pthread_mutex_lock(&queue.lock);
		while (queue.count == MOST_BATCHES) {
			pthread_cond_wait(&queue.has_room, &queue.lock);
		}
		batch->next = queue.first;
		queue.first = batch;
		queue.count++;
		pthread_cond_signal(&queue.has_some);
		pthread_mutex_unlock(&queue.lock);
	}
	return NULL;
}

static void *consume(void *number)
{
	(void)number;
	while (take_turn(&queue.to_consume)) {
		pthread_mutex_lock(&queue.lock);
		while (queue.first == NULL) {
			pthread_cond_wait(&queue.has_some, &queue.lock);
		}
		batch_t *batch = queue.first;
		queue.first = batch->next;
		queue.count--;
		pthread_cond_signal(&queue.has_room);
		pthread_mutex_unlock(&queue.lock);
		for (unsigned at = 0; at < BATCH_BLOCKS; at++) {
			give(batch->blocks[at]);
		}
		free(batch);
	}
	return NULL;
}

static void *work(void *number)
{
	return (uintptr_t)number % 2 == 0 ? produce(number) : consume(number);
}

int main(int count, char **values)
{
	arguments_t arguments = parse(count, values);
	long batches = arguments.operations / BATCH_BLOCKS + 1;
	queue.to_produce = queue.to_consume = batches;
	if (arguments.threads > MOST_THREADS / 2) {
		fail("too many threads");
	}
	work_with(arguments.threads * 2, work);
	return report(batches * BATCH_BLOCKS);
}
