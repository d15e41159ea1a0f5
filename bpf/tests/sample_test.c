/* The walk of sample.bpf.c on memory that we make up: chains, loops, faults. */

#include "../sample.bpf.c"

#include <stdio.h>
#include <stdlib.h>

static int failed;

#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition); \
			failed++; \
		} \
	} while (0)

/* ---- the kernel ---- */

#define MEMORY_START 0x10000ull
#define MEMORY_BYTES 65536
#define PAGE 4096

static uint8_t memory[MEMORY_BYTES];
static bool absent[MEMORY_BYTES / PAGE];

static struct task_struct task;
struct task_struct *fake_task = &task;
static const uint32_t watched_pid = 10;
uint32_t fake_pid, fake_tid = 11;
bool fake_ring_is_full;

static struct slip_target target;
static struct scratch scratch;
static uint64_t counts[SLIP_COUNTERS];
static uint64_t known_keys[64];
static uint8_t yes = 1;
static int known_count;

static struct {
	int count;
	uint64_t bytes, flags;
	uint8_t data[sizeof(struct scratch)];
} stacks, samples;

long fake_read(void *to, uint32_t bytes, uint64_t from)
{
	if (from < MEMORY_START || from > MEMORY_START + MEMORY_BYTES || bytes > MEMORY_START + MEMORY_BYTES - from) {
		return -14;
	}
	for (uint64_t page = (from - MEMORY_START) / PAGE; bytes && page <= (from + bytes - 1 - MEMORY_START) / PAGE; page++) {
		if (absent[page]) {
			return -14;
		}
	}
	memcpy(to, memory + (from - MEMORY_START), bytes);
	return 0;
}

void *fake_lookup(const void *map, const void *key)
{
	if (map == &targets) {
		return *(const uint32_t *) key == watched_pid ? &target : NULL;
	}
	if (map == &scratches) {
		return &scratch;
	}
	if (map == &counters) {
		return &counts[*(const uint32_t *) key];
	}
	for (int i = 0; i < known_count; i++) {
		if (known_keys[i] == *(const uint64_t *) key) {
			return &yes;
		}
	}
	return NULL;
}

long fake_update(const void *map, const void *key, const void *value)
{
	(void) value;
	if (map != &known || known_count == 64) {
		return -7;
	}
	known_keys[known_count++] = *(const uint64_t *) key;
	return 0;
}

long fake_output(const void *event, uint64_t bytes, uint64_t flags)
{
	if (fake_ring_is_full) {
		return -11;
	}
	bool is_stack = *(const uint32_t *) event == SLIP_EVENT_STACK;
	typeof(samples) *last = is_stack ? (void *) &stacks : &samples;
	last->count++;
	last->bytes = bytes;
	last->flags = flags;
	CHECK(bytes <= sizeof last->data);
	memcpy(last->data, event, bytes);
	return 0;
}

/* ---- the target ---- */

#define FRAME_BYTES 80
#define KEY 24
#define INSTRUCTION 0
#define PREVIOUS 48

static void put(uint64_t addr, uint64_t word)
{
	memcpy(memory + (addr - MEMORY_START), &word, sizeof word);
}

static uint64_t frame_at(int number)
{
	return MEMORY_START + PAGE + (uint64_t) number * 128;
}

/* Frames 0 to depth - 1, the innermost first; `current` points to them. */
static void chain(int depth)
{
	for (int i = 0; i < depth; i++) {
		put(frame_at(i) + KEY, 1000 + i);
		put(frame_at(i) + INSTRUCTION, 2000 + i);
		put(frame_at(i) + PREVIOUS, i + 1 < depth ? frame_at(i + 1) : 0);
	}
	put(MEMORY_START, depth ? frame_at(0) : 0);
}

