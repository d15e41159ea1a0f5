/* Programs that open libraries with RTLD_DEEPBIND (PHP does, for its extensions) have these libraries look up symbols in their own
 * dependencies first: they then free with the C library what was allocated here, and the C library aborts. So the flag is
 * masked. */
#include <dlfcn.h>
#include <stddef.h>

#include "../include/slipmalloc.h"

typedef void *(*dlopen_t)(const char *file, int flags);

/* It must end in a jump: the C library looks at the return address to learn whose search path it is to use. */
SLIPMALLOC_API void *dlopen(const char *file, int flags)
{
	/* Looked up each time, which is nothing beside opening a library, so that no thread needs to wait for another one. */
	dlopen_t next = (dlopen_t)dlsym(RTLD_NEXT, "dlopen");
	if (next == NULL) {
		return NULL;
	}
	return next(file, flags & ~RTLD_DEEPBIND);
}
