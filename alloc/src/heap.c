#include "heap.h"

#include "lock.h"
#include "options.h"
#include "published.h"

enum {
	WORD_BITS = 64,
	/* The newest huge page may be next to empty. From here on that is at most an eighth of the heap; from the start on, a program that
	 * needs 4.6 MB took 7.6, and from 8 MiB on one of 10 MB took 12. */
	SHARED_WITHOUT_HUGE_PAGES = 8,
	/* Of a superslab that is in use, slabs that are free and were not needed for a while go if they are so many; if others of it were needed,
	 * if they are so many, because its huge page is lost with them. */
	SLABS_TO_PURGE = 2,
	SLABS_TO_PURGE_OF_RECENT = 8,
	/* At most so many superslabs of which some slabs go, in a turn, because the lock is held. */
	PURGED_IN_PART = 32,
	/* A program has shrunk if so many superslabs wait to be given back, and one for so many that are taken. */
	KEPT_IF_SHRUNK = 4,
	TAKEN_IF_SHRUNK = 4,
	/* Superslabs get the pages of others if more than one for so many that are taken waits to be given back: what is left may be where it is needed
	 * next. */
	TAKEN_IF_MOVED = 16,
	/* At most so many do at once, because the lock is held. */
	MOST_MOVED = 32,
	/* Only the first so many do, because each may then be a mapping of its own, of 65,530 that a process has as a rule. */
	MOVED_BELOW = 4096,
};

#define ALL_SLABS UINT32_MAX

static struct {
	lock_t lock;
	/* Held while pages are given back, which is done without the other lock because it may take milliseconds. */
	lock_t purge;
	/* Superslabs below were taken at least once. Those from here on are free and read as zero. */
	size_t frontier;
	/* Shared superslabs with free slabs, by their longest free run, so that one that fits is found by one bit scan. */
	superslab_t *by_run[SLABS_IN_SUPERSLAB];
	uint32_t runs;
	size_t shared;
	/* Superslabs that are taken, and those that are free and will be given back. */
	size_t taken;
	size_t kept;
	/* Of the latter there are many. Read without the lock. */
	_Atomic bool has_shrunk;
	/* The kernel has refused to move pages once. */
	bool cannot_move;
} heap;

static void set_bit(uint64_t *words, size_t bit)
{
	words[bit / WORD_BITS] |= 1ull << bit % WORD_BITS;
}

static void clear_bit(uint64_t *words, size_t bit)
{
	words[bit / WORD_BITS] &= ~(1ull << bit % WORD_BITS);
}

static bool has_bit(const uint64_t *words, size_t bit)
{
	return words[bit / WORD_BITS] >> bit % WORD_BITS & 1;
}

static uint64_t free_word(size_t word)
{
	return region.recent[word] | region.aged[word] | region.zero[word];
}

static bool is_free(size_t superslab)
{
	return free_word(superslab / WORD_BITS) >> superslab % WORD_BITS & 1;
}

/* The lowest free superslab, one whose pages are there if possible. */
static size_t find_one(void)
{
	const uint64_t *maps[] = {region.recent, region.aged, region.zero};
	size_t words = (heap.frontier + WORD_BITS - 1) / WORD_BITS;
	for (unsigned map = 0; map < 3; map++) {
		for (size_t word = 0; word < words; word++) {
			if (maps[map][word] != 0) {
				return word * WORD_BITS + (size_t)__builtin_ctzll(maps[map][word]);
			}
		}
	}
	return heap.frontier;
}

/* The free row that begins at `start`, at most up to the frontier: how many superslabs it has, and how many of the first `count` read as zero,
 * which is what those beyond the frontier do. */
static size_t measure_row(size_t start, size_t count, size_t *zero)
{
	size_t length = 0;
	*zero = 0;
	for (size_t at = start; at < heap.frontier && is_free(at); at++, length++) {
		*zero += length < count && has_bit(region.zero, at);
	}
	*zero += length < count ? count - length : 0;
	return length;
}

/* Of the free rows that are long enough, or reach up to the frontier, the one that takes the fewest pages from the kernel; of several the
 * shortest, which leaves the longer ones for what needs them, and of these the lowest. Lowest first came to a tenth more of memory with 20
 * blocks of 5 to 25 MiB that were replaced over and over. */
