/* The books of budget.bpf.c on a thread that we make up: whatever happens in whatever order, its time adds up. */

#include "../budget.bpf.c"

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

static struct task_struct task, other_task;
struct task_struct *fake_task = &task;
uint32_t fake_pid, fake_tid;
bool fake_ring_is_full;
uint64_t fake_time_ns;
struct pt_regs fake_regs;

static struct slip_thread thread;
static struct slip_served scratch, last_served;
static int served_count;
static uint64_t counts[SLIP_BUDGET_COUNTERS], taken_ns;
static struct arrival arrival;
static struct slip_listed listed;
static struct slip_budget_target target;
static uint8_t yes = 1;
static uint32_t endpoint_number, ended_threads;
static struct exchange places[EXCHANGES];
static struct slip_call_times calls;
static struct slip_command_times command;
static struct slip_command_key command_name;

#define SERVER_PORT 8000

/* Sockets, and what is kept of each. */
static struct sock inbound, second_inbound, outbound;
static struct connection kept[3];

/* The file 0 is the first connection. */
static struct socket first_socket = {.sk = &inbound};
static struct inode of_socket = {.i_mode = TYPE_SOCKET};
static struct file first_file = {.f_inode = &of_socket, .private_data = &first_socket};
static struct file *file_table[] = {&first_file};
static struct fdtable table = {.max_fds = 1, .fd = file_table};
static struct files_struct files = {.fdt = &table};

long fake_read(void *to, uint32_t bytes, uint64_t from)
{
	return -14;
}

void *fake_lookup(const void *map, const void *key)
{
	if (map == &served_scratch) {
		return &scratch;
	}
	if (map == &budget_counters) {
		return &counts[*(const uint32_t *) key];
	}
	if (map == &arrivals) {
		return &arrival;
	}
	if (map == &listing) {
		return &listed;
	}
	if (map == &budget_targets) {
		return &target;
	}
	if (map == &listening_ports) {
		return *(const uint32_t *) key == SERVER_PORT ? &yes : NULL;
	}
	if (map == &takers) {
		return &taken_ns;
	}
	if (map == &exchanges) {
		return &places[*(const uint32_t *) key];
	}
	if (map == &call_times) {
		return &calls;
	}
	if (map == &commands) {
		command_name = *(const struct slip_command_key *) key;
		return &command;
	}
	return map == &endpoints ? &endpoint_number : NULL;
}

long fake_update(const void *map, const void *key, const void *value)
{
	return 0;
}

long fake_delete(const void *map, const void *key)
{
	return 0;
}

void *fake_storage(const struct task_struct *of, bool make)
{
	return of == &task ? &thread : NULL;
}

void *fake_socket_storage(const struct sock *socket, bool make)
{
	return socket == &inbound ? &kept[0] : socket == &second_inbound ? &kept[1] : &kept[2];
}

long fake_write(const void *bytes, uint32_t length)
{
	return 0;
}

long fake_stack(const struct task_struct *of, void *to, uint32_t bytes)
{
	return 0;
}

long fake_print(const void *values, uint32_t bytes)
{
	return 0;
}

void *fake_reserve(uint64_t bytes)
{
	static struct slip_thread_ended event;
	ended_threads++;
	return &event;
}

long fake_output(const void *event, uint64_t bytes, uint64_t flags)
{
	CHECK(bytes == sizeof last_served);
	memcpy(&last_served, event, bytes);
	served_count++;
	return 0;
}

/* ---- what happens ---- */

#define ACCEPT 43
#define EPOLL_WAIT 232
#define FUTEX 202
#define NANOSLEEP 35
#define SENDTO 44
#define RECVFROM 45

static void reset(void)
{
	memset(&thread, 0, sizeof thread);
	memset(kept, 0, sizeof kept);
	memset(&task, 0, sizeof task);
	memset(&fake_regs, 0, sizeof fake_regs);
	memset(counts, 0, sizeof counts);
	memset(places, 0, sizeof places);
	memset(&calls, 0, sizeof calls);
	memset(&command, 0, sizeof command);
	served_count = ended_threads = 0;
	fake_time_ns = 1000;
	inbound.__sk_common.skc_family = second_inbound.__sk_common.skc_family = outbound.__sk_common.skc_family = AF_INET;
	inbound.__sk_common.skc_num = second_inbound.__sk_common.skc_num = SERVER_PORT;
	outbound.__sk_common.skc_num = 40000;
	outbound.__sk_common.skc_dport = 0x1234;
	inbound.__sk_common.skc_dport = second_inbound.__sk_common.skc_dport = 0x4321;
	/* Something is kept of them. */
	task.bpf_storage = inbound.sk_bpf_storage = second_inbound.sk_bpf_storage = outbound.sk_bpf_storage = (void *) 1;
	task.pid = task.tgid = 7;
	task.files = &files;
	task.mm = other_task.mm = (struct mm_struct *) &task;
	add_thread(&task, fake_time_ns);
	fake_regs.orig_rax = ACCEPT;
}

