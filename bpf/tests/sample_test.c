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
uint64_t fake_time_ns;
/* 0: each wait is looked at. */
uint32_t fake_random;
struct pt_regs fake_regs;

/* What tasks keep, and the waits of each turn. */
static struct {
	const struct task_struct *task;
	struct slip_thread thread;
} stored[4];
static struct {
	struct slip_wait_key key;
	struct slip_wait wait;
} ended[2][8];
static int ended_count[2];
static uint32_t now_is_turn;
/* Never the same: tests change the target as they please. */
static uint32_t generation_is;
static struct slip_slow_call slow;
static struct slip_sleeper listed[4];
static int listed_count;

static struct slip_target target;
static struct scratch scratch[SCRATCHES];
static struct slip_native native;
static struct mm_struct own_memory;
static uint64_t counts[SLIP_COUNTERS];
static uint64_t known_keys[64];
static uint8_t yes = 1;
static int known_count;

static struct {
	int count;
	uint64_t bytes, flags;
	uint8_t data[sizeof(struct scratch)];
} stacks, samples, kernel_events, native_events, allocation_events;

/* The kernel's own stack: so many addresses, or an error; which task was asked for; what happens meanwhile. */
static uint64_t kernel_words[SLIP_MAX_KERNEL_FRAMES + 1];
static int kernel_depth, kernel_walks;
static const struct task_struct *walked;
static void (*during_walk)(void);
static uint64_t asked[SLIP_ADDRESSES], printed[2];
static int printed_count;

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
	if (map == &natives) {
		return &native;
	}
	if (map == &scratches) {
		return &scratch[*(const uint32_t *) key];
	}
	if (map == &counters) {
		return &counts[*(const uint32_t *) key];
	}
	if (map == &turn) {
		return &now_is_turn;
	}
	if (map == &generation) {
		return &generation_is;
	}
	if (map == &slow_calls) {
		return &slow;
	}
	if (map == &addresses) {
		return &asked[*(const uint32_t *) key];
	}
	if (map == &waits_0 || map == &waits_1) {
		int which = map == &waits_1;
		for (int i = 0; i < ended_count[which]; i++) {
			if (memcmp(&ended[which][i].key, key, sizeof(struct slip_wait_key)) == 0) {
				return &ended[which][i].wait;
			}
		}
		return NULL;
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
	if (map == &waits_0 || map == &waits_1) {
		int which = map == &waits_1;
		if (ended_count[which] == 8) {
			return -7;
		}
		memcpy(&ended[which][ended_count[which]].key, key, sizeof(struct slip_wait_key));
		memcpy(&ended[which][ended_count[which]++].wait, value, sizeof(struct slip_wait));
		return 0;
	}
	if (map != &known || known_count == 64) {
		return -7;
	}
	known_keys[known_count++] = *(const uint64_t *) key;
	return 0;
}

void *fake_storage(const struct task_struct *task, bool make)
{
	for (int i = 0; i < 4; i++) {
		if (stored[i].task == task || (make && !stored[i].task)) {
			stored[i].task = task;
			return &stored[i].thread;
		}
	}
	return NULL;
}

long fake_write(const void *bytes, uint32_t length)
{
	CHECK(length == sizeof *listed && listed_count < 4);
	memcpy(&listed[listed_count++], bytes, length);
	return 0;
}

long fake_stack(const struct task_struct *of, void *to, uint32_t bytes)
{
	kernel_walks++;
	walked = of;
	uint32_t copied = kernel_depth * 8 < bytes ? kernel_depth * 8 : bytes;
	if (kernel_depth > 0) {
		memcpy(to, kernel_words, copied);
	}
	void (*during)(void) = during_walk;
	during_walk = NULL;
	if (during) {
		during();
	}
	return kernel_depth < 0 ? kernel_depth : (long) copied;
}

long fake_print(const void *values, uint32_t bytes)
{
	CHECK(bytes == sizeof printed);
	memcpy(printed, values, sizeof printed);
	printed_count++;
	return 0;
}

