#include "interpose/limit.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include "interpose/ask.h"
#include "interpose/recorder.h"
#include "interpose/capture.h"
#include "interpose/nvml.h"

GS_ASK(DRV, CUresult, cuCtxGetDevice, CUdevice *)
GS_ASK(DRV, CUresult, cuMemGetInfo_v2, size_t *, size_t *)
GS_ASK(DRV, CUresult, cuDevicePrimaryCtxGetState, CUdevice, unsigned int *, int *)
GS_ASK(DRV, CUresult, cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)
GS_ASK(DRV, CUresult, cuDevicePrimaryCtxRelease_v2, CUdevice)
GS_ASK(DRV, CUresult, cuCtxPushCurrent_v2, CUcontext)
GS_ASK(DRV, CUresult, cuCtxPopCurrent_v2, CUcontext *)
GS_ASK(DRV, CUresult, cuDeviceGetMemPool, CUmemoryPool *, CUdevice)
GS_ASK(DRV, CUresult, cuDeviceGetDefaultMemPool, CUmemoryPool *, CUdevice)
GS_ASK(DRV, CUresult, cuMemPoolGetAttribute, CUmemoryPool, int, void *)
GS_ASK(DRV, CUresult, cuMemPoolTrimTo, CUmemoryPool, size_t)
GS_ASK(DRV, CUresult, cuMemFree_v2, CUdeviceptr)
GS_ASK(DRV, CUresult, cuMemFreeAsync, CUdeviceptr, CUstream)
GS_ASK(DRV, CUresult, cuStreamSynchronize, CUstream)
GS_ASK(DRV, CUresult, cuMemRelease, CUmemGenericAllocationHandle)
GS_ASK(DRV, CUresult, cuArrayDestroy, CUarray)
GS_ASK(DRV, CUresult, cuMipmappedArrayDestroy, CUmipmappedArray)

#define DEVICES GS_LIMIT_DEVICES
#define POOLS 64
#define PAGE (2ull << 20)   /* of physical memory */
#define CHUNK (32ull << 20) /* what a pool reserves at a time */
#define TRIES 200           /* at most this many waits while another thread allocates … */
#define TRY_NS 50000        /* … of this length: 10 ms in all */
#define UNKNOWN UINT64_MAX

static _Atomic uint64_t flight[DEVICES];      /* reserved by calls that have not returned */
static _Atomic uint32_t let_through[DEVICES]; /* calls that were made although others may have taken what they need */
static _Atomic uint64_t undoing[DEVICES];     /* 1 + bytes of the call that a thread may undo; 0: none */

/* --- what a device holds --------------------------------------------------------------------- */

struct held {
    uint64_t cap, total, free; /* the last two are the real ones */
    uint64_t used;             /* by this process */
};

static int current_device(void)
{
    CUresult (*get)(CUdevice *) = real_cuCtxGetDevice();
    CUdevice device;
    return get && get(&device) == CUDA_SUCCESS ? device : GS_DEVICE_NONE;
}

static bool ask_device_memory(size_t *free_bytes, size_t *total)
{
    CUresult (*get)(size_t *, size_t *) = real_cuMemGetInfo_v2();
    return get && get(free_bytes, total) == CUDA_SUCCESS;
}

/* For a device that is not the current one: queried in its primary context, if that exists. */
static bool ask_elsewhere(int device, size_t *free_bytes, size_t *total)
{
    CUresult (*state)(CUdevice, unsigned int *, int *) = real_cuDevicePrimaryCtxGetState();
    CUresult (*retain)(CUcontext *, CUdevice) = real_cuDevicePrimaryCtxRetain();
    CUresult (*release)(CUdevice) = real_cuDevicePrimaryCtxRelease_v2();
    CUresult (*push)(CUcontext) = real_cuCtxPushCurrent_v2();
    CUresult (*pop)(CUcontext *) = real_cuCtxPopCurrent_v2();
    CUcontext context, popped;
    unsigned int flags;
    int active;
    if (!state || !retain || !release || !push || !pop) return false;
    if (state(device, &flags, &active) != CUDA_SUCCESS || !active) return false;
    if (retain(&context, device) != CUDA_SUCCESS) return false;
    bool known = push(context) == CUDA_SUCCESS;
    if (known) {
        known = ask_device_memory(free_bytes, total);
        pop(&popped);
    }
    release(device);
    return known;
}

