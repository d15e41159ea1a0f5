/* slipmalloc: write: 0x* is beyond the end of the block at 0x* of 0 bytes */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(0);
	block[0] = 1;
	return 0;
}
