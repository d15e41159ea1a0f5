#ifndef SLIP_STREAMS_H
#define SLIP_STREAMS_H

#include "php_network.h"

#include "parked.h"

/* PHP's streams to servers whose connections are kept: our functions in the place of some of theirs. */

/* After all modules have started: some replace the transports, too. */
void slip_streams_startup(void);
void slip_streams_shutdown(void);

/* What is known of streams that are not there any more, with the connections of those of an image. */
void slip_streams_forget(void);

/* Whether it leads to one of the servers. */
bool slip_streams_is_ours(const php_stream *);

#endif
