#ifndef SLIP_RUN_H
#define SLIP_RUN_H

/* Runs of programs that serve no requests. A run is like one request: the start-up is what comes before it, in no request, and the exit
 * what comes after its response. */

#include "account.h"

/* The connection of what is no request: no socket is there. */
#define SLIP_RUN_SOCKET 1

/* All up to now was the start-up. */
static __always_inline void begin_run(struct slip_thread *thread, __u64 now)
{
	account(thread, now);
	begin_change(thread);
	move(thread->between, thread->current);
	thread->flags = (thread->flags & ~(SLIP_THREAD_STARTS | SLIP_THREAD_UNKNOWN)) | SLIP_THREAD_RUNS;
	thread->open[0].socket = SLIP_RUN_SOCKET;
	thread->open[0].queued_ns = thread->open[0].begin_ns = now;
	thread->open[0].response_ns = 0;
	thread->opened = 1;
	thread->responded = 0;
	end_change(thread);
}

/* From now on it is the exit. */
static __always_inline void end_run(struct slip_thread *thread, __u64 now)
{
	if (thread->flags & SLIP_THREAD_RUNS && thread->open[0].socket == SLIP_RUN_SOCKET) {
		note_response(thread, &thread->open[0], now);
	}
}

/* There was no run: it serves requests. */
static __always_inline void leave_run(struct slip_thread *thread)
{
	begin_change(thread);
	if (thread->open[0].socket == SLIP_RUN_SOCKET) {
		thread->open[0].socket = 0;
		thread->opened = thread->responded = 0;
	}
	thread->flags = (thread->flags & ~(SLIP_THREAD_RUNS | SLIP_THREAD_STARTS)) | SLIP_THREAD_UNKNOWN;
	end_change(thread);
}

#endif
