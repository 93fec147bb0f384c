#include "analyzer/attach/process.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/text.h"
#include "analyzer/base/each.h"
#include "schema/spool.h"

static bool refuse_process(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse_process(char *why, const char *format, ...)
{
    TEXT_FORMAT(why, ATTACH_WHY, format);
    return false;
}

/* Reads the beginning of a file in /proc and adds a NUL. Returns its length; -1: an error, in errno. */
static ssize_t read_process_file(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, out, size - 1);
    int saved = errno;
    close(fd);
    errno = saved;
    if (n >= 0) out[n] = 0;
    return n;
}

/* The value of kernel.yama.ptrace_scope; -1: this kernel has no such setting. */
static int attach_process_scope(void)
{
    char text[16];

    return read_process_file("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text) > 0 ? atoi(text) : -1;
}

/* The number after `name` in /proc/PID/status; `fallback` if that line is missing. */
static long long status_number(pid_t pid, const char *name, int base, long long fallback)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (read_process_file(path, text, sizeof text) <= 0) return fallback;
    const char *at = strstr(text, name);
    return at ? (long long)strtoull(at + strlen(name), NULL, base) : fallback;
}

void attach_process_explain(pid_t pid, char *why)
{
    const long long tracer = status_number(pid, "\nTracerPid:", 10, 0);
    const long long uid = status_number(pid, "\nUid:", 10, -1);
    const int scope = attach_process_scope();

    if (tracer == getpid()) /* asked to stop, and has not */
        refuse_process(why,
                       "process %d is waiting in the kernel, in vfork for example, and cannot be interrupted; try "
                       "again later",
                       (int)pid);
    else if (tracer > 0)
        refuse_process(why, "process %d is being traced by process %lld, such as a debugger or strace; end that first",
                       (int)pid, tracer);
    else if (uid >= 0 && uid != (long long)geteuid() && geteuid() != 0)
        refuse_process(why, "process %d belongs to another user (uid %lld); run gpuspy as that user, or with sudo",
                       (int)pid, uid);
    else if (scope == 3)
        refuse_process(
            why, "this kernel forbids attaching to any process until it restarts (kernel.yama.ptrace_scope is 3); "
                 "start the program with gpuspy run");
    else if (scope == 2 || (scope == 1 && geteuid() != 0))
        refuse_process(
            why,
            "this kernel lets only root attach to a process (kernel.yama.ptrace_scope is %d); type: sudo gpuspy "
            "attach %d",
            scope, (int)pid);
    else
        refuse_process(
            why,
            "the kernel forbids attaching to process %d; gpuspy needs the capability CAP_SYS_PTRACE for it (in a "
            "container: --cap-add SYS_PTRACE)",
            (int)pid);
}

/* Yama allows every process to attach to its children. If even that fails, a container filters the system call. */
static bool attaches_to_child(void)
{
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    if (child < 0) return true; /* unknown */
    const bool allowed = ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
    kill(child, SIGKILL);
    while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR) continue;
    return allowed;
}

bool attach_process_allowed(char *why)
{
    const int scope = attach_process_scope();

    if (scope == 3)
        return refuse_process(why, "this kernel forbids attaching to any process (kernel.yama.ptrace_scope is 3)");
    if (scope > 0 && geteuid() != 0)
        return refuse_process(why, "this kernel lets only root attach to a process (kernel.yama.ptrace_scope is %d)",
                              scope);
    return attaches_to_child() ||
           refuse_process(why, "the system call ptrace is forbidden here, as in many containers");
}

static char process_state_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *end = read_process_file(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return end && end[1] == ' ' ? end[2] : 0;
}

bool attach_process_ended(pid_t tid)
{
    const char state = process_state_of(tid);
    return !state || state == 'Z' || state == 'X';
}

