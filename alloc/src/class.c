#include "class.h"

#define BYTES(size) size,
const uint16_t class_bytes[CLASSES] = {0, CLASS_SIZES(BYTES)};

#define RECIPROCAL(size) (uint32_t)(((1ull << 32) + size - 1) / size),
const uint32_t class_reciprocals[CLASSES] = {0, CLASS_SIZES(RECIPROCAL)};

/* By granules; no bytes are one granule too. */
const uint8_t class_lookup[] = {
	1,
	1, 2, 3, 4, 5, 6, 7, 8,
	9, 10, 11, 12, 13, 14, 15, 16,
	17, 17, 18, 18, 19, 19, 20, 20,
	21, 21, 22, 22, 23, 23, 24, 24,
	25, 25, 25, 25, 26, 26, 26, 26,
	27, 27, 27, 27, 28, 28, 28, 28,
	29, 29, 29, 29, 30, 30, 30, 30,
	31, 31, 31, 31, 32, 32, 32, 32,
};

/* By wide granules, of which CLASS_LOOKUP_BYTES are not here. */
const uint8_t class_wide_lookup[] = {
	33, 33, 34, 34, 35, 35, 36, 36, 37, 37, 38, 38, 39, 39, 40, 40,
	41, 41, 41, 42, 42, 42, 42, 43, 43, 43, 44, 44, 44, 44, 45, 45,
	45, 45, 45, 46, 46, 46, 46, 46, 47, 47, 47, 47, 48, 48, 48, 48,
	49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 49, 50, 50,
	50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 50, 51, 51, 51,
	51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51, 51,
	51, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52, 52,
};
