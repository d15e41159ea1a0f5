/* For programs that are to abort. */
#include <stdlib.h>
#include <sys/resource.h>

/* A block without a guard page, as the first one: there are no addresses for them. */
static void *malloc_unguarded(size_t bytes)
{
	struct rlimit usual, little;
	getrlimit(RLIMIT_AS, &usual);
	little = usual;
	little.rlim_cur = 1;
	setrlimit(RLIMIT_AS, &little);
	void *block = malloc(bytes);
	setrlimit(RLIMIT_AS, &usual);
	return block;
}