long fake_output(const void *event, uint64_t bytes, uint64_t flags)
{
	if (fake_ring_is_full) {
		return -11;
	}
	uint32_t kind = *(const uint32_t *) event;
	typeof(samples) *last = kind == SLIP_EVENT_STACK ? (void *) &stacks
			: kind == SLIP_EVENT_KERNEL_STACK ? (void *) &kernel_events
			: kind == SLIP_EVENT_NATIVE ? (void *) &native_events
			: kind == SLIP_EVENT_ALLOCATED || kind == SLIP_EVENT_FREED ? (void *) &allocation_events : &samples;
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

/* The loader does so before the program runs. */
static void want_kernel_stacks(bool wanted)
{
	*(volatile __u64 *) &kernel_stacks = wanted;
}

static void want_native_stacks(bool wanted)
{
	*(volatile __u64 *) &native_stacks = wanted;
}

static void reset(void)
{
	memset(memory, 0, sizeof memory);
	memset(absent, 0, sizeof absent);
	memset(counts, 0, sizeof counts);
	memset(&stacks, 0, sizeof stacks);
	memset(&samples, 0, sizeof samples);
	memset(&kernel_events, 0, sizeof kernel_events);
	memset(&native_events, 0, sizeof native_events);
	memset(&allocation_events, 0, sizeof allocation_events);
	memset(&own_memory, 0, sizeof own_memory);
	for (int i = 0; i <= SLIP_MAX_KERNEL_FRAMES; i++) {
		kernel_words[i] = 0xffffffff81000000ull + i;
	}
	kernel_depth = 3;
	kernel_walks = printed_count = 0;
	walked = NULL;
	during_walk = NULL;
	want_kernel_stacks(1);
	want_native_stacks(0);
	memset(&slow, 0, sizeof slow);
	memset(stored, 0, sizeof stored);
	memset(ended, 0, sizeof ended);
	memset(ended_count, 0, sizeof ended_count);
	memset(&fake_regs, 0, sizeof fake_regs);
	memset(&task, 0, sizeof task);
	task.mm = (struct mm_struct *) memory;
	fake_time_ns = 12345;
	fake_random = 0;
	now_is_turn = 0;
	listed_count = 0;
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

static uint64_t fake_rip;

static const struct slip_sample *look(void)
{
	struct bpf_perf_event_data context = {.regs = fake_regs};
	int before = samples.count;

	context.regs.cs = fake_regs.cs ? fake_regs.cs : 0x33;
	context.regs.rip = fake_rip;
	context.regs.r14 = frame_at(0);
	context.regs.r15 = 77;
	on_clock(&context);
	return samples.count > before ? (const struct slip_sample *) samples.data : NULL;
}

/* No target has changed since the last time. */
static void leave_as_before(bool preempted)
{
	struct task_struct other = {0};
	on_switch((__u64[]) {preempted, (__u64) &task, (__u64) &other});
}

static void leave(bool preempted)
{
	generation_is++;
	leave_as_before(preempted);
}

/* Or comes back. */
static void come_back(void)
{
	struct task_struct other = {0};
	on_switch((__u64[]) {0, (__u64) &other, (__u64) &task});
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

static void frames_are_followed_wherever_they_lie(void)
{
	/* Above each other, across the end of a page, alone between two others, above its callee, and at the begin of a page. */
	static const uint64_t where[] = {3 * PAGE + 104, 3 * PAGE - 40, 3 * PAGE - 120, 9 * PAGE + 16, 2 * PAGE + 1000, 2 * PAGE + 88,
			2 * PAGE + 512, 2 * PAGE, PAGE + 4088, PAGE + 8};
	enum { COUNT = sizeof where / sizeof *where };

	reset();
	target.ranges[1].addr = MEMORY_START + 16;
	for (int i = 0; i < COUNT; i++) {
		put(MEMORY_START + where[i] + KEY, 1000 + i);
		put(MEMORY_START + where[i] + PREVIOUS, i + 1 < COUNT ? MEMORY_START + where[i + 1] : 0);
	}
	put(MEMORY_START, MEMORY_START + where[0]);
	const struct slip_sample *sample = look();
	const uint64_t key = sample->stack, *addrs = (const uint64_t *) (stacks.data + sizeof(struct slip_stack));
	CHECK(sample->depth == COUNT && sample->flags == 0 && stacks.count == 1);
	for (int i = 0; i < COUNT; i++) {
		const uint8_t *record = (const uint8_t *) (addrs + SLIP_MAX_FRAMES) + i * SLIP_FRAME_STRIDE;
		CHECK(addrs[i] == MEMORY_START + where[i] && *(const uint64_t *) (record + KEY) == 1000u + i);
	}
	/* Each counts. */
	for (int i = 0; i < COUNT; i++) {
		put(MEMORY_START + where[i] + INSTRUCTION, 5);
		CHECK(look()->stack != key);
		put(MEMORY_START + where[i] + INSTRUCTION, 0);
		CHECK(look()->stack == key);
	}
	/* One that ends in a page that is not there. */
	absent[3] = true;
	put(MEMORY_START, MEMORY_START + where[1]);
	CHECK(look()->flags & SLIP_SAMPLE_FAILED);
	put(MEMORY_START, MEMORY_START + where[2]);
	CHECK(look()->depth == COUNT - 2);
}

static void frames_are_followed_from_where_the_outermost_was(void)
{
	uint64_t keys[5];

	reset();
	task.__state = 1;
	/* As before, deeper, less deep, with the outermost elsewhere, and where it was is nothing any more. */
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 5; i++) {
			const int depths[] = {3, 40, 2, 2, 3};
			chain(0);
			absent[1] = false;
			/* Callers lie below. */
			const uint64_t top = MEMORY_START + 4 * PAGE, low = i == 3 ? 9 * PAGE : 0;
			for (int at = 0; at < depths[i]; at++) {
				const uint64_t frame = top - 120 * at + (at ? low : 0), caller = top - 120 * (at + 1) + low;
				put(frame + KEY, 1000 + at);
				put(frame + INSTRUCTION, 2000 + at);
				put(frame + PREVIOUS, at + 1 < depths[i] ? caller : 0);
			}
			put(MEMORY_START, top);
			(round ? leave : leave_as_before)(false);
			come_back();
			const struct slip_wait_key *key = &stored[0].thread.sleeper.key;
			if (round == 0) {
				keys[i] = key->stack;
			}
			CHECK(key->stack && key->stack == keys[i] && stored[0].thread.outermost == top - 120 * (depths[i] - 1) + low);
		}
	}
	CHECK(keys[0] != keys[1] && keys[1] != keys[2] && keys[2] == keys[3] && keys[4] == keys[0]);
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
	/* Also if the register of one holds what makes up for that. */
	target.in_registers = 1;
	uint64_t other = look()->stack;
	target.in_registers = 0;
	target.id = 8 ^ 77;
	CHECK(look()->stack != other && stacks.count == 5);
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
	/* Code that the engine has compiled keeps none, whatever the registers hold. */
	target.compiled_begin = 0x5000;
	target.compiled_end = 0x6000;
	for (fake_rip = 0x5000; fake_rip < 0x6001; fake_rip += 0xfff) {
		CHECK(look()->flags & SLIP_SAMPLE_HAS_INSTRUCTION && look()->instruction == 0);
	}
	fake_rip = 0x6000;
	CHECK(look()->instruction == 77);
	fake_rip = 0;
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
	target.state_bytes = 160;
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
	put(MEMORY_START + 11 * PAGE + 16, state + 200);
	CHECK(look()->depth == 2);
	/* The outermost of these in what was copied of the state, to its last byte, or not all of it. */
	target.state_bytes = 224;
	CHECK(look()->depth == 2 && look()->flags == 0);
	target.state_bytes = 223;
	CHECK(look()->depth == 2 && look()->flags == 0);
	put(MEMORY_START + 11 * PAGE + 16, state + 196);
	put(state + 208, 1);
	CHECK(look()->flags == SLIP_SAMPLE_FAILED);
	put(state + 208, 0);
	put(MEMORY_START + 11 * PAGE + 16, state + 200);
	target.state_bytes = SLIP_STATE_BYTES + 1;
	CHECK(look()->flags == SLIP_SAMPLE_NO_STATE);
	target.state_bytes = 224;
	/* Before the first call. */
	put(state + 72, state + 200);
	CHECK(look()->flags == 0 && look()->stack == 0 && look()->thread_state == state);
}

/* A thread of CPython 3.11 in the second of two calls of the interpreter, at 2 and 3 of so many bytes on the stack of C. */
#define CALL_BYTES 256

static uint64_t two_calls(uint64_t c_stack)
{
	const uint64_t base = MEMORY_START + 8 * PAGE, state = MEMORY_START + 9 * PAGE;
	const uint64_t inner = c_stack + 2 * CALL_BYTES, outer = c_stack + 3 * CALL_BYTES;

	reset();
	chain(4);
	task.thread.fsbase = base;
	target.has_threads = 1;
	target.slots[0] = -32;
	target.thread_id = 152;
	target.current = 72;
	target.state_bytes = 224;
	target.is_indirect = 1;
	target.indirect = 8;
	put(base - 32, state);
	put(state + 152, base);
	put(state + 72, inner);
	/* Not the one that r14 holds. */
	put(inner + 8, frame_at(1));
	put(inner + 16, outer);
	put(outer + 8, frame_at(2));
	put(outer + 16, state + 200);
	const uint64_t key = look()->stack;
	CHECK(samples.count == 1 && stacks.count == 1 && ((struct slip_stack *) stacks.data)->depth == 3);
	/* The third is being entered: nothing of it is known yet. */
	put(state + 72, c_stack + CALL_BYTES);
	return key;
}

static void caller_is_known_from_registers(uint64_t c_stack)
{
	const uint64_t key = two_calls(c_stack), entered = c_stack + CALL_BYTES, inner = c_stack + 2 * CALL_BYTES;

	CHECK(look()->flags == SLIP_SAMPLE_FAILED);
	fake_regs.rax = inner;
	CHECK(look()->stack == key && look()->flags == 0 && look()->depth == 3);
	fake_regs.rax = 0;
	fake_regs.rcx = frame_at(1);
	CHECK(look()->stack == key && look()->flags == 0);
	/* What is left from others leads to frames that do not belong to the call before, in a circle, or nowhere. */
	const uint64_t left = MEMORY_START + 13 * PAGE;
	put(entered + 8, left);
	put(entered + 16, inner);
	CHECK(look()->stack == key && look()->flags == 0);
	put(entered + 8, 1);
	CHECK(look()->stack == key && look()->flags == 0);
	/* A register that was saved on the way looks like a call. */
	fake_regs.r12 = left;
	put(entered + 64, left);
	put(entered + 72, entered + 128);
	CHECK(look()->stack == key && look()->flags == 0);
	/* Frames of another call are no proof. */
	fake_regs.rcx = 0;
	put(entered + 64, frame_at(3));
	fake_regs.r12 = frame_at(3);
	put(entered + 72, inner);
	CHECK(look()->flags == SLIP_SAMPLE_FAILED);
	/* In the kernel these are others. */
	fake_regs.rcx = frame_at(1);
	fake_regs.cs = 0x10;
	CHECK(look()->flags == (SLIP_SAMPLE_FAILED | SLIP_SAMPLE_IN_KERNEL));
	/* But those that it keeps for a thread that leaves its CPU are the thread's. */
	leave(true);
	CHECK(((struct slip_sample *) samples.data)->stack == key && ((struct slip_sample *) samples.data)->flags == 0);
}

static void call_that_is_being_entered_shows_its_caller(void)
{
	caller_is_known_from_registers(MEMORY_START + 10 * PAGE);
	/* Where the stack of C ends soon. */
	caller_is_known_from_registers(MEMORY_START + MEMORY_BYTES - 6 * CALL_BYTES);
}

static void call_without_a_way_to_its_caller_is_left_out(void)
{
	const uint64_t c_stack = MEMORY_START + 10 * PAGE, entered = c_stack + CALL_BYTES;

	two_calls(c_stack);
	fake_regs.rcx = frame_at(1);
	/* More of them than are tried lie before it. */
	for (int i = 0; i < MAX_CALLERS; i++) {
		put(entered + 32 + 16 * i, frame_at(1));
		put(entered + 40 + 16 * i, c_stack + 8 * CALL_BYTES);
	}
	CHECK(look()->flags == SLIP_SAMPLE_FAILED);
	absent[10] = true;
	CHECK(look()->flags == SLIP_SAMPLE_FAILED);
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

static void wake(void)
{
	on_wakeup((__u64[]) {(__u64) &task});
}

static void kernel_stack_is_behind_the_anchor(void)
{
	struct bpf_perf_event_data context = {.regs = {.cs = 0x10}};
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	const uint8_t *behind = samples.data + sizeof *sample + 24;

	reset();
	chain(3);
	on_clock(&context);
	CHECK(sample->anchor_bytes == 24 && sample->kernel_bytes == 24 && samples.bytes == sizeof *sample + 48 && !walked);
	CHECK(memcmp(behind, kernel_words, 24) == 0 && sample->depth == 3);
	/* Deeper ones lack their outer end. */
	kernel_depth = SLIP_MAX_KERNEL_FRAMES + 1;
	on_clock(&context);
	CHECK(sample->kernel_bytes == SLIP_KERNEL_BYTES && memcmp(behind, kernel_words, SLIP_KERNEL_BYTES) == 0);
	/* One that cannot be had takes nothing from the others. */
	kernel_depth = -14;
	on_clock(&context);
	CHECK(sample->kernel_bytes == 0 && samples.bytes == sizeof *sample + 24 && sample->depth == 3);
	CHECK(sample->flags == SLIP_SAMPLE_IN_KERNEL);
	/* Nobody asks for it in user mode, of a stack that could not be read, or if none is wanted. */
	kernel_depth = 3;
	kernel_walks = 0;
	look();
	absent[1] = true;
	on_clock(&context);
	CHECK(sample->flags & SLIP_SAMPLE_FAILED);
	absent[1] = false;
	want_kernel_stacks(0);
	on_clock(&context);
	CHECK(kernel_walks == 0 && sample->kernel_bytes == 0 && sample->flags == SLIP_SAMPLE_IN_KERNEL);
}

static void largest_anchor_leaves_room_for_the_kernel_stack(void)
{
	struct bpf_perf_event_data context = {.regs = {.cs = 0x10}};

	reset();
	chain(1);
	target.range_count = 3;
	for (int i = 0; i < 3; i++) {
		target.ranges[i] = (struct slip_range) {.addr = MEMORY_START, .bytes = SLIP_RANGE_BYTES};
	}
	kernel_depth = SLIP_MAX_KERNEL_FRAMES;
	on_clock(&context);
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(samples.bytes == sizeof *sample + SLIP_ANCHOR_BYTES + SLIP_KERNEL_BYTES && sample->flags == SLIP_SAMPLE_IN_KERNEL);
}

static void long_waits_tell_where_in_the_kernel(void)
{
	const struct slip_kernel_stack *told = (const struct slip_kernel_stack *) kernel_events.data;

	reset();
	chain(3);
	task.__state = 1;
	/* Short, long by a hair, long, and long somewhere else. */
	static const uint64_t blocked[] = {SLIP_LONG_WAIT_NS - 1, SLIP_LONG_WAIT_NS, 5 * SLIP_LONG_WAIT_NS, SLIP_LONG_WAIT_NS};
	for (int i = 0; i < 4; i++) {
		kernel_words[0] += i == 3;
		leave(false);
		fake_time_ns += blocked[i];
		wake();
		/* To be ready does not count. */
		fake_time_ns += SLIP_LONG_WAIT_NS;
		come_back();
	}
	CHECK(kernel_walks == 3 && walked == &task && kernel_events.count == 2);
	CHECK(told->bytes == 24 && kernel_events.bytes == sizeof *told + 24 && memcmp(told + 1, kernel_words, 24) == 0);
	/* The first is where waits are added up whose length is not known yet. */
	CHECK(ended_count[0] == 3 && ended[0][0].key.kernel == 0 && ended[0][0].wait.count == 1);
	CHECK(ended[0][0].wait.blocked_ns == SLIP_LONG_WAIT_NS - 1);
	CHECK(ended[0][1].key.kernel && ended[0][1].wait.count == 2 && ended[0][1].wait.blocked_ns == 6 * SLIP_LONG_WAIT_NS);
	CHECK(ended[0][2].key.kernel == told->key && told->key % 2 == 0 && ended[0][2].wait.count == 1);
	CHECK(ended[0][2].key.kernel != ended[0][1].key.kernel && ended[0][2].key.stack == ended[0][0].key.stack);
	/* Who lost its CPU was not blocked, and what cannot be walked is told without. */
	leave(true);
	fake_time_ns += 5 * SLIP_LONG_WAIT_NS;
	come_back();
	CHECK(kernel_walks == 3);
	kernel_depth = -14;
	leave(false);
	fake_time_ns += SLIP_LONG_WAIT_NS;
	come_back();
	CHECK(kernel_walks == 4 && ended[0][0].wait.count == 2);
	/* Nobody asks if none is wanted. */
	want_kernel_stacks(0);
	leave(false);
	fake_time_ns += SLIP_LONG_WAIT_NS;
	come_back();
	CHECK(kernel_walks == 4 && ended[0][0].wait.count == 3);
}

static void kernel_stack_that_was_lost_is_sent_again(void)
{
	reset();
	chain(3);
	for (int i = 0; i < 2; i++) {
		fake_ring_is_full = i == 0;
		task.__state = 1;
		leave(false);
		fake_time_ns += SLIP_LONG_WAIT_NS;
		come_back();
	}
	CHECK(kernel_events.count == 1 && counts[SLIP_COUNT_LOST] == 3);
}

static void addresses_are_printed_with_their_number(void)
{
	struct bpf_iter_meta meta = {0};
	struct bpf_iter__task context = {.meta = &meta, .task = &task};

	reset();
	name_addresses(&context);
	CHECK(printed_count == 0);
	asked[5] = 77;
	name_addresses(&context);
	CHECK(printed_count == 1 && printed[0] == 5 && printed[1] == 77);
	/* Once for all tasks. */
	meta.seq_num = 1;
	name_addresses(&context);
	CHECK(printed_count == 1);
	asked[5] = 0;
}

static void waits_are_added_up(void)
{
	reset();
	chain(3);
	put(MEMORY_START + 128, 99);
	target.request = MEMORY_START + 128;
	task.__state = 1;
	fake_regs.orig_rax = 35;
	for (int i = 0; i < 3; i++) {
		leave(false);
		fake_time_ns += 100;
		wake();
		fake_time_ns += 10;
		come_back();
		fake_time_ns += 5;
	}
	/* The event comes with the first. */
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(samples.count == 1 && stacks.count == 1 && sample->kind == SLIP_EVENT_WAIT && sample->call == 35);
	CHECK(ended_count[0] == 1 && ended[0][0].key.stack == sample->stack && ended[0][0].key.request == 99);
	CHECK(ended[0][0].key.id == 7 && ended[0][0].key.tid == 11 && ended[0][0].key.call == 35);
	struct slip_wait *wait = &ended[0][0].wait;
	CHECK(wait->count == 3 && wait->blocked_ns == 300 && wait->ready_ns == 30);
}

static void wait_that_ends_in_the_next_turn_counts_there(void)
{
	reset();
	chain(3);
	task.__state = 1;
	leave(false);
	now_is_turn = 1;
	fake_time_ns += 100;
	wake();
	come_back();
	CHECK(ended[0][0].wait.count == 0 && ended[1][0].wait.count == 1 && ended[1][0].wait.blocked_ns == 100);
	CHECK(memcmp(&ended[0][0].key, &ended[1][0].key, sizeof ended[0][0].key) == 0);
}

static void preempted_threads_are_ready(void)
{
	reset();
	chain(3);
	leave(true);
	fake_time_ns += 40;
	come_back();
	CHECK(ended[0][0].key.call == SLIP_CALL_PREEMPTED);
	CHECK(ended[0][0].wait.count == 1 && ended[0][0].wait.blocked_ns == 0 && ended[0][0].wait.ready_ns == 40);
	/* It goes on, and the kernel asks it to leave although it would not have to wait. */
	leave(false);
	CHECK(ended[0][0].key.call == SLIP_CALL_PREEMPTED);
}

static void who_loses_its_cpu_again_and_again_is_looked_at_now_and_then(void)
{
	const struct slip_wait_key *first = &ended[0][0].key;

	reset();
	chain(3);
	target.request = MEMORY_START + 64;
	put(MEMORY_START + 64, 5);
	fake_random = 1;
	leave(true);
	fake_time_ns += 10;
	come_back();
	/* Elsewhere, but so soon that it is taken to be where it was. A wait of the other kind in between changes nothing. */
	chain(2);
	task.__state = 1;
	leave_as_before(false);
	fake_time_ns += 5;
	come_back();
	leave_as_before(true);
	fake_time_ns += 20;
	come_back();
	CHECK(ended_count[0] == 2 && first->call == SLIP_CALL_PREEMPTED && ended[0][0].wait.count == 2);
	CHECK(ended[0][0].wait.ready_ns == 30 && ended[0][0].wait.blocked_ns == 0 && ended[0][1].wait.blocked_ns == 5);
	CHECK(ended[0][1].key.stack != first->stack && ended[0][1].key.tid == 11 && first->tid == 11);
	/* By chance it is looked at. */
	fake_random = SLIP_LOOK_ONE_IN;
	leave_as_before(true);
	come_back();
	CHECK(ended_count[0] == 3 && ended[0][2].key.stack == ended[0][1].key.stack && ended[0][2].wait.count == 1);
	/* As it is in another request, after a while, or when waits have been taken. */
	fake_random = 1;
	put(MEMORY_START + 64, 6);
	leave_as_before(true);
	come_back();
	CHECK(ended_count[0] == 4 && ended[0][3].key.request == 6);
	chain(1);
	fake_time_ns += SLIP_STANDS_FOR_NS - 1;
	leave_as_before(true);
	come_back();
	CHECK(ended_count[0] == 4 && ended[0][3].wait.count == 2);
	fake_time_ns += 1;
	leave_as_before(true);
	come_back();
	CHECK(ended_count[0] == 5 && ended[0][4].wait.count == 1);
	chain(3);
	now_is_turn = 1;
	leave_as_before(true);
	come_back();
	CHECK(ended_count[1] == 1 && ended[1][0].key.stack == first->stack && ended[1][0].wait.count == 1);
}

/* A thread of a process of several, whose storage names `state`. */
static void one_of_several(uint64_t base, uint64_t state)
{
	reset();
	chain(3);
	task.__state = 1;
	task.thread.fsbase = base;
	target.has_threads = 1;
	target.slots[0] = 792;
	target.thread_id = 152;
	target.current = 72;
	target.state_bytes = 160;
	target.ranges[0] = (struct slip_range) {.addr = 0, .bytes = 160, .of_thread = 1};
	target.range_count = 1;
	put(state + 72, frame_at(0));
	put(state + 152, base);
	put(base + 792, state);
}

static void state_is_looked_up_now_and_then(void)
{
	const uint64_t base = MEMORY_START + 8 * PAGE, state = MEMORY_START + 9 * PAGE;

	one_of_several(base, state);
	leave(false);
	come_back();
	CHECK(ended_count[0] == 1 && ended[0][0].wait.count == 1);
	/* The storage is not read, what it names is: the thread has gone on there. */
	absent[8] = true;
	put(state + 72, frame_at(1));
	fake_time_ns += SLIP_STATE_NS - 1;
	leave_as_before(false);
	come_back();
	CHECK(ended_count[0] == 2 && ended[0][1].wait.count == 1 && ended[0][1].key.stack != ended[0][0].key.stack);
	/* Not for long, not if the state says that it is another's, and not in another program. */
	fake_time_ns += 1;
	leave_as_before(false);
	come_back();
	CHECK(ended_count[0] == 2 && ended[0][1].wait.count == 1);
	for (int i = 0; i < 2; i++) {
		one_of_several(base, state);
		leave(false);
		come_back();
		absent[8] = true;
		put(state + 152, base + i);
		(i ? leave_as_before : leave)(false);
		come_back();
		CHECK(ended_count[0] == 1 && ended[0][0].wait.count == 1);
	}
}

static void target_that_is_forgotten_is_not_looked_at(void)
{
	reset();
	chain(3);
	task.__state = 1;
	leave(false);
	come_back();
	/* It is known who the thread is, and its process is not watched any more. */
	stored[0].thread.sleeper.pid++;
	leave_as_before(false);
	come_back();
	CHECK(ended[0][0].wait.count == 2);
	leave(false);
	come_back();
	CHECK(ended[0][0].wait.count == 2 && ended_count[0] == 1);
}

static void return_that_was_not_seen_is_made_up_for(void)
{
	reset();
	chain(3);
	task.__state = 1;
	fake_regs.orig_rax = 230;
	task.se.prev_sum_exec_runtime = 5000;
	task.se.sum_exec_runtime = 5990;
	leave(false);
	fake_time_ns += 100;
	wake();
	fake_time_ns += 1000;
	leave(false);
	CHECK(ended[0][0].wait.count == 1 && ended[0][0].wait.blocked_ns == 100 && ended[0][0].wait.ready_ns == 10);
	/* Nobody told of the wake-up either. */
	fake_time_ns += 1000;
	leave(false);
	CHECK(ended[0][0].wait.count == 2 && ended[0][0].wait.blocked_ns == 110 && ended[0][0].wait.ready_ns == 10);
	/* How long it has run is not known. */
	task.se.prev_sum_exec_runtime = 0;
	fake_time_ns += 1000;
	leave(false);
	CHECK(ended[0][0].wait.count == 3 && ended[0][0].wait.blocked_ns == 1110 && ended[0][0].wait.ready_ns == 10);
	fake_time_ns += 100;
	wake();
	fake_time_ns += 1000;
	leave(false);
	CHECK(ended[0][0].wait.count == 4 && ended[0][0].wait.blocked_ns == 1210 && ended[0][0].wait.ready_ns == 10);
}

static void stack_of_a_long_wait_is_known_when_it_is_woken(void)
{
	reset();
	chain(3);
	task.__state = 1;
	leave(false);
	fake_time_ns += SLIP_LONG_WAIT_NS;
	wake();
	/* It runs, and we are not told. */
	kernel_words[0]++;
	leave(false);
	const struct slip_kernel_stack *told = (const struct slip_kernel_stack *) kernel_events.data;
	CHECK(kernel_walks == 1 && kernel_events.count == 1 && ended[0][1].wait.count == 1);
	CHECK(told->key && ended[0][1].key.kernel == told->key);
	/* So it does again, and is woken before it has gone to sleep. */
	fake_time_ns += SLIP_LONG_WAIT_NS;
	task.on_cpu = 1;
	wake();
	CHECK(kernel_walks == 1 && stored[0].thread.sleeper.ready_ns == 0);
	task.on_cpu = 0;
	leave(false);
	come_back();
	CHECK(kernel_walks == 1 && ended[0][0].key.kernel == 0 && ended[0][0].wait.count == 2);
}

static void who_waits_now_is_listed(void)
{
	struct bpf_iter_meta meta = {0};
	struct bpf_iter__task context = {.meta = &meta, .task = &task};

	reset();
	chain(3);
	list_sleepers(&context);
	CHECK(listed_count == 0);
	task.__state = 1;
	want_kernel_stacks(0);
	leave(false);
	list_sleepers(&context);
	CHECK(listed_count == 1 && listed[0].begin_ns == 12345 && listed[0].ready_ns == 0 && listed[0].key.tid == 11);
	/* It runs, and we were not told. */
	task.on_cpu = 1;
	list_sleepers(&context);
	CHECK(listed_count == 1);
	task.on_cpu = 0;
	come_back();
	list_sleepers(&context);
	CHECK(listed_count == 1);
}

static void wait_again(void)
{
	come_back();
	leave(false);
}

static struct task_struct other_task;

static void another_is_woken(void)
{
	kernel_words[0]++;
	on_wakeup((__u64[]) {(__u64) &other_task});
}

static void listing_is_not_disturbed_by_what_happens_meanwhile(void)
{
	struct bpf_iter_meta meta = {0};
	struct bpf_iter__task context = {.meta = &meta, .task = &task};
	const struct slip_kernel_stack *told = (const struct slip_kernel_stack *) kernel_events.data;

	reset();
	chain(3);
	task.__state = other_task.__state = 1;
	other_task.mm = task.mm;
	struct task_struct none = {0};
	leave(false);
	on_switch((__u64[]) {false, (__u64) &other_task, (__u64) &none});
	fake_time_ns += SLIP_LONG_WAIT_NS;
	during_walk = another_is_woken;
	list_sleepers(&context);
	/* The event that was sent last is that of the listing, although it looked at its stack first. */
	CHECK(kernel_walks == 2 && kernel_events.count == 2 && listed_count == 1 && listed[0].key.kernel == told->key);
	CHECK(*(const uint64_t *) (told + 1) == kernel_words[0] - 1);
}

static void sleepers_are_listed_with_where_they_are(void)
{
	struct bpf_iter_meta meta = {0};
	struct bpf_iter__task context = {.meta = &meta, .task = &task};

	reset();
	chain(3);
	task.__state = 1;
	leave(false);
	/* It may come to be a long one. */
	list_sleepers(&context);
	CHECK(listed_count == 0 && kernel_walks == 0);
	fake_time_ns += SLIP_LONG_WAIT_NS;
	list_sleepers(&context);
	const struct slip_kernel_stack *told = (const struct slip_kernel_stack *) kernel_events.data;
	CHECK(listed_count == 1 && kernel_events.count == 1 && listed[0].key.kernel == told->key);
	/* What ends then is told with the same. */
	come_back();
	CHECK(ended[0][1].key.kernel == told->key && memcmp(&ended[0][1].key, &listed[0].key, sizeof listed[0].key) == 0);
	/* One that goes on meanwhile, even to the same place, is not listed: the walk may have seen it run. */
	leave(false);
	fake_time_ns += SLIP_LONG_WAIT_NS;
	during_walk = wait_again;
	walked = NULL;
	list_sleepers(&context);
	CHECK(listed_count == 1 && walked == &task);
}

static void files_of_calls_are_told(void)
{
	struct inode pipe = {.i_mode = 0010600}, socket = {.i_mode = 0140777};
	struct file files[] = {{.f_inode = &pipe}, {.f_inode = &socket}}, *table[] = {&files[0], &files[1], NULL};
	struct fdtable fdtable = {.max_fds = 3, .fd = table};
	struct files_struct all = {.fdt = &fdtable};
	const uint64_t polled = MEMORY_START + 256;
	static const struct {
		unsigned long call, first, second;
		uint32_t file;
	} cases[] = {
		{0, 0, 0, 0010000}, {45, 1, 0, 0140000}, {0, 2, 0, 0}, {0, 3, 0, 0}, {35, 0, 0, 0},
		{7, MEMORY_START + 256, 1, 0140000}, {7, MEMORY_START + 256, 2, 0}, {7, 0, 0, SLIP_FILE_NONE},
		{23, 0, 0, SLIP_FILE_NONE}, {23, 5, 0, 0}, {-1ul, 0, 0, 0},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		reset();
		chain(1);
		put(polled, 1);
		task.files = &all;
		task.__state = 1;
		fake_regs.orig_rax = cases[i].call;
		fake_regs.rdi = cases[i].first;
		fake_regs.rsi = cases[i].second;
		leave(false);
		const struct slip_sample *sample = (const struct slip_sample *) samples.data;
		CHECK(samples.count == 1 && sample->file == cases[i].file && sample->call == (int) cases[i].call);
	}
}

/* The thread reads from this socket, `ns` after a slow call was told of. */
static void read_from(uint64_t socket, uint64_t ns)
{
	fake_time_ns += ns;
	__u64 context[] = {socket, 50, 0};
	on_slow_call(context);
}

static void slow_call_has_the_stack_of_its_own_moment(void)
{
	reset();
	chain(3);
	read_from(1, 0);
	CHECK(samples.count == 0);
	uint64_t end = fake_time_ns;
	note_slow(1, end);
	read_from(1, 500);
	struct slip_sample *sample = (struct slip_sample *) samples.data;
	CHECK(samples.count == 1 && stacks.count == 1 && sample->time_ns == end && sample->depth == 3 && sample->tid == fake_tid);
	/* It is told once. */
	read_from(1, 1);
	CHECK(samples.count == 1);
	/* Another thread came between, or reads from another socket, or something was read since. */
	fake_tid++;
	note_slow(1, fake_time_ns);
	fake_tid--;
	read_from(1, 1);
	note_slow(2, fake_time_ns);
	read_from(1, 1);
	note_slow(1, fake_time_ns);
	forget_slow();
	read_from(1, 1);
	CHECK(samples.count == 1 && slow.end_ns == 0);
	/* A stack that cannot be read. */
	absent[0] = true;
	note_slow(1, fake_time_ns);
	read_from(1, 1);
	CHECK(samples.count == 2 && sample->flags & SLIP_SAMPLE_FAILED && !sample->stack);
}

static void waits_without_a_stack_are_told_or_left_out(void)
{
	reset();
	chain(60);
	task.__state = 1;
	absent[2] = true;
	leave(false);
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(samples.count == 1 && sample->flags & SLIP_SAMPLE_FAILED && sample->stack == SLIP_STACK_UNREADABLE);
	CHECK(stacks.count == 0 && sample->anchor_bytes == 0);
	/* How long it waits is known. */
	fake_time_ns += 100;
	come_back();
	CHECK(ended_count[0] == 1 && ended[0][0].key.stack == SLIP_STACK_UNREADABLE && ended[0][0].wait.blocked_ns == 100);
	/* It stands for no other one. */
	leave_as_before(true);
	absent[2] = false;
	fake_time_ns += 100;
	come_back();
	leave_as_before(true);
	CHECK(samples.count == 3 && !(sample->flags & SLIP_SAMPLE_FAILED) && sample->depth == 60);
	/* A task of the kernel, one that ends, one of another process. */
	reset();
	chain(1);
	task.mm = NULL;
	leave(false);
	task.mm = (struct mm_struct *) memory;
	task.__state = 0x80;
	leave(false);
	task.__state = 1;
	fake_pid++;
	leave(false);
	CHECK(samples.count == 0 && ended_count[0] == 0);
	/* No room for the wait. */
	fake_pid = watched_pid;
	ended_count[0] = 8;
	leave(false);
	CHECK(counts[SLIP_COUNT_WAITS_LOST] == 1);
}

/* A look, with the stack of native code that came before it. */
static const struct slip_native *look_at_native(uint64_t sp, uint64_t begin)
{
	want_native_stacks(1);
	task.mm = &own_memory;
	own_memory.start_stack = begin;
	fake_regs.rsp = sp;
	fake_regs.rbx = 3;
	fake_regs.rbp = 6;
	fake_regs.r12 = 12;
	look();
	return native_events.count == 1 ? (const struct slip_native *) native_events.data : NULL;
}

static void native_stack_comes_with_the_sample(void)
{
	uint64_t sp = MEMORY_START + 8 * PAGE + 104;

	reset();
	chain(1);
	put(sp, 0xabcd);
	fake_rip = 0x5000;
	const struct slip_native *copy = look_at_native(sp, sp + 200 - FIRST_FRAME_BYTES);
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(copy && copy->id == 7 && copy->tid == sample->tid && copy->time_ns == sample->time_ns && samples.count == 1);
	CHECK(copy->length == 200 && native_events.bytes == __builtin_offsetof(struct slip_native, stack) + 200);
	CHECK(copy->ip == 0x5000 && copy->sp == sp && copy->bx == 3 && copy->bp == 6 && copy->r12 == 12 && copy->r15 == 77);
	CHECK(*(const uint64_t *) copy->stack == 0xabcd && native_events.flags == BPF_RB_NO_WAKEUP);
	fake_rip = 0;
	/* The registers that the thread went into the kernel with. */
	reset();
	chain(1);
	fake_regs.cs = 0x10;
	fake_regs.rip = 0x6000;
	copy = look_at_native(sp, sp);
	CHECK(copy && copy->ip == 0x6000 && copy->sp == sp && copy->length == FIRST_FRAME_BYTES);
	reset();
	chain(1);
	look();
	CHECK(native_events.count == 0 && samples.count == 1);
}

static void native_stack_ends_where_it_is_known_to_or_cannot_be_read(void)
{
	uint64_t sp = MEMORY_START + 4 * PAGE + 104;

	/* Longer than what is copied, and of a thread that has its own. */
	reset();
	chain(1);
	const struct slip_native *copy = look_at_native(sp, sp + 10 * SLIP_NATIVE_BYTES);
	CHECK(copy && copy->length == SLIP_NATIVE_BYTES - 104);
	reset();
	chain(1);
	task.thread.fsbase = sp + 3000;
	copy = look_at_native(sp, sp + 10 * SLIP_NATIVE_BYTES);
	CHECK(copy && copy->length == 3000);
	reset();
	chain(1);
	absent[6] = true;
	copy = look_at_native(sp, sp + 3 * PAGE);
	CHECK(copy && copy->length == 2 * PAGE - 104);
	reset();
	chain(1);
	absent[4] = true;
	copy = look_at_native(sp, sp + 3 * PAGE);
	CHECK(copy && copy->length == 0);
}

static void program_without_an_interpreter_has_its_native_stack_alone(void)
{
	uint64_t sp = MEMORY_START + 8 * PAGE;

	reset();
	target = (struct slip_target) {.id = 7};
	const struct slip_native *copy = look_at_native(sp, sp);
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(copy && samples.count == 1 && stacks.count == 0);
	CHECK(sample->flags == 0 && sample->stack == 0 && sample->depth == 0);
}

static const struct slip_allocation *allocate(uint64_t block, uint64_t bytes, uint64_t stands_for)
{
	int before = allocation_events.count;

	fake_regs.rdi = block;
	fake_regs.rsi = bytes;
	fake_regs.rdx = stands_for;
	on_allocated(&fake_regs);
	return allocation_events.count > before ? (const struct slip_allocation *) allocation_events.data : NULL;
}

static void block_is_told_before_the_stack_of_who_took_it(void)
{
	reset();
	chain(3);
	const struct slip_allocation *allocation = allocate(0x7000, 100, 524344);
	const struct slip_sample *sample = (const struct slip_sample *) samples.data;
	CHECK(allocation && allocation->kind == SLIP_EVENT_ALLOCATED && allocation->id == 7 && allocation->tid == 11);
	CHECK(allocation->block == 0x7000 && allocation->bytes == 100 && allocation->stands_for == 524344);
	CHECK(samples.count == 1 && stacks.count == 1 && sample->depth == 3 && allocation->has_sample);
	CHECK(sample->time_ns == allocation->time_ns && sample->tid == allocation->tid);
	CHECK(!scratch[SCRATCH_OF_EVENT].owner);
	/* The engine's registers are used where they fit, as at a switch. */
	target.in_registers = 1;
	fake_regs.r14 = frame_at(0);
	fake_regs.r15 = 77;
	allocate(0x8000, 100, 524344);
	CHECK(samples.count == 2 && sample->flags == SLIP_SAMPLE_HAS_INSTRUCTION && sample->instruction == 77);
	fake_regs.rdi = 0x7000;
	on_freed(&fake_regs);
	CHECK(allocation_events.count == 3 && allocation->kind == SLIP_EVENT_FREED && allocation->block == 0x7000 && samples.count == 2);
}

static void block_without_a_stack_is_told_all_the_same(void)
{
	reset();
	chain(3);
	absent[1] = true;
	const struct slip_allocation *allocation = allocate(0x7000, 100, 1000);
	CHECK(allocation && !allocation->has_sample && samples.count == 0 && !scratch[SCRATCH_OF_EVENT].owner);
	/* Another thread on this CPU is in the middle of it: what it has copied is left alone. */
	reset();
	chain(3);
	scratch[SCRATCH_OF_EVENT].owner = 12;
	scratch[SCRATCH_OF_EVENT].addrs[0] = 0xabcd;
	allocation = allocate(0x7000, 100, 1000);
	CHECK(allocation && !allocation->has_sample && samples.count == 0 && stacks.count == 0);
	CHECK(scratch[SCRATCH_OF_EVENT].owner == 12 && scratch[SCRATCH_OF_EVENT].addrs[0] == 0xabcd);
	scratch[SCRATCH_OF_EVENT].owner = 0;
	/* A program without an interpreter, and one that nobody asks for. */
	reset();
	target = (struct slip_target) {.id = 7};
	CHECK(allocate(0x7000, 100, 1000) && samples.count == 1);
	fake_pid = watched_pid + 1;
	CHECK(!allocate(0x7000, 100, 1000));
	on_freed(&fake_regs);
	CHECK(allocation_events.count == 1 && samples.count == 1);
	fake_pid = watched_pid;
	fake_ring_is_full = true;
	on_freed(&fake_regs);
	CHECK(counts[SLIP_COUNT_LOST] == 1);
}

int main(void)
{
	block_is_told_before_the_stack_of_who_took_it();
	block_without_a_stack_is_told_all_the_same();
	native_stack_comes_with_the_sample();
	native_stack_ends_where_it_is_known_to_or_cannot_be_read();
	program_without_an_interpreter_has_its_native_stack_alone();
	kernel_stack_is_behind_the_anchor();
	largest_anchor_leaves_room_for_the_kernel_stack();
	long_waits_tell_where_in_the_kernel();
	kernel_stack_that_was_lost_is_sent_again();
	addresses_are_printed_with_their_number();
	sleepers_are_listed_with_where_they_are();
	listing_is_not_disturbed_by_what_happens_meanwhile();
	waits_are_added_up();
	wait_that_ends_in_the_next_turn_counts_there();
	preempted_threads_are_ready();
	who_loses_its_cpu_again_and_again_is_looked_at_now_and_then();
	state_is_looked_up_now_and_then();
	target_that_is_forgotten_is_not_looked_at();
	return_that_was_not_seen_is_made_up_for();
	stack_of_a_long_wait_is_known_when_it_is_woken();
	who_waits_now_is_listed();
	files_of_calls_are_told();
	waits_without_a_stack_are_told_or_left_out();
	slow_call_has_the_stack_of_its_own_moment();
	chain_is_copied();
	frames_are_followed_wherever_they_lie();
	frames_are_followed_from_where_the_outermost_was();
	known_stack_is_sent_once();
	no_frame_is_no_stack();
	deep_stack_is_cut();
	loop_ends();
	fault_is_told();
	full_ring_is_counted();
	others_are_left_alone();
	instruction_comes_from_the_register();
	thread_is_found_by_its_state();
	call_that_is_being_entered_shows_its_caller();
	call_without_a_way_to_its_caller_is_left_out();
	senseless_targets_are_refused();
	return failed != 0;
}
