/* The control file beside a database, which names its spool. */
#include "schema/spool.h"
#include "schema/system_call.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_control(const struct gs_spool_control *c, size_t bytes, char *error, size_t size)
{
    const size_t start = offsetof(struct gs_spool_control, version) + sizeof c->version;
    if (bytes < start || memcmp(c->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC))
        snprintf(error, size, "not a gpuspy spool");
    else if (c->version != GS_SPOOL_VERSION)
        snprintf(error, size,
                 "the spool has version %" PRIu32 ", and this gpuspy reads version %d; "
                 "complete it with the gpuspy that recorded it",
                 c->version, GS_SPOOL_VERSION);
    else if (bytes < sizeof *c || !memchr(c->run_id, 0, sizeof c->run_id) ||
             !memchr(c->command, 0, sizeof c->command) || !memchr(c->boot_id, 0, sizeof c->boot_id) ||
             !memchr(c->host, 0, sizeof c->host))
        snprintf(error, size, "the spool's control file is damaged");
    else
        return 0;
    return EINVAL;
}

int gs_spool_read_control(const char *path, struct gs_spool_control *c, char *error, size_t error_size)
{
    struct stat st;
    memset(c, 0, sizeof *c);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int code = fd < 0 || gs_file_status(fd, &st) ? errno : 0;
    ssize_t n = !code && S_ISREG(st.st_mode) ? pread(fd, c, sizeof *c, 0) : 0;
    if (n < 0) code = errno;
    if (fd >= 0) close(fd);
    if (!code) return check_control(c, (size_t)n, error, error_size);
    snprintf(error, error_size, "%s", strerror(code));
    return code;
}