static size_t find_row(size_t count)
{
	size_t best = heap.frontier, best_zero = count, best_length = SIZE_MAX, at = 0;
	while (at < heap.frontier && (best_zero > 0 || best_length > count)) {
		if (at % WORD_BITS == 0 && free_word(at / WORD_BITS) == 0) {
			at += WORD_BITS;
			continue;
		}
		size_t zero, length = measure_row(at, count, &zero);
		bool is_long_enough = length >= count || (length > 0 && at + length == heap.frontier);
		if (is_long_enough && (zero < best_zero || (zero == best_zero && length < best_length))) {
			best = at;
			best_zero = zero;
			best_length = length;
		}
		at += length + 1;
	}
	return best;
}

/* So many more superslabs are taken, and kept. */
static void count_superslabs(size_t taken, size_t kept)
{
	heap.taken += taken;
	heap.kept += kept;
	bool has_shrunk = heap.kept >= KEPT_IF_SHRUNK && heap.kept * TAKEN_IF_SHRUNK >= heap.taken;
	atomic_store_explicit(&heap.has_shrunk, has_shrunk, memory_order_relaxed);
}

/* Memory that was kept goes to the program, whose pages are there. */
static void reuse(size_t bytes)
{
	published()->kept_bytes -= bytes;
	published()->reused_bytes += bytes;
}

static void note_huge(size_t superslab, bool is_huge)
{
	if (is_huge && !has_bit(region.huge, superslab)) {
		set_bit(region.huge, superslab);
		published()->huge_bytes += SUPERSLAB_BYTES;
	} else if (!is_huge && has_bit(region.huge, superslab)) {
		clear_bit(region.huge, superslab);
		published()->huge_bytes -= SUPERSLAB_BYTES;
	}
}

/* Gives a superslab that reads as zero the pages of a free one that does not, which takes the kernel a few microseconds; it has 512 pages to
 * clear otherwise. False if there is none to spare. */
static bool move_kept_to(size_t superslab)
{
	size_t kept = heap.kept * TAKEN_IF_MOVED > heap.taken && !heap.cannot_move ? find_one() : heap.frontier;
	if (kept == heap.frontier || has_bit(region.zero, kept)) {
		return false;
	}
	heap.cannot_move = !os_move(region_address(superslab * SLABS_IN_SUPERSLAB), region_address(kept * SLABS_IN_SUPERSLAB), SUPERSLAB_BYTES);
	/* What the kernel was told of pages goes with them. */
	note_huge(superslab, !heap.cannot_move && has_bit(region.huge, kept));
	if (heap.cannot_move) {
		return false;
	}
	clear_bit(region.recent, kept);
	clear_bit(region.aged, kept);
	set_bit(region.zero, kept);
	count_superslabs(0, -1ull);
	reuse(SUPERSLAB_BYTES);
	return true;
}

/* Takes superslabs that are free, or lie beyond the frontier, to which they reach. `fill` is whether what is kept elsewhere may move there. */
static bool take_row(size_t first, size_t count, bool fill, bool *are_zero)
{
	size_t end = first + count;
	if (end < first || end > region.superslab_count || (end > heap.frontier && !region_reach(end))) {
		return false;
	}
	size_t kept = 0, known = end < heap.frontier ? end : heap.frontier;
	for (size_t at = first; at < known; at++) {
		kept += !has_bit(region.zero, at);
		clear_bit(region.recent, at);
		clear_bit(region.aged, at);
	}
	*are_zero = kept == 0;
	reuse(kept * SUPERSLAB_BYTES);
	count_superslabs(count, -kept);
	for (size_t at = first, moved = 0; fill && at < end && at < MOVED_BELOW && moved < MOST_MOVED; at++) {
		bool is_zero = at >= heap.frontier || has_bit(region.zero, at);
		fill = !is_zero || move_kept_to(at);
		moved += is_zero && fill;
		*are_zero = *are_zero && moved == 0;
	}
	for (size_t at = first; at < known; at++) {
		clear_bit(region.zero, at);
	}
	heap.frontier = end > heap.frontier ? end : heap.frontier;
	return true;
}

static void give_row(size_t first, size_t count)
{
	for (size_t at = first; at < first + count; at++) {
		set_bit(region.recent, at);
	}
	published()->kept_bytes += count * SUPERSLAB_BYTES;
	count_superslabs(-count, count);
}

bool heap_has_shrunk(void)
{
	return atomic_load_explicit(&heap.has_shrunk, memory_order_relaxed);
}

static unsigned longest_run(uint32_t bits)
{
	unsigned length = 0;
	for (; bits != 0; length++) {
		bits &= bits << 1;
	}
	return length;
}

/* The lowest place of so many set bits in a row. */
static unsigned find_run(uint32_t bits, unsigned length)
{
	for (unsigned more = 1; more < length; more++) {
		bits &= bits >> 1;
	}
	return (unsigned)__builtin_ctz(bits);
}

