/* Opens a library as PHP does, which opens another one by its own search path, and frees what that allocated. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
	void *library = count > 1 ? dlopen(arguments[1], RTLD_GLOBAL | RTLD_LAZY | RTLD_DEEPBIND) : NULL;
	if (library == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	char *(*text)(void) = (char *(*)(void))dlsym(library, "opener_text");
	void (*release)(void *) = (void (*)(void *))dlsym(library, "opener_free");
	char *given = text();
	if (given == NULL) {
		printf("%s\n", dlerror());
		return 1;
	}
	free(given);
	release(malloc(100));
	return 0;
}
