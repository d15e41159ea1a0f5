/* Each size has the smallest class that holds it, and each address within a slab the right number of its block. */
#include "../src/class.h"
#include "../src/superslab.h"
#include "check.h"

int main(void)
{
	for (size_t bytes = 0; bytes <= CLASS_MOST_BYTES; bytes++) {
		unsigned class = class_of(bytes);
		CHECK(class > 0 && class < CLASSES);
		CHECK(class_bytes[class] >= bytes);
		CHECK(class == 1 || class_bytes[class - 1] < bytes);
	}
	for (unsigned class = 1; class < CLASSES; class++) {
		CHECK(class_bytes[class] % CLASS_GRANULE == 0);
		for (uint32_t offset = 0; offset < SLAB_BYTES; offset++) {
			CHECK(class_block_number(class, offset) == offset / class_bytes[class]);
		}
	}
	CHECK(class_bytes[CLASSES - 1] == CLASS_MOST_BYTES);
	return 0;
}