static uint32_t run_mask(unsigned start, unsigned length)
{
	return (uint32_t)(((1ull << length) - 1) << start);
}

static void list(superslab_t *superslab)
{
	unsigned run = longest_run(superslab->free_slabs);
	if (run == 0) {
		return;
	}
	superslab->previous = NULL;
	superslab->next = heap.by_run[run];
	if (superslab->next != NULL) {
		superslab->next->previous = superslab;
	}
	heap.by_run[run] = superslab;
	heap.runs |= 1u << run;
}

/* To be called before `free_slabs` changes. */
static void unlist(superslab_t *superslab)
{
	unsigned run = longest_run(superslab->free_slabs);
	if (run == 0) {
		return;
	}
	if (superslab->next != NULL) {
		superslab->next->previous = superslab->previous;
	}
	if (superslab->previous != NULL) {
		superslab->previous->next = superslab->next;
		return;
	}
	heap.by_run[run] = superslab->next;
	if (superslab->next == NULL) {
		heap.runs &= ~(1u << run);
	}
}

static void use_huge_pages(size_t first, size_t count)
{
	size_t end = first + count, after;
	for (size_t at = first; at < end; at = after + 1) {
		for (after = at; after < end && !has_bit(region.huge, after); after++) {
			set_bit(region.huge, after);
		}
		if (after > at) {
			os_use_huge_pages(region_address(at * SLABS_IN_SUPERSLAB), (after - at) * SUPERSLAB_BYTES);
			published()->huge_bytes += (after - at) * SUPERSLAB_BYTES;
		}
	}
}

/* To be called before part of a superslab is given back: else the kernel makes one huge page of what is left and of new memory, when it comes
 * by (khugepaged, every 10 s). */
static void use_small_pages(size_t superslab)
{
	if (has_bit(region.huge, superslab)) {
		os_use_small_pages(region_address(superslab * SLABS_IN_SUPERSLAB), SUPERSLAB_BYTES);
		note_huge(superslab, false);
	}
}

/* A shared superslab, in no list, with a free run of this length. NULL if there is none. */
static superslab_t *shared_with_run(unsigned count)
{
	uint32_t fitting = heap.runs & (UINT32_MAX << count);
	if (fitting != 0) {
		superslab_t *superslab = heap.by_run[__builtin_ctz(fitting)];
		unlist(superslab);
		return superslab;
	}
	bool is_zero;
	size_t index = find_one();
	if (!take_row(index, 1, false, &is_zero)) {
		return NULL;
	}
	bool has_huge_page = ++heap.shared > SHARED_WITHOUT_HUGE_PAGES && options.huge_pages;
	if (has_huge_page) {
		use_huge_pages(index, 1);
	}
	if (!is_zero) {
		/* Not yet: its slabs will be, one by one. */
		published()->kept_bytes += SUPERSLAB_BYTES;
		published()->reused_bytes -= SUPERSLAB_BYTES;
	}
	superslab_t *superslab = &region.superslabs[index];
	superslab->kind = SUPERSLAB_SHARED;
	superslab->is_filled = has_huge_page;
	superslab->free_slabs = superslab->recent_slabs = ALL_SLABS;
	superslab->zero_slabs = is_zero ? ALL_SLABS : 0;
	return superslab;
}

/* Takes free slabs of a superslab that is in no list. */
static void take_from(superslab_t *superslab, uint32_t mask)
{
	reuse((size_t)__builtin_popcount(mask & ~superslab->zero_slabs) * SLAB_BYTES);
	superslab->free_slabs &= ~mask;
	superslab->zero_slabs &= ~mask;
	superslab->recent_slabs |= mask;
	published()->taken_bytes += (size_t)__builtin_popcount(mask) * SLAB_BYTES;
}

size_t heap_take_slabs(unsigned count, bool *are_zero)
{
	size_t first = HEAP_NONE;
	lock_take(&heap.lock);
	superslab_t *superslab = shared_with_run(count);
	if (superslab != NULL) {
		unsigned start = find_run(superslab->free_slabs, count);
		uint32_t mask = run_mask(start, count);
		*are_zero = (superslab->zero_slabs & mask) == mask;
		take_from(superslab, mask);
		list(superslab);
		first = (size_t)(superslab - region.superslabs) * SLABS_IN_SUPERSLAB + start;
	}
	lock_release(&heap.lock);
	return first;
}

