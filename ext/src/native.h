#ifndef SLIP_NATIVE_H
#define SLIP_NATIVE_H

#include "image.h"

/* Looks at every word of the image for pointers to memory that malloc() has given out: it is not rolled back. Strings of the
 * process, such as the values of ini settings, get a reference for good, so that no request becomes their only owner. False, with
 * errno, if the memory of the process cannot be listed. */
bool slip_native_scan(slip_image_t *);

/* Gives them back what requests have dropped. At the latest after LOW requests; it costs nothing to do it more often. */
void slip_native_refresh(slip_image_t *);

#endif
