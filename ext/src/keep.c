#include "keep.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ext/standard/info.h"
#include "php_ini.h"
#include "php_network.h"
#include "php_streams.h"

#include "framing.h"
#include "kept_page.h"
#include "parked.h"
#include "settings.h"

/* A stream that leads to one of the servers. */
typedef struct {
	slip_server_t *server;
	pid_t pid;
	/* -1, or why it cannot be kept. */
	int unfit;
	slip_framing_t written;
} slip_link_t;

/* A transport in whose place we are: what makes its streams, and the functions of those, as they were and as ours. */
typedef struct {
	php_stream_transport_factory factory;
	const php_stream_ops *theirs;
	php_stream_ops ours;
} slip_transport_t;

static slip_server_t *servers;
static int server_count;
/* That names them. */
static const char *setting = "";
static struct slip_kept_page *page;
static slip_transport_t tcp, local;
/* By the address of the stream. Not in the request's memory, which a snapshot may put back. */
static HashTable links;
static bool is_started;

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t) now.tv_sec * 1000000000u + now.tv_nsec;
}

static slip_link_t *link_of(const php_stream *stream)
{
	return zend_hash_index_find_ptr(&links, (zend_ulong) (uintptr_t) stream);
}

static slip_transport_t *transport_of(const php_stream *stream)
{
	return stream->ops == &local.ours ? &local : &tcp;
}

static void note_unfit(slip_link_t *link, enum slip_kept_reason reason)
{
	if (link && link->unfit < 0) {
		link->unfit = reason;
	}
}

static ssize_t on_write(php_stream *stream, const char *data, size_t length)
{
	slip_link_t *link = link_of(stream);
	ssize_t written = transport_of(stream)->theirs->write(stream, data, length);

	if (link && written > 0) {
		slip_framing_read(&link->written, data, written);
	}
	return written;
}

static int on_cast(php_stream *stream, int how, void **result)
{
	/* Whoever gets the socket itself may do anything with it, later as well. */
	if (how != PHP_STREAM_AS_FD_FOR_SELECT) {
		note_unfit(link_of(stream), SLIP_KEPT_EXPORTED);
	}
	return transport_of(stream)->theirs->cast(stream, how, result);
}

static zval *socket_option(php_stream *stream, const char *name)
{
	php_stream_context *context = PHP_STREAM_CONTEXT(stream);
	return context ? php_stream_context_get_option(context, "socket", name) : NULL;
}

/* A parked socket in the place of a new one. False if there is none. */
static bool reconnect(php_stream *stream, slip_link_t *link, php_stream_xport_param *parameters)
{
	php_netstream_data_t *data = stream->abstract;
	zval *no_delay = socket_option(stream, "tcp_nodelay");
	int on = no_delay && zend_is_true(no_delay);

	/* From where it was connected cannot be changed any more. */
	if (!data || data->socket != -1 || socket_option(stream, "bindto")) {
		return false;
	}
	int fd = slip_parked_take(link->server, slip_keep_seconds());
	if (fd < 0) {
		return false;
	}
	if (!link->server->is_unix) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	}
	data->socket = fd;
	parameters->outputs.returncode = 0;
	parameters->outputs.error_code = 0;
	return true;
}

/* As it would be without us: what they do may look at whose functions the stream has, and replace them. */
static int delegate(php_stream *stream, int option, int value, void *parameters)
{
	slip_transport_t *transport = transport_of(stream);

	stream->ops = transport->theirs;
	int result = transport->theirs->set_option(stream, option, value, parameters);
	if (stream->ops == transport->theirs) {
		stream->ops = &transport->ours;
	}
	return result;
}

static int connect_stream(php_stream *stream, slip_link_t *link, int value, php_stream_xport_param *parameters)
{
	uint64_t start_ns = now_ns();
	struct slip_kept_counts *counts = link->server->counts;

	counts->asked++;
	if (reconnect(stream, link, parameters)) {
		counts->reused++;
		counts->reused_ns += now_ns() - start_ns;
		return PHP_STREAM_OPTION_RETURN_OK;
	}
	int result = delegate(stream, PHP_STREAM_OPTION_XPORT_API, value, parameters);
	/* When one is there that is being made meanwhile is not known. */
	if (parameters->op == STREAM_XPORT_OP_CONNECT && parameters->outputs.returncode == 0) {
		counts->connected++;
		counts->connected_ns += now_ns() - start_ns;
	}
	return result;
}

static int on_set_option(php_stream *stream, int option, int value, void *parameters)
{
	slip_link_t *link = link_of(stream);

	if (link && option == PHP_STREAM_OPTION_CRYPTO_API) {
		note_unfit(link, SLIP_KEPT_ENCRYPTED);
	} else if (link && option == PHP_STREAM_OPTION_XPORT_API) {
		switch (((php_stream_xport_param *) parameters)->op) {
			case STREAM_XPORT_OP_CONNECT:
			case STREAM_XPORT_OP_CONNECT_ASYNC:
				return connect_stream(stream, link, value, parameters);
			case STREAM_XPORT_OP_SEND:
				note_unfit(link, SLIP_KEPT_EXPORTED);
				break;
			case STREAM_XPORT_OP_SHUTDOWN:
				note_unfit(link, SLIP_KEPT_CLOSED);
				break;
			default:
				break;
		}
	}
	return delegate(stream, option, value, parameters);
}

