#ifndef SLIP_CALLBACKS_H
#define SLIP_CALLBACKS_H

#include "php.h"

/* Callables of this request, or undefined: what on_restore() has registered. Part of the image. */
extern zval slip_on_restore;

void slip_callbacks_begin(void);
void slip_callbacks_end(void);
void slip_callbacks_before_snapshot(zval *callable);
void slip_callbacks_on_restore(zval *callable);

/* Calls all in order until one throws. False then. */
bool slip_callbacks_run_before_snapshot(void);
bool slip_callbacks_run_on_restore(zval *callables);

#endif