void heap_give_slabs(size_t first, unsigned count)
{
	superslab_t *superslab = region_superslab(first);
	lock_take(&heap.lock);
	unlist(superslab);
	superslab->free_slabs |= run_mask(first % SLABS_IN_SUPERSLAB, count);
	superslab->recent_slabs |= run_mask(first % SLABS_IN_SUPERSLAB, count);
	published()->kept_bytes += count * SLAB_BYTES;
	if (superslab->free_slabs == ALL_SLABS) {
		/* From here on it counts as a whole. */
		published()->kept_bytes -= (size_t)__builtin_popcount(~superslab->zero_slabs) * SLAB_BYTES;
		superslab->kind = SUPERSLAB_FREE;
		heap.shared--;
		give_row(first / SLABS_IN_SUPERSLAB, 1);
	} else {
		list(superslab);
	}
	published()->taken_bytes -= count * SLAB_BYTES;
	lock_release(&heap.lock);
}

bool heap_extend_slabs(size_t first, unsigned count, unsigned wanted)
{
	superslab_t *superslab = region_superslab(first);
	unsigned end = first % SLABS_IN_SUPERSLAB + count;
	if (end + (wanted - count) > SLABS_IN_SUPERSLAB) {
		return false;
	}
	uint32_t mask = run_mask(end, wanted - count);
	lock_take(&heap.lock);
	bool fits = (superslab->free_slabs & mask) == mask;
	if (fits) {
		unlist(superslab);
		take_from(superslab, mask);
		list(superslab);
	}
	lock_release(&heap.lock);
	return fits;
}

size_t heap_take_superslabs(size_t count, bool fill, bool *are_zero)
{
	lock_take(&heap.lock);
	size_t first = count == 1 ? find_one() : find_row(count);
	if (take_row(first, count, fill, are_zero)) {
		published()->taken_bytes += count * SUPERSLAB_BYTES;
	} else {
		first = HEAP_NONE;
	}
	lock_release(&heap.lock);
	return first;
}

void heap_give_superslabs(size_t first, size_t count)
{
	lock_take(&heap.lock);
	give_row(first, count);
	published()->taken_bytes -= count * SUPERSLAB_BYTES;
	lock_release(&heap.lock);
}

bool heap_extend_superslabs(size_t first, size_t count, size_t wanted)
{
	bool are_zero, fits = true;
	lock_take(&heap.lock);
	for (size_t at = first + count; at < first + wanted && at < heap.frontier; at++) {
		fits = fits && is_free(at);
	}
	fits = fits && take_row(first + count, wanted - count, false, &are_zero);
	if (fits) {
		published()->taken_bytes += (wanted - count) * SUPERSLAB_BYTES;
	}
	lock_release(&heap.lock);
	return fits;
}

void heap_use_huge_pages(size_t first, size_t count)
{
	lock_take(&heap.lock);
	use_huge_pages(first, count);
	lock_release(&heap.lock);
}

static void count_purge(size_t bytes, bool was_done)
{
	published_t *page = published();
	page->purges++;
	page->purges_refused += !was_done;
	page->purged_bytes += was_done ? bytes : 0;
}

static void count_purge_of_kept(size_t bytes, bool was_done)
{
	count_purge(bytes, was_done);
	published()->kept_bytes -= was_done ? bytes : 0;
}

bool heap_purge_pages(size_t slab, unsigned first_page, unsigned pages)
{
	const size_t page_bytes = SLAB_BYTES / PAGES_IN_SLAB;
	char *start = region_address(slab);
	lock_take(&heap.lock);
	use_small_pages(slab / SLABS_IN_SUPERSLAB);
	lock_release(&heap.lock);
	bool is_done = os_purge(start + first_page * page_bytes, pages * page_bytes);
	lock_take(&heap.lock);
	count_purge(pages * page_bytes, is_done);
	lock_release(&heap.lock);
	return is_done;
}

/* Gives back what has aged, row by row within a word of the map, at most 128 MiB by one call of the kernel. Both locks are
 * held; that of the heap is released meanwhile: nobody finds superslabs that are in no map. */
static void purge_aged(void)
{
	for (size_t word = 0; word * WORD_BITS < heap.frontier; word++) {
		while (region.aged[word] != 0) {
			uint64_t bits = region.aged[word];
			unsigned start = (unsigned)__builtin_ctzll(bits);
			uint64_t rest = ~(bits >> start);
			unsigned length = rest == 0 ? WORD_BITS : (unsigned)__builtin_ctzll(rest);
			uint64_t mask = (length == WORD_BITS ? UINT64_MAX : (1ull << length) - 1) << start;
			size_t first = word * WORD_BITS + start;

			region.aged[word] &= ~mask;
			lock_release(&heap.lock);
			bool is_zero = os_purge(region_address(first * SLABS_IN_SUPERSLAB), length * SUPERSLAB_BYTES);
			/* Nothing is told of superslabs that are free. */
			os_purge(&region.superslabs[first], length * sizeof(superslab_t));
			lock_take(&heap.lock);
			count_purge_of_kept(length * SUPERSLAB_BYTES, is_zero);
			if (is_zero) {
				region.zero[word] |= mask;
				count_superslabs(0, -(size_t)length);
			} else {
				region.recent[word] |= mask;
			}
		}
	}
}

