/* slipmalloc: free: 0x* is not the start of a block */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(10000000);
	free(block + 5000000);
	return 0;
}
