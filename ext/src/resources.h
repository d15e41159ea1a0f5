#ifndef SLIP_RESOURCES_H
#define SLIP_RESOURCES_H

#include "image.h"

/* Whether all open resources can be kept: plain files, streams in memory, contexts, kept connections. Refuses otherwise. Notes them. */
bool slip_resources_check(slip_image_t *);

/* Takes out of the saved list what is open but not the script's. */
void slip_resources_leave_out(slip_image_t *);

/* Connections have none in the saved memory, until they are used. */
void slip_resources_put_to_sleep(const slip_image_t *);

/* Before the end of a request closes all resources: takes the image's out of the list, and lets its connections rest. */
void slip_resources_hide(const slip_image_t *);

/* After a roll-back: every file has its number and its position again. False if a number is taken by something else. */
bool slip_resources_put_back(const slip_image_t *);

/* Closes what the image kept open: with the files themselves if no request uses them any more. */
void slip_resources_release(slip_image_t *, bool unused);

#endif
