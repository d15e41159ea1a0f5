#ifndef SLIP_KEEP_H
#define SLIP_KEEP_H

#include "php.h"
#include "php_ini.h"

#include "parked.h"

/* Clients that connect in each request keep their sockets, without a change in the application: what a script closes is parked, and
 * taken again when it connects. Only servers that slipstream.keep names, and clients that use PHP's streams: phpredis, Predis, credis. */

/* After all modules have started: some replace the transports, too. */
void slip_keep_startup(void);
PHP_INI_MH(slip_keep_on_change);
void slip_keep_shutdown(void);

/* A request begins; it has ended, and its streams are gone. */
void slip_keep_begin(void);
void slip_keep_end(void);

/* The server that a client means, if its connections are kept; with TLS only one that has it. */
slip_server_t *slip_keep_find(bool is_unix, bool is_tls, const char *resource, size_t length);

/* The image is gone that this is of: closes what is parked for it. */
void slip_keep_end_replay(const slip_replay_t *);

/* Whether it names any. */
bool slip_keep_is_asked_for(void);

void slip_keep_fill(zval *array);
void slip_keep_info(void);

#endif
