#ifndef PHP_SLIPSTREAM_H
#define PHP_SLIPSTREAM_H

#include "php.h"

#define PHP_SLIPSTREAM_VERSION "0.1.0"

extern zend_module_entry slipstream_module_entry;
#define phpext_slipstream_ptr &slipstream_module_entry

#endif
