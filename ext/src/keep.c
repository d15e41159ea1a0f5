#include "keep.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ext/standard/info.h"
#include "php_ini.h"

#include "kept_page.h"
#include "streams.h"

static slip_server_t *servers;
static int server_count;
/* That names them. */
static const char *setting = "";
static struct slip_kept_page *page;

slip_server_t *slip_keep_find(bool is_unix, bool is_tls, const char *resource, size_t length)
{
	/* Some write a number behind the address, to tell connections apart. */
	const char *path = is_unix ? NULL : memchr(resource, '/', length);

	length = path ? path - resource : length;
	for (int i = 0; i < server_count; i++) {
		slip_server_t *server = &servers[i];
		/* Of those with TLS some clients ask without, and begin it then. */
		if (server->is_unix == is_unix && (server->kind->is_tls || !is_tls) && strlen(server->resource) == length
				&& (is_unix ? memcmp(server->resource, resource, length) : strncasecmp(server->resource, resource, length)) == 0) {
			return server;
		}
	}
	return NULL;
}

void slip_keep_end_replay(const slip_replay_t *replay)
{
	for (int i = 0; i < server_count; i++) {
		slip_parked_end_replay(&servers[i], replay);
	}
}

bool slip_keep_is_asked_for(void)
{
	return server_count > 0;
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
static void exchange_servers(slip_server_t *others, int count, bool is_end)
{
	slip_streams_forget();
	slip_parked_free(servers, server_count, is_end);
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
			"understood: %s (redis://HOST:PORT, rediss://HOST:PORT, memcached://HOST:PORT or redis:///PATH, several with blanks "
			"between)", copy ? error : "there is no memory");
		free(copy);
		return FAILURE;
	}
	if (*setting) {
		free((char *) setting);
	}
	setting = *copy ? copy : "";
	exchange_servers(others, count, false);
	if (!*copy) {
		free(copy);
	}
	return SUCCESS;
}

void slip_keep_startup(void)
{
	slip_streams_startup();
}

void slip_keep_shutdown(void)
{
	exchange_servers(NULL, 0, true);
	slip_streams_shutdown();
}

void slip_keep_begin(void)
{
	/* What a request that was broken off did not close. */
	slip_streams_forget();
}

void slip_keep_end(void)
{
	/* Streams of an image that were used after the others had gone. */
	slip_streams_forget();
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
		add_assoc_long(&entry, "replayed", counts->replayed);
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
		if (counts->replayed) {
			zend_string *longer = zend_strpprintf(0, "%s; %" PRIu64 " told again who the boot was", ZSTR_VAL(text), counts->replayed);
			zend_string_release(text);
			text = longer;
		}
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