static void pass(uint64_t ns)
{
	fake_time_ns += ns;
	task.se.sum_exec_runtime += ns;
}

static void switch_out(int64_t call)
{
	fake_regs.orig_rax = call;
	task.__state = 1;
	__u64 context[] = {0, (__u64) &task, (__u64) &other_task};
	account_switch(context);
}

static void preempt(void)
{
	task.__state = 0;
	__u64 context[] = {1, (__u64) &task, (__u64) &other_task};
	account_switch(context);
}

static void switch_in(void)
{
	task.se.prev_sum_exec_runtime = task.se.sum_exec_runtime;
	__u64 context[] = {0, (__u64) &other_task, (__u64) &task};
	account_switch(context);
}

static void wake(void)
{
	__u64 context[] = {(__u64) &task};
	account_waking(context);
}

static void receive(struct sock *socket, int bytes)
{
	__u64 context[] = {(__u64) socket, bytes};
	account_received(context);
}

static void send_to(struct sock *socket, int bytes)
{
	__u64 context[] = {(__u64) socket, bytes};
	account_sent(context);
}

static void arrive_for(struct sock *socket)
{
	__u64 context[] = {(__u64) socket};
	account_arrival(context);
}

static uint64_t sum(const __u64 *parts)
{
	uint64_t ns = 0;
	for (int part = 0; part < SLIP_PARTS; part++) {
		ns += parts[part];
	}
	return ns;
}

static uint64_t accounted(void)
{
	return thread.idle_ns + sum(thread.between) + sum(thread.serving) + sum(thread.after) + sum(thread.current) + sum(thread.tail);
}

/* ---- tests ---- */

/* accept, read, compute, ask a server, respond, go on, and wait for the next one. */
static void request_has_all_of_its_time(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	CHECK(thread.part == SLIP_IDLE && !(thread.flags & SLIP_THREAD_UNKNOWN));
	fake_time_ns += 100;
	wake();
	fake_time_ns += 5;
	switch_in();
	pass(10);
	receive(&inbound, 50);
	CHECK(thread.opened == 1);
	pass(20);
	send_to(&outbound, 30);
	pass(1);
	switch_out(NANOSLEEP);
	fake_time_ns += 400;
	wake();
	fake_time_ns += 7;
	switch_in();
	pass(2);
	receive(&outbound, 5);
	pass(3);
	send_to(&inbound, 100);
	pass(50);
	switch_out(EPOLL_WAIT);
	CHECK(served_count == 1 && thread.opened == 0 && thread.part == SLIP_IDLE);
	CHECK(last_served.end_ns - last_served.begin_ns == 5 + 10 + 20 + 1 + 400 + 7 + 2 + 3 + 50);
	CHECK(last_served.response_ns == last_served.end_ns - 50);
	CHECK(last_served.serving[SLIP_PART_CODE] == 36 && last_served.serving[SLIP_PART_SLEEP] == 400);
	CHECK(last_served.serving[SLIP_PART_WAKE] == 12 && last_served.after[SLIP_PART_CODE] == 50);
	CHECK(thread.idle_ns == 100 && thread.endpoints[endpoint_number].calls == 1);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
}

/* A thread that runs, of which nobody said that it got a CPU. */
static void return_that_was_not_seen_is_made_up_for(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	fake_time_ns += 100;
	task.se.prev_sum_exec_runtime = task.se.sum_exec_runtime;
	pass(30);
	switch_out(EPOLL_WAIT);
	CHECK(thread.idle_ns == 100 && thread.between[SLIP_PART_CODE] == 30);
}

static void requests_that_are_open_together_share(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	wake();
	switch_in();
	pass(10);
	receive(&inbound, 50);
	pass(10);
	receive(&second_inbound, 50);
	pass(10);
	send_to(&inbound, 5);
	pass(10);
	switch_out(EPOLL_WAIT);
	CHECK(served_count == 1 && last_served.flags & SLIP_SERVED_SHARED && sum(last_served.serving) == 0);
	CHECK(thread.opened == 1 && thread.part == SLIP_SEVERAL);
	fake_time_ns += 70;
	wake();
	switch_in();
	send_to(&second_inbound, 5);
	switch_out(EPOLL_WAIT);
	CHECK(served_count == 2 && thread.opened == 0 && sum(thread.serving) == 110 && thread.shared_ns == 20);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
}

