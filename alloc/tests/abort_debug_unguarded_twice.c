/* slipmalloc: free: 0x* is not allocated */
#include <stdlib.h>

#include "unguarded.h"

int main(void)
{
	char *block = malloc_unguarded(100);
	free(block);
	free(block);
	return 0;
}
