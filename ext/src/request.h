#ifndef SLIP_REQUEST_H
#define SLIP_REQUEST_H

#include "image.h"

/* What the extension does in the course of requests. */

/* Once, in the process that will fork the workers. NULL, or why there will be no snapshots. */
const char *slip_request_startup(void);

void slip_request_begin(void);     /* RINIT */
void slip_request_end(void);       /* RSHUTDOWN: user code may still run */
void slip_request_deactivate(void);/* no user code runs any more, the engine's tables are about to be emptied */
void slip_request_after(void);     /* post_deactivate: the response is about to be sent */

void slip_request_snapshot(void);
bool slip_request_restore(void);
void slip_request_discard(void);

/* The image of this worker, or NULL. */
const slip_image_t *slip_request_image(void);

#endif
