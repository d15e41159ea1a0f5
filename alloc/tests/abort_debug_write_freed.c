/* slipmalloc: write: 0x* is in the block at 0x* of 100 bytes, which was freed */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	/* Each realloc() moves the block. */
	if (realloc(block, 101) != NULL) {
		block[0] = 1;
	}
	return 0;
}
