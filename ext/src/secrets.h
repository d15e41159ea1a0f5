#ifndef SLIP_SECRETS_H
#define SLIP_SECRETS_H

#include "image.h"

/* Empties the superglobals in the image: what nothing but them refers to. */
void slip_secrets_wipe(slip_image_t *);

/* Whether no value of the running request is anywhere in the image. Refuses otherwise, and names which. */
bool slip_secrets_check(slip_image_t *);

#endif
