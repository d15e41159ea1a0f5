#ifndef SLIP_TABLES_H
#define SLIP_TABLES_H

#include "php.h"

/* A copy of one of the engine's tables in the request heap, at the same places, with room for what a request adds. */
HashTable slip_table_copy(const HashTable *);

/* Whether what this request has declared, from bucket `first` on, is in the image's table and is the same there. */
bool slip_table_covers(const HashTable *image, const HashTable *now, uint32_t first, bool constants);

/* Exchanges the engine's class, function and constant tables for those of the image, and back. */
void slip_tables_put(const HashTable *classes, const HashTable *functions, const HashTable *constants);
void slip_tables_take_back(void);

#endif
