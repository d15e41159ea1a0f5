#ifndef SLIP_OBJECTS_H
#define SLIP_OBJECTS_H

#include "image.h"

/* Whether all live objects are of classes whose state is in the request heap and nowhere else. Refuses otherwise. */
bool slip_objects_check(void);

/* Hides the image's objects from what the engine does to every object at the end of a request. Number of objects. */
uint32_t slip_objects_hide(slip_image_t *);

#endif
