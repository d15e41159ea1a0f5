/* Samples of what is allocated: now and then a block is told of when it is taken and when it is freed, so that whoever listens can say
 * which stacks allocate memory and which hold it. Nothing is asked for that on the fast path: chance hides a block of the magazine that a
 * thread loads, and who comes to it finds the magazine empty. The sample itself is a slab of its own, as large blocks are, so that
 * free() notices it as it notices those.
 *
 * What a thread frees and takes again before its magazine has run empty is not asked, so programs that hold a few blocks for a moment,
 * over and over, allocate more than is told. */
#ifndef SLIPMALLOC_SAMPLE_H
#define SLIPMALLOC_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>

bool sample_is_on(void);

/* Bytes to the next sample: exponentially distributed, so that each byte is as likely as any other one. */
size_t sample_distance(void);

/* A block in the place of one of this class, which is told. NULL if there is no memory for that. */
void *sample_take(unsigned class, size_t bytes);

/* A large block was taken, or changed its size: if there is a sample in it, it is told. */
void sample_large(void *block, size_t bytes);

/* A large block is about to be given back: if it was told, so is this. */
void sample_given(void *block);

#endif