/* -1, or why what this stream is connected to cannot be kept. */
static int unfit(const php_stream *stream, const slip_link_t *link, int close_handle)
{
	const php_netstream_data_t *data = stream->abstract;

	if (link->unfit >= 0) {
		return link->unfit;
	}
	if (!close_handle || link->pid != getpid()) {
		return SLIP_KEPT_FORKED;
	}
	if (data->timeout_event) {
		return SLIP_KEPT_TIMEOUT;
	}
	if (stream->eof) {
		return SLIP_KEPT_CLOSED;
	}
	if (stream->writepos != stream->readpos) {
		return SLIP_KEPT_UNREAD;
	}
	if (link->written.stays) {
		return SLIP_KEPT_STAYS;
	}
	return slip_framing_is_whole(&link->written) ? -1 : SLIP_KEPT_HALF;
}

static int on_close(php_stream *stream, int close_handle)
{
	slip_transport_t *transport = transport_of(stream);
	slip_link_t *link = link_of(stream);
	php_netstream_data_t *data = stream->abstract;

	if (link && data && data->socket != -1) {
		int reason = unfit(stream, link, close_handle);
		if (reason >= 0) {
			link->server->counts->refused[reason]++;
		} else if (slip_parked_put(link->server, data->socket, slip_keep_connections())) {
			data->socket = -1;
		}
	}
	zend_hash_index_del(&links, (zend_ulong) (uintptr_t) stream);
	stream->ops = transport->theirs;
	return transport->theirs->close(stream, close_handle);
}

/* The server that a client means, if it is kept. Some write a number behind the address, to tell connections apart. */
static slip_server_t *find_server(bool is_unix, const char *resource, size_t length)
{
	const char *path = is_unix ? NULL : memchr(resource, '/', length);

	length = path ? path - resource : length;
	for (int i = 0; i < server_count; i++) {
		slip_server_t *server = &servers[i];
		if (server->is_unix == is_unix && strlen(server->resource) == length
				&& (is_unix ? memcmp(server->resource, resource, length) : strncasecmp(server->resource, resource, length)) == 0) {
			return server;
		}
	}
	return NULL;
}

static php_stream *make(slip_transport_t *transport, const char *protocol, size_t protocol_length, const char *resource, size_t length,
	const char *persistent_id, int options, int flags, struct timeval *timeout, php_stream_context *context STREAMS_DC)
{
	php_stream *stream = transport->factory(protocol, protocol_length, resource, length, persistent_id, options, flags, timeout, context
		STREAMS_REL_CC);
	slip_server_t *server = find_server(transport == &local, resource, length);

	/* A persistent one is kept by PHP, as it is. */
	if (!stream || !server || persistent_id || (flags & STREAM_XPORT_SERVER)) {
		return stream;
	}
	if (!transport->theirs) {
		transport->theirs = stream->ops;
		transport->ours = *stream->ops;
		transport->ours.write = on_write;
		transport->ours.cast = on_cast;
		transport->ours.close = on_close;
		transport->ours.set_option = on_set_option;
	}
	if (stream->ops == transport->theirs) {
		slip_link_t link = {.server = server, .pid = getpid(), .unfit = -1};
		zend_hash_index_update_mem(&links, (zend_ulong) (uintptr_t) stream, &link, sizeof link);
		stream->ops = &transport->ours;
	}
	return stream;
}

static php_stream *make_tcp(const char *protocol, size_t protocol_length, const char *resource, size_t length, const char *persistent_id,
	int options, int flags, struct timeval *timeout, php_stream_context *context STREAMS_DC)
{
	return make(&tcp, protocol, protocol_length, resource, length, persistent_id, options, flags, timeout, context STREAMS_REL_CC);
}

static php_stream *make_local(const char *protocol, size_t protocol_length, const char *resource, size_t length, const char *persistent_id,
	int options, int flags, struct timeval *timeout, php_stream_context *context STREAMS_DC)
{
	return make(&local, protocol, protocol_length, resource, length, persistent_id, options, flags, timeout, context STREAMS_REL_CC);
}

static void free_link(zval *entry)
{
	pefree(Z_PTR_P(entry), 1);
}

static void replace(slip_transport_t *transport, const char *name, php_stream_transport_factory ours)
{
	transport->factory = zend_hash_str_find_ptr(php_stream_xport_get_hash(), name, strlen(name));
	if (transport->factory) {
		php_stream_xport_register(name, ours);
	}
}

/* Where they are counted: memory of this worker alone, with a name by which it is found from outside. */
static struct slip_kept_page *make_page(void)
{
	int file = memfd_create(SLIP_KEPT_NAME, MFD_CLOEXEC);
	void *memory = MAP_FAILED;

