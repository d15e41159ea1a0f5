/* Its own dependency has the C library first, if RTLD_DEEPBIND is not masked. */
#include <dlfcn.h>
#include <stdlib.h>

char *opener_text(void)
{
	/* Without a slash: found by the search path of this library, or not at all. */
	void *library = dlopen("libslipmalloc-test-dependency.so", RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		return NULL;
	}
	char *(*text)(void) = (char *(*)(void))dlsym(library, "dependency_text");
	return text();
}

void opener_free(void *block)
{
	free(block);
}
