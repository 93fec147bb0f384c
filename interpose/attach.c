/* Owns the life of a gpuspy that was loaded into a running process. All work is done in threads of its own, which may
 * take the loader's lock. After detach the library stays mapped, because threads may be in its wrappers. */
#include "interpose/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "interpose/attached_blocks.h"
#include "interpose/config.h"
#include "interpose/device.h"
#include "interpose/fork.h"
#include "interpose/graph.h"
#include "interpose/host.h"
#include "interpose/reroute.h"
#include "interpose/resolve.h"
#include "interpose/message.h"
#include "interpose/session.h"
#include "interpose/shield.h"
#include "interpose/stack_module.h"
#include "schema/open_high.h"

enum { STACK_BYTES = 256 * 1024 };

const char *gpuspy_database(void); /* session.c */

static struct gs_attach_answer answer = {.magic = GS_ATTACH_MAGIC};
static pid_t at_work_in; /* a child that was forked meanwhile does not have the thread */
static char asked[GS_ATTACH_GIVEN_BYTES];

static void finish_attach_step(enum gs_attach_step step, const char *text)
{
    if (text != answer.text) snprintf(answer.text, sizeof answer.text, "%s", text);
    atomic_store(&answer.step, step);
}

/* --- when the library is loaded ----------------------------------------------------------------- */

static bool is_map_called(const struct link_map *map, const char *name)
{
    const char *slash = strrchr(map->l_name, '/');
    return strncmp(slash ? slash + 1 : map->l_name, name, strlen(name)) == 0;
}

/* A preloaded library comes before the C library in the loader's list; one that was opened later comes after it. */
bool gs_attach_load(void)
{
    bool after = false;
    for (const struct link_map *map = _r_debug.r_map; map && map->l_ld != _DYNAMIC; map = map->l_next)
        if (is_map_called(map, "libc.so")) after = true;
    gs_attached = gs_dormant = after;
    return after;
}

/* What the constructor of a preloaded library does, except for changes of the environment. */
static void load_once(void)
{
    static bool loaded;
    if (loaded) return;
    loaded = true;
    gs_session_load();
    gs_fork_load();
    gs_resolve_load(true);
    gs_shield_load();
    gs_host_load();
    gs_modules_load();
}

/* --- attach --------------------------------------------------------------------------------------- */

/* "pid (name) state …": field 22 is when the process started, in ticks since the machine did. */
static double process_age_s(void)
{
    char text[1024];
    struct timespec now;
    const int fd = gs_open_high("/proc/self/stat", O_RDONLY, 0);
    const ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (len <= 0 || clock_gettime(CLOCK_BOOTTIME, &now)) return -1;
    text[len] = 0;
    const char *at = strrchr(text, ')');
    for (int i = 2; at && i < 22; i++) at = strchr(at + 1, ' ');
    if (!at) return -1;
    const double started = (double)strtoull(at, NULL, 10) / (double)sysconf(_SC_CLK_TCK);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9 - started;
}

static void *attach_work(void *unused)
{
    static char line[1024], age[32];
    load_once();
    gs_config_given(asked);
    const double age_s = process_age_s();
    snprintf(age, sizeof age, "%.3f", age_s > 0.001 ? age_s : 0.001);
    /* forget what the previous recording knew of devices */
    gs_device_forget();
    gs_graph_forget();
    gs_print_into(line, sizeof line);
    gs_dormant = false;
    const bool begun = gs_session_attach(age);
    gs_print_into(NULL, 0);
    const char *db = begun ? gpuspy_database() : NULL;
    if (!db) {
        gs_dormant = true;
        line[strcspn(line, "\n")] = 0;
        finish_attach_step(GS_ATTACH_FAILED, line[0] ? line : "the recording could not be started");
        return NULL;
    }
    const bool rerouted = gs_reroute(false);
    gs_reroute(false); /* restore what a first call has bound meanwhile, over the wrapper's address */
    if (!rerouted) gs_reroute_later();
    gs_attached_blocks_ask();
    snprintf(answer.text, sizeof answer.text, "%s%s%s", db, line[0] ? "\n" : "", line);
    finish_attach_step(GS_ATTACH_DONE, answer.text);
    return NULL;
}

/* --- detach --------------------------------------------------------------------------------------- */

static void *detach_work(void *unused)
{
    const char *db = gpuspy_database();
    snprintf(answer.text, sizeof answer.text, "%s", db ? db : "");
    gs_dormant = true;
    gs_attached_blocks_drop();
    gs_reroute(true);
    if (gs_session_stop("detach"))
        finish_attach_step(GS_ATTACH_DONE, answer.text);
    else
        finish_attach_step(GS_ATTACH_FAILED, "the recording is incomplete; gpuspy report completes it");
    return NULL;
}

/* --- the entries ---------------------------------------------------------------------------------- */

static bool begin_work(void)
{
    if (atomic_load(&answer.step) == GS_ATTACH_AT_WORK && at_work_in == getpid()) return false;
    at_work_in = getpid();
    atomic_store(&answer.step, GS_ATTACH_AT_WORK);
    return true;
}

static const struct gs_attach_answer *start_work(void *(*work)(void *))
{
    pthread_t thread;
    if (gs_start_thread(&thread, STACK_BYTES, work, NULL)) {
        finish_attach_step(GS_ATTACH_FAILED, "a thread could not be started in it");
        return &answer;
    }
    pthread_detach(thread);
    return &answer;
}

__attribute__((visibility("default"))) const struct gs_attach_answer *gpuspy_attach(const char *settings)
{
    const int saved = errno;
    if (!begin_work()) return &answer;
    if (!gs_attached) {
        finish_attach_step(GS_ATTACH_REFUSED, gs_config()->disabled && !gs_is_second_recorder()
                                                  ? "it was started with GPUSPY_DISABLE=1"
                                                  : "it has been recorded since it started");
    } else if (!gs_dormant) {
        const char *db = gpuspy_database();
        snprintf(answer.text, sizeof answer.text, "it is recorded already%s%s", db ? ", to " : "", db ? db : "");
        finish_attach_step(GS_ATTACH_REFUSED, answer.text);
    } else {
        snprintf(asked, sizeof asked, "%s", settings);
        start_work(attach_work);
    }
    errno = saved;
    return &answer;
}

__attribute__((visibility("default"))) const struct gs_attach_answer *gpuspy_detach(void)
{
    const int saved = errno;
    if (!begin_work()) return &answer;
    if (!gs_attached)
        finish_attach_step(GS_ATTACH_REFUSED, "it was started with the recorder and is recorded until it ends");
    else if (gs_dormant)
        finish_attach_step(GS_ATTACH_REFUSED, "it is not recorded");
    else
        start_work(detach_work);
    errno = saved;
    return &answer;
}
