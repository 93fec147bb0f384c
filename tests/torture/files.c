/* Behaviours of descriptors: the program closes and reuses numbers, and verifies every byte of what it opened there. */
#include "tests/torture/torture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BYTES = 4096 };

static unsigned char byte_at(unsigned fd, unsigned offset)
{
    return (unsigned char)(fd * 31 + offset * 7 + 1);
}

/* Creates a file of known bytes and deletes its name; its offset is at the end. */
static int data_file(unsigned seed)
{
    char path[] = "torture-XXXXXX";
    unsigned char bytes[BYTES];
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    unlink(path);
    for (unsigned i = 0; i < BYTES; i++) bytes[i] = byte_at(seed, i);
    T_CHECK(write(fd, bytes, BYTES) == BYTES);
    return fd;
}

/* Verifies that no other code has written to the file or moved the offset that its descriptors share. */
static void verify(int fd, unsigned seed)
{
    unsigned char bytes[BYTES];
    T_CHECK(fcntl(fd, F_GETFD) >= 0);
    T_CHECK(lseek(fd, 0, SEEK_CUR) == BYTES);
    T_CHECK(lseek(fd, 0, SEEK_END) == BYTES);
    T_CHECK(pread(fd, bytes, BYTES, 0) == BYTES);
    for (unsigned i = 0; i < BYTES; i++)
        if (bytes[i] != byte_at(seed, i)) {
            t_wrong("the file's byte is the program's", __FILE__, __LINE__);
            return;
        }
}

static void *work_in_thread(void *unused)
{
    (void)unused;
    t_deep_work(30, 5); /* a new stack: no cache knows its frames */
    return NULL;
}

static void call_much(uint32_t n)
{
    t_deep_work(10 + n % 30, 20);
    pthread_join(t_start(work_in_thread, NULL, 0), NULL);
    t_sleep_us(50000); /* lets the recorder's own thread work, too */
    t_deep_work(n % 17, 20);
}

void close_all(uint32_t n)
{
    static const unsigned last[] = {63, 499, 1023, ~0u};
    const unsigned to = last[n % 4];
    int fds[40];
    if (n & 16) t_work(3);
    close_range(3, to, 0);
    if (to > 499) t_flag(T_MAY_LOSE); /* this closes the recorder's descriptors */
    for (unsigned i = 0; i < 40; i++) fds[i] = data_file(i);
    T_CHECK(fds[0] == 3 && fds[39] == 42);
    call_much(n);
    for (unsigned i = 0; i < 40; i++) verify(fds[i], i), close(fds[i]);
}

void low_numbers(uint32_t n)
{
    int source = data_file(1);
    if (source < 0) return;
    const int from = 3 + (int)(n % 3);
    t_work(3);
    int kept = fcntl(source, F_DUPFD, 300);
    close(source);
    for (int fd = from; fd < from + 20; fd++) T_CHECK(dup2(kept, fd) == fd);
    call_much(n);
    for (int fd = from; fd < from + 20; fd++) verify(fd, 1), close(fd);
    close(kept);
}

void peers(uint32_t n)
{
    int pairs[10][2];
    char byte;
    memset(pairs, -1, sizeof pairs); /* without descriptors, both runs fail alike */
    t_work(3);
    close_range(3, 40, 0);
    for (int i = 0; i < 10; i++) {
        const bool failed =
            n & 1 ? pipe2(pairs[i], O_NONBLOCK) : socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pairs[i]);
        T_CHECK(!failed);
        T_CHECK(write(pairs[i][1], "x", 1) == 1); /* no other byte is ever written or read */
    }
    call_much(n);
    for (int i = 0; i < 10; i++) {
        T_CHECK(read(pairs[i][0], &byte, 1) == 1 && byte == 'x');
        T_CHECK(read(pairs[i][0], &byte, 1) == -1 && errno == EAGAIN);
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
}

void many_files(uint32_t n)
{
    enum { FILES = 700 };
    static int fds[FILES];
    unsigned opened = 0;
    if (n & 1) t_work(2);
    for (; opened < FILES; opened++)
        if ((fds[opened] = data_file(opened)) < 0) break;
    if (n & 2) t_flag(T_MAY_LOSE);
    /* dup2 over every number, including the recorder's, as a program does that assumes the numbers to be unused */
    if (n & 2 && opened)
        for (int fd = fds[opened - 1] + 1; fd < 900; fd++)
            if (dup2(fds[0], fd) != fd) break;
    call_much(n);
    t_log("many_files: some %d", opened > 0);
    for (unsigned i = 0; i < opened; i++) verify(fds[i], i);
    if (n & 2) {
        for (int fd = opened ? fds[opened - 1] + 1 : 900; fd < 900; fd++) {
            verify(fd, 0);
            close(fd);
        }
    }
    for (unsigned i = 0; i < opened; i++) close(fds[i]);
}
