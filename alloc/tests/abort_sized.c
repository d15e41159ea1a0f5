/* slipmalloc: free_sized: 0x* holds fewer bytes */
#include <stdlib.h>

#include "../include/slipmalloc.h"

int main(void)
{
	free_sized(malloc(100), 200);
	return 0;
}
