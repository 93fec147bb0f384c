/* The recorded process must not notice the command: no SIGCHLD, nothing that its wait() returns, no copy of its memory
 * or its descriptors. Therefore a first process (exit signal 0: only wait with __WCLONE or __WALL returns it) starts a
 * second one and ends at once; the second then belongs to init, or to a subreaper above. Both share this process's
 * memory until the second has executed gpuspy, and this thread is suspended until then. Neither may call a function of
 * the C library that takes a lock or is a cancellation point: they make system calls. */
#include "interpose/on_oom.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "interpose/config.h"
#include "interpose/filter.h"
#include "interpose/message.h"
#include "schema/system_call.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

enum { STACK_BYTES = 16 * 1024, DESCRIPTORS_MAX = 65536 };
extern char **environ;

static struct {
    char **environment; /* NULL: no command */
    char library[2 * PATH_MAX];
} on_oom;

/* --- what the process needs ------------------------------------------------------------------- */

static bool has_name(const char *entry, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(entry, name, length) == 0 && entry[length] == '=';
}

/* Without LD_PRELOAD, so that the command itself is not recorded. */
static char **copy_environment(void)
{
    size_t count = 0, bytes = 0, kept = 0;
    for (; environ && environ[count]; count++) bytes += strlen(environ[count]) + 1;
    char **copy = malloc((count + 1) * sizeof *copy + bytes);
    if (!copy) return NULL;
    char *at = (char *)(copy + count + 1);
    for (size_t i = 0; i < count; i++) {
        if (has_name(environ[i], "LD_PRELOAD")) continue;
        copy[kept++] = at;
        at = stpcpy(at, environ[i]) + 1;
    }
    copy[kept] = NULL;
    return copy;
}

void gs_on_oom_load(void)
{
    const char *command = getenv("GPUSPY_ON_OOM");
    Dl_info own;
    if (!command || !*command || on_oom.environment) return;
    on_oom.environment = copy_environment();
    if (!dladdr((void *)gs_on_oom_load, &own) || !own.dli_fname) return;
    const bool relative = own.dli_fname[0] != '/';
    snprintf(on_oom.library, sizeof on_oom.library, "%s%s%s", relative ? gs_config()->cwd : "", relative ? "/" : "",
             own.dli_fname);
}

/* A folder can be executable, too: lib/ of the tarball has a folder gpuspy beside the recorder. */
static bool is_program(const char *path)
{
    struct stat status;
    return access(path, X_OK) == 0 && gs_path_status(path, &status) == 0 && S_ISREG(status.st_mode);
}

