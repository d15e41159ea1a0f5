/* Text that is put together without allocating. What does not fit is cut off. */
#ifndef SLIPMALLOC_TEXT_H
#define SLIPMALLOC_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
	size_t length;
	char bytes[240];
} text_t;

void text_add(text_t *text, const char *string);
/* At least `width` characters, filled up with spaces on the left. */
void text_add_number(text_t *text, uint64_t number, unsigned width);
void text_add_address(text_t *text, uintptr_t address);

#endif
