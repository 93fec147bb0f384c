/* torture_malloc: the same program with its own malloc, as in programs that contain jemalloc. It has one lock, whose
 * state a forked child inherits: a recorder that allocates in a forked child or in a signal handler hangs. */
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *room, *room_end;
struct head {
    size_t bytes;
    struct head *next;
};
static struct head *free_of[48]; /* by power of two */

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}
static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}
static void __attribute__((constructor)) handle_fork(void)
{
    pthread_atfork(before_fork, after_fork, after_fork);
}

static struct head *take(unsigned power)
{
    const size_t bytes = (size_t)1 << power;
    struct head *head = free_of[power];
    if (head) {
        free_of[power] = head->next;
        return head;
    }
    if ((size_t)(room_end - room) < bytes) {
        const size_t more = bytes > 1 << 20 ? bytes : 1 << 20;
        char *got = mmap(NULL, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED) return NULL;
        room = got;
        room_end = got + more;
    }
    head = (struct head *)(void *)room;
    room += bytes;
    return head;
}

void *malloc(size_t bytes)
{
    unsigned power = 5;
    while (power < 47 && ((size_t)1 << power) < bytes + sizeof(struct head)) power++;
    pthread_mutex_lock(&lock);
    struct head *head = power < 47 ? take(power) : NULL;
    if (head) head->bytes = ((size_t)1 << power) - sizeof *head;
    pthread_mutex_unlock(&lock);
    if (!head) errno = ENOMEM;
    return head ? head + 1 : NULL;
}

void free(void *pointer)
{
    if (!pointer) return;
    struct head *head = (struct head *)pointer - 1;
    const unsigned power = 63 - (unsigned)__builtin_clzl(head->bytes + sizeof *head);
    pthread_mutex_lock(&lock);
    head->next = free_of[power];
    free_of[power] = head;
    pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t bytes)
{
    void *pointer = bytes && count > SIZE_MAX / bytes ? NULL : malloc(count * bytes);
    return pointer ? memset(pointer, 0, count * bytes) : NULL;
}

void *realloc(void *pointer, size_t bytes)
{
    if (!pointer) return malloc(bytes);
    const size_t had = ((struct head *)pointer - 1)->bytes;
    if (had >= bytes) return pointer;
    void *more = malloc(bytes);
    if (more) memcpy(more, pointer, had);
    if (more) free(pointer);
    return more;
}