static void reset(void)
{
	memset(memory, 0, sizeof memory);
	memset(absent, 0, sizeof absent);
	memset(counts, 0, sizeof counts);
	memset(&stacks, 0, sizeof stacks);
	memset(&samples, 0, sizeof samples);
	known_count = 0;
	fake_pid = watched_pid;
	fake_ring_is_full = false;
	target = (struct slip_target) {
		.current = MEMORY_START,
		.ranges = {{.addr = MEMORY_START, .bytes = 8}, {.addr = MEMORY_START + 64, .bytes = 16}},
		.range_count = 2,
		.frame_bytes = FRAME_BYTES,
		.previous = PREVIOUS,
		.keys = {KEY, INSTRUCTION},
		.id = 7,
	};
}

static const struct slip_sample *look(void)
{
	struct bpf_perf_event_data context = {.regs = {.cs = 0x33, .r14 = frame_at(0), .r15 = 77}};
	int before = samples.count;

	on_clock(&context);
	return samples.count > before ? (const struct slip_sample *) samples.data : NULL;
}

/* ---- the tests ---- */

static void chain_is_copied(void)
{
	reset();
	chain(3);
	put(MEMORY_START + 64, 0xabcd);
	const struct slip_sample *sample = look();
	CHECK(sample && sample->id == 7 && sample->tid == 11 && sample->time_ns == 12345);
	CHECK(sample->depth == 3 && sample->flags == 0 && sample->stack);
	CHECK(sample->anchor_bytes == 24 && samples.bytes == sizeof *sample + 24);
	CHECK(*(uint64_t *) (samples.data + sizeof *sample + 8) == 0xabcd);
	const struct slip_stack *stack = (const struct slip_stack *) stacks.data;
	const uint64_t *addrs = (const uint64_t *) (stack + 1);
	const uint8_t *frames = (const uint8_t *) (addrs + SLIP_MAX_FRAMES);
	CHECK(stacks.count == 1 && stack->key == sample->stack && stack->depth == 3 && stack->frame_bytes == FRAME_BYTES);
	CHECK(stacks.bytes == sizeof *stack + 8 * SLIP_MAX_FRAMES + 3 * SLIP_FRAME_STRIDE);
	for (int i = 0; i < 3; i++) {
		CHECK(addrs[i] == frame_at(i));
		CHECK(*(const uint64_t *) (frames + i * SLIP_FRAME_STRIDE + KEY) == 1000u + i);
	}
}

static void known_stack_is_sent_once(void)
{
	reset();
	chain(3);
	uint64_t first = look()->stack;
	CHECK(look()->stack == first && stacks.count == 1 && samples.count == 2);
	/* Another instruction is another stack. */
	put(frame_at(1) + INSTRUCTION, 5);
	CHECK(look()->stack != first && stacks.count == 2);
	/* So is the same one of another process. */
	put(frame_at(1) + INSTRUCTION, 2001);
	target.id = 8;
	CHECK(look()->stack != first && stacks.count == 3);
}

static void no_frame_is_no_stack(void)
{
	reset();
	chain(0);
	const struct slip_sample *sample = look();
	CHECK(sample && sample->stack == 0 && sample->depth == 0 && sample->flags == 0 && stacks.count == 0);
}

static void deep_stack_is_cut(void)
{
	reset();
	chain(SLIP_MAX_FRAMES);
	CHECK(look()->depth == SLIP_MAX_FRAMES && !(look()->flags & SLIP_SAMPLE_TRUNCATED));
	chain(SLIP_MAX_FRAMES + 1);
	CHECK(look()->depth == SLIP_MAX_FRAMES && look()->flags & SLIP_SAMPLE_TRUNCATED);
}

static void loop_ends(void)
{
	reset();
	chain(5);
	put(frame_at(4) + PREVIOUS, frame_at(2));
	CHECK(look()->depth == SLIP_MAX_FRAMES && look()->flags & SLIP_SAMPLE_TRUNCATED);
}

static void fault_is_told(void)
{
	reset();
	chain(60);
	absent[2] = true;
	const struct slip_sample *sample = look();
	CHECK(sample->flags & SLIP_SAMPLE_FAILED && sample->stack == 0 && sample->depth == 0 && stacks.count == 0);
	absent[2] = false;
	absent[0] = true;
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
}

