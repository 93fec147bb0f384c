#include "analyzer/launch/launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

enum { GENERATIONS = 64, STOP_MS = 20 };

bool launch_own_folder(char *folder)
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);

    if (n >= 0)
        folder[n] = 0;
    else if (!realpath((const char *)getauxval(AT_EXECFN), folder)) /* without /proc */
        *folder = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    return slash;
}

/* A library for this processor; otherwise errno is set. */
static bool is_library(const char *path)
{
    Elf64_Ehdr ours, its;
    int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, &its, sizeof its);
    bool readable = n >= 0;

    if (readable && (n < (ssize_t)sizeof its || memcmp(its.e_ident, ELFMAG, SELFMAG) != 0 || its.e_type != ET_DYN ||
                     (self >= 0 && read(self, &ours, sizeof ours) == sizeof ours &&
                      (ours.e_machine != its.e_machine || ours.e_ident[EI_CLASS] != its.e_ident[EI_CLASS])))) {
        readable = false;
        errno = ENOEXEC;
    }
    const int error = errno;
    if (fd >= 0) close(fd);
    if (self >= 0) close(self);
    errno = error;
    return readable;
}

/* A folder that only this user can change: in TMPDIR, or in /tmp if there is no TMPDIR that can be written. */
static bool make_link_folder(char *out, size_t size)
{
    const char *given = getenv("TMPDIR");
    const bool usable = given && *given == '/' && !strpbrk(given, LAUNCH_SEPARATORS) && access(given, W_OK | X_OK) == 0;
    const char *base = usable ? given : "/tmp";
    struct stat status;
    int n = snprintf(out, size, "%s/gpuspy-%u", base, (unsigned)geteuid());

    return n > 0 && (size_t)n < size && (mkdir(out, 0711) == 0 || errno == EEXIST) && lstat(out, &status) == 0 &&
           S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 022);
}

bool launch_link_folder(char *folder, char *why, size_t size)
{
    char own[PATH_MAX - 32], link[PATH_MAX], found[PATH_MAX];

    if (!strpbrk(folder, LAUNCH_SEPARATORS)) return true;
    if (make_link_folder(own, sizeof own)) {
        snprintf(link, sizeof link, "%s/%016" PRIx64, own, map_hash_text(0, folder));
        if ((symlink(folder, link) == 0 || errno == EEXIST) && realpath(link, found) && strcmp(found, folder) == 0) {
            snprintf(folder, PATH_MAX, "%s", link);
            return true;
        }
    }
    snprintf(why, size,
             "cannot load from '%s': the loader accepts no path with a space, colon or '$', and gpuspy cannot link to "
             "it in TMPDIR or /tmp; install gpuspy elsewhere",
             folder);
    return false;
}

bool launch_library(char *library, char *why, size_t size)
{
    static const char *const places[] = {"libgpuspy.so", "../lib/libgpuspy.so", "../lib64/libgpuspy.so",
                                         "../lib/gpuspy/libgpuspy.so"};
    char own[PATH_MAX] = "", path[PATH_MAX + 64];
    const char *given = getenv("GPUSPY_LIB");

    if (given && *given) {
        if (realpath(given, library) && is_library(library)) return true;
        snprintf(why, size, "GPUSPY_LIB: cannot read '%s': %s; unset it to use the library beside gpuspy", given,
                 strerror(errno));
        return false;
    }
    const bool found = launch_own_folder(own);
    for (size_t i = 0; found && i < COUNT_OF(places); i++) {
        snprintf(path, sizeof path, "%s/%s", own, places[i]);
        if (realpath(path, library) && is_library(library)) return true;
    }
    library[0] = 0;
    snprintf(why, size, "cannot find libgpuspy.so beside '%s' or in its ../lib; set GPUSPY_LIB to its path", own);
    return false;
}

bool launch_preload(char *library, char *why, size_t size)
{
    char name[NAME_MAX + 1];

    if (!launch_library(library, why, size)) return false;
    char *slash = strrchr(library, '/');
    snprintf(name, sizeof name, "%s", slash + 1);
    *slash = 0;
    if (!launch_link_folder(library, why, size)) return false;
    size_t used = strlen(library);
    if ((size_t)snprintf(library + used, PATH_MAX - used, "/%s", name) < PATH_MAX - used &&
        !strpbrk(name, LAUNCH_SEPARATORS))
        return true;
    snprintf(why, size, "cannot preload '%s': the loader accepts no name with a space, colon or '$'", library);
    return false;
}

bool launch_find_library(struct launch *l)
{
    char why[PATH_MAX + 256];
    bool found = launch_preload(l->library, why, sizeof why);

    if (!found) complain("run: %s", why);
    return found;
}

void launch_set(struct launch *l, const char *name, const char *value)
{
    if (l->variables == LAUNCH_VARIABLES) abort();
    l->name[l->variables] = name;
    l->value[l->variables++] = value;
}

