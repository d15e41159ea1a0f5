#ifndef SLIP_ASLEEP_H
#define SLIP_ASLEEP_H

#include "php_network.h"

/* Streams of an image have no connection: they sleep until they are used, and get one then as a new stream would. All of them lead to
 * servers whose connections are kept. */

void slip_asleep_startup(void);
void slip_asleep_shutdown(void);
/* Another request: what was lost in the one before may be there again. */
void slip_asleep_begin(void);

/* Those of a stream that sleeps, in the place of its transport's. */
void slip_asleep_take_functions(php_stream_ops *);

/* NULL if its connection is as good as a new one, so that another may take its place; otherwise why not. */
const char *slip_asleep_may(php_stream *);

/* `saved` and `saved_data` are the image's copies of the stream and of what its transport has. */
void slip_asleep_put(const php_stream *, php_stream *saved, php_netstream_data_t *saved_data);

/* At the end of a request its connection is parked, or closed. */
void slip_asleep_rest(php_stream *);

/* The image of this stream is gone. */
void slip_asleep_drop(const php_stream *);

/* Whether any of them will say something with these bytes to its server. */
bool slip_asleep_says(const char *bytes, size_t length);

#endif
