/* The kernel's helpers, as far as our programs use them, for tests on the host. One CPU, one task. */
#ifndef FAKE_BPF_HELPERS_H
#define FAKE_BPF_HELPERS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SEC(name)
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))
#define __uint(name, value) int (*name)[value]
#define __type(name, type) typeof(type) *name
#define barrier_var(variable) (void) (variable)
#define barrier() (void) 0
#define __ksym
#define __weak __attribute__((weak))
/* No kernel that has it is on the host. */
#define bpf_ksym_exists(symbol) (0)

struct task_struct;
struct sock;

/* What the tests set and look at. */
extern struct task_struct *fake_task;
extern uint32_t fake_pid, fake_tid;
extern bool fake_ring_is_full;
extern uint64_t fake_time_ns;
extern uint32_t fake_random;
extern struct pt_regs fake_regs;

/* Memory of the target. */
long fake_read(void *to, uint32_t bytes, uint64_t from);
void *fake_lookup(const void *map, const void *key);
long fake_update(const void *map, const void *key, const void *value);
long fake_delete(const void *map, const void *key);
long fake_output(const void *event, uint64_t bytes, uint64_t flags);
/* NULL if the task has none and none is to be made. */
void *fake_storage(const struct task_struct *task, bool make);
void *fake_socket_storage(const struct sock *socket, bool make);
void *fake_reserve(uint64_t bytes);
long fake_write(const void *bytes, uint32_t length);
/* The kernel's own stack; that of a task that does not run if one is given. */
long fake_stack(const struct task_struct *task, void *to, uint32_t bytes);
long fake_print(const void *values, uint32_t bytes);

#define bpf_probe_read_user(to, bytes, from) fake_read(to, bytes, (uint64_t) (from))
#define bpf_map_lookup_elem(map, key) fake_lookup(map, key)
#define bpf_map_update_elem(map, key, value, flags) fake_update(map, key, value)
#define bpf_map_delete_elem(map, key) fake_delete(map, key)
#define bpf_ringbuf_output(ring, event, bytes, flags) fake_output(event, bytes, flags)
#define bpf_ringbuf_query(ring, what) 0
#define bpf_get_current_task() ((uint64_t) fake_task)
#define bpf_ktime_get_ns() fake_time_ns
#define bpf_get_prandom_u32() fake_random
#define bpf_task_pt_regs(task) ((long) &fake_regs)
#define bpf_task_storage_get(map, task, value, flags) fake_storage(task, (flags) & BPF_LOCAL_STORAGE_GET_F_CREATE)
#define bpf_probe_read_kernel(to, bytes, from) (memcpy(to, from, bytes), 0)
#define bpf_get_current_task_btf() fake_task
#define bpf_sk_storage_get(map, socket, value, flags) fake_socket_storage(socket, (flags) & BPF_SK_STORAGE_GET_F_CREATE)
#define bpf_get_socket_cookie(socket) ((uint64_t) (socket)->__sk_common.skc_cookie.counter)
#define bpf_ringbuf_reserve(ring, bytes, flags) fake_reserve(bytes)
#define bpf_ringbuf_submit(event, flags) ((void) (event))
#define bpf_seq_write(file, data, bytes) fake_write(data, bytes)
#define bpf_seq_printf(file, format, length, values, bytes) ((void) (format), fake_print(values, bytes))
#define bpf_get_stack(context, to, bytes, flags) fake_stack(NULL, to, bytes)
#define bpf_get_task_stack(task, to, bytes, flags) fake_stack(task, to, bytes)

/* Of a map whose keys are numbers from 0 on. What a loop calls says whether it is the last time. */
#define bpf_for_each_map_elem(map, each, context, flags) \
	fake_for_each(map, sizeof *(map)->max_entries / sizeof(int), each, context)
static inline long fake_for_each(const void *map, uint32_t times,
		long (*each)(const void *, const uint32_t *, const void *, void *), void *context)
{
	uint32_t at = 0;
	while (at < times && each(map, &at, NULL, context) == 0) {
		at++;
	}
	return at;
}

#define bpf_get_current_pid_tgid() ((uint64_t) fake_pid << 32 | fake_tid)
#define bpf_get_ns_current_pid_tgid(device, inode, ids, bytes) \
	((void) (device), (void) (inode), (ids)->pid = fake_tid, (ids)->tgid = fake_pid, 0)

#endif
