#include "callbacks.h"

zval slip_on_restore;
static zval before_snapshot;

void slip_callbacks_begin(void)
{
	ZVAL_UNDEF(&slip_on_restore);
	ZVAL_UNDEF(&before_snapshot);
}

void slip_callbacks_end(void)
{
	zval_ptr_dtor(&slip_on_restore);
	zval_ptr_dtor(&before_snapshot);
	slip_callbacks_begin();
}

static void add(zval *list, zval *callable)
{
	if (Z_TYPE_P(list) == IS_UNDEF) {
		array_init(list);
	}
	SEPARATE_ARRAY(list);
	Z_TRY_ADDREF_P(callable);
	add_next_index_zval(list, callable);
}

void slip_callbacks_before_snapshot(zval *callable)
{
	add(&before_snapshot, callable);
}

void slip_callbacks_on_restore(zval *callable)
{
	add(&slip_on_restore, callable);
}

static bool run(zval *callables)
{
	zval *callable;

	if (Z_TYPE_P(callables) != IS_ARRAY) {
		return true;
	}
	ZEND_HASH_FOREACH_VAL(Z_ARRVAL_P(callables), callable) {
		zval result;
		ZVAL_UNDEF(&result);
		if (call_user_function(NULL, NULL, callable, &result, 0, NULL) == FAILURE || EG(exception)) {
			zval_ptr_dtor(&result);
			return false;
		}
		zval_ptr_dtor(&result);
	} ZEND_HASH_FOREACH_END();
	return true;
}

bool slip_callbacks_run_before_snapshot(void)
{
	bool done = run(&before_snapshot);

	/* They have done their work, and what they hold need not be in the image. */
	zval_ptr_dtor(&before_snapshot);
	ZVAL_UNDEF(&before_snapshot);
	return done;
}

bool slip_callbacks_run_on_restore(zval *callables)
{
	return run(callables);
}
