#ifndef SLIP_WALK_H
#define SLIP_WALK_H

/* Finds and follows the frames of a thread in the target's memory. */

#include "maps.h"

static __always_inline bool read_word(__u64 addr, __u64 *word)
{
	return bpf_probe_read_user(word, sizeof *word, (const void *) addr) == 0;
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

/* The state of the thread whose thread-local storage begins at `base`, which names the thread; 0 if it has none. */
static __always_inline __u64 thread_state(const struct slip_target *target, __u64 base)
{
	for (int i = 0; i < SLIP_MAX_SLOTS; i++) {
		__u64 state = 0, owner = 0;
		if (target->slots[i] && read_word(base + target->slots[i], &state) && state
				&& read_word(state + target->thread_id, &owner) && owner == base) {
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

/* Follows the frames from the innermost one outwards, and makes the key of the stack. Not static: the verifier looks at it once, not
 * with each call, of which there are too many. */
__noinline int follow_frames(__u64 frame)
{
	__u32 at = SCRATCH_OF_EVENT, depth = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &at);
	/* What of `page` is filled, from where in the target on. */
	__u64 begin = 0, filled = 0, last = 0;

	if (!scratch) {
		return 0;
	}
	__u32 bytes = scratch->layout.frame_bytes;
	/* One after the other: workers run the same code at the same addresses, and what lies in the register may be any number. */
	__u64 key = mix(mix(0, scratch->layout.id), scratch->sample.instruction);
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (!frame) {
			break;
		}
		if (frame - begin >= filled) {
			/* A caller that lies not far below may be followed by more of them; other frames lie alone. */
			begin = last - frame < PAGE_BYTES ? frame & -PAGE_BYTES : frame;
			filled = frame - begin + 1;
			__u64 length = filled - 1 + bytes;
			barrier_var(length);
			if (length > sizeof scratch->page || bpf_probe_read_user(scratch->page, length, (const void *) begin)) {
				return 0;
			}
		}
		const __u8 *record = &scratch->page[(frame - begin) & (PAGE_BYTES - 1)];
		scratch->addrs[i] = frame;
		for (int j = 0; j < SLIP_MAX_KEYS; j++) {
			/* Below the room of one frame. */
			key = mix(key, *(const __u64 *) (record + (scratch->layout.keys[j] & 0x78)));
		}
		last = frame;
		frame = *(const __u64 *) (record + (scratch->layout.previous & 0x78));
		depth = i + 1;
	}
	if (frame) {
		scratch->sample.flags |= SLIP_SAMPLE_TRUNCATED;
	}
	scratch->sample.depth = depth;
	scratch->sample.stack = depth ? key | 1 : 0;
	return 1;
}

/* 1 if it is not 0. Without a branch: the verifier follows 8,192 of them. */
static __always_inline __u64 is_not_zero(__u64 word)
{
	__u64 negated = -word;

	/* Else the compiler sees through it. */
	barrier_var(negated);
	return (word | negated) >> 63;
}

/* Whether that can be the one at `addr`: they are chained up the stack of C, and the last one lies in the thread state. */
static __always_inline __u64 may_be_cframe(const struct cframe *cframe, __u64 addr, __u64 state)
{
	__u64 is_elsewhere = is_not_zero((cframe->previous - addr) / C_STACK_BYTES)
			& is_not_zero((cframe->previous - state) / THREAD_STATE_BYTES);

	return is_not_zero(cframe->current_frame) & is_not_zero(cframe->current_frame ^ state) & ~is_elsewhere;
}

/* Finds what may be the call of the interpreter next above `scratch->cframe`: a register points to it, or to its frame. */
static __noinline __u32 find_callers(struct scratch *scratch, const struct slip_target *target)
{
	__u64 state = scratch->sample.thread_state, from = scratch->cframe + sizeof(struct cframe);
	__u32 found = 0;

	/* Less where the stack ends before. What is not read is 0. */
	const void *above = (const void *) (from + target->indirect);
	if (bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack, above)
			&& bpf_probe_read_user(scratch->c_stack, sizeof scratch->c_stack / 4, above)) {
		return 0;
	}
	for (int i = 0; i < C_STACK_WORDS - 1; i++) {
		struct cframe one = {scratch->c_stack[i], scratch->c_stack[i + 1]};
		__u64 differs = 1;
		for (int j = 0; j < REGISTERS; j++) {
			__u64 word = scratch->registers[j];
			differs &= is_not_zero(word ^ one.current_frame) & is_not_zero(word ^ (from + 8 * i));
		}
		scratch->callers[found & (2 * MAX_CALLERS - 1)] = one;
		found += may_be_cframe(&one, from + 8 * i, state) & ~differs & ~(found / MAX_CALLERS);
	}
	return found;
}

/* Copies the frames of a call of the interpreter. False unless they lead to those of the call before it, or it is the first one. */
static __noinline bool copy_call(struct scratch *scratch, const struct slip_target *target, const struct cframe *cframe)
{
	struct cframe outer = {};
	__u64 is_apart = 1;

	if (bpf_probe_read_user(&outer, sizeof outer, (const void *) (cframe->previous + target->indirect))) {
		return false;
	}
	/* The one in the thread state has neither. */
	bool is_first = !outer.current_frame && !outer.previous
			&& cframe->previous - scratch->sample.thread_state < THREAD_STATE_BYTES;
	if ((!outer.current_frame && !is_first) || !follow_frames(cframe->current_frame)) {
		return false;
	}
	for (__u32 i = 0; i < SLIP_MAX_FRAMES; i++) {
		if (i >= scratch->sample.depth) {
			break;
		}
		is_apart &= is_not_zero(scratch->addrs[i] ^ outer.current_frame);
	}
	return !is_apart || (scratch->sample.depth && is_first) || scratch->sample.flags & SLIP_SAMPLE_TRUNCATED;
}

/* Copies the frames of a thread of CPython 3.11 and 3.12, whose state names the call of the interpreter that it is in. */
static __always_inline bool copy_calls(struct scratch *scratch, const struct slip_target *target, __u64 cframe)
{
	struct cframe innermost = {};

	if (bpf_probe_read_user(&innermost, sizeof innermost, (const void *) (cframe + target->indirect))) {
		return false;
	}
	if (!innermost.current_frame && cframe - scratch->sample.thread_state < THREAD_STATE_BYTES) {
		/* No call is under way. */
		return true;
	}
	scratch->cframe = cframe;
	return copy_call(scratch, target, &innermost);
}

/* The same where that has failed, with the registers copied.
 *
 * The state names a call some instructions before it is known there which frame runs and which call was before it
 * (`_PyEval_EvalFrameDefault` in `Python/ceval.c`), and what an earlier call has left in their place may lead anywhere. The thread is
 * still in its caller then, and the registers hold what is about to be stored: the caller's call or its frame. */
static __noinline bool copy_caller(struct scratch *scratch, const struct slip_target *target)
{
	__u32 found = find_callers(scratch, target);

	for (__u32 i = 0; i < MAX_CALLERS; i++) {
		if (i >= found) {
			break;
		}
		scratch->sample.flags &= ~SLIP_SAMPLE_TRUNCATED;
		if (copy_call(scratch, target, &scratch->callers[i])) {
			return true;
		}
	}
	return false;
}

/* The same with these registers of the thread's. */
static __always_inline bool copy_caller_by(struct scratch *scratch, const struct slip_target *target, const struct pt_regs *regs)
{
	__u64 *to = scratch->registers;

	to[0] = regs->rax, to[1] = regs->rbx, to[2] = regs->rcx, to[3] = regs->rdx, to[4] = regs->rsi;
	to[5] = regs->rdi, to[6] = regs->rbp, to[7] = regs->r8, to[8] = regs->r9, to[9] = regs->r10;
	to[10] = regs->r11, to[11] = regs->r12, to[12] = regs->r13, to[13] = regs->r14, to[14] = regs->r15;
	return copy_caller(scratch, target);
}

/* Copies the frames of the running thread, whose thread-local storage begins at `base`. `rip` is 0 if it is in the kernel. Where it
 * fails `copy_caller_by()` may not. */
static __always_inline bool walk(struct scratch *scratch, const struct slip_target *target, __u64 base, __u64 rip, __u64 r14,
		__u64 r15)
{
	__u64 current = target->current, frame = 0;

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
		__u64 state = thread_state(target, base);
		if (!state) {
			scratch->sample.flags |= SLIP_SAMPLE_NO_STATE;
			return true;
		}
		scratch->sample.thread_state = state;
		current += state;
	}
	if (!read_word(current, &frame)) {
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
	return follow_frames(frame);
}

#endif
