#include "stats.h"

#include "../include/slipmalloc.h"
#include "debug.h"
#include "depot.h"
#include "heap.h"
#include "os/os.h"
#include "text.h"

static void write_line(int fd, text_t *text)
{
	text_add(text, "\n");
	os_write(fd, text->bytes, text->length);
	text->length = 0;
}

static void write_bytes(int fd, const char *name, size_t bytes)
{
	text_t text = {0};
	text_add(&text, "slipmalloc: ");
	text_add(&text, name);
	text_add_number(&text, bytes / 1024, 10);
	text_add(&text, " KiB");
	write_line(fd, &text);
}

stats_t stats_count(void)
{
	size_t slab_bytes = 0;
	stats_t stats = {0};
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_counts_t counts = depot_count(class);
		size_t blocks = counts.slabs * slab_block_count(class);
		slab_bytes += counts.slabs * SLAB_BYTES;
		stats.small_taken_bytes += (blocks - counts.free_blocks) * class_bytes[class];
		stats.small_free_bytes += counts.free_blocks * class_bytes[class];
	}
	stats.guarded_bytes = debug_guarded_bytes();
	heap_counts_t heap = heap_count();
	/* Other threads may have taken or given slabs meanwhile. */
	stats.large_bytes = heap.taken_bytes > slab_bytes ? heap.taken_bytes - slab_bytes : 0;
	stats.kept_bytes = heap.kept_bytes;
	stats.usable_bytes = heap.usable_bytes;
	stats.purged_bytes = heap.purged_bytes;
	return stats;
}

void slipmalloc_write_stats(int fd)
{
	stats_t stats = stats_count();
	debug_write_stats(fd);
	write_bytes(fd, "blocks in slabs      ", stats.small_taken_bytes);
	write_bytes(fd, "free in slabs        ", stats.small_free_bytes);
	write_bytes(fd, "large blocks         ", stats.large_bytes);
	write_bytes(fd, "free, kept resident  ", stats.kept_bytes);
	write_bytes(fd, "given back since     ", stats.purged_bytes);
	write_bytes(fd, "usable address space ", stats.usable_bytes);
	text_t text = {0};
	text_add(&text, "slipmalloc:   size     slabs     taken      free    exchanges");
	write_line(fd, &text);
	for (unsigned class = 1; class < CLASSES; class++) {
		depot_counts_t counts = depot_count(class);
		if (counts.slabs == 0 && counts.exchanges == 0) {
			continue;
		}
		text_add(&text, "slipmalloc: ");
		text_add_number(&text, class_bytes[class], 6);
		text_add_number(&text, counts.slabs, 10);
		text_add_number(&text, counts.slabs * slab_block_count(class) - counts.free_blocks, 10);
		text_add_number(&text, counts.free_blocks, 10);
		text_add_number(&text, counts.exchanges, 13);
		write_line(fd, &text);
	}
}
