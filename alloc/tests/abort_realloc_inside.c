/* slipmalloc: realloc: 0x* is not the start of a block */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	return realloc(block + 16, 200) == NULL;
}
