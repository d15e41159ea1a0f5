/* What no kernel has: `kernels types` must find it, or it finds nothing. One thing at a time, chosen by a macro. */

#define SECTION(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))

/* Of enum bpf_field_info_kind. */
enum { FIELD_EXISTS = 2 };

struct task_struct {
	int slip_absent;
} RELOCATED;

static struct task_struct *(*current_task)(void) = (void *) 35;
static long (*absent_helper)(void) = (void *) 9999;

#ifdef ABSENT_MAP
struct {
	int (*type)[9999];
	int (*max_entries)[1];
	int *key;
	int *value;
} absent_map SECTION(".maps");
#endif

#ifdef ABSENT_TRACEPOINT
SECTION("tp_btf/slip_absent")
#else
SECTION("perf_event")
#endif
int on_event(void *context)
{
	struct task_struct *task = current_task();
#ifdef ABSENT_FIELD
	return task->slip_absent;
#endif
#ifdef ABSENT_FIELD_TESTED
	/* This is no lack: what is behind the test cannot be reached. */
	return __builtin_preserve_field_info(task->slip_absent, FIELD_EXISTS) ? task->slip_absent : 1;
#endif
#ifdef ABSENT_HELPER
	return absent_helper();
#endif
	return task != 0;
}

char LICENSE[] SECTION("license") = "GPL";