static bool is_alive(pid_t pid, char *why)
{
    pid_t tid[2];
    const char state = process_state_of(pid);
    const long long leader = status_number(pid, "\nTgid:", 10, pid);

    if (!state) return refuse_process(why, "there is no process %d", (int)pid);
    if (state == 'Z' && attach_process_threads(pid, tid, 2) > 1)
        return refuse_process(why, "gpuspy needs the main thread of process %d, which has ended", (int)pid);
    if (state == 'Z' || state == 'X') return refuse_process(why, "process %d has ended", (int)pid);
    if (state == 'T') return refuse_process(why, ATTACH_PROCESS_IS_STOPPED, (int)pid, (int)pid);
    if (leader != pid)
        return refuse_process(why, "%d is a thread of process %lld; type: gpuspy attach %lld", (int)pid, leader,
                              leader);
    if (pid == getpid()) return refuse_process(why, "%d is this gpuspy itself", (int)pid);
    return true;
}

static bool is_of_this_machine(pid_t pid, char *why)
{
    unsigned char head[20];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && (errno == EACCES || errno == EPERM)) {
        attach_process_explain(pid, why);
        return false;
    }
    if (fd < 0) return refuse_process(why, "process %d is a kernel thread, or has ended", (int)pid);
    ssize_t n = read(fd, head, sizeof head);
    close(fd);
    if (n == sizeof head && head[EI_CLASS] == ELFCLASS64) return true;
    return refuse_process(why, "process %d is a 32-bit program, into which gpuspy cannot be loaded", (int)pid);
}

struct mapping {
    uintptr_t start, end;
    unsigned long inode;
    dev_t device;
    char path[PATH_MAX];
};

static bool read_mapping(FILE *maps, struct mapping *m)
{
    char *line = NULL;
    size_t size = 0;
    unsigned major, minor;
    int at = 0;
    bool got = getline(&line, &size, maps) > 0;

    if (got) {
        *m = (struct mapping){0};
        got = sscanf(line, "%lx-%lx %*s %*s %x:%x %lu %n", &m->start, &m->end, &major, &minor, &m->inode, &at) >= 5;
        m->device = makedev(major, minor);
        if (got && at) snprintf(m->path, sizeof m->path, "%.*s", (int)strcspn(line + at, "\n"), line + at);
    }
    free(line);
    return got;
}

static FILE *open_maps(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    return fopen(path, "re");
}

/* Whether both processes see the same file under this path: in a container it may be another file or none. */
static bool is_same_here(const struct mapping *m)
{
    struct stat st;
    return stat(m->path, &st) == 0 && st.st_ino == m->inode;
}

static bool is_library_visible(pid_t pid, const char *library)
{
    char path[PATH_MAX + 64];
    struct stat ours, its;
    snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, library);
    return stat(library, &ours) == 0 && stat(path, &its) == 0 && ours.st_dev == its.st_dev && ours.st_ino == its.st_ino;
}

static bool read_maps(struct attach_process *p, bool *same_libc, char *why)
{
    FILE *maps = open_maps(p->pid);
    struct mapping m;
    bool any = false, libc = false;

    while (maps && read_mapping(maps, &m)) {
        const char *base = basename(m.path);
        any = true;
        if (strncmp(base, "libcuda", 7) == 0) p->has_cuda = true;
        if (strncmp(base, "libgpuspy", 9) == 0) memcpy(p->recorder, m.path, sizeof p->recorder);
        if (strncmp(base, "libc.so", 7) != 0 && strncmp(base, "libc-2.", 7) != 0) continue;
        libc = true;
        *same_libc = is_same_here(&m);
    }
    if (maps) fclose(maps);
    if (!any && (errno == EACCES || errno == EPERM)) {
        attach_process_explain(p->pid, why);
        return false;
    }
    if (!any) return refuse_process(why, "process %d is a kernel thread, or has ended", (int)p->pid);
    return libc || refuse_process(why, "process %d does not use the GNU C library, which gpuspy needs", (int)p->pid);
}

static bool has_shadow_stack(pid_t pid)
{
    char path[64], text[8192];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    const char *features =
        read_process_file(path, text, sizeof text) > 0 ? strstr(text, "\nx86_Thread_features:") : NULL;
    const char *shadow = features ? strstr(features, "shstk") : NULL;
    return shadow && shadow < features + 1 + strcspn(features + 1, "\n");
}

