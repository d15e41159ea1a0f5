/* slipmalloc: write: 0x* is beyond the end of the block at 0x* of 100 bytes */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	for (int at = 0; at < 200; at++) {
		block[at] = 1;
	}
	return 0;
}
