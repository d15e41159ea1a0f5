#ifndef SLIP_PROC_H
#define SLIP_PROC_H

/* Opens a file of /proc/self for reading, also where the process has changed its user, as FPM's workers have, and so does not own
 * its files there while it is not dumpable. The descriptor, or -1 with errno. */
int slip_proc_open(const char *path);

#endif