static void response_that_the_client_takes_slowly_has_not_ended(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	wake();
	switch_in();
	receive(&inbound, 50);
	send_to(&inbound, 5);
	switch_out(SENDTO);
	CHECK(served_count == 0 && thread.part == SLIP_PART_CLIENT);
	fake_time_ns += 400;
	wake();
	switch_in();
	send_to(&inbound, 5);
	switch_out(RECVFROM);
	CHECK(served_count == 1 && last_served.serving[SLIP_PART_CLIENT] == 400 && sum(last_served.after) == 0);
}

static void data_that_an_event_loop_keeps_waiting_is_told(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	wake();
	switch_in();
	receive(&inbound, 50);
	send_to(&outbound, 5);
	arrive_for(&outbound);
	pass(20);
	receive(&outbound, 5);
	/* It has not waited for events with a request open yet. */
	CHECK(thread.loop_blocked_ns == 0);
	switch_out(EPOLL_WAIT);
	fake_time_ns += 70;
	/* This is what it waits for. */
	arrive_for(&second_inbound);
	wake();
	fake_time_ns += 7;
	switch_in();
	pass(3);
	receive(&second_inbound, 50);
	receive(&outbound, 5);
	CHECK(thread.loop_blocked_ns == 0 && thread.opened == 2);
	arrive_for(&inbound);
	pass(10);
	arrive_for(&outbound);
	pass(20);
	receive(&inbound, 50);
	CHECK(thread.loop_blocked_ns == 30);
	pass(5);
	receive(&outbound, 5);
	CHECK(thread.loop_blocked_ns == 35);
	pass(5);
	receive(&outbound, 5);
	CHECK(thread.loop_blocked_ns == 35);
	/* Nobody was told that it runs again. */
	switch_out(EPOLL_WAIT);
	fake_time_ns += 70;
	arrive_for(&outbound);
	task.se.prev_sum_exec_runtime = task.se.sum_exec_runtime;
	pass(9);
	receive(&outbound, 5);
	CHECK(thread.loop_blocked_ns == 35);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
}

static void what_php_has_begun_goes_on_after_its_response(void)
{
	reset();
	switch_out(EPOLL_WAIT);
	wake();
	switch_in();
	receive(&inbound, 50);
	account_php_startup(NULL);
	pass(10);
	account_php_script(NULL);
	pass(20);
	send_to(&inbound, 5);
	switch_out(EPOLL_WAIT);
	fake_time_ns += 500;
	wake();
	switch_in();
	receive(&inbound, 8);
	CHECK(served_count == 0);
	account_php_shutdown(NULL);
	CHECK(served_count == 1 && last_served.flags & SLIP_SERVED_STARTED);
	CHECK(last_served.serving[SLIP_PART_BOOT] == 10 && sum(last_served.serving) == 30 && sum(last_served.after) == 500);
}

/* Loaded, running, and ending; then it asks for connections after all. */
static void run_is_without_its_start_up_and_its_exit(void)
{
	reset();
	target.run = SLIP_RUN_STARTED;
	__u64 exec[] = {(__u64) &task, 7, 0};
	struct call_entry entry = {};
	pass(90);
	account_exec(exec);
	CHECK(thread.flags & SLIP_THREAD_STARTS && thread.opened == 0 && thread.first_ns == fake_time_ns);
	pass(10);
	switch_out(NANOSLEEP);
	fake_time_ns += 3;
	wake();
	switch_in();
	account_main(NULL);
	CHECK(thread.between[SLIP_PART_CODE] == 10 && thread.between[SLIP_PART_SLEEP] == 3 && thread.opened == 1);
	pass(20);
	switch_out(NANOSLEEP);
	fake_time_ns += 400;
	wake();
	switch_in();
	/* Called once more, by itself. */
	account_main(NULL);
	account_exit_group(&entry);
	pass(5);
	__u64 ends[] = {(__u64) &task};
	account_exit(ends);
	CHECK(served_count == 1 && last_served.flags & SLIP_SERVED_RUN && thread.flags & SLIP_THREAD_UNKNOWN);
	CHECK(last_served.serving[SLIP_PART_CODE] == 20 && last_served.serving[SLIP_PART_SLEEP] == 400);
	CHECK(last_served.after[SLIP_PART_CODE] == 5 && sum(thread.between) == 13);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
	reset();
	account_exec(exec);
	account_main(NULL);
	pass(20);
	/* Another program, of which nobody tells when it has started. */
	account_exec(exec);
	CHECK(thread.opened == 1 && sum(thread.current) == 0);
	pass(20);
	account_accept(&entry);
	CHECK(thread.opened == 0 && !(thread.flags & SLIP_THREAD_RUNS) && served_count == 0);
	pass(5);
	receive(&inbound, 50);
	CHECK(thread.opened == 1 && thread.open[0].socket == (__u64) &inbound);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
	target.run = SLIP_RUN_NONE;
}