static uint64_t held_by_others(int device)
{
    uint64_t bytes = 0;
    if (gs_limit_others_known(device, &bytes)) return bytes;
    gs_nvml_ask(device); /* a sample calls gs_limit_others */
    if (!gs_limit_others_known(device, &bytes)) gs_limit_others(device, UNKNOWN);
    return bytes;
}

/* False: the device has no cap, has an invalid one, or cannot be queried. */
static bool measure_held(int device, struct held *h)
{
    size_t free_bytes, total;
    const bool here = device == current_device();
    h->cap = gs_limit_of(device);
    if (!h->cap || !(here ? ask_device_memory(&free_bytes, &total) : ask_elsewhere(device, &free_bytes, &total)))
        return false;
    if (h->cap >= total || free_bytes > total) return false;
    const uint64_t theirs = held_by_others(device);
    h->total = total;
    h->free = free_bytes;
    h->used = total - free_bytes;
    h->used -= theirs < h->used ? theirs : h->used;
    return true;
}

static uint64_t capped_free(const struct held *h)
{
    const uint64_t left = h->used < h->cap ? h->cap - h->used : 0;
    return left < h->free ? left : h->free;
}

void gs_limit_view(int device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct held h;
    const int saved = errno;
    if (device == GS_DEVICE_CURRENT) device = current_device();
    if (free_bytes && measure_held(device, &h)) {
        *free_bytes = capped_free(&h);
        *total_bytes = h.cap;
    } else if (!free_bytes) {
        const uint64_t cap = gs_limit_of(device);
        if (cap && cap < *total_bytes) *total_bytes = cap;
    }
    errno = saved;
}

/* --- pools: unused memory that they reserve is freed before a call gets "out of memory" -------- */

static struct {
    _Atomic uint64_t pool; /* 0 none */
    _Atomic int device;
} made[POOLS];

void gs_limit_pool(int kind, uint64_t pool, int device)
{
    if (kind != GS_HANDLE_POOL || !pool) return;
    if (device == GS_DEVICE_CURRENT) device = current_device();
    for (int i = 0; i < POOLS; i++) {
        uint64_t none = 0;
        if (!atomic_compare_exchange_strong(&made[i].pool, &none, pool)) continue;
        atomic_store(&made[i].device, device);
        return;
    }
}

void gs_limit_pool_gone(int kind, uint64_t pool)
{
    if (kind != GS_HANDLE_POOL) return;
    for (int i = 0; i < POOLS; i++) {
        uint64_t it = pool;
        if (atomic_compare_exchange_strong(&made[i].pool, &it, 0)) return;
    }
}

static uint64_t pool_asked(CUresult (*get)(CUmemoryPool *, CUdevice), int device)
{
    CUmemoryPool pool;
    return get && get(&pool, device) == CUDA_SUCCESS ? (uint64_t)(uintptr_t)pool : 0;
}

/* The pools of a device, each once. */
static int pools_of(int device, uint64_t *at)
{
    int n = 0;
    const uint64_t own = pool_asked(real_cuDeviceGetDefaultMemPool(), device);
    const uint64_t now = pool_asked(real_cuDeviceGetMemPool(), device);
    if (own) at[n++] = own;
    if (now && now != own) at[n++] = now;
    for (int i = 0; i < POOLS; i++) {
        const uint64_t pool = atomic_load(&made[i].pool);
        if (pool && pool != now && pool != own && atomic_load(&made[i].device) == device) at[n++] = pool;
    }
    return n;
}

