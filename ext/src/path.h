#ifndef SLIP_PATH_H
#define SLIP_PATH_H

#include "php.h"

/* The shortest way by which a script reaches an object or a resource, such as `$app->services['db']`, or "no variable" if there is none
 * that we follow. The caller releases the string. */
zend_string *slip_path_to(const void *);

#endif
