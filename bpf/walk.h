#ifndef SLIP_WALK_H
#define SLIP_WALK_H

/* Finds and follows the frames of a thread in the target's memory. */

#include "maps.h"

static __always_inline bool read_word(__u64 addr, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof *word, (const void *) addr) == 0;
}

/* 1 if it is not 0. Without a branch: the verifier follows 8,192 of them. */
static __always_inline __u64 is_not_zero(__u64 word)
{
	__u64 negated = -word;

	/* Else the compiler sees through it. */
	barrier_var(negated);
	return (word | negated) >> 63;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* A word of what was copied last, but of frames: of a thread state or of thread-local storage. */
static __always_inline __u64 word_of_page(const struct scratch *scratch, __u64 at)
{
	return *(const __u64 *) &scratch->page[at & (SLIP_STATE_BYTES - 8)];
}

/* Reads what the slots hold, where both lie close together at once: a read takes some 80 ns on a machine with mitigations, and hardly
 * more for a kilobyte. */
static __always_inline void read_slots(struct scratch *scratch, const struct slip_target *target, __u64 base, __u64 *states)
{
	__s64 first = target->slots[0], second = target->slots[1];
	__s64 from = first < second ? first : second, apart = first < second ? second - first : first - second;

	states[0] = states[1] = 0;
	if (second && apart > 0 && apart <= SLIP_STATE_BYTES - 8
			&& bpf_probe_read_user(scratch->page, SLIP_STATE_BYTES, (const void *) (base + from)) == 0) {
		states[0] = word_of_page(scratch, first - from);
		states[1] = word_of_page(scratch, second - from);
		return;
	}
	for (int i = 0; i < SLIP_MAX_SLOTS; i++) {
		if (target->slots[i] && !read_word(base + target->slots[i], &states[i])) {
			states[i] = 0;
		}
	}
}

/* The state of the thread whose thread-local storage begins at `base`, which names the thread; 0 if it has none. So much of it as
 * leads to the frames is in `page` then. */
static __always_inline __u64 thread_state(struct scratch *scratch, const struct slip_target *target, __u64 base)
{
	__u64 bytes = target->state_bytes, states[SLIP_MAX_SLOTS];

	if (bytes > SLIP_STATE_BYTES) {
		return 0;
	}
	if (scratch->state) {
		states[0] = scratch->state;
		states[1] = 0;
	} else {
		read_slots(scratch, target, base, states);
	}
	for (int i = 0; i < SLIP_MAX_SLOTS; i++) {
		__u64 state = states[i];
		if (state && bpf_probe_read_user(scratch->page, bytes, (const void *) state) == 0
				&& word_of_page(scratch, target->thread_id) == base) {
			return state;
		}
	}
	return 0;
}

/* Copies the ranges. */
static __always_inline bool copy_anchor(struct scratch *scratch, const struct slip_target *target, __u64 state)
{
	__u32 at = 0;

	for (int i = 0; i < SLIP_MAX_RANGES; i++) {
		const struct slip_range *range = &target->ranges[i];
		__u32 bytes = range->bytes;
		if (i >= target->range_count) {
			break;
		}
		if (at > SLIP_ANCHOR_BYTES - SLIP_RANGE_BYTES || bytes > SLIP_RANGE_BYTES) {
			return false;
		}
		__u64 addr = range->addr + (range->of_thread ? state : 0);
		if (bpf_probe_read_user(&scratch->anchor[at], bytes, (const void *) addr)) {
			return false;
		}
		at += bytes;
	}
	scratch->sample.anchor_bytes = at;
	return true;
}

/* Copies the stack of frames from the outermost on, if that lies where it was when the thread was last looked at, and not far below
 * `frame`. Returns how many addresses from there on a frame may have. */
static __noinline __u64 copy_page(struct scratch *scratch, __u64 frame)
{
	__u64 begin = scratch->outermost, length = frame - begin + scratch->layout.frame_bytes;

	if (frame - begin >= PAGE_BYTES) {
		return 0;
	}
	barrier_var(length);
	if (length > sizeof scratch->page || bpf_probe_read_user(scratch->page, length, (const void *) begin)) {
		return 0;
	}
	return frame - begin + 1;
}

/* Follows the frames from the innermost one outwards, and makes the key of the stack. 0 if they cannot be read, `FOLLOWED`, or
 * `FOLLOWED_TO` if the frame at `to` is one of them. Not static: the verifier looks at it once, not with each call, of which there
 * are too many. */
__noinline int follow_frames(__u64 frame, __u64 to)
{
	__u32 at = SCRATCH_OF_EVENT, depth = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);

	if (!scratch) {
		return 0;
	}
	__u32 bytes = scratch->layout.frame_bytes;
	scratch->is_apart = 1;
	scratch->page_begin = scratch->outermost;
	scratch->page_filled = copy_page(scratch, frame);
	scratch->outermost = 0;
	/* One after the other: workers run the same code at the same addresses, and what lies in the register may be any number. */
	__u64 key = mix(mix(0, scratch->layout.id), scratch->sample.instruction);
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (!frame) {
			break;
		}
		if (frame - scratch->page_begin >= scratch->page_filled) {
			/* A caller that lies not far below may be followed by more of them; other frames lie alone. */
			__u64 begin = scratch->outermost - frame < PAGE_BYTES ? frame & -PAGE_BYTES : frame;
			__u64 length = frame - begin + bytes;
			scratch->page_begin = begin;
			scratch->page_filled = frame - begin + 1;
			barrier_var(length);
			if (length > sizeof scratch->page || bpf_probe_read_user(scratch->page, length, (const void *) begin)) {
				return 0;
			}
		}
		const __u8 *record = &scratch->page[(frame - scratch->page_begin) & (PAGE_BYTES - 1)];
		scratch->addrs[i] = frame;
		scratch->is_apart &= is_not_zero(frame ^ to);
		/* Below the room of one frame. */
		__u64 first = *(const __u64 *) (record + (scratch->layout.keys[0] & 0x78));
		__u64 second = *(const __u64 *) (record + (scratch->layout.keys[1] & 0x78));
		key = mix(key, first * 0xff51afd7ed558ccdull + second);
		scratch->outermost = frame;
		frame = *(const __u64 *) (record + (scratch->layout.previous & 0x78));
		depth = i + 1;
	}
	if (frame) {
		scratch->sample.flags |= SLIP_SAMPLE_TRUNCATED;
	}
	scratch->sample.depth = depth;
	scratch->sample.stack = depth ? key | 1 : 0;
	return scratch->is_apart ? FOLLOWED : FOLLOWED_TO;
}