enum preload_kind { PRELOAD_FIRST, PRELOAD_RECORDER, PRELOAD_OTHER };

/* A sanitizer's runtime library must come before all other entries. torch_memory_saver maps and unmaps memory within
 * cudaMalloc, and while a server sleeps: below it, the recorder sees what it does. An image's recorder gives way. */
static enum preload_kind preload_kind_of(const char *entry, size_t n)
{
    static const char *const stems[] = {"libasan.",   "libtsan.",     "liblsan.",          "libubsan.",
                                        "libhwasan.", "libclang_rt.", "torch_memory_saver"};
    const char *slash = memrchr(entry, '/', n), *name = slash ? slash + 1 : entry;

    n -= (size_t)(name - entry);
    if (n == strlen("libgpuspy.so") && memcmp(name, "libgpuspy.so", n) == 0) return PRELOAD_RECORDER;
    return ANY_OF(s, stems, COUNT_OF(stems), n > strlen(*s) && strncmp(name, *s, strlen(*s)) == 0) ? PRELOAD_FIRST
                                                                                                   : PRELOAD_OTHER;
}

static void add_preload_entries(char *out, size_t size, size_t *used, const char *list, enum preload_kind kind)
{
    for (const char *p = list; *p;) {
        size_t n = strcspn(p, ": ");
        if (n && preload_kind_of(p, n) == kind && *used < size)
            *used += (size_t)snprintf(out + *used, size - *used, "%s%.*s", *used ? ":" : "", (int)n, p);
        p += n + (p[n] != 0);
    }
}

char *launch_preloaded(const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    size_t size = strlen(library) + (others ? strlen(others) : 0) + 3, used = 0;
    char *preload = malloc(size);

    if (!preload) return NULL;
    add_preload_entries(preload, size, &used, others ? others : "", PRELOAD_FIRST);
    used += (size_t)snprintf(preload + used, size - used, "%s%s", used ? ":" : "", library);
    add_preload_entries(preload, size, &used, others ? others : "", PRELOAD_OTHER);
    return preload;
}

static bool set_preload(const char *library)
{
    char *preload = launch_preloaded(library);
    bool set = preload && setenv("LD_PRELOAD", preload, 1) == 0;

    free(preload);
    return set;
}

/* A program built with gcc's -fsanitize=address ends at once if a library is loaded before libasan, because that
 * library might replace malloc. The recorder does not. The program may also be one that the job starts. */
static bool set_sanitizer_options(void)
{
    static const char allow[] = "verify_asan_link_order=0";
    const char *others = getenv("ASAN_OPTIONS");

    if (!others || !*others) return setenv("ASAN_OPTIONS", allow, 1) == 0;
    if (strstr(others, "verify_asan_link_order")) return true;
    size_t size = strlen(others) + sizeof allow + 1;
    char *options = malloc(size);
    if (!options) return false;
    snprintf(options, size, "%s:%s", others, allow);
    bool set = setenv("ASAN_OPTIONS", options, 1) == 0;
    free(options);
    return set;
}

static bool set_launch_environment(const struct launch *l)
{
    for (int i = 0; i < l->variables; i++)
        if (setenv(l->name[i], l->value[i], 1) != 0) return false;
    return !l->library[0] || (set_preload(l->library) && set_sanitizer_options());
}

