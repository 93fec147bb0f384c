/* Stops one thread after the other until one can safely call functions. That thread calls dlopen and the recorder's
 * entry function, which takes milliseconds, while the other threads continue. The recorder then works in its own
 * threads, and gpuspy reads its answer from the target's memory. */
#include "analyzer/attach/attach.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include "analyzer/base/text.h"
#include "analyzer/base/clock.h"
#include "analyzer/attach/place.h"
#include "analyzer/attach/thread.h"
#include "schema/attach.h"

enum { THREADS = 4096, SEARCH_MS = 15000, ANSWER_MS = 60000, STACK_BYTES = 64 * 1024 };

struct job {
    const struct attach_process *process;
    struct attach_places *places;
    const char *library, *entry, *settings;
    int mode; /* of dlopen */
    char *text;
    /* addresses of functions in the target */
    uintptr_t dlopen_at, dlsym_at, dlerror_at, errno_at;
    uintptr_t answer; /* the address of the recorder's answer, in the target */
};

static enum attach_result fail_attach(const struct job *j, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static enum attach_result fail_attach(const struct job *j, const char *format, ...)
{
    TEXT_FORMAT(j->text, ATTACH_WHY, format);
    return ATTACH_FAILED;
}

static void pause_ms(int ms)
{
    const struct timespec step = {.tv_nsec = ms * 1000000};
    nanosleep(&step, NULL);
}

static bool call_in_target(struct attach_thread *t, uintptr_t function, uintptr_t first, uintptr_t second,
                           uintptr_t *result)
{
    const uintptr_t arguments[ATTACH_ARGUMENTS] = {first, second};
    *result = 0;
    return attach_thread_call(t, function, arguments, result);
}

/* The text of dlerror, after dlopen or dlsym failed in the target. */
static enum attach_result loader_fails(const struct job *j, struct attach_thread *t)
{
    uintptr_t at;
    char line[512] = "";

    if (call_in_target(t, j->dlerror_at, 0, 0, &at) && at)
        for (size_t i = 0; i + 1 < sizeof line && attach_thread_read(t, at + i, &line[i], 1) && line[i]; i++) continue;
    line[sizeof line - 1] = 0;
    return fail_attach(j, "process %d cannot load %s: %s", (int)j->process->pid, j->library,
                       line[0] ? line : "unknown");
}

static enum attach_result call_entry(struct job *j, struct attach_thread *t)
{
    const uintptr_t library = attach_thread_put(t, j->library), name = attach_thread_put(t, j->entry);
    const uintptr_t settings = attach_thread_put(t, j->settings);
    uintptr_t handle, entry;

    if (!library || !name || !settings)
        return fail_attach(j, "the stack of process %d cannot be written", (int)j->process->pid);
    if (call_in_target(t, j->dlopen_at, library, (uintptr_t)j->mode, &handle)) {
        if (!handle) return loader_fails(j, t);
        if (call_in_target(t, j->dlsym_at, handle, name, &entry)) {
            if (!entry) return loader_fails(j, t);
            if (call_in_target(t, entry, settings, 0, &j->answer) && j->answer) return ATTACH_DONE;
        }
    }
    if (t->gone) return fail_attach(j, "process %d has ended", (int)j->process->pid);
    return fail_attach(j, "process %d did not respond; it continues unrecorded", (int)j->process->pid);
}

/* Keeps errno: the thread may have been stopped just before it reads it. */
static enum attach_result call_with_errno(struct job *j, struct attach_thread *t)
{
    uintptr_t at;
    int value;

    attach_thread_begin(t);
    if (!call_in_target(t, j->errno_at, 0, 0, &at) || !attach_thread_read(t, at, &value, sizeof value))
        return fail_attach(j, t->gone ? "process %d has ended" : "process %d did not respond; it continues unrecorded",
                           (int)j->process->pid);
    const enum attach_result result = call_entry(j, t);
    if (!t->gone) (void)attach_thread_write(t, at, &value, sizeof value);
    return result;
}

static bool has_stack_room(const struct job *j, const struct attach_thread *t)
{
    const uintptr_t sp = attach_thread_stack(t);
    const uintptr_t floor = attach_process_stack_floor(j->process->pid, sp, attach_thread_pointer(t));
    return floor && sp - floor >= STACK_BYTES;
}

enum trial { NOT_NOW, TRIED, HELD, NOT_ALLOWED };

static enum trial try_thread(struct job *j, pid_t tid, enum attach_result *result)
{
    static struct attach_thread t;
    const enum attach_stop stop = attach_thread_stop(&t, tid);
    bool here = stop == ATTACH_STOPPED && has_stack_room(j, &t) && attach_places_safe(j->places, &t);

    if (here) *result = call_with_errno(j, &t);
    attach_thread_release(&t);
    return here ? TRIED : stop == ATTACH_HELD ? HELD : stop == ATTACH_FORBIDDEN ? NOT_ALLOWED : NOT_NOW;
}

static enum attach_result try_threads(struct job *j)
{
    static pid_t tid[THREADS];
    const long long until = clock_now_ms() + SEARCH_MS;
    enum attach_result result;

    for (unsigned round = 0; clock_now_ms() < until; round++) {
        const size_t n = attach_process_threads(j->process->pid, tid, THREADS);
        if (!n || attach_process_ended(j->process->pid))
            return fail_attach(j, "process %d has ended", (int)j->process->pid);
        for (size_t i = 0; i < n; i++) {
            if (attach_process_spares(j->process->pid, tid[i]) && round < 20) continue;
            const enum trial trial = try_thread(j, tid[i], &result);
            if (trial == TRIED) return result;
            if (trial == HELD)
                return fail_attach(j, ATTACH_PROCESS_IS_STOPPED, (int)j->process->pid, (int)j->process->pid);
            if (trial != NOT_ALLOWED || attach_process_ended(tid[i]))
                continue; /* the kernel's answer about those, too */
            attach_process_explain(j->process->pid, j->text);
            return ATTACH_FAILED;
        }
        pause_ms(1 + (int)(round * 7 %
                           11)); /* a changing interval, so that it never coincides with a period of the target */
    }
    return fail_attach(
        j,
        "no thread of process %d reached a point where gpuspy could attach within %d s; it continues unrecorded; "
        "try again",
        (int)j->process->pid, SEARCH_MS / 1000);
}

static bool read_answer(const struct job *j, struct gs_attach_answer *a)
{
    const struct attach_thread reader = {.tid = j->process->pid};

    if (!attach_thread_read(&reader, j->answer, a, sizeof *a)) return false;
    a->text[sizeof a->text - 1] = 0;
    return memcmp(a->magic, GS_ATTACH_MAGIC, sizeof GS_ATTACH_MAGIC) == 0;
}

static enum attach_result wait_answer(const struct job *j)
{
    static struct gs_attach_answer a;
    const long long until = clock_now_ms() + ANSWER_MS;

    do {
        if (!read_answer(j, &a)) return fail_attach(j, "process %d has ended", (int)j->process->pid);
        if (a.step != GS_ATTACH_AT_WORK) break;
        pause_ms(2);
    } while (clock_now_ms() < until);
    if (a.step == GS_ATTACH_AT_WORK)
        return fail_attach(j, "process %d has not finished within the time limit", (int)j->process->pid);
    if (a.step == GS_ATTACH_DONE) snprintf(j->text, ATTACH_WHY, "%.*s", ATTACH_WHY - 1, a.text);
    if (a.step == GS_ATTACH_DONE) return ATTACH_DONE;
    fail_attach(j, "process %d: %.*s", (int)j->process->pid, ATTACH_WHY - 64, a.text);
    return a.step == GS_ATTACH_REFUSED ? ATTACH_REFUSED : ATTACH_FAILED;
}

/* Blocks signals to gpuspy: if gpuspy ended now, the target's thread would stay in the middle of a call. */
static enum attach_result try_undisturbed(struct job *j)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2};
    sigset_t held, before;

    sigemptyset(&held);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) sigaddset(&held, signals[i]);
    sigprocmask(SIG_BLOCK, &held, &before);
    const enum attach_result result = try_threads(j);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return result;
}

