/* Behaviours of restricted processes: limits, other users, other roots, filters. The restrictions stay in effect for
 * the behaviours that follow. */
#include "tests/torture/torture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void limit(int what, rlim_t value)
{
    struct rlimit now;
    getrlimit(what, &now);
    now.rlim_cur = value < now.rlim_max ? value : now.rlim_max;
    T_CHECK(!setrlimit((__rlimit_resource_t)what, &now));
}

void limit_files(uint32_t n)
{
    static const rlim_t counts[] = {3, 4, 5, 6, 8, 10, 16, 32, 64, 500, 503, 510, 600};
    limit(RLIMIT_NOFILE, counts[n % (sizeof counts / sizeof *counts)]);
    t_flag(T_UNRECORDED | T_MAY_LOSE);
    t_work(5);
}

static rlim_t address_space(void)
{
    char text[100] = "";
    int fd = open("/proc/self/statm", O_RDONLY);
    if (fd < 0) return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    close(fd);
    return len > 0 ? strtoull(text, NULL, 10) * 4096 : 0;
}

/* The program itself needs little more; the recorder must get by with the same limit. */
void limit_memory(uint32_t n)
{
    static const rlim_t more[] = {16, 64, 100, 200, 400};
    rlim_t now = address_space();
    if (!now) return;
    if (n & 1) t_work(2);
    t_flag(T_UNRECORDED | T_MAY_LOSE);
    limit(RLIMIT_AS, now + (more[n / 2 % 5] << 20));
    t_deep_work(10, 100);
    limit(RLIMIT_AS, RLIM_INFINITY);
}

void limit_size(uint32_t n)
{
    static const rlim_t sizes[] = {0, 4096, 65536, 1 << 20, 16 << 20, 64 << 20};
    t_flag(T_UNRECORDED | T_MAY_LOSE);
    if (n & 1) t_work(2);
    limit(RLIMIT_FSIZE, sizes[n / 2 % 6]);
    t_deep_work(10, 500);
    t_sleep_us(n & 64 ? 300000 : 1000);
    t_deep_work(10, 500);
    limit(RLIMIT_FSIZE, RLIM_INFINITY);
}

void limit_others(uint32_t n)
{
    limit(RLIMIT_STACK, n & 1 ? 1 << 20 : 64 << 20);
    limit(RLIMIT_MEMLOCK, n & 2 ? 0 : 65536);
    limit(RLIMIT_CORE, 0);
    if (n & 4) limit(RLIMIT_NPROC, 5000);
    t_deep_work(10, 10);
}

void not_dumpable(uint32_t n)
{
    if (n & 1) t_work(2);
    T_CHECK(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
    t_deep_work(20, 10);
}

void other_user(uint32_t n)
{
    if (n & 1)
        t_work(2);
    else
        t_flag(T_UNRECORDED);
    T_CHECK(!setgid(65534) && !setuid(65534));
    t_work(20);
    t_log("other_user: %d", (int)getuid());
}

void other_root(uint32_t n)
{
    if (n & 1)
        t_work(2);
    else
        t_flag(T_UNRECORDED | T_MAY_LOSE);
    t_flag(T_CHILDREN_FREE); /* the recording's folder is outside the new root */
    mkdir("root", 0755);
    t_log("other_root: %d", chroot("root") || chdir("/"));
    t_work(20);
    t_sleep_us(20000);
    t_work(20);
}

void other_folder(uint32_t n)
{
    if (n & 1) t_work(2);
    mkdir("elsewhere", 0755);
    T_CHECK(!chdir("elsewhere"));
    if (n & 2) T_CHECK(!rmdir("../elsewhere"));
    t_work(10);
    T_CHECK(n & 2 || !chdir(".."));
}

void apart(uint32_t n)
{
    static const int flags[] = {CLONE_FILES | CLONE_FS, CLONE_NEWNS, CLONE_NEWNET, CLONE_SYSVSEM, CLONE_NEWUTS};
    if (n & 1) t_work(2);
    t_log("apart: %d", unshare(flags[n / 2 % 5]));
    t_work(20);
}

/* Makes one harmless system call, times(), return `action`; no other code calls it. */
static bool filter(uint32_t action, unsigned flags)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_times, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof lines / sizeof *lines, .filter = lines};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) == 0;
}

void seccomp_errno(uint32_t n)
{
    if (n & 1) t_work(2);
    t_log("seccomp_errno: %d", filter(SECCOMP_RET_ERRNO | 77, n & 2 ? SECCOMP_FILTER_FLAG_TSYNC : 0));
    long result = syscall(SYS_times, NULL);
    t_log("seccomp_errno: %ld %d", result, errno);
    t_work(20);
}

static void *outlive(void *number_and_end)
{
    const uintptr_t n = (uintptr_t)number_and_end;
    /* longer than the recorder's check of the remaining threads, ten times per second */
    t_sleep_us(250000 * (unsigned)(n / 2 + 1));
    t_work(1);
    if (n & 1) syscall(SYS_times, NULL);
    return NULL;
}

/* Each of several threads may be the last one, and may end normally or be killed: the last one's end is the process's.
 */
void end_killed_thread(uint32_t n)
{
    t_work(1 + n % 10);
    t_log("end_killed_thread: %d", filter(SECCOMP_RET_KILL_THREAD, n & 1 ? SECCOMP_FILTER_FLAG_TSYNC : 0));
    for (unsigned i = 0; i < n / 2 % 3; i++) t_start(outlive, (void *)(uintptr_t)(i * 2 + (n >> (3 + i) & 1)), 0);
    if (n & 64) pthread_exit(NULL);
    syscall(SYS_times, NULL);
    _exit(98);
}

static void *die(void *unused)
{
    (void)unused;
    t_work(2);
    syscall(SYS_times, NULL);
    return NULL;
}

void end_killed_process(uint32_t n)
{
    t_work(1 + n % 10);
    t_log("end_killed_process: %d", filter(SECCOMP_RET_KILL_PROCESS, n & 1 ? SECCOMP_FILTER_FLAG_TSYNC : 0));
    if (n & 2) syscall(SYS_times, NULL);
    t_start(die, NULL, 0);
    for (;;) t_sleep_us(100000);
}