static void age(void)
{
	for (size_t word = 0; word * WORD_BITS < heap.frontier; word++) {
		region.aged[word] |= region.recent[word];
		region.recent[word] = 0;
	}
}

/* Gives back slabs of a superslab, row by row: such as are kept, or such as read as zero, which no counter has. */
static void purge_rows(superslab_t *superslab, uint32_t slabs)
{
	while (slabs != 0) {
		unsigned start = (unsigned)__builtin_ctz(slabs);
		/* Not all 32, because then the superslab would be free. */
		unsigned length = (unsigned)__builtin_ctz(~(slabs >> start));
		uint32_t mask = run_mask(start, length);
		size_t first = (size_t)(superslab - region.superslabs) * SLABS_IN_SUPERSLAB + start;
		bool is_zero = os_purge(region_address(first), length * SLAB_BYTES);
		if ((superslab->zero_slabs & mask) == 0) {
			count_purge_of_kept(length * SLAB_BYTES, is_zero);
		}
		superslab->zero_slabs |= is_zero ? mask : 0;
		slabs &= ~mask;
	}
}

static void purge_slabs(superslab_t *superslab, uint32_t slabs)
{
	bool is_filled = superslab->is_filled && superslab->recent_slabs == 0;
	uint32_t kept = slabs & ~superslab->zero_slabs, filled = is_filled ? slabs & superslab->zero_slabs : 0;
	if ((kept | filled) == 0) {
		return;
	}
	use_small_pages((size_t)(superslab - region.superslabs));
	purge_rows(superslab, filled);
	purge_rows(superslab, kept);
	superslab->is_filled = superslab->is_filled && !is_filled;
}

/* A superslab that one block holds may be free but for that. */
static void purge_quiet_slabs(void)
{
	unsigned left = PURGED_IN_PART;
	for (unsigned run = SLABS_IN_SUPERSLAB - 1; run > 0; run--) {
		for (superslab_t *superslab = heap.by_run[run]; superslab != NULL && left > 0; superslab = superslab->next) {
			bool is_quiet = superslab->recent_slabs == 0;
			uint32_t slabs = superslab->free_slabs & ~superslab->recent_slabs;
			uint32_t resident = is_quiet && superslab->is_filled ? slabs : slabs & ~superslab->zero_slabs;
			if (__builtin_popcount(resident) >= (is_quiet ? SLABS_TO_PURGE : SLABS_TO_PURGE_OF_RECENT)) {
				purge_slabs(superslab, slabs);
				left--;
			}
			superslab->recent_slabs = 0;
		}
	}
}

void heap_decay(void)
{
	lock_take(&heap.purge);
	lock_take(&heap.lock);
	purge_aged();
	purge_quiet_slabs();
	age();
	published()->decay_turns++;
	lock_release(&heap.lock);
	lock_release(&heap.purge);
}

void heap_trim(void)
{
	lock_take(&heap.purge);
	lock_take(&heap.lock);
	age();
	purge_aged();
	for (unsigned run = 1; run < SLABS_IN_SUPERSLAB; run++) {
		for (superslab_t *superslab = heap.by_run[run]; superslab != NULL; superslab = superslab->next) {
			superslab->recent_slabs = 0;
			purge_slabs(superslab, superslab->free_slabs);
		}
	}
	lock_release(&heap.lock);
	lock_release(&heap.purge);
}

heap_counts_t heap_count(void)
{
	lock_take(&heap.lock);
	const published_t *page = published();
	heap_counts_t counts = {
		.usable_bytes = page->usable_bytes,
		.taken_bytes = page->taken_bytes,
		.kept_bytes = page->kept_bytes,
		.purged_bytes = page->purged_bytes,
	};
	lock_release(&heap.lock);
	return counts;
}

void heap_lock(void)
{
	lock_take(&heap.purge);
	lock_take(&heap.lock);
}

void heap_unlock(void)
{
	lock_release(&heap.lock);
	lock_release(&heap.purge);
}

void heap_forget_locks(void)
{
	lock_forget(&heap.purge);
	lock_forget(&heap.lock);
}
