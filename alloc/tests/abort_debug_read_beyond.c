/* slipmalloc: read: 0x* is beyond the end of the block at 0x* of 5000000 bytes */
#include <stdlib.h>

int main(void)
{
	/* A multiple of 16: there is nothing between the block and what cannot be touched. */
	volatile char *block = malloc(5000000);
	return block[5000000];
}
