/* slipmalloc: malloc_usable_size: 0x* is not allocated */
#include <malloc.h>
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	free(block);
	return malloc_usable_size(block) == 0;
}
