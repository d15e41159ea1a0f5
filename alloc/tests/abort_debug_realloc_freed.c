/* slipmalloc: realloc: 0x* is not allocated */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	free(block);
	return realloc(block, 200) == NULL;
}
