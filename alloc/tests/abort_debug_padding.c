/* slipmalloc: free: 0x* was written beyond its end */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	/* The block ends 12 bytes before its page does. */
	block[100] = 0;
	free(block);
	return 0;
}
