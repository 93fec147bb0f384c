/* An allocator for torch.cuda.MemPool as servers have one: physical memory that is unmapped while the server sleeps,
 * and then mapped again at the same addresses. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef unsigned long long address;
struct location {
    int type, id;
};
struct properties {
    int type, handles;
    struct location location;
    void *windows;
    unsigned char flags[32];
};
struct access {
    struct location location;
    int flags;
};
int cuMemAddressReserve(address *at, size_t bytes, size_t alignment, address hint, unsigned long long flags);
int cuMemAddressFree(address at, size_t bytes);
int cuMemCreate(unsigned long long *handle, size_t bytes, const struct properties *p, unsigned long long flags);
int cuMemRelease(unsigned long long handle);
int cuMemMap(address at, size_t bytes, size_t offset, unsigned long long handle, unsigned long long flags);
int cuMemUnmap(address at, size_t bytes);
int cuMemSetAccess(address at, size_t bytes, const struct access *access, size_t n);

static struct held {
    address at;
    size_t bytes;
    unsigned long long handle;
    int device;
} held[256];

static int map(struct held *h)
{
    const struct properties p = {.type = 1, .location = {1, h->device}};
    const struct access access = {{1, h->device}, 3};

    return cuMemCreate(&h->handle, h->bytes, &p, 0) || cuMemMap(h->at, h->bytes, 0, h->handle, 0) ||
           cuMemSetAccess(h->at, h->bytes, &access, 1);
}

static void unmap(struct held *h)
{
    cuMemUnmap(h->at, h->bytes);
    cuMemRelease(h->handle);
}

void *own_malloc(ssize_t bytes, int device, void *stream)
{
    const size_t page = 2 << 20;
    struct held *h = held;

    (void)stream;
    while (h->at) h++;
    h->bytes = ((size_t)bytes + page - 1) / page * page;
    h->device = device;
    return cuMemAddressReserve(&h->at, h->bytes, 0, 0, 0) || map(h) ? NULL : (void *)(uintptr_t)h->at;
}

void own_free(void *pointer, ssize_t bytes, int device, void *stream)
{
    struct held *h = held;

    (void)bytes, (void)device, (void)stream;
    while (h->at != (uintptr_t)pointer) h++;
    unmap(h);
    cuMemAddressFree(h->at, h->bytes);
    h->at = 0;
}

void own_sleep(void)
{
    for (struct held *h = held; h < held + 256; h++)
        if (h->at) unmap(h);
}

int own_wake(void)
{
    int failed = 0;

    for (struct held *h = held; h < held + 256; h++) failed += h->at && map(h);
    return failed;
}
