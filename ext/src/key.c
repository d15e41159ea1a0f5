#include "key.h"

#include <stdlib.h>
#include <string.h>

#include "SAPI.h"

/* Variables of a server that change from one request to the next; all others are part of the environment in which the
 * application was booted. Host and scheme are not here: applications build addresses from them. */
static const char *const per_request[] = {
	"argc", "argv", "AUTH_TYPE", "CONTENT_LENGTH", "CONTENT_TYPE", "DOCUMENT_URI", "FCGI_ROLE", "ORIG_PATH_INFO",
	"ORIG_PATH_TRANSLATED", "ORIG_SCRIPT_FILENAME", "ORIG_SCRIPT_NAME", "PATH_INFO", "PATH_TRANSLATED", "PHP_AUTH_DIGEST",
	"PHP_AUTH_PW", "PHP_AUTH_USER", "PHP_SELF", "QUERY_STRING", "REMOTE_ADDR", "REMOTE_HOST", "REMOTE_IDENT", "REMOTE_PORT",
	"REMOTE_USER", "REQUEST_METHOD", "REQUEST_TIME", "REQUEST_TIME_FLOAT", "REQUEST_URI", "SCRIPT_NAME", "SCRIPT_URI",
	"SCRIPT_URL", "SERVER_ADDR", "SERVER_PROTOCOL", "UNIQUE_ID",
};
static const struct {
	const char *text;
	size_t length;
} per_request_prefixes[] = {{ZEND_STRL("HTTP_")}, {ZEND_STRL("REDIRECT_")}, {ZEND_STRL("SSL_")}};

/* The names of `per_request`: each request looks for each of its variables. */
static HashTable per_request_names;

static uint64_t ini_now;

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t h = (a ^ 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
	h ^= h >> 32;
	h = (h ^ b) * 0xc4ceb9fe1a85ec53u;
	return h ^ h >> 29;
}

static bool is_per_request(zend_string *name)
{
	for (size_t i = 0; i < sizeof per_request_prefixes / sizeof *per_request_prefixes; i++) {
		size_t length = per_request_prefixes[i].length;
		if (ZSTR_LEN(name) > length && memcmp(ZSTR_VAL(name), per_request_prefixes[i].text, length) == 0) {
			return true;
		}
	}
	return zend_hash_exists(&per_request_names, name);
}

void slip_key_startup(void)
{
	zval none;

	ZVAL_NULL(&none);
	zend_hash_init(&per_request_names, sizeof per_request / sizeof *per_request, NULL, NULL, true);
	for (size_t i = 0; i < sizeof per_request / sizeof *per_request; i++) {
		zend_hash_str_add_new(&per_request_names, per_request[i], strlen(per_request[i]), &none);
	}
}

void slip_key_begin(void)
{
	zend_ini_entry *entry;

	ini_now = 0;
	if (EG(modified_ini_directives)) {
		ZEND_HASH_FOREACH_PTR(EG(modified_ini_directives), entry) {
			ini_now += mix(zend_string_hash_val(entry->name),
				entry->value ? zend_hash_func(ZSTR_VAL(entry->value), ZSTR_LEN(entry->value)) : 0);
		} ZEND_HASH_FOREACH_END();
	}
}

/* What the server has sent, before any script could change it. */
static HashTable *sent(void)
{
	zend_is_auto_global(ZSTR_KNOWN(ZEND_STR_AUTOGLOBAL_SERVER));
	zval *variables = &PG(http_globals)[TRACK_VARS_SERVER];
	return Z_TYPE_P(variables) == IS_ARRAY ? Z_ARRVAL_P(variables) : (HashTable *) &zend_empty_array;
}

static uint64_t environment(HashTable *variables)
{
	uint64_t sum = 0;
	zend_string *name;
	zval *value;

	ZEND_HASH_FOREACH_STR_KEY_VAL(variables, name, value) {
		if (name && Z_TYPE_P(value) == IS_STRING && !is_per_request(name)) {
			sum += mix(zend_string_hash_val(name), zend_hash_func(Z_STRVAL_P(value), Z_STRLEN_P(value)));
		}
	} ZEND_HASH_FOREACH_END();
	return sum;
}

static const char *host(HashTable *variables)
{
	zval *value = zend_hash_str_find(variables, ZEND_STRL("HTTP_HOST"));
	return value && Z_TYPE_P(value) == IS_STRING ? Z_STRVAL_P(value) : "";
}

/* The file of the outermost running code. */
static const char *script(void)
{
	const zend_execute_data *frame = EG(current_execute_data);
	while (frame->prev_execute_data) {
		frame = frame->prev_execute_data;
	}
	return frame->func && ZEND_USER_CODE(frame->func->type) ? ZSTR_VAL(frame->func->op_array.filename) : "";
}

void slip_key_take(slip_key_t *key)
{
	HashTable *variables = sent();

	key->script = strdup(script());
	key->host = strdup(host(variables));
	key->ini = ini_now;
	key->environment = environment(variables);
}

void slip_key_free(slip_key_t *key)
{
	free(key->script);
	free(key->host);
	key->script = key->host = NULL;
}

const char *slip_key_differs(const slip_key_t *key)
{
	if (strcmp(key->script, script()) != 0) {
		return "script";
	}
	if (key->ini != ini_now) {
		return "ini";
	}
	HashTable *variables = sent();
	if (strcmp(key->host, host(variables)) != 0) {
		return "host";
	}
	return key->environment == environment(variables) ? NULL : "environment";
}
