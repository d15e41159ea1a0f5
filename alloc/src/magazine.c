#include "magazine.h"

const magazine_t magazine_none;
