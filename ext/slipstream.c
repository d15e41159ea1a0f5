#ifdef HAVE_CONFIG_H
# include "config.h"
#endif

#include "php_slipstream.h"

#include <dlfcn.h>

#include "ext/spl/spl_exceptions.h"
#include "ext/standard/info.h"
#include "php_ini.h"
#include "zend_extensions.h"
#include "zend_virtual_cwd.h"

#include "src/callbacks.h"
#include "src/keep.h"
#include "src/refuse.h"
#include "src/request.h"
#include "src/settings.h"
#include "src/status.h"

#ifdef ZTS
# error "Slipstream needs a PHP without thread safety (NTS): an image is the state of one process"
#endif

static zend_result (*next_post_startup)(void);

static PHP_INI_MH(on_mechanism)
{
	for (int i = 0; i < SLIP_MECHANISMS; i++) {
		if (zend_string_equals_cstr(new_value, slip_mechanism_names[i], strlen(slip_mechanism_names[i]))) {
			return SUCCESS;
		}
	}
	return FAILURE;
}

/* It is asked for at each write. */
static bool keep_replays;

static PHP_INI_MH(on_keep_replay)
{
	keep_replays = zend_ini_parse_bool(new_value);
	return SUCCESS;
}

PHP_INI_BEGIN()
	PHP_INI_ENTRY("slipstream.enable", "1", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("slipstream.restore", "auto", PHP_INI_SYSTEM, on_mechanism)
	PHP_INI_ENTRY("slipstream.keep", "", PHP_INI_SYSTEM, slip_keep_on_change)
	PHP_INI_ENTRY("slipstream.keep_connections", "4", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("slipstream.keep_seconds", "30", PHP_INI_SYSTEM, NULL)
	PHP_INI_ENTRY("slipstream.keep_replay", "0", PHP_INI_SYSTEM, on_keep_replay)
PHP_INI_END()

zend_long slip_keep_connections(void)
{
	return INI_INT("slipstream.keep_connections");
}

zend_long slip_keep_seconds(void)
{
	return INI_INT("slipstream.keep_seconds");
}

bool slip_keep_replays(void)
{
	return keep_replays;
}

enum slip_mechanism slip_wanted_mechanism(void)
{
	enum slip_mechanism mechanism = SLIP_AUTO;
	const char *name = INI_STR("slipstream.restore");

	for (int i = 0; i < SLIP_MECHANISMS; i++) {
		if (name && strcmp(name, slip_mechanism_names[i]) == 0) {
			mechanism = i;
		}
	}
	return mechanism;
}

PHP_FUNCTION(snapshot_state)
{
	ZEND_PARSE_PARAMETERS_NONE();
	slip_request_snapshot();
}

PHP_FUNCTION(restore_state)
{
	ZEND_PARSE_PARAMETERS_NONE();
	RETURN_BOOL(slip_request_restore());
}

ZEND_NAMED_FUNCTION(zif_slipstream_status)
{
	ZEND_PARSE_PARAMETERS_NONE();
	slip_status_fill(return_value, slip_request_image());
}

ZEND_NAMED_FUNCTION(zif_slipstream_discard)
{
	ZEND_PARSE_PARAMETERS_NONE();
	slip_request_discard();
}

static zval *callable_parameter(INTERNAL_FUNCTION_PARAMETERS)
{
	zend_fcall_info info;
	zend_fcall_info_cache cache;

	ZEND_PARSE_PARAMETERS_START_EX(ZEND_PARSE_PARAMS_THROW, 1, 1)
		Z_PARAM_FUNC(info, cache)
	ZEND_PARSE_PARAMETERS_END_EX(return NULL);
	return ZEND_CALL_ARG(execute_data, 1);
}

ZEND_NAMED_FUNCTION(zif_slipstream_before_snapshot)
{
	zval *callable = callable_parameter(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (callable) {
		slip_callbacks_before_snapshot(callable);
	}
}

ZEND_NAMED_FUNCTION(zif_slipstream_on_restore)
{
	zval *callable = callable_parameter(INTERNAL_FUNCTION_PARAM_PASSTHRU);
	if (callable) {
		slip_callbacks_on_restore(callable);
	}
}

/* As in slipstream.stub.php. */
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_void, 0, 0, IS_VOID, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_bool, 0, 0, _IS_BOOL, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_array, 0, 0, IS_ARRAY, 0)
ZEND_END_ARG_INFO()
ZEND_BEGIN_ARG_WITH_RETURN_TYPE_INFO_EX(arginfo_callable, 0, 1, IS_VOID, 0)
	ZEND_ARG_TYPE_INFO(0, callback, IS_CALLABLE, 0)
ZEND_END_ARG_INFO()

static const zend_function_entry functions[] = {
	ZEND_FE(snapshot_state, arginfo_void)
	ZEND_FE(restore_state, arginfo_bool)
	ZEND_NS_NAMED_FE("Slipstream", status, zif_slipstream_status, arginfo_array)
	ZEND_NS_NAMED_FE("Slipstream", discard, zif_slipstream_discard, arginfo_void)
	ZEND_NS_NAMED_FE("Slipstream", before_snapshot, zif_slipstream_before_snapshot, arginfo_callable)
	ZEND_NS_NAMED_FE("Slipstream", on_restore, zif_slipstream_on_restore, arginfo_callable)
	ZEND_FE_END
};

/* After all modules have started and before the process forks: the last moment at which the heap can be exchanged. */
static zend_result post_startup(void)
{
	if (next_post_startup && next_post_startup() != SUCCESS) {
		return FAILURE;
	}
	if (INI_BOOL("slipstream.enable")) {
		slip_keep_startup();
	}
	slip_status.disabled = INI_BOOL("slipstream.enable") ? slip_request_startup() : "slipstream.enable is off";
	if (slip_status.disabled && INI_BOOL("slipstream.enable")) {
		zend_error(E_CORE_WARNING, "Slipstream is disabled: %s", slip_status.disabled);
	}
	return SUCCESS;
}

/* The engine's list of shutdown steps has a place for this between the last user code and the emptying of its tables that
 * only zend_extensions can take. */
static void on_deactivate(void)
{
	slip_request_deactivate();
}

static zend_extension hooks = {
	.name = "Slipstream",
	.version = PHP_SLIPSTREAM_VERSION,
	.author = "the Slipstream authors",
	.URL = "",
	.copyright = "",
	.deactivate = on_deactivate,
	.resource_number = -1,
};

PHP_MINIT_FUNCTION(slipstream)
{
	Dl_info self;

	REGISTER_INI_ENTRIES();
	zend_class_entry entry;
	INIT_NS_CLASS_ENTRY(entry, "Slipstream", "SnapshotException", NULL);
	slip_snapshot_exception = zend_register_internal_class_ex(&entry, spl_ce_RuntimeException);
	/* The engine frees its heap, through our functions, after it has unloaded the modules. */
	if (dladdr(&slipstream_module_entry, &self)) {
		dlopen(self.dli_fname, RTLD_LAZY | RTLD_NODELETE);
	}
	slip_status.disabled = "PHP has not started yet";
	zend_register_extension(&hooks, NULL);
	next_post_startup = zend_post_startup_cb;
	zend_post_startup_cb = post_startup;
	return SUCCESS;
}

PHP_MSHUTDOWN_FUNCTION(slipstream)
{
	slip_keep_shutdown();
	UNREGISTER_INI_ENTRIES();
	return SUCCESS;
}

PHP_RINIT_FUNCTION(slipstream)
{
	slip_keep_begin();
	slip_request_begin();
	return SUCCESS;
}

PHP_RSHUTDOWN_FUNCTION(slipstream)
{
	slip_request_end();
	return SUCCESS;
}

static int post_deactivate(void)
{
	slip_keep_end();
	slip_request_after();
	return SUCCESS;
}

PHP_MINFO_FUNCTION(slipstream)
{
	slip_status_info(slip_request_image());
	DISPLAY_INI_ENTRIES();
}

zend_module_entry slipstream_module_entry = {
	STANDARD_MODULE_HEADER,
	"slipstream",
	functions,
	PHP_MINIT(slipstream),
	PHP_MSHUTDOWN(slipstream),
	PHP_RINIT(slipstream),
	PHP_RSHUTDOWN(slipstream),
	PHP_MINFO(slipstream),
	PHP_SLIPSTREAM_VERSION,
	NO_MODULE_GLOBALS,
	post_deactivate,
	STANDARD_MODULE_PROPERTIES_EX,
};

#ifdef COMPILE_DL_SLIPSTREAM
ZEND_GET_MODULE(slipstream)
#endif
