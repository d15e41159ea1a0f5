/* slipmalloc: free: 0x* is not allocated */
#include <stdlib.h>

int main(void)
{
	char *block = malloc(100);
	/* Far beyond all that was ever taken, and in the region. */
	free(block + ((size_t)1 << 32));
	return 0;
}
