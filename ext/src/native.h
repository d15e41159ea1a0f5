#ifndef SLIP_NATIVE_H
#define SLIP_NATIVE_H

#include "image.h"

/* Notes what malloc() has given out when all modules have started: an image may point there, to internal classes and
 * functions, settings and the like, which live as long as the process. Call once, before the process forks. */
void slip_native_startup(void);

/* Whether pointers to all blocks of malloc() are found, or only those to strings: where malloc() is not glibc's. */
bool slip_native_is_looked_for(void);

/* Looks at every word of the image for pointers to memory that malloc() has given out since: it is not rolled back. Strings of
 * the process, such as the values of ini settings, get a reference for good, so that no request becomes their only owner; for
 * anything else the snapshot is refused. False if it was. */
bool slip_native_check(slip_image_t *);

/* Gives the strings back what requests have dropped. At the latest after LOW requests; it costs nothing to do it more often. */
void slip_native_refresh(slip_image_t *);

#endif
