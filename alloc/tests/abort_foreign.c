/* slipmalloc: free: 0x* is not from this heap */
#include <stdlib.h>

int main(void)
{
	int local = 1;
	free(&local);
	return 0;
}
