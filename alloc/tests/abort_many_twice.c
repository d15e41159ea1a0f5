/* slipmalloc: free*: 0x* * */
#include <stdlib.h>

enum { BLOCKS = 5000 };

/* Without knowing who has what, a block that was freed twice is found when it reaches its slab. */
int main(void)
{
	static char *blocks[BLOCKS];
	for (int at = 0; at < BLOCKS; at++) {
		blocks[at] = malloc(100);
	}
	for (int time = 0; time < 2; time++) {
		for (int at = 0; at < BLOCKS; at++) {
			free(blocks[at]);
		}
	}
	return 0;
}