static void full_ring_is_counted(void)
{
	reset();
	chain(3);
	fake_ring_is_full = true;
	CHECK(!look() && counts[SLIP_COUNT_LOST] == 2 && counts[SLIP_COUNT_EVENTS] == 1);
	/* What was lost is sent when there is room. */
	fake_ring_is_full = false;
	CHECK(look() && stacks.count == 1);
}

static void others_are_left_alone(void)
{
	reset();
	chain(3);
	fake_pid = watched_pid + 1;
	CHECK(!look() && counts[SLIP_COUNT_EVENTS] == 0);
}

static void instruction_comes_from_the_register(void)
{
	reset();
	chain(3);
	uint64_t stored = look()->stack;
	target.in_registers = 1;
	const struct slip_sample *sample = look();
	CHECK(sample->flags & SLIP_SAMPLE_HAS_INSTRUCTION && sample->instruction == 77 && sample->stack != stored);
	/* Not while another frame is innermost, and not in the kernel, where the registers are its own. */
	put(MEMORY_START, frame_at(1));
	CHECK(!(look()->flags & SLIP_SAMPLE_HAS_INSTRUCTION));
	put(MEMORY_START, frame_at(0));
	struct bpf_perf_event_data context = {.regs = {.cs = 0x10, .r14 = frame_at(0), .r15 = 77}};
	on_clock(&context);
	sample = (const struct slip_sample *) samples.data;
	CHECK(sample->flags == SLIP_SAMPLE_IN_KERNEL && sample->stack == stored);
}

static void thread_is_found_by_its_state(void)
{
	const uint64_t base = MEMORY_START + 8 * PAGE, state = MEMORY_START + 9 * PAGE;

	reset();
	chain(3);
	task.thread.fsbase = base;
	target.has_threads = 1;
	target.slots[0] = -32;
	target.slots[1] = 792;
	target.thread_id = 152;
	target.current = 72;
	target.ranges[0] = (struct slip_range) {.addr = 0, .bytes = 160, .of_thread = 1};
	target.range_count = 1;
	put(state + 72, frame_at(0));
	put(state + 152, base);
	CHECK(look()->flags == SLIP_SAMPLE_NO_STATE);
	put(base + 792, state);
	const struct slip_sample *sample = look();
	CHECK(sample->flags == 0 && sample->thread_state == state && sample->depth == 3 && sample->anchor_bytes == 160);
	/* A state of another thread is not taken for this one's. */
	put(base - 32, MEMORY_START + 10 * PAGE);
	CHECK(look()->thread_state == state);
	put(state + 152, base + 1);
	CHECK(look()->flags == SLIP_SAMPLE_NO_STATE);
	/* The frame behind one more pointer. */
	put(state + 152, base);
	target.is_indirect = 1;
	target.indirect = 8;
	put(state + 72, MEMORY_START + 11 * PAGE);
	put(MEMORY_START + 11 * PAGE + 8, frame_at(1));
	CHECK(look()->depth == 2);
}

static void senseless_targets_are_refused(void)
{
	reset();
	chain(3);
	target.frame_bytes = SLIP_FRAME_STRIDE + 1;
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
	target.frame_bytes = 8;
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
	target.frame_bytes = FRAME_BYTES;
	target.ranges[0].bytes = SLIP_RANGE_BYTES + 1;
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
	for (int i = 0; i < SLIP_MAX_RANGES; i++) {
		target.ranges[i] = (struct slip_range) {.addr = MEMORY_START, .bytes = SLIP_RANGE_BYTES};
	}
	target.range_count = SLIP_MAX_RANGES;
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
	/* Offsets beyond a frame stay within the room of two. */
	reset();
	chain(SLIP_MAX_FRAMES);
	target.keys[0] = ~0u;
	target.keys[1] = 0x78;
	CHECK(look()->depth == SLIP_MAX_FRAMES);
}

int main(void)
{
	chain_is_copied();
	known_stack_is_sent_once();
	no_frame_is_no_stack();
	deep_stack_is_cut();
	loop_ends();
	fault_is_told();
	full_ring_is_counted();
	others_are_left_alone();
	instruction_comes_from_the_register();
	thread_is_found_by_its_state();
	senseless_targets_are_refused();
	return failed != 0;
}
