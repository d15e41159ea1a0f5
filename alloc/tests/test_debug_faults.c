/* The debug build's handler of SIGSEGV leaves to others what is not its own. */
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/fault.h"
#include "check.h"

enum { PAGE_BYTES = 4096 };

static sigjmp_buf back;
static volatile uintptr_t faulted;
static volatile int signals;

static void note_address(int number, siginfo_t *information, void *context)
{
	(void)context;
	faulted = (uintptr_t)information->si_addr;
	siglongjmp(back, number);
}

static void count(int number)
{
	signals += number == SIGSEGV;
}

static bool faults_at(volatile char *address)
{
	faulted = 0;
	if (sigsetjmp(back, 1) == 0) {
		*address = 1;
		return false;
	}
	return faulted == (uintptr_t)address;
}

static void set(void (*handler)(int), void (*with_information)(int, siginfo_t *, void *))
{
	struct sigaction action = {.sa_handler = handler};
	if (with_information != NULL) {
		action.sa_sigaction = with_information;
		action.sa_flags = SA_SIGINFO;
	}
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	fault_begin();
}

static void by_instruction(void)
{
	char *page = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*(volatile char *)page = 1;
}

static void by_kill(void)
{
	kill(getpid(), SIGSEGV);
}

static void into_freed(void)
{
	char *block = slip_malloc(10);
	slip_free(block);
	*(volatile char *)block = 1;
}

/* The signal that ends a child that does this; 0 if none does. */
static int signal_of(void (*handler)(int), void (*act)(void))
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		close(STDERR_FILENO);
		set(handler, NULL);
		act();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

int main(void)
{
	set(NULL, note_address);
	char *page = mmap(NULL, PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED && faults_at(page));
	/* A program may protect a block of its own. */
	char *block = slip_valloc(PAGE_BYTES);
	CHECK(mprotect(block, PAGE_BYTES, PROT_READ) == 0 && faults_at(block));
	CHECK(mprotect(block, PAGE_BYTES, PROT_READ | PROT_WRITE) == 0 && !faults_at(block));
	slip_free(block);

	set(count, NULL);
	kill(getpid(), SIGSEGV);
	CHECK(signals == 1);

	CHECK(signal_of(SIG_DFL, by_instruction) == SIGSEGV);
	CHECK(signal_of(SIG_DFL, by_kill) == SIGSEGV);
	CHECK(signal_of(SIG_IGN, by_instruction) == SIGSEGV);
	CHECK(signal_of(SIG_IGN, by_kill) == 0);
	CHECK(signal_of(SIG_DFL, into_freed) == SIGABRT);
	return 0;
}
