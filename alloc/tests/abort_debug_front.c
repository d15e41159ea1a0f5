/* slipmalloc: realloc: 0x* was written before its start */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	block[-1] = 0;
	return realloc(block, 200) == NULL;
}