static void exec_in_child(const struct launch *l, const sigset_t *mask, const struct sigaction *on_child, int report)
{
    int error;

    sigaction(SIGCHLD, on_child, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (set_launch_environment(l)) execvp(l->argv[0], l->argv);
    error = errno;
    if (write(report, &error, sizeof error) < 0) _exit(LAUNCH_FAILED);
    _exit(LAUNCH_NOT_FOUND);
}

static int not_started(const char *program, int error)
{
    bool missing = error == ENOENT || error == ENOTDIR;
    char path[PATH_MAX];
    struct program file = {0};

    if (error == ENOENT && program_find(program, path, sizeof path)) program_read(path, &file);
    if (file.loader[0] && access(file.loader, F_OK) != 0) {
        complain("run: cannot run '%s': its interpreter '%s' does not exist; install it, or install '%s' again",
                 program, file.loader, program);
        return LAUNCH_NOT_FOUND;
    }
    char why[PATH_MAX + 64];
    if (text_ends_with(program, ".py") && access(program, F_OK) == 0)
        complain("run: cannot run '%s', which is a script; type: gpuspy run -- python %s", program, program);
    else if (program_explain(program, why, sizeof why))
        complain("run: cannot run '%s': it %s", program, why);
    else if (missing && strchr(program, ' '))
        complain("run: cannot run '%s': no such program; write it and its arguments without quotes: gpuspy run "
                 "-- %s",
                 program, program);
    else
        complain("run: cannot run '%s': %s; %s", program, strerror(error),
                 missing ? "check its name and PATH" : "check that it is an executable file");
    return missing ? LAUNCH_NOT_FOUND : LAUNCH_NOT_EXECUTABLE;
}

/* The kernel sends the signal of a key (^C) to the whole foreground group, which includes the program: forwarding it
 * would deliver it twice. SIGALRM also comes from the kernel, but belongs to the program: the alarm was set before
 * gpuspy started. */
static bool program_has_it(const siginfo_t *info)
{
    return info->si_code == SI_KERNEL && info->si_signo != SIGALRM;
}

/* Every signal that users and batch systems send. Signals that stop a program stop gpuspy too, and gpuspy must not
 * survive a fault of its own. */
static void meant_for_program(sigset_t *signals)
{
    static const int ours[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGTRAP, SIGSYS,
                               SIGPIPE, SIGXFSZ, SIGTSTP, SIGTTIN, SIGTTOU};

    sigfillset(signals); /* includes SIGCHLD, which ends the wait */
    for (size_t i = 0; i < COUNT_OF(ours); i++) sigdelset(signals, ours[i]);
}

/* If the program signals its whole group (kill 0) or its parent, the signal is not forwarded back to it. */
static bool sent_by_program(const siginfo_t *info, pid_t program)
{
    pid_t pid = info->si_code == SI_USER || info->si_code == SI_QUEUE || info->si_code == SI_TKILL ? info->si_pid : 0;

    for (int i = 0; i < GENERATIONS && pid > 1; i++) {
        if (pid == program) return true;
        pid = program_parent(pid);
    }
    return false;
}

static void forward_signal(pid_t pid, const siginfo_t *info)
{
    if (program_has_it(info) || sent_by_program(info, pid)) return;
    if (info->si_code == SI_QUEUE)
        sigqueue(pid, info->si_signo, info->si_value);
    else
        kill(pid, info->si_signo);
}

/* If the program stops itself, gpuspy stops too, so that the shell regains control; SIGCONT continues both. After ^Z
 * both were stopped together, and the program may not have continued yet. */
static void stop_like(pid_t pid)
{
    siginfo_t info = {.si_pid = 0};

    if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG | WNOWAIT) != 0 || info.si_pid != pid) return;
    usleep(STOP_MS * 1000);
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == pid) kill(getpid(), SIGSTOP);
}

static void wait_and_forward(struct launch *l, pid_t pid, const sigset_t *signals)
{
    siginfo_t info;

    for (;;) {
        pid_t ended = waitpid(pid, &l->status, WNOHANG);
        if (ended == pid || (ended < 0 && errno != EINTR)) return;
        if (sigwaitinfo(signals, &info) < 0) continue;
        if (info.si_signo == SIGCHLD)
            stop_like(pid);
        else
            forward_signal(pid, &info);
    }
}

bool launch_wait(struct launch *l, int *code)
{
    struct sigaction standard = {.sa_handler = SIG_DFL}, on_child;
    sigset_t signals, mask;
    int report[2], error = 0;

    if (pipe2(report, O_CLOEXEC) != 0) {
        complain("run: cannot start '%s': %s", l->argv[0], strerror(errno));
        *code = LAUNCH_FAILED;
        return false;
    }
    meant_for_program(&signals);
    /* Blocked before the fork, so that none falls between; the child gets our mask back. Ignored
     * signals stay ignored for it (nohup), because no disposition but SIGCHLD's is touched. */
    sigaction(SIGCHLD, &standard, &on_child);
    sigprocmask(SIG_BLOCK, &signals, &mask);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) exec_in_child(l, &mask, &on_child, report[1]);
    close(report[1]);
    if (pid < 0) {
        complain("run: cannot start '%s': %s", l->argv[0], strerror(errno));
        close(report[0]);
        *code = LAUNCH_FAILED;
        return false;
    }
    ssize_t n;
    while ((n = read(report[0], &error, sizeof error)) < 0 && errno == EINTR)
        ;
    close(report[0]);
    l->pid = pid;
    wait_and_forward(l, pid, &signals);
    /* Signals that arrived until now were meant for the program. From here on ^C ends gpuspy. */
    while (sigtimedwait(&signals, NULL, &(struct timespec){0}) > 0)
        ;
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (n == sizeof error) {
        *code = not_started(l->argv[0], error);
        return false;
    }
    return true;
}

int launch_end(const struct launch *l)
{
    if (WIFEXITED(l->status)) return WEXITSTATUS(l->status);
    /* Dying by the same signal lets a shell see what it would have seen: "Segmentation fault", a
     * loop that ^C ends. The core is the program's, not ours. */
    int signal_number = WTERMSIG(l->status);
    struct rlimit no_core = {0};
    sigset_t one;

    fflush(NULL);
    setrlimit(RLIMIT_CORE, &no_core);
    signal(signal_number, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, signal_number);
    sigprocmask(SIG_UNBLOCK, &one, NULL);
    raise(signal_number);
    return 128 + signal_number;
}