/* The unused bytes of the pools. `trim`: first makes them free those. `held`, if not NULL: all bytes that they hold. */
static uint64_t slack_of(int device, bool trim, uint64_t *held)
{
    CUresult (*get)(CUmemoryPool, int, void *) = real_cuMemPoolGetAttribute();
    CUresult (*to)(CUmemoryPool, size_t) = real_cuMemPoolTrimTo();
    uint64_t pools[POOLS + 2], sum = 0;
    const int n = pools_of(device, pools);
    for (int i = 0; get && to && i < n; i++) {
        const CUmemoryPool pool = (CUmemoryPool)(uintptr_t)pools[i];
        uint64_t used = 0, reserved = 0;
        if (get(pool, GS_POOL_USED, &used) != CUDA_SUCCESS || get(pool, GS_POOL_RESERVED, &reserved) != CUDA_SUCCESS)
            continue;
        if (held) *held += reserved;
        if (reserved <= used) continue;
        sum += reserved - used;
        if (trim) to(pool, 0);
    }
    return sum;
}

static uint64_t limit_slack(int device, bool trim)
{
    return slack_of(device, trim, NULL);
}

/* --- an allocation --------------------------------------------------------------------------- */

static uint64_t whole_pages(uint64_t bytes)
{
    return bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Bytes that the call takes at most; 0: unknown. */
static uint64_t at_most(const struct gs_limit_call *c)
{
    if (c->kind == GS_LIMIT_LINEAR || c->kind == GS_LIMIT_VMM) return whole_pages(c->bytes);
    if (c->kind == GS_LIMIT_POOL) return whole_pages(c->bytes) + CHUNK;
    return 0;
}

static void release_limit_call(struct gs_limit_call *c)
{
    if (c->reserved) atomic_fetch_sub(&flight[c->device], c->reserved);
    c->reserved = 0;
}

static bool refuse_limit_call(struct gs_limit_call *c)
{
    release_limit_call(c);
    gs_record_capped(true);
    return c->withheld = true;
}

/* Allocations that other threads have begun may still fail, or may already be in the device's own sum, for a moment. A
 * call is let through if they are still in progress after that: on a busy machine their threads may not run. Then the
 * call and those in progress are checked when they return. */
static bool fits_limit(struct gs_limit_call *c, struct held *h, uint64_t need)
{
    for (int i = 0; i < TRIES; i++) {
        const uint64_t before = atomic_fetch_add(&flight[c->device], need);
        c->reserved = need;
        if (!measure_held(c->device, h)) return true;
        if (h->used + before + need <= h->cap) return true;
        if (h->used + need > h->cap) {
            release_limit_call(c);
            return false;
        }
        release_limit_call(c);
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    }
    atomic_fetch_add(&let_through[c->device], 1);
    return true;
}

/* The call may not fit. */
static bool refuses_near_cap(struct gs_limit_call *c, struct held *h)
{
    const uint64_t unused = slack_of(c->device, false, &c->pools);
    c->measured = true;
    if (c->kind == GS_LIMIT_POOL) { /* it may be served from memory that its pool already has */
        if (h->used - (unused < h->used ? unused : h->used) + c->bytes <= h->cap) return false;
        limit_slack(c->device, true);
        return refuse_limit_call(c);
    }
    if (unused) {
        limit_slack(c->device, true);
        if (!measure_held(c->device, h)) return false;
    }
    /* a smaller one may share an existing page */
    const uint64_t least = c->kind == GS_LIMIT_ARRAY || c->kind == GS_LIMIT_MIPMAPPED ? 0 : c->bytes;
    return least >= PAGE && h->used + least > h->cap ? refuse_limit_call(c) : false;
}

bool gs_limit_refuses(struct gs_limit_call *c, enum gs_limit_kind kind, int device, uint64_t bytes, uint64_t pool,
                      uint64_t stream)
{
    const int saved = errno;
    struct held h;
    if (device == GS_DEVICE_CURRENT) device = current_device();
    *c =
        (struct gs_limit_call){.kind = (uint8_t)kind, .device = device, .bytes = bytes, .pool = pool, .stream = stream};
    const bool node = kind == GS_LIMIT_POOL && gs_captured(stream); /* of a graph: nothing is allocated now */
    bool refused = false;
    if (!node && measure_held(device, &h)) {
        c->capped = true;
        c->let_through = atomic_load(&let_through[device]);
        const uint64_t need = at_most(c);
        if (!need || !fits_limit(c, &h, need)) refused = refuses_near_cap(c, &h);
    }
    errno = saved;
    return refused;
}

static void undo_allocation(const struct gs_limit_call *c, uint64_t address)
{
    CUresult (*free_linear)(CUdeviceptr) = real_cuMemFree_v2();
    CUresult (*free_ordered)(CUdeviceptr, CUstream) = real_cuMemFreeAsync();
    CUresult (*release_vmm)(CUmemGenericAllocationHandle) = real_cuMemRelease();
    CUresult (*destroy)(CUarray) = real_cuArrayDestroy();
    CUresult (*destroy_mipmapped)(CUmipmappedArray) = real_cuMipmappedArrayDestroy();
    void *const handle = (void *)(uintptr_t)address;
    if (c->kind == GS_LIMIT_ARRAY && destroy)
        destroy(handle);
    else if (c->kind == GS_LIMIT_MIPMAPPED && destroy_mipmapped)
        destroy_mipmapped(handle);
    else if (c->kind == GS_LIMIT_VMM && release_vmm)
        release_vmm(address);
    else if (c->kind == GS_LIMIT_POOL && free_ordered)
        free_ordered(address, (CUstream)(uintptr_t)c->stream);
    else if (c->kind <= GS_LIMIT_PITCHED && free_linear)
        free_linear(address);
}

/* A pool near the cap of a larger device reserves a whole chunk, where a pool of a full device reserves only what it
 * needs: the rest of the chunk does not count, nor do allocations that it served without reserving. `freed`: what
 * another thread may be undoing. */
static bool is_over_limit(const struct gs_limit_call *c, uint64_t freed)
{
    struct held h;
    uint64_t now = 0;
    if (!measure_held(c->device, &h)) return false;
    h.used -= freed < h.used ? freed : h.used;
    if (h.used <= h.cap) return false;
    if (c->kind != GS_LIMIT_POOL) return true;
    slack_of(c->device, false, &now);
    if (now <= c->pools) return false;
    const uint64_t grown = now - c->pools, need = whole_pages(c->bytes), rest = grown > need ? grown - need : 0;
    return h.used - (rest < h.used ? rest : h.used) > h.cap;
}

/* One thread after the other measures and undoes: what is being undone may still count or not. Returns what another one
 * undoes if it does not end in time. */
static uint64_t begin_undoing(const struct gs_limit_call *c)
{
    uint64_t other = 0;
    for (int i = 0; i < TRIES; i++) {
        other = 0;
        if (atomic_compare_exchange_strong(&undoing[c->device], &other, c->bytes + 1)) return 0;
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    }
    return other;
}

/* The call was made and now exceeds the cap: as on a full device, all unused memory is freed first, and what the stream
 * has freed is waited for. */
static bool does_allocation_stand(const struct gs_limit_call *c, uint64_t address)
{
    CUresult (*wait)(CUstream) = real_cuStreamSynchronize();
    if (!is_over_limit(c, 0)) return true;
    limit_slack(c->device, true);
    if (!is_over_limit(c, 0)) return true;
    if (c->kind == GS_LIMIT_POOL && wait) {
        wait((CUstream)(uintptr_t)c->stream);
        limit_slack(c->device, true);
    }
    const uint64_t other = begin_undoing(c);
    const bool over = is_over_limit(c, other ? other - 1 : 0);
    if (over) {
        undo_allocation(c, address);
        if (c->kind == GS_LIMIT_POOL && wait) wait((CUstream)(uintptr_t)c->stream);
        limit_slack(c->device, true);
    }
    if (!other) atomic_store(&undoing[c->device], 0);
    return !over;
}

int gs_limit_end(struct gs_limit_call *c, int result, uint64_t address)
{
    if (!c->capped || c->withheld) return result;
    const int saved = errno;
    const bool doubtful = c->measured || c->let_through != atomic_load(&let_through[c->device]);
    const bool undone = doubtful && result == CUDA_SUCCESS && address && !does_allocation_stand(c, address);
    release_limit_call(c);
    gs_record_capped(undone);
    errno = saved;
    return undone ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

void gs_limit_forget(void)
{
    for (int i = 0; i < DEVICES; i++) {
        atomic_store(&flight[i], 0);
        atomic_store(&undoing[i], 0);
    }
    gs_limit_value_forget();
    for (int i = 0; i < POOLS; i++) atomic_store(&made[i].pool, 0);
}
