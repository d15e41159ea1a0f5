/* slipmalloc: free: 0x* is not allocated */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	/* A block of the same slab that was never given out: the slab is new, and blocks are given out from its start. */
	free(block + 112 * 300);
	return 0;
}
