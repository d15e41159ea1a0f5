#include "misuse.h"

#include <stdlib.h>
#include <unistd.h>

#include "lock.h"
#include "text.h"

void misuse(const char *what, const void *address, const char *is)
{
	text_t text = {0};
	text_add(&text, "slipmalloc: ");
	text_add(&text, what);
	text_add(&text, ": ");
	text_add_address(&text, (uintptr_t)address);
	text_add(&text, " ");
	text_add(&text, is);
	text_add(&text, "\n");
	os_write(STDERR_FILENO, text.bytes, text.length);
	/* A handler of SIGABRT may allocate, and some misuse is found under a lock. */
	lock_all_are_mine = true;
	abort();
}
