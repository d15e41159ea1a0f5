#ifndef SLIP_OPCACHE_H
#define SLIP_OPCACHE_H

#include "php.h"

/* An image points into opcache's shared memory: to code, to strings, to classes. */

void slip_opcache_startup(void);

/* NULL if opcache is configured as an image needs it, or why not. */
const char *slip_opcache_unfit(void);

/* Whether opcache holds no new scripts for the moment. */
bool slip_opcache_is_restarting(void);

/* Whether opcache had the main script before this request. If not, what the compiler left is still in the heap; and just after
 * an edit opcache does not take the script, for opcache.file_update_protection seconds, so that all it declares lies
 * elsewhere in every later request. True on the command line, where there is no later request. */
bool slip_opcache_has_script(void);

/* Changes with every restart of opcache, after which its memory is given to other scripts. */
uint64_t slip_opcache_generation(void);

/* The files of an image. NULL with a reason if one was compiled in this request, if opcache leaves it out for now because it was
 * edited a moment ago, or if opcache looks for edits and it was edited since opcache took it, so that the image could hold its
 * old form. Then, whether one was edited since, looked at as often as opcache does. */
typedef struct slip_files slip_files_t;
slip_files_t *slip_files_take(HashTable *included, const char **reason);
bool slip_files_edited(slip_files_t *);
void slip_files_free(slip_files_t *);

#endif