/* Whether that can be the one at `addr`: they are chained up the stack of C, and the last one lies in the thread state. */
static __always_inline __u64 may_be_cframe(const struct cframe *cframe, __u64 addr, __u64 state)
{
	__u64 is_elsewhere = is_not_zero((cframe->previous - addr) / C_STACK_BYTES)
			& is_not_zero((cframe->previous - state) / THREAD_STATE_BYTES);

	return is_not_zero(cframe->current_frame) & is_not_zero(cframe->current_frame ^ state) & ~is_elsewhere;
}

/* 1 if no register holds one of these. Not static, as `follow_frames()`. */
__noinline int is_in_no_register(__u64 one, __u64 other)
{
	__u32 at = SCRATCH_OF_EVENT;
	const struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	__u64 differs = 1;

	if (!scratch) {
		return 1;
	}
	for (int i = 0; i < REGISTERS; i++) {
		__u64 word = scratch->registers[i];
		differs &= is_not_zero(word ^ one) & is_not_zero(word ^ other);
	}
	return differs;
}

/* Finds what may be the call of the interpreter next above `scratch->cframe`: a register points to it, or to its frame. Not static, as
 * `follow_frames()`. */
__noinline int find_callers(__u64 indirect)
{
	__u32 at = SCRATCH_OF_EVENT, found = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);

	if (!scratch) {
		return 0;
	}
	__u64 state = scratch->sample.thread_state, from = scratch->cframe + sizeof(struct cframe);
	/* Less where the stack ends before. What is not read is 0. */
	const void *above = (const void *) (from + indirect);
	if (bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack, above)
			&& bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack / 4, above)) {
		return 0;
	}
	for (int i = 0; i < C_STACK_WORDS - 1; i++) {
		struct cframe one = {scratch->c_stack[i], scratch->c_stack[i + 1]};
		__u64 differs = is_in_no_register(one.current_frame, from + 8 * i);
		scratch->callers[found & (2 * MAX_CALLERS - 1)] = one;
		found += may_be_cframe(&one, from + 8 * i, state) & ~differs & ~(found / MAX_CALLERS);
	}
	return found;
}

/* Copies the frames of a call of the interpreter whose innermost is `frame`. The call before it is at `previous` and has `outer`. 0
 * unless they lead to that, or this call is the first. Not static, as `follow_frames()`. */
__noinline int copy_call(__u64 frame, __u64 previous, __u64 outer, __u64 before_outer)
{
	__u32 at = SCRATCH_OF_EVENT;
	const struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);

	if (!scratch) {
		return 0;
	}
	/* The one in the thread state has neither. */
	bool is_first = !outer && !before_outer && previous - scratch->sample.thread_state < THREAD_STATE_BYTES;
	if (!outer && !is_first) {
		return 0;
	}
	int followed = follow_frames(frame, outer);
	return followed == FOLLOWED_TO
			|| (followed && ((scratch->sample.depth && is_first) || scratch->sample.flags & SLIP_SAMPLE_TRUNCATED));
}

