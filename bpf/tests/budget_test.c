/* The books of budget.bpf.c on a thread that we make up: whatever happens in whatever order, its time adds up. */

#include "../budget.bpf.c"

#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

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
static uint64_t counts[SLIP_BUDGET_COUNTERS];
static struct taken taken, no_taken;
static struct arrival arrival;
static struct slip_listed listed;
static struct slip_budget_target target;
static uint8_t yes = 1;
static uint32_t endpoint_number, ended_threads;
static struct exchange places[EXCHANGES];
static struct slip_call_times calls;
static struct slip_command_times command;
static struct slip_command_key command_key;
static struct slip_call last_call;
static int call_count;
static struct slip_slow_call slow_note;
static uint32_t protocol_number;
static struct mm_struct program_memory = {.start_code = 0x5000, .end_code = 0x6000};
static struct slip_memory_stack stack_scratch, last_stack;
static struct slip_memory_place memory_place;
static struct slip_memory_time memory_time;
static struct slip_memory_count elsewhere[SLIP_MEMORY_KINDS];
static bool has_place, places_are_full;
static int stack_count;
static uint64_t last_stack_bytes;

/* The stack of the target, which ends soon. */
#define USER_STACK 0x70000fa0
static __u64 user_stack[40];

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

/* What threads send; 0 for what cannot be read. */
static const char *sent_bytes;
static uint32_t sent_length;

long fake_read(void *to, uint32_t bytes, uint64_t from)
{
	if (from >= USER_STACK && from < USER_STACK + sizeof user_stack) {
		if (from + bytes > USER_STACK + sizeof user_stack) {
			return -14;
		}
		memcpy(to, (const char *) user_stack + (from - USER_STACK), bytes);
		return 0;
	}
	if (!sent_bytes || bytes > sent_length) {
		return -14;
	}
	memcpy(to, sent_bytes, bytes);
	return 0;
}

/* What is kept of sockets by their addresses; 0 for a free place. */
static struct addressed {
	__u64 address;
	struct connection connection;
} addressed[4];

static struct addressed *find_addressed(__u64 address)
{
	for (uint32_t at = 0; at < sizeof addressed / sizeof *addressed; at++) {
		if (addressed[at].address == address) {
			return &addressed[at];
		}
	}
	return NULL;
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
	if (map == &no_time) {
		return &no_taken;
	}
	if (map == &takers) {
		return &taken;
	}
	if (map == &exchanges) {
		return &places[*(const uint32_t *) key];
	}
	if (map == &call_times) {
		return &calls;
	}
	if (map == &connections_by_address) {
		struct addressed *place = find_addressed(*(const __u64 *) key);
		return place ? &place->connection : NULL;
	}
	if (map == &slow_calls) {
		return &slow_note;
	}
	if (map == &memory_scratch) {
		return &stack_scratch;
	}
	if (map == &memory_places) {
		return has_place && memcmp(key, &memory_place, sizeof memory_place) == 0 ? &memory_time : NULL;
	}
	if (map == &memory_elsewhere) {
		return &elsewhere[*(const uint32_t *) key];
	}
	if (map == &commands) {
		command_key = *(const struct slip_command_key *) key;
		return &command;
	}
	return map == &endpoints ? &endpoint_number : NULL;
}

long fake_update(const void *map, const void *key, const void *value)
{
	struct addressed *place = map == &connections_by_address ? find_addressed(0) : NULL;
	if (place) {
		*place = (struct addressed) {.address = *(const __u64 *) key, .connection = *(const struct connection *) value};
	}
	if (map == &memory_places && !places_are_full) {
		memory_place = *(const struct slip_memory_place *) key;
		memory_time = *(const struct slip_memory_time *) value;
		has_place = true;
	}
	if (map == &protocols) {
		protocol_number = *(const uint32_t *) value;
	}
	return 0;
}

