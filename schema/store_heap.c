/* Blocks of one size share a list of free ones, eight sizes per power of two; a large block is a mapping of its own.
 * Small blocks go back to the kernel only with the process: SQLite's page cache, which has a bound, is nearly all of
 * them. The first region has addresses for all that it usually needs, so that a program which uses up its own
 * (RLIMIT_AS) does not end its recording. */
#include "schema/store_heap.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define LEAST 64
#define STEPS 8 /* sizes per power of two */
#define LARGE (32 * 1024)
#define FIRST_REGION (16 * 1024 * 1024)
#define REGION (256 * 1024)
#define SIZES 80
#define PAGE 4096u

static struct {
    pthread_mutex_t lock;
    void *free[SIZES]; /* each points to the next */
    char *at, *end;    /* of the region that blocks are cut from */
} heap = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Blocks are aligned to 8 bytes, which is what SQLite needs. */
struct head {
    size_t size; /* of the block with its head */
};

/* The smallest size of a block with room for `bytes`, and the number of its list; SIZES: it is a mapping. */
static size_t block_size_for(size_t bytes, unsigned *list)
{
    const size_t need = bytes + sizeof(struct head);
    *list = 0;
    if (need <= LEAST) return LEAST;
    if (need > LARGE) {
        *list = SIZES;
        return (need + PAGE - 1) / PAGE * PAGE;
    }
    const unsigned power = 63u - (unsigned)__builtin_clzl(need - 1);
    const size_t step = ((size_t)1 << power) / STEPS, steps = (need + step - 1) / step;
    *list = (power - 6) * STEPS + (unsigned)(steps - STEPS);
    return steps * step;
}

static struct head *head_of_block(void *p)
{
    return (struct head *)p - 1;
}

static void *map_heap_memory(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Under heap.lock. What is left of the region before is given up. */
static void *cut_block(size_t size)
{
    if ((size_t)(heap.end - heap.at) < size) {
        size_t room = heap.end ? REGION : FIRST_REGION;
        char *region = map_heap_memory(room);
        if (!region && !heap.end) region = map_heap_memory(room = REGION);
        if (!region) return NULL;
        heap.at = region;
        heap.end = region + room;
    }
    void *p = heap.at;
    heap.at += size;
    return p;
}

static void *allocate_block(int bytes)
{
    unsigned list;
    const size_t size = block_size_for((size_t)bytes, &list);
    struct head *h;
    if (list == SIZES) {
        h = map_heap_memory(size);
    } else {
        pthread_mutex_lock(&heap.lock);
        h = heap.free[list];
        if (h)
            memcpy(&heap.free[list], h + 1, sizeof(void *));
        else
            h = cut_block(size);
        pthread_mutex_unlock(&heap.lock);
    }
    if (!h) return NULL;
    h->size = size;
    return h + 1;
}

static void free_heap_block(void *p)
{
    unsigned list;
    struct head *h = head_of_block(p);
    block_size_for(h->size - sizeof *h, &list);
    if (list == SIZES) {
        munmap(h, h->size);
        return;
    }
    pthread_mutex_lock(&heap.lock);
    memcpy(h + 1, &heap.free[list], sizeof(void *));
    heap.free[list] = h;
    pthread_mutex_unlock(&heap.lock);
}

static int block_bytes(void *p)
{
    return p ? (int)(head_of_block(p)->size - sizeof(struct head)) : 0;
}

static void *resize_block(void *p, int bytes)
{
    unsigned list;
    const int had = block_bytes(p);
    if (block_size_for((size_t)bytes, &list) == head_of_block(p)->size) return p;
    void *q = allocate_block(bytes);
    if (!q) return NULL;
    memcpy(q, p, (size_t)(had < bytes ? had : bytes));
    free_heap_block(p);
    return q;
}

static int round_block(int bytes)
{
    unsigned list;
    return (int)(block_size_for((size_t)bytes, &list) - sizeof(struct head));
}

static int begin_heap(void *unused)
{
    return SQLITE_OK;
}

static void end_heap(void *unused)
{
}

void gs_store_heap_use(void)
{
    static const sqlite3_mem_methods methods = {.xMalloc = allocate_block,
                                                .xFree = free_heap_block,
                                                .xRealloc = resize_block,
                                                .xSize = block_bytes,
                                                .xRoundup = round_block,
                                                .xInit = begin_heap,
                                                .xShutdown = end_heap};
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
}
