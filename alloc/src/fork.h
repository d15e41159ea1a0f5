/* fork() in a process with threads. */
#ifndef SLIPMALLOC_FORK_H
#define SLIPMALLOC_FORK_H

/* Registers the handlers. Once. */
void fork_register(void);

#endif
