/* A mapped file that is truncated by another process does not end the program. */
#include "tests/unit/events.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "analyzer/base/mapped.h"

enum { PAGES = 4, PAGE = 65536 }; /* the largest of any kernel */

static void a_file_cut_off(void **state)
{
    char *folder = ev_folder(), path[320];
    static const char text[PAGES * PAGE] = {[0] = 'a', [3 * PAGE] = 'b'};
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    for (int shared = 0; shared < 2; shared++) {
        assert_int_equal(ftruncate(fd, sizeof text), 0);
        char *map = mmap(NULL, sizeof text, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        assert_true(map != MAP_FAILED);
        mapped_survive();
        assert_int_equal(ftruncate(fd, 2), 0);
        assert_int_equal(*(volatile char *)map, 'a');
        for (int page = 1; page < PAGES; page++) assert_int_equal(*(volatile char *)(map + page * PAGE), 0);
        map[2 * PAGE] = 'c';
        munmap(map, sizeof text);
    }
    close(fd);
    ev_remove_folder(folder);
}

/* A signal sent by a process still ends the program. */
static void a_signal_sent(void **state)
{
    pid_t pid = fork();
    if (pid == 0) {
        mapped_survive();
        raise(SIGBUS);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static size_t resident_pages(void)
{
    size_t size, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%zu %zu", &size, &resident), 2);
    fclose(f);
    return resident;
}

/* Released pages of a file are read again when needed; other memory is unchanged. */
static void a_part_released(void **state)
{
    enum { MANY = 256 };
    char *folder = ev_folder(), path[320], *own = malloc(MANY * PAGE);
    const size_t size = (size_t)MANY * PAGE;
    (void)state;
    memset(own, 'x', size);
    snprintf(path, sizeof path, "%s/file", folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(write(fd, own, size), size);
    char *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(memcmp(map, own, size), 0);
    const size_t before = resident_pages();
    mapped_release(map + 1, size - 2);
    assert_in_range((before - resident_pages()) * (size_t)sysconf(_SC_PAGESIZE), size / 2, size);
    mapped_release(own, size);
    assert_int_equal(memcmp(map, own, size), 0);
    mapped_release(own, 1);
    munmap(map, size);
    close(fd);
    free(own);
    ev_remove_folder(folder);
}

CASES(a_part_released, a_file_cut_off, a_signal_sent)
