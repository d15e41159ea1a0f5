/* What a program must not do, found. */
#ifndef SLIPMALLOC_MISUSE_H
#define SLIPMALLOC_MISUSE_H

/* Prints "slipmalloc: WHAT: ADDRESS IS" as one line to standard error and aborts. */
_Noreturn void misuse(const char *what, const void *address, const char *is);

#endif
