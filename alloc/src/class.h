/* Size classes of blocks: multiples of 16 bytes up to 256, then eight per doubling up to 4 KiB (at most an eighth is wasted),
 * four up to 8 KiB, and above that up to seven in a slab. Those above 2 KiB leave next to nothing of a slab, and those from 1 to 8 KiB are
 * multiples of 64. Class 0 is no class: a slab without blocks. */
#ifndef SLIPMALLOC_CLASS_H
#define SLIPMALLOC_CLASS_H

#include <stddef.h>
#include <stdint.h>

#define CLASS_SIZES(SIZE)                                                                                                  \
	SIZE(16) SIZE(32) SIZE(48) SIZE(64) SIZE(80) SIZE(96) SIZE(112) SIZE(128)                                              \
	SIZE(144) SIZE(160) SIZE(176) SIZE(192) SIZE(208) SIZE(224) SIZE(240) SIZE(256)                                        \
	SIZE(288) SIZE(320) SIZE(352) SIZE(384) SIZE(416) SIZE(448) SIZE(480) SIZE(512)                                        \
	SIZE(576) SIZE(640) SIZE(704) SIZE(768) SIZE(832) SIZE(896) SIZE(960) SIZE(1024)                                       \
	SIZE(1152) SIZE(1280) SIZE(1408) SIZE(1536) SIZE(1664) SIZE(1792) SIZE(1920) SIZE(2048)                                \
	SIZE(2240) SIZE(2496) SIZE(2688) SIZE(2944) SIZE(3264) SIZE(3584) SIZE(3840) SIZE(4096)                                \
	SIZE(4992) SIZE(5952) SIZE(7232) SIZE(8192) SIZE(9360) SIZE(10912) SIZE(13104) SIZE(16384) SIZE(21840) SIZE(32768)

enum {
	CLASSES = 59,
	CLASS_GRANULE = 16,
	/* Up to here the class is looked up by granules, and then by wide ones. */
	CLASS_LOOKUP_BYTES = 1024,
	CLASS_WIDE_GRANULE = 64,
	CLASS_WIDE_LOOKUP_BYTES = 8192,
	/* Blocks above are whole slabs. */
	CLASS_MOST_BYTES = 32768,
};

extern const uint16_t class_bytes[CLASSES];
extern const uint8_t class_lookup[CLASS_LOOKUP_BYTES / CLASS_GRANULE + 1];
extern const uint8_t class_wide_lookup[(CLASS_WIDE_LOOKUP_BYTES - CLASS_LOOKUP_BYTES) / CLASS_WIDE_GRANULE];
extern const uint32_t class_reciprocals[CLASSES];

/* The smallest class whose blocks hold `bytes`, of which there are at most CLASS_MOST_BYTES. */
static inline unsigned class_of(size_t bytes)
{
	if (bytes <= CLASS_LOOKUP_BYTES) {
		return class_lookup[(bytes + CLASS_GRANULE - 1) / CLASS_GRANULE];
	}
	if (bytes <= CLASS_WIDE_LOOKUP_BYTES) {
		return class_wide_lookup[(bytes - CLASS_LOOKUP_BYTES - 1) / CLASS_WIDE_GRANULE];
	}
	unsigned class = 53;
	while (class_bytes[class] < bytes) {
		class++;
	}
	return class;
}

/* offset / class_bytes[class] for all offsets within a slab: the error of the reciprocal is below 2^-16 there, and no quotient
 * is nearer than that to the next number. */
static inline unsigned class_block_number(unsigned class, uint32_t offset)
{
	return (unsigned)((uint64_t)offset * class_reciprocals[class] >> 32);
}

#endif
