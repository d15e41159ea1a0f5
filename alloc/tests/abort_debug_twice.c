/* slipmalloc: free: 0x* is not allocated */
#include <stdlib.h>

enum { BLOCKS = 10000 };

/* With as many blocks taken and freed between the two. */
int main(void)
{
	char *block = malloc(100);
	free(block);
	for (int at = 0; at < BLOCKS; at++) {
		free(malloc(100));
	}
	free(block);
	return 0;
}