/* Copies the frames of a thread of CPython 3.11 and 3.12, whose state names the call of the interpreter that it is in. */
static __always_inline bool copy_calls(struct scratch *scratch, const struct slip_target *target, __u64 cframe)
{
	struct cframe innermost = {}, outer = {};

	if (bpf_probe_read_user(&innermost, sizeof innermost, (const void *) (cframe + target->indirect))) {
		return false;
	}
	if (!innermost.current_frame && cframe - scratch->sample.thread_state < THREAD_STATE_BYTES) {
		/* No call is under way. */
		return true;
	}
	scratch->cframe = cframe;
	/* The outermost is in the thread state, which was copied. */
	__u64 in_state = innermost.previous + target->indirect - scratch->sample.thread_state;
	if (in_state % 8 == 0 && in_state < SLIP_STATE_BYTES && in_state + sizeof outer <= target->state_bytes) {
		outer.current_frame = word_of_page(scratch, in_state);
		outer.previous = word_of_page(scratch, in_state + 8);
	} else if (bpf_probe_read_user(&outer, sizeof outer, (const void *) (innermost.previous + target->indirect))) {
		return false;
	}
	return copy_call(innermost.current_frame, innermost.previous, outer.current_frame, outer.previous);
}

/* The same where that has failed, with the registers copied.
 *
 * The state names a call some instructions before it is known there which frame runs and which call was before it
 * (`_PyEval_EvalFrameDefault` in `Python/ceval.c`), and what an earlier call has left in their place may lead anywhere. The thread is
 * still in its caller then, and the registers hold what is about to be stored: the caller's call or its frame. */
__noinline int copy_caller(__u64 indirect)
{
	__u32 at = SCRATCH_OF_EVENT;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	int found = find_callers(indirect);

	if (!scratch) {
		return 0;
	}
	for (int i = 0; i < MAX_CALLERS; i++) {
		if (i >= found) {
			break;
		}
		const struct cframe *caller = &scratch->callers[i];
		struct cframe outer = {};
		scratch->sample.flags &= ~SLIP_SAMPLE_TRUNCATED;
		if (bpf_probe_read_user(&outer, sizeof outer, (const void *) (caller->previous + indirect)) == 0
				&& copy_call(caller->current_frame, caller->previous, outer.current_frame, outer.previous)) {
			return 1;
		}
	}
	return 0;
}

/* The same with these registers of the thread's. */
static __always_inline bool copy_caller_by(struct scratch *scratch, const struct slip_target *target, const struct pt_regs *regs)
{
	__u64 *to = scratch->registers;

	to[0] = regs->rax, to[1] = regs->rbx, to[2] = regs->rcx, to[3] = regs->rdx, to[4] = regs->rsi;
	to[5] = regs->rdi, to[6] = regs->rbp, to[7] = regs->r8, to[8] = regs->r9, to[9] = regs->r10;
	to[10] = regs->r11, to[11] = regs->r12, to[12] = regs->r13, to[13] = regs->r14, to[14] = regs->r15;
	return copy_caller(target->indirect);
}

/* Copies the frames of the running thread, whose thread-local storage begins at `base`. `rip` is 0 if it is in the kernel. Where it
 * fails `copy_caller_by()` may not. */
static __always_inline bool walk(struct scratch *scratch, const struct slip_target *target, __u64 base, __u64 rip, __u64 r14,
		__u64 r15)
{
	__u64 current = target->current, frame = 0;

	if (!target->frame_bytes) {
		/* There is no interpreter. */
		scratch->cframe = 0;
		return true;
	}
	if (target->frame_bytes > SLIP_FRAME_STRIDE || target->frame_bytes < 16) {
		return false;
	}
	scratch->cframe = 0;
	scratch->layout.id = target->id;
	scratch->layout.frame_bytes = target->frame_bytes;
	scratch->layout.previous = target->previous;
	for (int i = 0; i < SLIP_MAX_KEYS; i++) {
		scratch->layout.keys[i] = target->keys[i];
	}
	if (target->request && !read_word(target->request, &scratch->sample.request)) {
		scratch->sample.request = 0;
	}
	if (target->has_threads) {
		__u64 state = thread_state(scratch, target, base);
		if (!state) {
			scratch->sample.flags |= SLIP_SAMPLE_NO_STATE;
			return true;
		}
		scratch->sample.thread_state = state;
		frame = word_of_page(scratch, current);
	} else if (!read_word(current, &frame)) {
		return false;
	}
	if (frame && target->is_indirect) {
		return copy_calls(scratch, target, frame);
	}
	bool in_compiled = rip >= target->compiled_begin && rip < target->compiled_end;
	if (frame && target->in_registers && (r14 == frame || in_compiled)) {
		scratch->sample.instruction = in_compiled ? 0 : r15;
		scratch->sample.flags |= SLIP_SAMPLE_HAS_INSTRUCTION;
	}
	return follow_frames(frame, 0);
}

#endif