/* Otherwise the program's own allocations would fail. */
static bool has_address_space(pid_t pid, char *why)
{
    struct rlimit limit;
    if (prlimit(pid, RLIMIT_AS, NULL, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    const unsigned long long used = (unsigned long long)status_number(pid, "\nVmSize:", 10, 0) << 10;
    const unsigned long long left = used < limit.rlim_cur ? (limit.rlim_cur - used) >> 20 : 0;
    return left >= GS_ADDRESS_MIB ||
           refuse_process(why,
                          "process %d may map only %llu MiB more (ulimit -v), and gpuspy needs "
                          "up to %d MiB; start the program with a higher limit",
                          (int)pid, left, GS_ADDRESS_MIB);
}

bool attach_process_read(struct attach_process *p, pid_t pid, const char *library, char *why)
{
    bool same_libc = false;
    const long long ignored = status_number(pid, "\nSigIgn:", 16, 0);

    *p = (struct attach_process){.pid = pid};
    if (!is_alive(pid, why) || !is_of_this_machine(pid, why)) return false;
    if (status_number(pid, "\nTracerPid:", 10, 0) > 0) {
        attach_process_explain(pid, why);
        return false;
    }
    if (!read_maps(p, &same_libc, why)) return false;
    if (!same_libc || (*library && !is_library_visible(pid, library)))
        return refuse_process(why,
                              "process %d and gpuspy see different files, for example because of a container, or its C "
                              "library was replaced; "
                              "run gpuspy in the same container",
                              (int)pid);
    if (*library && !has_address_space(pid, why)) return false;
    if (has_shadow_stack(pid)) /* gpuspy's call returns to address 0, which a shadow stack reports as an error */
        return refuse_process(
            why, "process %d runs with a shadow stack (GLIBC_TUNABLES), which gpuspy attach does not support",
            (int)pid);
    if (ignored >> 10 & 1) /* gpuspy's call ends with SIGSEGV, which gpuspy intercepts */
        return refuse_process(why, "process %d ignores the signal SIGSEGV, which gpuspy needs for a moment", (int)pid);
    return true;
}

size_t attach_process_threads(pid_t pid, pid_t *tid, size_t room)
{
    char path[64];
    size_t n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);

    for (struct dirent *d; tasks && n < room && (d = readdir(tasks));)
        if (d->d_name[0] != '.') tid[n++] = (pid_t)atoi(d->d_name);
    if (tasks) closedir(tasks);
    return n;
}

/* From signal(7): after a stop, these begin again with their whole time limit, or fail with EINTR (aarch64). */
static const long interrupted[] = {
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    SYS_epoll_pwait, SYS_epoll_pwait2, SYS_semtimedop,   SYS_semop,          SYS_rt_sigtimedwait,
    SYS_msgrcv,      SYS_msgsnd,       SYS_io_getevents, SYS_io_uring_enter,
};

bool attach_process_spares(pid_t pid, pid_t tid)
{
    char path[96], text[256];

    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)pid, (int)tid);
    if (read_process_file(path, text, sizeof text) <= 0 || strncmp(text, "gpuspy-", 7) == 0) return true;
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", (int)pid, (int)tid);
    if (read_process_file(path, text, sizeof text) <= 0) return false;
    return text[0] >= '0' && text[0] <= '9' && ANY_OF(p, interrupted, COUNT_OF(interrupted), atol(text) == *p);
}

uintptr_t attach_process_stack_floor(pid_t pid, uintptr_t sp, uintptr_t thread)
{
    FILE *maps = open_maps(pid);
    struct mapping m;
    uintptr_t floor = 0;

    while (maps && !floor && read_mapping(maps, &m)) {
        if (sp < m.start || sp >= m.end) continue;
        if (strcmp(m.path, "[stack]") == 0)
            floor = 1; /* the main thread's stack grows on demand */
        else if (thread >= sp && thread < m.end)
            floor = m.start;
        else
            break;
    }
    if (maps) fclose(maps);
    return floor;
}
