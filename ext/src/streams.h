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

/* Streams of an image have no connection: they sleep until they are used, and get one then as a new stream would. */

/* Whether it leads to one of the servers. */
bool slip_streams_is_ours(const php_stream *);

/* NULL if its connection is as good as a new one, so that another may take its place; otherwise why not. */
const char *slip_streams_may_sleep(php_stream *);

/* `saved` and `saved_data` are the image's copies of the stream and of what its transport has. */
void slip_streams_put_to_sleep(const php_stream *, php_stream *saved, php_netstream_data_t *saved_data);

/* At the end of a request its connection is parked, or closed. */
void slip_streams_rest(php_stream *);

/* The image of this stream is gone. */
void slip_streams_drop(const php_stream *);

#endif
