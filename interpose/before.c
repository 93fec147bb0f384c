#include "interpose/before.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "schema/store.h"
#include "schema/system_call.h"

#define END_NS 500000000ull
/* Opening a larger recording takes too long for a process that has other work to do. */
#define BYTES_MAX (32ll << 20)

static struct {
    struct gs_run_path path;
    int next; /* of path.left */
    struct gs_recovery *now;
} before;

void gs_before_start(const struct gs_run_path *path)
{
    before.path = *path;
    before.next = 0;
    before.now = NULL;
}

static long long recording_size_of(const char *db, const char *suffix)
{
    char path[PATH_MAX + 8];
    struct stat st;
    snprintf(path, sizeof path, "%s%s", db, suffix);
    return gs_path_status(path, &st) ? 0 : (long long)st.st_size;
}

static bool begin_next(void)
{
    char db[PATH_MAX], error[512];
    uint32_t pid;
    while (!before.now && before.next < before.path.left_count)
        if (gs_run_path_left(&before.path, before.next++, db, sizeof db) &&
            recording_size_of(db, "") + recording_size_of(db, "-wal") <= BYTES_MAX)
            (void)gs_recovery_begin(&before.now, db, NULL, 0, &pid, error, sizeof error);
    return before.now != NULL;
}

bool gs_before_step(void)
{
    char error[512];
    if (!before.now) return begin_next();
    if (gs_recovery_step(before.now, error, sizeof error) > 0) return true;
    (void)gs_recovery_end(before.now, error, sizeof error);
    before.now = NULL;
    return before.next < before.path.left_count;
}

static unsigned long long before_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

void gs_before_finish(void)
{
    char error[512];
    const unsigned long long until = before_now_ns() + END_NS;
    while (gs_before_step() && before_now_ns() < until) continue;
    if (before.now) (void)gs_recovery_end(before.now, error, sizeof error);
    before.now = NULL;
    before.path.left_count = 0;
}

void gs_before_forget(void)
{
    if (before.now) gs_recovery_forget(before.now);
    before.now = NULL;
    before.next = before.path.left_count = 0;
}
