/* System calls that do not pass through libc's syscall(): another preloaded library (uid_wrapper, socket_wrapper) may
 * wrap that function and take a lock in it, which its fork handler holds while gpuspy's runs. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline long gs_system_call_of_six(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long result __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
#else
    return syscall(number, a, b, c, d, e, f);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
#endif
}

#define GS_SYSTEM_CALL(number, a, b, c, d, e, f, ...) \
    gs_system_call_of_six((long)(number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))
#define gs_system_call(...) GS_SYSTEM_CALL(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* fstat, stat and lstat. Not libc's, because libfaketime wraps those: before libfaketime's constructor they open its
 * shared memory once more, and after its destructor they crash. The loader makes this system call, too, so a filter
 * that forbids it has ended the process before. */
static inline int gs_file_status(int fd, struct stat *status)
{
    return (int)gs_system_call(SYS_newfstatat, fd, "", status, AT_EMPTY_PATH);
}

static inline int gs_path_status(const char *path, struct stat *status)
{
    return (int)gs_system_call(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

static inline int gs_link_status(const char *path, struct stat *status)
{
    return (int)gs_system_call(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

/* Is the descriptor still of the file with that status? The program may have closed it, and reuse the number. */
static inline bool gs_is_same_file(int fd, const struct stat *status)
{
    struct stat now;
    return !gs_file_status(fd, &now) && now.st_dev == status->st_dev && now.st_ino == status->st_ino;
}
