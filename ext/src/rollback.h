#ifndef SLIP_ROLLBACK_H
#define SLIP_ROLLBACK_H

#include "layout.h"

/* How the pages that a request has written are found and put back. All work on the same mapping: the image's file, mapped
 * private over the frozen heap. In the order of preference: */
enum slip_mechanism {
	SLIP_AUTO,      /* the first that works; for large images from the second on */
	SLIP_USERFAULT, /* write protection resolved in the kernel, PAGEMAP_SCAN, learned pages copied unasked (Linux 6.7) */
	SLIP_SCAN,      /* PAGEMAP_SCAN for pages that are no longer the file's (Linux 6.7, without userfaultfd) */
	SLIP_PAGEMAP,   /* the same by reading /proc/self/pagemap */
	SLIP_COPY,      /* all pages, always */
	SLIP_REMAP,     /* the file mapped anew: each page faults again. Never chosen: for comparison */
	SLIP_MECHANISMS
};

extern const char *const slip_mechanism_names[SLIP_MECHANISMS];

/* The memory that is rolled back. */
typedef struct {
	char *base;               /* where it lives */
	size_t bytes;
	int fd;                   /* what it is put back to: a sealed file */
	const char *saved;        /* the same, mapped read-only */
	uint64_t *in_use;         /* a bit a page: others hold nothing and are never written */
	size_t used_pages;
	size_t end_page;          /* behind the last one in use */
	enum slip_mechanism mechanism;
	int userfault_fd, pagemap_fd;
	uint8_t *score;           /* a byte a page: SCORE_LEARNED and more is learned */
	uint8_t *patience;        /* the same: points that it gets when it is learned again */
	void *found;              /* room for what the kernel reports */
	size_t found_room;
	uint64_t faults;          /* of the process, when all pages but the learned ones were known to be unwritten */
	size_t window;            /* page at which the next ageing starts */
	uint32_t whole;           /* requests for which everything is copied, because most was dirty */
	/* What the last roll-back found. */
	size_t dirty_pages, learned_pages;
} slip_rollback_t;

/* Maps the file over `base` and starts to watch it by `wanted`, or the best that works here if it does not.
 * `*reason` says what did not work. False if even the mapping failed; the memory at `base` is then undefined. */
bool slip_rollback_start(slip_rollback_t *, enum slip_mechanism wanted, const char **reason);

/* Puts all written pages back. False if the kernel failed: the memory must not be used. */
bool slip_rollback_run(slip_rollback_t *);

/* Whether every page is what it should be. Reads the whole image. */
bool slip_rollback_verify(const slip_rollback_t *);

/* Stops watching; the memory stays mapped. */
void slip_rollback_stop(slip_rollback_t *);

#endif
