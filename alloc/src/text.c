#include "text.h"

static void add_byte(text_t *text, char byte)
{
	if (text->length < sizeof text->bytes) {
		text->bytes[text->length++] = byte;
	}
}

static void add_digits(text_t *text, uint64_t number, unsigned base, unsigned width)
{
	char digits[20];
	unsigned count = 0;
	do {
		digits[count++] = "0123456789abcdef"[number % base];
		number /= base;
	} while (number > 0);
	while (width > count) {
		add_byte(text, ' ');
		width--;
	}
	while (count > 0) {
		add_byte(text, digits[--count]);
	}
}

void text_add(text_t *text, const char *string)
{
	while (*string != 0) {
		add_byte(text, *string++);
	}
}

void text_add_number(text_t *text, uint64_t number, unsigned width)
{
	add_digits(text, number, 10, width);
}

void text_add_address(text_t *text, uintptr_t address)
{
	text_add(text, "0x");
	add_digits(text, address, 16, 0);
}
