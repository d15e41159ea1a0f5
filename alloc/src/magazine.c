#include "magazine.h"

const magazine_t magazine_none = {.entries = {[MAGAZINE_ENTRIES - 1] = NULL}};