static bool find_in_path(char *program, size_t size)
{
    const char *path = "/usr/local/bin:/usr/bin:/bin";
    for (char **e = on_oom.environment; *e; e++)
        if (has_name(*e, "PATH")) path = *e + strlen("PATH=");
    while (*path) {
        const size_t length = strcspn(path, ":");
        snprintf(program, size, "%.*s/gpuspy", (int)length, path);
        if (*path == '/' && is_program(program)) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

/* Where a build, `make install`, the wheel and the packages place it. */
static bool find_shell(char *program, size_t size)
{
    static const char *const places[] = {"gpuspy", "../bin/gpuspy", "../../bin/gpuspy"};
    const char *slash = strrchr(on_oom.library, '/');
    for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
        snprintf(program, size, "%.*s/%s", (int)(slash - on_oom.library), on_oom.library, places[i]);
        if (is_program(program)) return true;
    }
    return find_in_path(program, size);
}

/* --- the two processes ------------------------------------------------------------------------ */

struct start {
    const char *program, *folder;
    char *const *arguments;
    char *const *environment;
    unsigned descriptors; /* to close, if the kernel cannot close a range */
    _Atomic int error;
    char stack[2][STACK_BYTES] __attribute__((aligned(64)));
};
static struct start start; /* the session is locked while it is used */

/* The stack grows downwards on every platform that gpuspy supports. */
static char *top_of(char stack[STACK_BYTES])
{
    return stack + STACK_BYTES;
}

static void close_descriptors(const struct start *s)
{
    const int null = (int)gs_system_call(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
    for (int fd = 0; fd <= 2; fd++)
        if (fd != null) gs_system_call(SYS_dup3, null, fd, 0);
    if (gs_system_call(SYS_close_range, 3U, ~0U, 0U) == 0) return;
    for (unsigned fd = 3; fd <= s->descriptors; fd++) gs_system_call(SYS_close, fd);
}

/* Ignored and blocked signals would stay so after exec. The program may define its own sigaction. Signals that end a
 * job's processes are ignored from here on: gpuspy ignores them itself, but only once it has started. */
static void reset_signals(void)
{
    static const uint64_t standard[8];      /* the kernel's struct: the default handler, no flags */
    static const uint64_t ignored[8] = {1}; /* SIG_IGN */
    static const uint64_t none;
    for (int number = 1; number < NSIG; number++) {
        const bool ends = number == SIGTERM || number == SIGINT || number == SIGHUP;
        gs_system_call(SYS_rt_sigaction, number, ends ? ignored : standard, NULL, sizeof none);
    }
    gs_system_call(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof none);
}

static int execute_command(void *given)
{
    struct start *s = given;
    gs_system_call(SYS_setsid);
    close_descriptors(s);
    gs_system_call(SYS_chdir, s->folder);
    reset_signals();
    gs_system_call(SYS_execve, s->program, s->arguments, s->environment);
    s->error = errno;
    gs_system_call(SYS_exit_group, 1);
    return 1;
}

static int start_and_end(void *given)
{
    struct start *s = given;
    if (clone(execute_command, top_of(s->stack[1]), CLONE_VM | CLONE_VFORK, s) < 0) s->error = errno;
    gs_system_call(SYS_exit_group, 0);
    return 0;
}

static int start_oom_process(struct start *s)
{
    const pid_t first = clone(start_and_end, top_of(s->stack[0]), CLONE_VM | CLONE_VFORK, s);
    if (first < 0) return errno;
    while (gs_system_call(SYS_wait4, first, NULL, __WCLONE, NULL) < 0 && errno == EINTR) continue;
    return s->error;
}

/* If so, the program would inherit the process as its child as soon as the first one ends. */
static bool adopts_orphans(void)
{
    int subreaper = 0;
    return getpid() == 1 || (gs_system_call(SYS_prctl, PR_GET_CHILD_SUBREAPER, &subreaper) == 0 && subreaper);
}

void gs_on_oom_start(const char *database)
{
    char program[3 * PATH_MAX], pid[16];
    struct rlimit files = {.rlim_cur = 1024};
    if (!on_oom.environment) return;
    if (gs_filter_refused & (GS_FILTER_CHILDREN | GS_FILTER_PROGRAMS)) {
        gs_print_line("GPUSPY_ON_OOM has no effect: a seccomp filter forbids the process to start a program");
        return;
    }
    if (adopts_orphans()) {
        gs_print_line(
            "GPUSPY_ON_OOM has no effect in process %ld, which adopts orphans; start it with `gpuspy run`, or in a "
            "container with an init process (docker run --init)",
            (long)getpid());
        return;
    }
    if (!find_shell(program, sizeof program)) {
        gs_print_line("GPUSPY_ON_OOM has no effect: cannot find the program gpuspy beside %s or in PATH",
                      on_oom.library);
        return;
    }
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    char *const arguments[] = {program, "--attend-oom", (char *)(uintptr_t)database, pid, NULL};
    getrlimit(RLIMIT_NOFILE, &files);
    start.program = program;
    start.folder = gs_config()->cwd;
    start.arguments = arguments;
    start.environment = on_oom.environment;
    start.descriptors = files.rlim_cur > DESCRIPTORS_MAX ? DESCRIPTORS_MAX : (unsigned)files.rlim_cur - 1;
    start.error = 0;
    const int error = start_oom_process(&start);
    if (error) gs_print_line("GPUSPY_ON_OOM has no effect: cannot start %s: %s", program, strerror(error));
}
