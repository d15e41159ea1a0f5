#ifndef _GNU_SOURCE
# define _GNU_SOURCE
#endif
#include "tls.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>

#include "zend_smart_str.h"

/* What ext/openssl keeps of a stream: php_openssl_netstream_data_t of ext/openssl/xp_ssl.c, PHP 8.1 to 8.5. */
typedef struct {
	php_netstream_data_t net;
	void *handle;
	void *context;
	struct timeval connect_timeout;
	int enable_on_connect;
	int is_client;
	int is_active;
	int method;
	/* Of servers only. */
	void *reneg;
	void *sni_certs;
	unsigned sni_cert_count;
	struct {
		unsigned char *data;
		unsigned short length;
	} alpn;
	char *url_name;
	unsigned state_set : 1;
	unsigned spare : 31;
} stream_data_t;

/* Options of a stream that the handshake reads and does nothing else with. With any other one the connection is not kept. */
static const char *const known_options[] = {
	"peer_name", "verify_peer", "verify_peer_name", "allow_self_signed", "cafile", "capath", "local_cert", "local_pk", "passphrase",
	"verify_depth", "ciphers", "security_level", "crypto_method", "min_proto_version", "max_proto_version", "SNI_enabled",
	"disable_compression", "peer_fingerprint", "no_ticket", "alpn_protocols",
	/* Predis puts the method here that it asks for. */
	"crypto_type",
};

/* Of these: files, which may be others under the same name. */
static const char *const file_options[] = {"cafile", "capath", "local_cert", "local_pk"};

/* So many places are looked at for the stream. Others use a few. */
#define MAX_INDEX 64

/* A fingerprint may be an array of them. */
#define MAX_DEPTH 2

#define WANT_READ 2 /* SSL_ERROR_WANT_READ */

/* OpenSSL's library, as this process has it: PHP may have it built in, so we are not linked to it. */
static struct {
	void *(*get_ex_data)(const void *, int);
	int (*set_ex_data)(void *, int, void *);
	void *(*get_context)(const void *);
	int (*get_fd)(const void *);
	int (*is_init_finished)(const void *);
	int (*get_shutdown)(const void *);
	int (*pending)(const void *);
	int (*has_pending)(const void *);
	int (*peek)(void *, void *, int);
	int (*read)(void *, void *, int);
	int (*write)(void *, const void *, int);
	int (*get_error)(const void *, int);
	void (*free)(void *);
	void (*context_free)(void *);
	void (*clear_error)(void);
} library;

static const struct {
	const char *name;
	void *place;
} symbols[] = {
	{"SSL_get_ex_data", &library.get_ex_data},
	{"SSL_set_ex_data", &library.set_ex_data},
	{"SSL_get_SSL_CTX", &library.get_context},
	{"SSL_get_fd", &library.get_fd},
	{"SSL_is_init_finished", &library.is_init_finished},
	{"SSL_get_shutdown", &library.get_shutdown},
	{"SSL_pending", &library.pending},
	{"SSL_has_pending", &library.has_pending},
	{"SSL_peek", &library.peek},
	{"SSL_read", &library.read},
	{"SSL_write", &library.write},
	{"SSL_get_error", &library.get_error},
	{"SSL_free", &library.free},
	{"SSL_CTX_free", &library.context_free},
	{"ERR_clear_error", &library.clear_error},
};

static int count_library(struct dl_phdr_info *info, size_t size, void *count)
{
	const char *name = strrchr(info->dlpi_name, '/');
	*(int *) count += strncmp(name ? name + 1 : info->dlpi_name, "libssl.", strlen("libssl.")) == 0;
	return 0;
}

bool slip_tls_is_usable(void)
{
	static enum { NOT_LOOKED, USABLE, UNUSABLE } found;
	int libraries = 0;

	if (found != NOT_LOOKED) {
		return found == USABLE;
	}
	found = UNUSABLE;
	/* With two of them nothing says which one PHP uses. */
	dl_iterate_phdr(count_library, &libraries);
	if (libraries > 1) {
		return false;
	}
	for (size_t at = 0; at < sizeof symbols / sizeof *symbols; at++) {
		void *symbol = dlsym(RTLD_DEFAULT, symbols[at].name);
		if (!symbol) {
			return false;
		}
		memcpy(symbols[at].place, &symbol, sizeof symbol);
	}
	found = USABLE;
	return true;
}

/* ---- what a handshake depends on ---- */

static void add(smart_str *text, const char *bytes, size_t length)
{
	smart_str_appendl_ex(text, bytes, length, true);
}

static void add_number(smart_str *text, char kind, zend_long number)
{
	char digits[32];
	add(text, digits, snprintf(digits, sizeof digits, "%c" ZEND_LONG_FMT ";", kind, number));
}

