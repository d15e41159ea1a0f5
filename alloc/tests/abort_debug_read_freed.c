/* slipmalloc: read: 0x* is in the block at 0x* of 100 bytes, which was freed */
#include <stdlib.h>

int main(void)
{
	volatile char *block = malloc(100);
	free((void *)block);
	return block[50];
}
