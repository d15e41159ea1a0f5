/* slipmalloc: free: 0x* is not the start of a block */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	free(block + 1);
	return 0;
}
