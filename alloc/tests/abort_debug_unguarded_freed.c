/* slipmalloc: free (found late): 0x* was written after it was freed */
#include <malloc.h>
#include <stdlib.h>

#include "unguarded.h"

int main(void)
{
	char *block = malloc_unguarded(100);
	free(block);
	block[50] = 1;
	malloc_trim(0);
	return 0;
}