static void add_string(smart_str *text, const char *bytes, size_t length)
{
	add_number(text, 's', length);
	add(text, bytes, length);
}

/* Which file it is, and since when it is as it is. */
static bool add_file(smart_str *text, const char *path)
{
	struct stat file;

	if (stat(path, &file) != 0) {
		return false;
	}
	add_number(text, 'd', file.st_dev);
	add_number(text, 'i', file.st_ino);
	add_number(text, 'b', file.st_size);
	add_number(text, 'm', file.st_mtim.tv_sec);
	add_number(text, 'n', file.st_mtim.tv_nsec);
	add_number(text, 'c', file.st_ctim.tv_sec);
	add_number(text, 'e', file.st_ctim.tv_nsec);
	return true;
}

static bool add_value(smart_str *text, zval *value, int depth)
{
	zend_ulong number;
	zend_string *key;
	zval *entry;

	ZVAL_DEREF(value);
	switch (Z_TYPE_P(value)) {
		case IS_NULL:
		case IS_FALSE:
		case IS_TRUE:
			add_number(text, 't', Z_TYPE_P(value));
			return true;
		case IS_LONG:
			add_number(text, 'l', Z_LVAL_P(value));
			return true;
		case IS_STRING:
			add_string(text, Z_STRVAL_P(value), Z_STRLEN_P(value));
			return true;
		case IS_ARRAY:
			if (depth == MAX_DEPTH) {
				return false;
			}
			add_number(text, 'a', zend_hash_num_elements(Z_ARRVAL_P(value)));
			ZEND_HASH_FOREACH_KEY_VAL(Z_ARRVAL_P(value), number, key, entry) {
				if (key) {
					add_string(text, ZSTR_VAL(key), ZSTR_LEN(key));
				} else {
					add_number(text, 'k', number);
				}
				if (!add_value(text, entry, depth + 1)) {
					return false;
				}
			} ZEND_HASH_FOREACH_END();
			return true;
		default:
			return false;
	}
}

static bool is_among(const char *const *names, size_t count, const zend_string *name)
{
	for (size_t at = 0; at < count; at++) {
		if (zend_string_equals_cstr(name, names[at], strlen(names[at]))) {
			return true;
		}
	}
	return false;
}

static bool add_options(smart_str *text, HashTable *options)
{
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL(options, name, value) {
		if (!name || !is_among(known_options, sizeof known_options / sizeof *known_options, name)) {
			return false;
		}
		add_string(text, ZSTR_VAL(name), ZSTR_LEN(name));
		if (!add_value(text, value, 0)) {
			return false;
		}
		ZVAL_DEREF(value);
		if (is_among(file_options, sizeof file_options / sizeof *file_options, name)
				&& (Z_TYPE_P(value) != IS_STRING || !add_file(text, Z_STRVAL_P(value)))) {
			return false;
		}
	} ZEND_HASH_FOREACH_END();
	return true;
}

/* What takes the place of an option that is not there. */
static bool add_defaults(smart_str *text)
{
	static const char *const settings[] = {"openssl.cafile", "openssl.capath"};
	static const char *const variables[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};

	for (int at = 0; at < 2; at++) {
		const char *path = zend_ini_string(settings[at], strlen(settings[at]), 0);
		add_string(text, path ? path : "", path ? strlen(path) : 0);
		if (path && *path && !add_file(text, path)) {
			return false;
		}
	}
	for (int at = 0; at < 2; at++) {
		const char *path = getenv(variables[at]);
		add_string(text, path ? path : "", path ? strlen(path) : 0);
	}
	return true;
}

zend_string *slip_tls_options(php_stream *stream, const char *protocol, int method)
{
	php_stream_context *context = PHP_STREAM_CONTEXT(stream);
	zval *options = NULL;
	smart_str text = {0};

	add_string(&text, protocol, strlen(protocol));
	add_number(&text, 'x', method);
	if (context && Z_TYPE(context->options) == IS_ARRAY) {
		options = zend_hash_str_find_deref(Z_ARRVAL(context->options), ZEND_STRL("ssl"));
	}
	if (!add_defaults(&text) || (options && (Z_TYPE_P(options) != IS_ARRAY || !add_options(&text, Z_ARRVAL_P(options))))) {
		smart_str_free_ex(&text, true);
		return NULL;
	}
	smart_str_0(&text);
	return text.s;
}

/* ---- what a handshake changes ---- */

static size_t bytes_of(const void *block)
{
	return is_zend_mm() ? zend_mm_block_size(zend_mm_get_heap(), (void *) block) : 0;
}

/* As the transport has made it, for a client. */
static bool is_fresh(const stream_data_t *data)
{
	return !data->handle && !data->context && !data->is_client && !data->is_active && !data->reneg && !data->sni_certs && !data->sni_cert_count
		&& !data->alpn.data && !data->alpn.length && !data->state_set;
}

