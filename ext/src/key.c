#include "key.h"

#include <stdlib.h>
#include <string.h>

#include "SAPI.h"

/* With its length: each request compares each of its variables with all of them. */
typedef struct {
	const char *text;
	size_t length;
} text_t;

#define TEXT(literal) {literal, sizeof literal - 1}

/* Variables of a server that change from one request to the next; all others are part of the environment in which the
 * application was booted. Host and scheme are not here: applications build addresses from them. */
static const text_t per_request[] = {
	TEXT("argc"), TEXT("argv"), TEXT("AUTH_TYPE"), TEXT("CONTENT_LENGTH"), TEXT("CONTENT_TYPE"), TEXT("DOCUMENT_URI"),
	TEXT("FCGI_ROLE"), TEXT("ORIG_PATH_INFO"), TEXT("ORIG_PATH_TRANSLATED"), TEXT("ORIG_SCRIPT_FILENAME"),
	TEXT("ORIG_SCRIPT_NAME"), TEXT("PATH_INFO"), TEXT("PATH_TRANSLATED"), TEXT("PHP_AUTH_DIGEST"), TEXT("PHP_AUTH_PW"),
	TEXT("PHP_AUTH_USER"), TEXT("PHP_SELF"), TEXT("QUERY_STRING"), TEXT("REMOTE_ADDR"), TEXT("REMOTE_HOST"),
	TEXT("REMOTE_IDENT"), TEXT("REMOTE_PORT"), TEXT("REMOTE_USER"), TEXT("REQUEST_METHOD"), TEXT("REQUEST_TIME"),
	TEXT("REQUEST_TIME_FLOAT"), TEXT("REQUEST_URI"), TEXT("SCRIPT_NAME"), TEXT("SCRIPT_URI"), TEXT("SCRIPT_URL"),
	TEXT("SERVER_ADDR"), TEXT("SERVER_PROTOCOL"), TEXT("UNIQUE_ID"),
};
static const text_t per_request_prefixes[] = {TEXT("HTTP_"), TEXT("REDIRECT_"), TEXT("SSL_")};

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
		const text_t *prefix = &per_request_prefixes[i];
		if (ZSTR_LEN(name) > prefix->length && memcmp(ZSTR_VAL(name), prefix->text, prefix->length) == 0) {
			return true;
		}
	}
	for (size_t i = 0; i < sizeof per_request / sizeof *per_request; i++) {
		if (zend_string_equals_cstr(name, per_request[i].text, per_request[i].length)) {
			return true;
		}
	}
	return false;
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
