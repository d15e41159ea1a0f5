#include "proc.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>

int slip_proc_open(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 && (errno == EACCES || errno == EPERM)) {
		int dumpable = prctl(PR_GET_DUMPABLE);
		prctl(PR_SET_DUMPABLE, 1);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		prctl(PR_SET_DUMPABLE, dumpable);
	}
	return fd;
}