static void any_order_of_events_adds_up(void)
{
	srand(4711);
	for (int run = 0; run < 300; run++) {
		reset();
		switch_out(EPOLL_WAIT);
		bool is_off = true;
		struct call_entry entry = {};
		struct call_exit exit_of = {};
		for (int step = 0; step < 200; step++) {
			uint64_t ns = rand() % 100;
			if (is_off) {
				fake_time_ns += ns;
				if (rand() % 2) {
					wake();
				}
				fake_time_ns += ns;
				/* Now and then nobody is told. */
				if (rand() % 8) {
					switch_in();
				} else {
					task.se.prev_sum_exec_runtime = task.se.sum_exec_runtime;
				}
				is_off = false;
				continue;
			}
			pass(ns);
			switch (rand() % 15) {
				case 0: switch_out(EPOLL_WAIT); is_off = true; break;
				case 1: switch_out(FUTEX); is_off = true; break;
				case 2: switch_out(NANOSLEEP); is_off = true; break;
				case 3: preempt(); is_off = true; break;
				case 4: receive(&inbound, rand() % 3); break;
				case 5: receive(&second_inbound, rand() % 3); break;
				case 6: send_to(&inbound, 5); break;
				case 7: send_to(&second_inbound, 5); break;
				case 8: send_to(&outbound, 5); break;
				case 9: receive(&outbound, 5); break;
				case 10: account_fault(NULL); break;
				case 11: rand() % 2 ? account_memory_call(&entry) : account_memory_call_end(&exit_of); break;
				case 12: rand() % 2 ? account_php_startup(NULL) : account_php_shutdown(NULL); break;
				case 13: account_accept(&entry); break;
				case 14: arrive_for(rand() % 2 ? &inbound : &outbound); break;
			}
			CHECK(accounted() == thread.since_ns - thread.first_ns);
			CHECK(thread.loop_blocked_ns <= thread.since_ns - thread.first_ns);
			CHECK(thread.sequence % 2 == 0 && thread.responded <= thread.opened);
			if (served_count && !(last_served.flags & SLIP_SERVED_SHARED)) {
				CHECK(sum(last_served.serving) + sum(last_served.after) == last_served.end_ns - last_served.begin_ns);
			}
		}
	}
}

static void protocols_are_told_by_their_first_bytes(void)
{
	CHECK(protocol_of((const __u8 *) "*2\r\n$3\r\nGET\r", false) == SLIP_PROTOCOL_REDIS);
	CHECK(protocol_of((const __u8 *) "GET / HTTP/1.1", false) == SLIP_PROTOCOL_HTTP);
	CHECK(protocol_of((const __u8 *) "get key\r\n    ", false) == SLIP_PROTOCOL_MEMCACHED);
	CHECK(protocol_of((const __u8 *) "\0\0\0\x20\0\3\0\0user", false) == SLIP_PROTOCOL_POSTGRESQL);
	CHECK(protocol_of((const __u8 *) "\x55\0\0\1\x8d\xa6\xff\1\0\0\0\1", true) == SLIP_PROTOCOL_MYSQL);
	CHECK(protocol_of((const __u8 *) "\x16\3\1\2\0\1\0\1\xfc\3\3\0", false) == SLIP_PROTOCOL_TLS);
	CHECK(protocol_of((const __u8 *) "SSH-2.0-OpenSSH", false) == SLIP_PROTOCOL_UNKNOWN);
}

static void what_is_left_of_a_request_begins_none(void)
{
	CHECK(may_begin_request((const __u8 *) "\1\1\0\1\0\x08\0\0"));
	CHECK(!may_begin_request((const __u8 *) "\1\5\0\1\0\0\0\0"));
	CHECK(may_begin_request((const __u8 *) "GET / HTTP/1"));
}

static void tasks_have_the_numbers_of_the_loader(void)
{
	struct {
		struct pid pid;
		struct upid numbers[3];
	} numbers = {{.level = 2}, {{.nr = 4000}, {.nr = 70}, {.nr = 1}}};
	task.pid = 4000;
	task.thread_pid = &numbers.pid;
	for (pid_level = 0; pid_level <= 2; pid_level++) {
		CHECK(number_of(&task) == numbers.numbers[pid_level].nr);
	}
	/* Its namespace is around ours: it has no number here. */
	CHECK(number_of(&task) == 0);
	pid_level = 0;
	task.thread_pid = NULL;
}

int main(void)
{
	request_has_all_of_its_time();
	return_that_was_not_seen_is_made_up_for();
	requests_that_are_open_together_share();
	response_that_the_client_takes_slowly_has_not_ended();
	data_that_an_event_loop_keeps_waiting_is_told();
	what_php_has_begun_goes_on_after_its_response();
	run_is_without_its_start_up_and_its_exit();
	any_order_of_events_adds_up();
	protocols_are_told_by_their_first_bytes();
	what_is_left_of_a_request_begins_none();
	tasks_have_the_numbers_of_the_loader();
	return failed != 0;
}
