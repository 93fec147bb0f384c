#include "schema/open_high.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <unistd.h>

static _Atomic bool low_allowed;

void gs_open_low(bool allowed)
{
    low_allowed = allowed;
}

int gs_open_high(const char *path, int flags, int mode)
{
    int fd = open(path, flags | O_CLOEXEC, mode);
    if (fd < 0 || fd >= GS_HIGH_FD) return fd;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, GS_HIGH_FD);
    if (high < 0 && low_allowed) return fd;
    const int error = errno == EINVAL ? EMFILE : errno; /* EINVAL: the limit is not above it */
    close(fd);
    errno = error;
    return high;
}