static enum attach_result run_attach(struct job *j)
{
    if (!attach_thread_machine())
        return fail_attach(j, "gpuspy attaches on x86-64 and aarch64 only; start the program with gpuspy run");
    j->places = attach_places_open(j->process->pid);
    if (!j->places) return fail_attach(j, "the libraries of process %d cannot be read", (int)j->process->pid);
    j->dlopen_at = attach_places_libc(j->places, "dlopen");
    j->dlsym_at = attach_places_libc(j->places, "dlsym");
    j->dlerror_at = attach_places_libc(j->places, "dlerror");
    j->errno_at = attach_places_libc(j->places, "__errno_location");
    const bool found = j->dlopen_at && j->dlsym_at && j->dlerror_at && j->errno_at;
    enum attach_result result =
        found ? try_undisturbed(j) : fail_attach(j, "the C library of process %d has no dlopen", (int)j->process->pid);
    attach_places_close(j->places);
    return result == ATTACH_DONE ? wait_answer(j) : result;
}

enum attach_result attach_begin(const struct attach_process *p, const char *library, const char *settings, char *text)
{
    struct job j = {.process = p,
                    .library = p->recorder[0] ? p->recorder : library,
                    .entry = "gpuspy_attach",
                    .settings = settings,
                    .mode = RTLD_NOW,
                    .text = text};
    return run_attach(&j);
}

enum attach_result attach_end(const struct attach_process *p, char *text)
{
    struct job j = {.process = p,
                    .library = p->recorder,
                    .entry = "gpuspy_detach",
                    .settings = "",
                    .mode = RTLD_NOW | RTLD_NOLOAD,
                    .text = text};
    return run_attach(&j);
}
