#ifdef SLIPMALLOC_DEBUG

#include "fault.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

#include "guard.h"
#include "misuse.h"
#include "text.h"

static struct sigaction before;

/* Of the error code of a page fault on x86. */
enum { WAS_WRITE = 2 };

static const char *where(const guarded_t *guarded, uintptr_t address)
{
	if (address < guarded->start) {
		return "is before the start of the block at ";
	}
	return address - guarded->start < guarded->bytes ? "is in the block at " : "is beyond the end of the block at ";
}

static _Noreturn void say(const char *what, const void *address, const guarded_t *guarded)
{
	text_t text = {0};
	text_add(&text, where(guarded, (uintptr_t)address));
	text_add_address(&text, guarded->start);
	text_add(&text, " of ");
	text_add_number(&text, guarded->bytes, 0);
	text_add(&text, guarded->is_taken ? " bytes" : " bytes, which was freed");
	misuse(what, address, text.bytes);
}

/* As if this handler were not there. */
static void pass_on(int number, siginfo_t *information, void *context)
{
	/* Not by an instruction, but by kill(). */
	bool was_sent = information->si_code <= 0;
	if ((before.sa_flags & SA_SIGINFO) != 0) {
		before.sa_sigaction(number, information, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	} else if (before.sa_handler == SIG_DFL || !was_sent) {
		/* The instruction faults again and ends the process. */
		signal(number, SIG_DFL);
		if (was_sent) {
			raise(number);
		}
	}
}

static void on_fault(int number, siginfo_t *information, void *context)
{
	const void *address = information->si_addr;
	if (information->si_code > 0 && guard_has(address)) {
		const guarded_t *guarded = guard_find(address);
		bool was_write = (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & WAS_WRITE) != 0;
		const char *what = was_write ? "write" : "read";
		if (guarded == NULL) {
			misuse(what, address, "is not allocated");
		}
		/* Else the program has protected a block of its own. */
		if (!guarded->is_taken || (uintptr_t)address - guarded->start >= guarded->bytes) {
			say(what, address, guarded);
		}
	}
	pass_on(number, information, context);
}

void fault_begin(void)
{
	struct sigaction action = {.sa_sigaction = on_fault};
	if (sigaction(SIGSEGV, NULL, &before) != 0) {
		return;
	}
	action.sa_mask = before.sa_mask;
	/* On the stack that a program has for it, if any: its own may be at its end. */
	action.sa_flags = SA_SIGINFO | SA_ONSTACK | (before.sa_flags & (SA_NODEFER | SA_RESTART));
	sigaction(SIGSEGV, &action, NULL);
}

#endif
