/* slipmalloc: free: 0x* is not allocated */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(10000000);
	free(block);
	free(block);
	return 0;
}
