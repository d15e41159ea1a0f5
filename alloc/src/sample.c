#include "sample.h"

#include "../include/slipmalloc.h"
#include "heap.h"
#include "options.h"
#include "os/os.h"
#include "published.h"

enum {
	USUAL_BYTES = 512 * 1024,
	/* With fewer, nearly each larger block of a slab would be one. */
	LEAST_BYTES = 64 * 1024,
	/* A block of so many times the distance has so many samples that chance makes no difference any more. */
	MANY = 16,
};

/* Who attaches to the functions below has the kernel count that here (`ref_ctr_offset` of a uprobe): so it is in the file. */
SLIPMALLOC_API volatile uint16_t slipmalloc_sampling __attribute__((section(".probes"))) = 0;

static _Thread_local uint64_t seed __attribute__((tls_model("initial-exec")));

/* The functions do nothing: that they are called is what is seen. Weak, so that the tests can have others. */
__attribute__((noinline, weak)) void slipmalloc_sampled(const void *block, size_t bytes, size_t stands_for)
{
	__asm__ volatile("" ::"r"(block), "r"(bytes), "r"(stands_for) : "memory");
}

__attribute__((noinline, weak)) void slipmalloc_sample_freed(const void *block)
{
	__asm__ volatile("" ::"r"(block) : "memory");
}

bool sample_is_on(void)
{
	return slipmalloc_sampling != 0 || options.sample_bytes != 0;
}

static size_t mean_bytes(void)
{
	size_t asked = options.sample_bytes != 0 ? options.sample_bytes : USUAL_BYTES;
	return asked > LEAST_BYTES ? asked : LEAST_BYTES;
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
static uint64_t draw(void)
{
	if (seed == 0) {
		seed = (uintptr_t)&seed ^ os_now_ms() << 32;
	}
	uint64_t mixed = seed += 0x9e3779b97f4a7c15;
	mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
	return mixed ^ mixed >> 31;
}

/* Von Neumann's way to an exponential distribution, by comparing alone (Various techniques used in connection with random digits,
 * 1951): of rows of falling numbers, those of odd length give their first one, and each of the others adds 1. */
size_t sample_distance(void)
{
	for (size_t whole = 0;; whole++) {
		uint64_t first = draw(), last = first, next;
		bool is_odd = true;
		while ((next = draw()) < last) {
			last = next;
			is_odd = !is_odd;
		}
		if (is_odd) {
			size_t mean = mean_bytes();
			return whole * mean + (size_t)((unsigned __int128)first * mean >> 64);
		}
	}
}

/* A block is a sample with probability 1 - exp(-x), where x is its share of the mean distance. So it stands for its bytes divided by
 * that: the mean times x / (1 - exp(-x)), whose series is this one. For x up to 1/2 it is right to 1 in a million. */
static size_t stands_for(size_t bytes)
{
	double mean = (double)mean_bytes(), x = (double)bytes / mean;
	return (size_t)(mean * (1 + x / 2 + x * x / 12 - x * x * x * x / 720));
}

static void tell(void *block, size_t bytes, size_t weight)
{
	region_slab(region_slab_number(block))->is_sample = 1;
	slipmalloc_sampled(block, bytes, weight);
}

void *sample_take(unsigned class, size_t bytes)
{
	bool is_zero;
	size_t slab = heap_take_slabs(1, &is_zero);
	if (slab == HEAP_NONE) {
		return NULL;
	}
	region_slab(slab)->run = 1;
	published_add(&published()->large_taken, 1);
	tell(region_address(slab), bytes, stands_for(class_bytes[class]));
	return region_address(slab);
}

void sample_large(void *block, size_t bytes)
{
	if (!sample_is_on()) {
		return;
	}
	size_t mean = mean_bytes(), count = 0;
	if (bytes / mean >= MANY) {
		tell(block, bytes, bytes);
		return;
	}
	for (size_t at = sample_distance(); at < bytes; at += sample_distance()) {
		count++;
	}
	if (count > 0) {
		tell(block, bytes, count * mean);
	}
}

void sample_given(void *block)
{
	slab_t *slab = region_slab(region_slab_number(block));
	if (slab->is_sample != 0) {
		slab->is_sample = 0;
		slipmalloc_sample_freed(block);
	}
}
