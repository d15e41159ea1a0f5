/* slipmalloc: free*: 0x* * */
#include <signal.h>
#include <stdlib.h>

enum { BLOCKS = 5000 };

static char *blocks[BLOCKS];

/* What is found under a lock leaves no lock that a handler of SIGABRT would wait for. */
static void allocate(int number)
{
	for (int at = 0; at < BLOCKS; at++) {
		blocks[at] = malloc(100);
	}
	(void)number;
}

int main(void)
{
	signal(SIGABRT, allocate);
	allocate(0);
	for (int time = 0; time < 2; time++) {
		for (int at = 0; at < BLOCKS; at++) {
			free(blocks[at]);
		}
	}
	return 0;
}
