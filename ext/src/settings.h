#ifndef SLIP_SETTINGS_H
#define SLIP_SETTINGS_H

#include "rollback.h"

/* The ini settings. All can be set in php.ini and for a pool only. */
enum slip_mechanism slip_wanted_mechanism(void);

/* Most connections that a worker parks for one server, and for how long at most. */
zend_long slip_keep_connections(void);
zend_long slip_keep_seconds(void);

/* Whether what a boot has said on its connection to Redis is said again on those that take its place. */
bool slip_keep_replays(void);

#endif