long fake_delete(const void *map, const void *key)
{
	struct addressed *place = map == &connections_by_address ? find_addressed(*(const __u64 *) key) : NULL;
	if (place) {
		place->address = 0;
	}
	return 0;
}

void *fake_storage(const struct task_struct *of, bool make)
{
	return of == &task ? &thread : NULL;
}

void *fake_socket_storage(const struct sock *socket, bool make)
{
	/* Who has but an address is not let to ask for it. */
	CHECK(!options.by_address);
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
	if (event == &stack_scratch) {
		CHECK(bytes <= sizeof last_stack);
		memcpy(&last_stack, event, bytes);
		last_stack_bytes = bytes;
		stack_count++;
		return fake_ring_is_full ? -11 : 0;
	}
	if (*(const uint32_t *) event == SLIP_EVENT_CALL) {
		CHECK(bytes == sizeof last_call);
		memcpy(&last_call, event, bytes);
		call_count++;
		return 0;
	}
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
	memset(addressed, 0, sizeof addressed);
	memset(&task, 0, sizeof task);
	memset(&fake_regs, 0, sizeof fake_regs);
	memset(counts, 0, sizeof counts);
	memset(places, 0, sizeof places);
	memset(&calls, 0, sizeof calls);
	memset(&command, 0, sizeof command);
	served_count = ended_threads = call_count = protocol_number = 0;
	sent_bytes = NULL;
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
	CHECK(last_served.after[SLIP_PART_MEMORY] == 5 && sum(thread.between) == 13);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
	/* The kernel takes back its memory after it has told of the end. */
	CHECK(ended_threads == 1);
	pass(40);
	task.__state = 0x80;
	task.mm = NULL;
	__u64 dead[] = {0, (__u64) &task, (__u64) &other_task};
	account_switch(dead);
	CHECK(ended_threads == 2 && thread.after[SLIP_PART_MEMORY] == 45 && sum(thread.between) == 13);
	CHECK(thread.flags & SLIP_THREAD_UNKNOWN && accounted() == thread.since_ns - thread.first_ns);
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

/* As the loader does for the rung `syscalls`. */
static void leave_unseen_of_faults(uint64_t ns)
{
	((volatile struct slip_budget_options *) &options)->unseen_fault_ns = ns;
}

static void find_sockets_by_address(bool does)
{
	((volatile struct slip_budget_options *) &options)->by_address = does;
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

/* The system calls of a thread, whose file 0 is this socket. */
static void read_by_call(struct sock *socket, int bytes)
{
	first_socket.sk = socket;
	struct call_exit exit_of = {.result = bytes};
	account_receive_call_end(&exit_of);
	first_socket.sk = &inbound;
}

static void send_by_call(struct sock *socket, int bytes)
{
	first_socket.sk = socket;
	struct call_entry entry = {};
	struct call_exit exit_of = {.result = bytes};
	account_send_call(&entry);
	account_send_call_end(&exit_of);
	first_socket.sk = &inbound;
}

static void change_state(struct sock *socket, int before, int after)
{
	__u64 context[] = {(__u64) socket, before, after};
	account_state(context);
}

static const struct connection *kept_at(const struct sock *socket)
{
	struct addressed *place = find_addressed((__u64) socket);
	return place ? &place->connection : NULL;
}

static void request_is_seen_by_the_addresses_of_its_sockets(void)
{
	reset();
	find_sockets_by_address(true);
	switch_out(EPOLL_WAIT);
	fake_time_ns += 100;
	arrive_for(&inbound);
	CHECK(kept_at(&inbound) && kept_at(&inbound)->role == ROLE_INBOUND && kept_at(&inbound)->arrived_ns == fake_time_ns);
	fake_time_ns += 3;
	wake();
	fake_time_ns += 5;
	switch_in();
	read_by_call(&inbound, 50);
	CHECK(thread.opened == 1 && thread.open[0].socket == (__u64) &inbound);
	pass(20);
	send_by_call(&outbound, 30);
	CHECK(kept_at(&outbound) && kept_at(&outbound)->role == ROLE_OUTBOUND && kept_at(&outbound)->sent);
	pass(400);
	read_by_call(&outbound, 5);
	CHECK(thread.endpoints[endpoint_number].calls == 1);
	send_by_call(&inbound, 100);
	switch_out(EPOLL_WAIT);
	CHECK(served_count == 1 && last_served.queued_ns == last_served.begin_ns - 3 && sum(last_served.serving) == 425);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
	find_sockets_by_address(false);
}

/* The next socket at the address is another one. */
static void address_of_a_socket_that_is_closed_or_connected_tells_nothing(void)
{
	struct call_entry entry = {};

	for (int way = 0; way < 3; way++) {
		reset();
		find_sockets_by_address(true);
		send_by_call(&outbound, 30);
		CHECK(kept_at(&outbound) && exchange_of_client(&outbound));
		first_socket.sk = &outbound;
		switch (way) {
			case 0: account_close(&entry); break;
			case 1: account_connect(&entry); break;
			case 2: change_state(&outbound, TCP_ESTABLISHED, TCP_CLOSE); break;
		}
		first_socket.sk = &inbound;
		CHECK(!kept_at(&outbound) && !exchange_of_client(&outbound));
		/* Another state is no end. */
		send_by_call(&outbound, 30);
		change_state(&outbound, TCP_SYN_SENT, TCP_ESTABLISHED);
		CHECK(kept_at(&outbound) && kept_at(&outbound)->connected_ns == fake_time_ns);
		find_sockets_by_address(false);
	}
}

/* Where the kernel keeps something of each socket, it forgets that by itself. */
static void socket_that_is_closed_is_not_looked_for_by_its_address(void)
{
	reset();
	struct call_entry entry = {};
	send_to(&outbound, 30);
	CHECK(!kept_at(&outbound) && kept[2].role == ROLE_OUTBOUND);
	first_socket.sk = &outbound;
	account_close(&entry);
	first_socket.sk = &inbound;
	CHECK(exchange_of_client(&outbound) && kept[2].role == ROLE_OUTBOUND);
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

/* The name of the command in what is sent, which may be shorter than what is looked at. */
static const char *named(enum slip_protocol protocol, const char *text)
{
	static struct command_name name;
	struct sent sent = {};

	memcpy(sent.bytes, text, strlen(text) < sizeof sent.bytes ? strlen(text) : sizeof sent.bytes);
	memset(&name, 'x', sizeof name);
	read_command(protocol, &sent, &name);
	return memchr(name.bytes, 0, sizeof name.bytes) ? name.bytes : "too long";
}

static void command_of_redis_is_what_has_its_form(void)
{
	CHECK(!strcmp(named(SLIP_PROTOCOL_REDIS, "*2\r\n$3\r\nGET\r\n$7\r\nhunter2\r\n"), "GET"));
	CHECK(!strcmp(named(SLIP_PROTOCOL_REDIS, "*12\r\n$7\r\nhgetall\r\n$7\r\nhunter2\r\n"), "HGETALL"));
	CHECK(!strcmp(named(SLIP_PROTOCOL_REDIS, "*2\r\n$8\r\nJSON.GET\r\n$7\r\nhunter2\r\n"), "JSON.GET"));
	CHECK(!strcmp(named(SLIP_PROTOCOL_REDIS, "*3\r\n$10\r\nEVALSHA_RO\r\n$40\r\n"), "EVALSHA_RO"));
	static const char *const none[] = {
		"", "*", "PING\r\n", "*2", "*2\r\n", "*0\r\n$3\r\nGET\r\n", "*2\r\n$4\r\nGET\r\n$7\r\nhunter2\r\n",
		"*2\r\n$2\r\nGET\r\n$7\r\nhunter2\r\n", "*2\r\n$03\r\nGET\r\n", "*2\n$3\nGET\n", "*2\r\n:3\r\nGET\r\n", "*-1\r\n$3\r\nGET\r\n",
		"*2\r\n$3\r\nG-T\r\n", "*2\r\n$3\r\n.ET\r\n", "*2\r\n$3\r\nGE7\r\n", "*2\r\n$7\r\nhunter2\r\n$3\r\nGET\r\n", "*2\r\n$0\r\n\r\n",
		"*12345678\r\n$3\r\nGET\r\n", "a\n*2\r\n$3\r\nGET\r\n", "*a\nb\nhunter\r\n", "*2\r\n$6\r\nhunter",
	};
	for (uint32_t at = 0; at < sizeof none / sizeof *none; at++) {
		CHECK(!*named(SLIP_PROTOCOL_REDIS, none[at]));
	}
}

/* Says the same of bytes in another way: how long the name is that they begin with, and where; 0 for none. */
static int expected_name(const char *text, const char **name)
{
	char form[64];
	const char *dollar = strchr(text, '$');
	int words = text[0] == '*' ? atoi(text + 1) : 0, length = dollar ? atoi(dollar + 1) : 0;

	if (words < 1 || words > 9999999 || length < 1) {
		return 0;
	}
	snprintf(form, sizeof form, "*%d\r\n$%d\r\n", words, length);
	int begin = strlen(form);
	if (strncmp(text, form, begin) || begin + length >= NAMED_BYTES || text[begin + length] != '\r') {
		return 0;
	}
	*name = text + begin;
	for (int i = 0; i < length; i++) {
		char byte = (*name)[i], letter = byte | 0x20;
		if (!(letter >= 'a' && letter <= 'z') && !(i && (byte == '.' || byte == '_'))) {
			return 0;
		}
	}
	return length;
}

/* Whatever a client sends, nothing is told but capitals of a name that has the form of one. */
static void whatever_is_sent_no_more_than_a_name_is_told(void)
{
	static const char pieces[][9] = {"*2", "*", "$3", "$", "\r\n", "\r", "\n", "GET", "get", "hunter2", "_", ".", "1", "3", "SELECT ", " /", "\x80"};
	int names = 0;

	srand(4711);
	for (int run = 0; run < 200000; run++) {
		char text[NAMED_BYTES + 1] = {}, *end = text;
		/* Half of them begin well. */
		const char *begin = run % 2 ? "*2\r\n$3\r\nGET\r\n" : "";
		strcpy(text, begin);
		end += strlen(begin);
		while (end < text + NAMED_BYTES) {
			const char *piece = pieces[rand() % (sizeof pieces / sizeof *pieces)];
			end += snprintf(end, text + sizeof text - end, "%s", piece);
			if (rand() % 8 == 0) {
				break;
			}
		}
		/* And are spoiled at one place. */
		if (run % 4 == 1) {
			text[rand() % strlen(begin)] = rand();
		}
		/* What is behind this was not sent. */
		int handed = run % 3 ? NAMED_BYTES : rand() % NAMED_BYTES;
		memset(text + handed, 0, sizeof text - handed);
		struct sent sent = {};
		memcpy(sent.bytes, text, strnlen(text, NAMED_BYTES));
		for (int protocol = SLIP_PROTOCOL_UNKNOWN; protocol <= SLIP_PROTOCOL_TLS; protocol++) {
			struct command_name name;
			memset(&name, 'x', sizeof name);
			int telling = read_command(protocol, &sent, &name);
			CHECK(telling >= 0 && telling <= SLIP_FIRST_BYTES);
			int length = strnlen(name.bytes, sizeof name.bytes);
			for (int i = 0; i < SLIP_COMMAND_BYTES; i++) {
				char byte = name.bytes[i];
				CHECK(i < length ? (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' : !byte);
			}
			if (protocol == SLIP_PROTOCOL_REDIS) {
				const char *expected = NULL;
				int expected_length = expected_name(text, &expected);
				CHECK(length == (expected_length < SLIP_COMMAND_BYTES ? expected_length : SLIP_COMMAND_BYTES));
				CHECK(strncasecmp(name.bytes, expected ? expected : "", length) == 0);
				names += length > 0;
			}
			/* What comes behind these bytes changes nothing, so it need not be looked at again. */
			if (telling && telling <= handed) {
				struct sent other = sent;
				struct command_name again = {};
				memset(other.bytes + telling, 'z', NAMED_BYTES - telling);
				CHECK(read_command(protocol, &other, &again) == telling && !memcmp(&again, &name, sizeof name));
			}
			if (protocol == SLIP_PROTOCOL_UNKNOWN || protocol == SLIP_PROTOCOL_TLS) {
				CHECK(!length);
			}
		}
	}
	CHECK(names > 10000 && names < 190000);
}

/* These bytes, of which there may be more or fewer. */
static enum slip_protocol asked(const char bytes[14], uint32_t length)
{
	char text[NAMED_BYTES] = {};
	memcpy(text, bytes, 14);
	return protocol_of_question((const __u8 *) text, length);
}

static void protocol_of_an_old_connection_is_told_by_what_is_no_other(void)
{
	CHECK(asked("\x09\0\0\0\3SELECT 1", 13) == SLIP_PROTOCOL_MYSQL);
	CHECK(asked("\x09\0\0\0\3SELECT 1", 14) == SLIP_PROTOCOL_UNKNOWN);
	CHECK(asked("\x09\0\0\1\3SELECT 1", 13) == SLIP_PROTOCOL_UNKNOWN);
	CHECK(asked("Q\0\0\0\x0dSELECT 1", 14) == SLIP_PROTOCOL_POSTGRESQL);
	CHECK(asked("Q\0\0\0\x0dSELECT 1", 15) == SLIP_PROTOCOL_UNKNOWN);
	CHECK(asked("POST /x HTTP/1", 18) == SLIP_PROTOCOL_HTTP);
	/* A client of Redis may say the same. */
	CHECK(asked("get key\r\n    ", 9) == SLIP_PROTOCOL_UNKNOWN);
	CHECK(asked("\x80\0\0\x03         ", 4) == SLIP_PROTOCOL_UNKNOWN);
}

/* One call that takes so long, of which the first of these bytes are sent. */
static void call_server(const char *bytes, uint32_t length, uint64_t ns)
{
	static char buffer[NAMED_BYTES];

	memset(buffer, ' ', sizeof buffer);
	memcpy(buffer, bytes, strlen(bytes));
	sent_bytes = buffer;
	sent_length = sizeof buffer;
	fake_regs.orig_rax = 1;
	fake_regs.rdx = length;
	pass(1);
	send_to(&outbound, length);
	pass(ns);
	receive(&outbound, 5);
}

/* We come when an answer is under way: it is read before anything is sent. */
static void redis_is_known_on_a_connection_whose_begin_was_not_seen(void)
{
	reset();
	slow_call_ns = 100;
	receive(&outbound, 5);
	call_server("*2\r\n$7\r\nhunter2\r\n$3\r\nGET\r\n", 26, 200);
	CHECK(protocol_number == SLIP_PROTOCOL_UNKNOWN && call_count == 1 && !*last_call.command);
	call_server("*2\r\n$4\r\neval\r\n$7\r\nhunter2\r\n", 27, 300);
	CHECK(protocol_number == SLIP_PROTOCOL_REDIS && call_count == 2);
	CHECK(!strcmp(last_call.command, "EVAL") && last_call.end_ns == fake_time_ns);
	CHECK(slow_note.end_ns == fake_time_ns && slow_note.socket == (__u64) &outbound);
	call_server("*2\r\n$3\r\nGET\r\n$7\r\nhunter2\r\n", 26, 50);
	CHECK(call_count == 2);
	/* The rest is left in the buffer from what it was used for before. */
	call_server("*2\r\n$7\r\nhunter\r\n", 4, 300);
	CHECK(call_count == 3 && !*last_call.command);
	call_server("*2\r\n$4\r\nEVAL\r\n", 14, 300);
	CHECK(call_count == 4 && !strcmp(last_call.command, "EVAL"));
	call_server("*2\r\n$4\r\nEVAL\r\n", 12, 300);
	CHECK(call_count == 5 && !*last_call.command);
	slow_call_ns = ~0ULL;
}

/* Calls in a row, one of ten of which takes long: of those that are not chosen no command is told, and who is stands for all. */
static void long_calls_have_the_commands_of_those_that_were_chosen(void)
{
	enum { CALLS = 8000, LONG_ONE_IN = 10, SHORT = 10000, LONG = 1000000 };
	uint32_t chosen = 0;

	reset();
	/* By chance, and always the same. */
	thread.random = 1;
	for (uint32_t number = 1; number <= CALLS; number++) {
		uint64_t before = command.calls;
		memset(&command_key, 0, sizeof command_key);
		call_server("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n", 22, number % LONG_ONE_IN ? SHORT : LONG);
		CHECK(command.calls == before ? !command_key.name[0] : !strcmp(command_key.name, "GET"));
		chosen += command.calls != before;
	}
	CHECK(chosen < CALLS / 4);
	CHECK(command.calls > CALLS * 9 / 10 && command.calls < CALLS * 11 / 10);
	uint64_t took = (uint64_t) CALLS / LONG_ONE_IN * (LONG + (LONG_ONE_IN - 1) * SHORT);
	CHECK(command.ns > took * 8 / 10 && command.ns < took * 12 / 10);
	CHECK(command.longest_ns >= LONG && command.longest_ns < 2 * LONG);
	/* What was long is counted each time, and no more than once. */
	uint32_t counted = 0;
	for (uint32_t bucket = bucket_of(LONG_NS); bucket < SLIP_BUCKETS; bucket++) {
		counted += calls.parts[SLIP_CALL_REMOTE].buckets[bucket];
	}
	CHECK(counted == CALLS / LONG_ONE_IN);
}

/* The answer has come; the thread is woken, and gets the CPU that another program has had. */
static void who_had_the_cpu_is_told_of_the_call_that_had_to_wait_for_it(void)
{
	reset();
	slow_call_ns = 100;
	target.run = SLIP_RUN_NOW;
	begin_run(&thread, fake_time_ns);
	other_task.pid = 9;
	strcpy(other_task.comm, "mysqld");
	for (int run = 0; run < 3; run++) {
		uint64_t ready = run == 1 ? TAKEN_NS / 2 : 2 * TAKEN_NS;
		pass(1);
		send_to(&outbound, 30);
		pass(1);
		switch_out(RECVFROM);
		thread.part = SLIP_PART_WAIT;
		fake_time_ns += 400;
		arrive_for(&outbound);
		fake_time_ns += 5;
		wake();
		fake_time_ns += ready;
		/* Nobody. */
		other_task.pid = run == 2 ? 0 : 9;
		switch_in();
		pass(2);
		receive(&outbound, 5);
		CHECK(call_count == run + 1 && last_call.parts[SLIP_CALL_RUNNING] == ready);
		CHECK(last_call.flags == (run == 1 ? 0 : SLIP_CALL_TAKEN));
		CHECK(!strcmp(last_call.taker, run == 0 ? "mysqld" : ""));
	}
	/* A call that did not have to wait has none of the one before. */
	pass(1);
	send_to(&outbound, 30);
	pass(200);
	receive(&outbound, 5);
	CHECK(call_count == 4 && last_call.flags == 0 && !*last_call.taker);
	target.run = SLIP_RUN_NONE;
	slow_call_ns = ~0ULL;
}

#define MMAP 9
#define MUNMAP 11

static void call_for_memory(int64_t number, uint64_t ns)
{
	struct call_entry entry = {.number = number};
	struct call_exit exit_of = {.number = number};
	account_memory_call(&entry);
	pass(ns);
	account_memory_call_end(&exit_of);
}

static void fault(uint64_t ns)
{
	account_fault(NULL);
	pass(ns);
	account_fault_end(NULL);
}

static void fault_has_its_way_into_the_kernel_and_no_more_than_was_nothing_else(void)
{
	reset();
	begin_run(&thread, fake_time_ns);
	leave_unseen_of_faults(60);
	pass(1000);
	fault(300);
	CHECK(thread.current[SLIP_PART_MEMORY] == 360 && thread.current[SLIP_PART_CODE] == 940);
	pass(50);
	fault(300);
	pass(10);
	call_for_memory(MUNMAP, 0);
	CHECK(thread.current[SLIP_PART_MEMORY] == 710 && thread.current[SLIP_PART_CODE] == 950);
	CHECK(accounted() == thread.since_ns - thread.first_ns);
	leave_unseen_of_faults(0);
}

static void places_that_call_for_memory_are_counted_and_their_stacks_copied(void)
{
	reset();
	task.mm = &program_memory;
	fake_regs.rip = 0x7777;
	fake_regs.rsp = USER_STACK;
	fake_regs.rbx = 3;
	fake_regs.r15 = 5;
	user_stack[0] = 1;
	user_stack[1] = 0x5123;
	user_stack[2] = 0x5456;
	begin_run(&thread, fake_time_ns);
	/* Of an interpreter they are not asked for. */
	call_for_memory(MMAP, 100);
	CHECK(!has_place && !thread.memory_told_ns);
	target.flags = SLIP_TARGET_SITES;
	/* What was before was not told, and counts here: it is in no other place. */
	call_for_memory(MMAP, 400);
	CHECK(memory_place.kind == SLIP_MEMORY_MMAP && memory_place.ip == 0x7777 && memory_place.caller == 0x5123);
	CHECK(memory_time.calls == 1 && memory_time.ns == 500 && stack_count == 1);
	/* The stack up to the end of its mapping, by pages. */
	CHECK(last_stack.length == 96 && last_stack_bytes == 96 + __builtin_offsetof(struct slip_memory_stack, stack));
	CHECK(last_stack.ns == 500 && last_stack.bx == 3 && last_stack.r15 == 5 && ((__u64 *) last_stack.stack)[1] == 0x5123);
	/* It waits for a CPU meanwhile: that is no time of it. */
	struct call_entry entry = {.number = MMAP};
	struct call_exit exit_of = {.number = MMAP};
	account_memory_call(&entry);
	pass(200);
	preempt();
	fake_time_ns += 5000;
	switch_in();
	pass(100);
	account_memory_call_end(&exit_of);
	CHECK(memory_time.calls == 2 && memory_time.ns == 800 && stack_count == 1);
	call_for_memory(MMAP, SAMPLE_NS);
	CHECK(stack_count == 2 && last_stack.ns == 300 + SAMPLE_NS && memory_time.stacks == 2);
	/* When there is no room, it is counted, and the next comes as late as ever. */
	fake_ring_is_full = true;
	call_for_memory(MMAP, SAMPLE_NS);
	fake_ring_is_full = false;
	call_for_memory(MMAP, 10);
	CHECK(stack_count == 3 && counts[SLIP_BUDGET_STACKS_LOST] == 1);
	for (int at = 0; at < OFTEN; at++) {
		call_for_memory(MMAP, SAMPLE_NS);
	}
	CHECK(memory_time.stacks == OFTEN && stack_count < OFTEN + 3);
	places_are_full = true;
	call_for_memory(MUNMAP, 70);
	CHECK(elsewhere[SLIP_MEMORY_MUNMAP].calls == 1 && elsewhere[SLIP_MEMORY_MUNMAP].ns == 70);
	/* A page that is touched: a place has to take some time before it is worth a stack. */
	places_are_full = has_place = false;
	stack_count = 0;
	fault(60000);
	CHECK(memory_place.kind == SLIP_MEMORY_FAULT && !memory_place.caller && !stack_count);
	fault(60000);
	CHECK(memory_time.calls == 2 && stack_count == 1 && last_stack.ns == 120000);
	/* A stack of which nothing can be read is one of no length. */
	has_place = false;
	fake_regs.rsp = 0x1000;
	call_for_memory(MUNMAP, 10);
	CHECK(memory_place.kind == SLIP_MEMORY_MUNMAP && !memory_place.caller && last_stack.length == 0);
	CHECK(thread.memory_told_ns == thread.current[SLIP_PART_MEMORY] && thread.sequence % 2 == 0);
	target.flags = 0;
	has_place = false;
}

static void connection_from_a_port_that_is_taken_again_is_another_one(void)
{
	struct call_entry entry = {};
	struct call_exit exit_of = {};

	reset();
	begin_run(&thread, fake_time_ns);
	first_socket.sk = &outbound;
	outbound.sk_type = SOCK_STREAM;
	for (int run = 1; run <= 2; run++) {
		memset(kept, 0, sizeof kept);
		account_connect(&entry);
		change_state(&outbound, TCP_CLOSE, TCP_SYN_SENT);
		pass(40);
		change_state(&outbound, TCP_SYN_SENT, TCP_ESTABLISHED);
		account_connect_end(&exit_of);
		__u64 context[] = {(__u64) &outbound};
		account_sending(context);
		send_to(&outbound, 5);
		const struct slip_endpoint_time *time = &thread.endpoints[endpoint_number];
		CHECK(time->connects == run && time->connect_ns == thread.current[SLIP_PART_CONNECT] && !thread.connecting_ns);
		pass(100);
		receive(&outbound, 5);
		account_close(&entry);
	}
	first_socket.sk = &inbound;
}

static void what_a_thread_polls_is_read_of_its_own_memory_alone(void)
{
	reset();
	begin_run(&thread, fake_time_ns);
	first_socket.sk = &outbound;
	/* One file, which the memory at hand says is the first. */
	user_stack[0] = 0;
	fake_regs.rdi = USER_STACK;
	fake_regs.rsi = 1;
	switch_out(7);
	CHECK(thread.part == SLIP_PART_WAIT);
	/* Of a thread that was found blocked it is the memory of who looks. */
	block(&task, &thread, fake_time_ns, false);
	CHECK(thread.part == SLIP_SEVERAL);
	first_socket.sk = &inbound;
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
	find_sockets_by_address(true);
	any_order_of_events_adds_up();
	find_sockets_by_address(false);
	leave_unseen_of_faults(60);
	any_order_of_events_adds_up();
	leave_unseen_of_faults(0);
	request_is_seen_by_the_addresses_of_its_sockets();
	address_of_a_socket_that_is_closed_or_connected_tells_nothing();
	socket_that_is_closed_is_not_looked_for_by_its_address();
	protocols_are_told_by_their_first_bytes();
	command_of_redis_is_what_has_its_form();
	whatever_is_sent_no_more_than_a_name_is_told();
	protocol_of_an_old_connection_is_told_by_what_is_no_other();
	redis_is_known_on_a_connection_whose_begin_was_not_seen();
	long_calls_have_the_commands_of_those_that_were_chosen();
	who_had_the_cpu_is_told_of_the_call_that_had_to_wait_for_it();
	fault_has_its_way_into_the_kernel_and_no_more_than_was_nothing_else();
	places_that_call_for_memory_are_counted_and_their_stacks_copied();
	connection_from_a_port_that_is_taken_again_is_another_one();
	what_a_thread_polls_is_read_of_its_own_memory_alone();
	what_is_left_of_a_request_begins_none();
	tasks_have_the_numbers_of_the_loader();
	return failed != 0;
}
