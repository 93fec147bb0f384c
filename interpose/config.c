#include "interpose/config.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "interpose/clock.h"
#include "interpose/limit_value.h"
#include "interpose/resolve.h"
#include "interpose/stack.h"
#include "schema/attach.h"
#include "schema/store.h"
#include "schema/system_call.h"

static struct gs_config config;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char given[GS_ATTACH_GIVEN_BYTES]; /* replaces the environment: "NAME=VALUE", each terminated by a NUL */

static const char *setting_value_of(const char *name)
{
    const size_t len = strlen(name);
    if (!given[0]) return getenv(name);
    for (const char *at = given; *at; at += strlen(at) + 1)
        if (strncmp(at, name, len) == 0 && at[len] == '=') return at + len + 1;
    return NULL;
}

static void report_bad_setting(const char *name, const char *value, const char *expected)
{
    if (config.complaint[0]) return;
    snprintf(config.complaint, sizeof config.complaint, "%s=%.60s is not %s; using the default", name, value, expected);
}

static bool read_flag_setting(const char *name)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {{"", false}, {"0", false},  {"no", false},  {"false", false}, {"off", false},
                 {"1", true}, {"yes", true}, {"true", true}, {"on", true}};
    const char *value = setting_value_of(name);
    if (!value) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(value, words[i].word) == 0) return words[i].value;
    report_bad_setting(name, value, "0 or 1");
    return false;
}

/* A setting that is on by default. */
static bool flag_unless_unset(const char *name)
{
    const char *value = setting_value_of(name);
    return !value || !*value || read_flag_setting(name);
}

static unsigned read_stacks_setting(void)
{
    static const struct {
        const char *word;
        unsigned value;
    } words[] = {{"python", GS_STACK_PYTHON},
                 {"native", GS_STACK_NATIVE},
                 {"both", GS_STACK_PYTHON | GS_STACK_NATIVE},
                 {"none", 0}};
    const char *value = setting_value_of("GPUSPY_STACKS");
    if (value && *value) {
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strcmp(value, words[i].word) == 0) return words[i].value;
        report_bad_setting("GPUSPY_STACKS", value, "python, native, both or none");
    }
    return GS_STACK_PYTHON | GS_STACK_NATIVE;
}

static bool keep_deepbind(void)
{
    const char *value = setting_value_of("GPUSPY_DEEPBIND");
    if (!value || !*value) return false;
    if (strcmp(value, "keep") == 0) return true;
    report_bad_setting("GPUSPY_DEEPBIND", value, "keep");
    return false;
}

static unsigned native_depth(void)
{
    const char *value = setting_value_of("GPUSPY_NATIVE_DEPTH");
    if (!value || !*value) return 0;
    char *end;
    errno = 0;
    long depth = strtol(value, &end, 10);
    if (!errno && !*end && depth >= 1 && depth <= GS_STACK_MAX_FRAMES) return (unsigned)depth;
    report_bad_setting("GPUSPY_NATIVE_DEPTH", value, "a number from 1 to 512");
    return 0;
}

static void read_limit_setting(void)
{
    const char *value = setting_value_of("GPUSPY_LIMIT");
    if (!value || !*value || gs_limit_read(value) || config.complaint[0]) return;
    snprintf(config.complaint, sizeof config.complaint,
             "GPUSPY_LIMIT=%.60s is not a size (24GiB, or 0:24GiB,1:40GiB by device; `gpuspy run --limit` knows GPUs "
             "by name); devices are not capped",
             value);
}

static bool is_text_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

static uint64_t min_free(void)
{
    const char *value = setting_value_of("GPUSPY_MIN_FREE");
    uint64_t bytes;
    if (!value || !*value) return GS_MIN_FREE_DEFAULT;
    if (strcmp(value, "0") == 0) return 0;
    if (gs_size_read(value, &bytes)) return bytes;
    report_bad_setting("GPUSPY_MIN_FREE", value, "a size, such as 5GiB, or 0");
    return GS_MIN_FREE_DEFAULT;
}

static uint64_t read_keep_setting(void)
{
    const char *value = setting_value_of("GPUSPY_KEEP");
    uint64_t bytes;
    if (!value || !*value || strcmp(value, "0") == 0) return 0;
    if (gs_size_read(value, &bytes) && bytes >= GS_KEEP_MIN) return bytes;
    if (!config.complaint[0])
        snprintf(config.complaint, sizeof config.complaint,
                 "GPUSPY_KEEP=%.60s is not a size of at least 32MiB, such as 512MiB; the recording is not bounded",
                 value);
    return 0;
}

/* Processes that this one starts inherit the id and therefore belong to the same run. */
static void run_id(void)
{
    const char *shared = setting_value_of("GPUSPY_RUN_ID");
    if (shared && *shared && strlen(shared) < sizeof config.run_id && is_text_printable(shared)) {
        strcpy(config.run_id, shared);
        return;
    }
    uint64_t noise;
    /* not libc's: libfaketime replaces it by a sequence that the program asked for */
    if (gs_system_call(SYS_getrandom, &noise, sizeof noise, GRND_NONBLOCK) != sizeof noise) {
        const struct timespec now = gs_clock(CLOCK_REALTIME);
        noise = (uint64_t)now.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)getpid() << 32;
    }
    snprintf(config.run_id, sizeof config.run_id, "%016llx", (unsigned long long)noise);
    if (!given[0]) setenv("GPUSPY_RUN_ID", config.run_id, 1);
}

static void read_environment(void)
{
    int saved = errno;
    config.complaint[0] = 0;
    config.disabled = read_flag_setting("GPUSPY_DISABLE") || gs_is_second_recorder();
    if (!config.disabled) {
        config.quiet = read_flag_setting("GPUSPY_QUIET");
        config.torch_cpu = read_flag_setting("GPUSPY_TORCH_CPU");
        config.nvml = flag_unless_unset("GPUSPY_NVML");
        config.args = flag_unless_unset("GPUSPY_ARGS");
        config.source = flag_unless_unset("GPUSPY_SOURCE");
        config.min_free = min_free();
        config.keep = read_keep_setting();
        config.keep_deepbind = keep_deepbind();
        config.stacks = read_stacks_setting();
        config.native_depth = native_depth();
        const char *db = setting_value_of("GPUSPY_DB");
        snprintf(config.db, sizeof config.db, "%s", db && *db ? db : "run.db");
        if (!getcwd(config.cwd, sizeof config.cwd)) strcpy(config.cwd, ".");
        read_limit_setting();
        run_id();
    }
    errno = saved;
}

const struct gs_config *gs_config(void)
{
    pthread_once(&once, read_environment);
    return &config;
}

/* Neither reads nor changes the environment: other threads may be reading it. */
void gs_config_given(const char *lines)
{
    snprintf(given, sizeof given - 1, "%s", lines);
    for (char *at = given; (at = strchr(at, '\n')); at++) *at = 0;
    pthread_once(&once, read_environment);
    read_environment();
}