	if (file >= 0 && ftruncate(file, sizeof(struct slip_kept_page)) == 0) {
		memory = mmap(NULL, sizeof(struct slip_kept_page), PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	}
	if (file >= 0) {
		close(file);
	}
	return memory == MAP_FAILED ? NULL : memory;
}

/* Other servers from now on. */
static void exchange_servers(slip_server_t *others, int count)
{
	if (is_started) {
		zend_hash_clean(&links);
	}
	slip_parked_free(servers, server_count);
	servers = others;
	server_count = page || (count && (page = make_page())) ? count : 0;
	if (!page) {
		return;
	}
	memset(page, 0, sizeof *page);
	for (int i = 0; i < server_count; i++) {
		servers[i].counts = &page->servers[i];
		snprintf(page->servers[i].name, sizeof page->servers[i].name, "%s", servers[i].name);
	}
	page->version = SLIP_KEPT_VERSION;
	page->count = server_count;
	page->magic = SLIP_KEPT_MAGIC;
}

PHP_INI_MH(slip_keep_on_change)
{
	const char *error, *named = new_value ? ZSTR_VAL(new_value) : "";
	int count;

	/* A pool's setting is set anew for each request that has one of its own. */
	if (strcmp(named, setting) == 0) {
		return SUCCESS;
	}
	char *copy = strdup(named);
	slip_server_t *others = copy ? slip_parked_read(named, &count, &error) : NULL;
	if (!others) {
		zend_error(stage == PHP_INI_STAGE_STARTUP ? E_CORE_WARNING : E_WARNING, "Slipstream keeps no connections: slipstream.keep is not "
			"understood: %s (redis://HOST:PORT or redis:///PATH, several with blanks between)", copy ? error : "there is no memory");
		free(copy);
		return FAILURE;
	}
	if (*setting) {
		free((char *) setting);
	}
	setting = *copy ? copy : "";
	exchange_servers(others, count);
	if (!*copy) {
		free(copy);
	}
	return SUCCESS;
}

void slip_keep_startup(void)
{
	zend_hash_init(&links, 8, NULL, free_link, 1);
	is_started = true;
	replace(&tcp, "tcp", make_tcp);
	replace(&local, "unix", make_local);
}

void slip_keep_shutdown(void)
{
	exchange_servers(NULL, 0);
	if (!is_started) {
		return;
	}
	is_started = false;
	if (tcp.factory) {
		php_stream_xport_register("tcp", tcp.factory);
	}
	if (local.factory) {
		php_stream_xport_register("unix", local.factory);
	}
	zend_hash_destroy(&links);
}

void slip_keep_begin(void)
{
	/* What a request that was broken off did not close. */
	if (is_started) {
		zend_hash_clean(&links);
	}
}

/* What reusing has saved so far, microseconds: of what new connections took. */
static zend_long saved_us(const struct slip_kept_counts *counts)
{
	if (!counts->connected) {
		return 0;
	}
	double new_ns = (double) counts->connected_ns / counts->connected * counts->reused;
	return new_ns > counts->reused_ns ? (zend_long) ((new_ns - counts->reused_ns) / 1000) : 0;
}

void slip_keep_fill(zval *array)
{
	zval list;

	array_init(&list);
	for (int i = 0; i < server_count; i++) {
		const struct slip_kept_counts *counts = servers[i].counts;
		zval entry, refused;
		array_init(&entry);
		array_init(&refused);
		for (int reason = 0; reason < SLIP_KEPT_REASONS; reason++) {
			if (counts->refused[reason]) {
				add_assoc_long(&refused, slip_kept_reason_names[reason], counts->refused[reason]);
			}
		}
		add_assoc_long(&entry, "asked", counts->asked);
		add_assoc_long(&entry, "reused", counts->reused);
		add_assoc_long(&entry, "parked", counts->parked);
		add_assoc_zval(&entry, "refused", &refused);
		add_assoc_long(&entry, "saved_us", saved_us(counts));
		add_assoc_zval(&list, servers[i].name, &entry);
	}
	add_assoc_zval(array, "connections", &list);
}

void slip_keep_info(void)
{
	if (!server_count) {
		return;
	}
	php_info_print_table_start();
	php_info_print_table_header(2, "Kept connections to", "of this worker");
	for (int i = 0; i < server_count; i++) {
		const struct slip_kept_counts *counts = servers[i].counts;
		zend_string *text = zend_strpprintf(0, "%" PRIu64 " asked for, %" PRIu64 " used again, %" PRIu64 " parked, " ZEND_LONG_FMT " us saved",
			counts->asked, counts->reused, counts->parked, saved_us(counts));
		for (int reason = 0; reason < SLIP_KEPT_REASONS; reason++) {
			if (counts->refused[reason]) {
				zend_string *longer = zend_strpprintf(0, "%s; %s %" PRIu64, ZSTR_VAL(text), slip_kept_reason_names[reason], counts->refused[reason]);
				zend_string_release(text);
				text = longer;
			}
		}
		php_info_print_table_row(2, servers[i].name, ZSTR_VAL(text));
		zend_string_release(text);
	}
	php_info_print_table_end();
}
