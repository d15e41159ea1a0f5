/* slipmalloc: free: 0x* was written beyond its end */
#include <stdlib.h>

#include "unguarded.h"

int main(void)
{
	char *block = malloc_unguarded(100);
	block[100] = 0;
	free(block);
	return 0;
}
