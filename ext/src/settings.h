#ifndef SLIP_SETTINGS_H
#define SLIP_SETTINGS_H

#include "rollback.h"

/* The ini settings. All can be set in php.ini and for a pool only. */
enum slip_mechanism slip_wanted_mechanism(void);

#endif