bool slip_tls_begin(slip_tls_begin_t *begin, const php_stream *stream)
{
	slip_tls_forget(begin);
	begin->bytes = stream->abstract ? bytes_of(stream->abstract) : 0;
	if (begin->bytes < sizeof(stream_data_t) || !is_fresh(stream->abstract) || !(begin->before = malloc(begin->bytes))) {
		return false;
	}
	memcpy(begin->before, stream->abstract, begin->bytes);
	return true;
}

void slip_tls_forget(slip_tls_begin_t *begin)
{
	free(begin->before);
	begin->before = NULL;
}

/* Whether the bytes are what they were before but for those that a handshake is known to change. */
static bool is_as_known(const slip_tls_begin_t *begin, const stream_data_t *data)
{
	unsigned char *expected = begin->before;
	stream_data_t *known = (stream_data_t *) expected;

	if (bytes_of(data) != begin->bytes || !data->handle || !data->context || data->is_client != 1 || data->is_active != 1 || !data->state_set
			|| data->net.socket < 0) {
		return false;
	}
	known->net.socket = data->net.socket;
	known->handle = data->handle;
	known->context = data->context;
	known->is_client = known->is_active = 1;
	known->state_set = 1;
	return memcmp(expected, data, begin->bytes) == 0;
}

bool slip_tls_finish(slip_tls_begin_t *begin, php_stream *stream, slip_tls_t *tls, zend_string *options)
{
	stream_data_t *data = stream->abstract;
	bool is_known = begin->before && is_as_known(begin, data);

	slip_tls_forget(begin);
	if (!is_known || library.get_context(data->handle) != data->context || library.get_fd(data->handle) != data->net.socket
			|| !library.is_init_finished(data->handle)) {
		return false;
	}
	for (int index = 0; index < MAX_INDEX; index++) {
		if (library.get_ex_data(data->handle, index) == stream) {
			*tls = (slip_tls_t) {data->handle, data->context, index, options};
			return true;
		}
	}
	return false;
}

bool slip_tls_take_out(php_stream *stream, slip_tls_t *tls)
{
	stream_data_t *data = stream->abstract;

	if (data->handle != tls->handle || data->context != tls->context || !data->is_active || library.get_shutdown(tls->handle)
			|| !library.is_init_finished(tls->handle) || php_set_sock_blocking(data->net.socket, false) != SUCCESS
			|| slip_tls_has_unread(tls)) {
		return false;
	}
	data->handle = data->context = NULL;
	data->is_active = 0;
	library.set_ex_data(tls->handle, tls->stream_index, NULL);
	return true;
}

bool slip_tls_put_in(php_stream *stream, slip_tls_t *tls)
{
	stream_data_t *data = stream->abstract;

	if (bytes_of(data) < sizeof *data || !is_fresh(data) || php_set_sock_blocking(library.get_fd(tls->handle), data->net.is_blocked) != SUCCESS) {
		return false;
	}
	/* A handshake that the server asks for later looks the stream up here. */
	library.set_ex_data(tls->handle, tls->stream_index, stream);
	data->net.socket = library.get_fd(tls->handle);
	data->handle = tls->handle;
	data->context = tls->context;
	data->is_client = data->is_active = 1;
	data->state_set = 1;
	return true;
}

/* ---- without a stream ---- */

static ssize_t result_of(slip_tls_t *tls, int result)
{
	if (result <= 0) {
		int error = library.get_error(tls->handle, result);
		errno = error == WANT_READ ? EAGAIN : EIO;
		result = library.get_shutdown(tls->handle) ? 0 : -1;
		/* Nobody is to find ours among his. */
		library.clear_error();
	}
	return result;
}

ssize_t slip_tls_write(slip_tls_t *tls, const char *data, size_t length)
{
	library.clear_error();
	return result_of(tls, library.write(tls->handle, data, (int) length));
}

ssize_t slip_tls_read(slip_tls_t *tls, char *data, size_t length)
{
	library.clear_error();
	return result_of(tls, library.read(tls->handle, data, (int) length));
}

bool slip_tls_has_unread(slip_tls_t *tls)
{
	char byte;

	/* Reads what is there of the server's tickets, too, which are no replies. */
	library.clear_error();
	ssize_t found = result_of(tls, library.peek(tls->handle, &byte, 1));
	return found >= 0 || errno != EAGAIN || library.pending(tls->handle) || library.has_pending(tls->handle);
}

void slip_tls_free(slip_tls_t *tls, bool is_end)
{
	if (tls->handle && !is_end) {
		library.free(tls->handle);
		library.context_free(tls->context);
		library.clear_error();
	}
	if (tls->options) {
		zend_string_release(tls->options);
	}
	*tls = (slip_tls_t) {0};
}
