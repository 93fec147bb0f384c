/* The offsets of these members differ between versions. A value that is read must agree with the report, otherwise it
 * is unknown. Only the order of neighbouring members is assumed, which has been the same from PyTorch 2.0 to 2.15. */
#include "interpose/allocator_state.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include "interpose/peek.h"
#include "interpose/requested.h"
#include "interpose/resolve.h"

enum { DEVICES = 64, FAILURES = 16, WINDOW = 128 /* words */ };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), value, memory_order_relaxed)

static void record_state(struct gs_thread *t, uint8_t kind, int device, uint64_t address, int64_t value)
{
    struct gs_rec_allocator *r = gs_record_begin(t, sizeof *r, GS_REC_ALLOCATOR);
    if (!r) return;
    r->address = address;
    r->value = value;
    r->device = (int16_t)device;
    r->kind = kind;
    memset(r->pad, 0, sizeof r->pad);
    gs_record_end(t, r);
}

/* What was recorded last; once in each session, because each has its own recording. */
struct latest {
    _Atomic int64_t value;
    _Atomic uint32_t session;
};

static void record_if_changed(struct latest *l, struct gs_thread *t, uint8_t kind, int device, int64_t value)
{
    if (value == GET(l->value) && t->session == GET(l->session)) return;
    SET(l->value, value);
    SET(l->session, t->session);
    record_state(t, kind, device, 0, value);
}

/* --- the cap ---------------------------------------------------------------------------------- */

/* The member total_allocated_memory (the report's total of reserved bytes) and what follows it: up to 2.9 the cap, 0
 * for none; later the device's properties, which begin with its name, and std::optional<size_t>. */
static struct cap {
    _Atomic uintptr_t total, at; /* addresses; 0 not found */
    _Atomic uint32_t tries;
    struct latest latest;
    _Atomic bool optional;
} caps[DEVICES];

/* Six printable bytes, read as a number, exceed the memory of any device. */
static bool is_setting_name(const char *text)
{
    size_t n = 0;
    while (n < 256 && text[n] >= ' ' && text[n] <= '~') n++;
    return n >= 6 && n < 256 && !text[n];
}

/* sizeof(cudaDeviceProp) of the runtime; 0 unknown. */
static size_t properties_bytes(void)
{
    return gs_find_in("libcudart.so.13", "cudaMalloc") ? 1008 : gs_find_in("libcudart.so.12", "cudaMalloc") ? 1032 : 0;
}

static __attribute__((noinline, cold)) void find_cap(struct cap *c, uintptr_t end, int64_t reserved)
{
    int64_t words[WINDOW + 33]; /* with room for the longest name */
    size_t n = gs_peek(end, words, sizeof words) / sizeof *words, found = 0, at = 0;
    SET(c->tries, GET(c->tries) + 1);
    if (n < WINDOW + 33) return;
    for (size_t i = 0; i < WINDOW; i++)
        if (words[i] == reserved) found++, at = i;
    if (found != 1) return;
    const uintptr_t total = end + at * sizeof *words;
    const bool optional = is_setting_name((const char *)&words[at + 1]);
    const size_t properties = optional ? properties_bytes() : 0;
    const uintptr_t cap = total + sizeof *words + properties;
    if ((optional && !properties) || gs_peek(cap, words, 2 * sizeof *words) != 2 * sizeof *words) return;
    SET(c->optional, optional);
    SET(c->at, cap);
    SET(c->total, total);
}

static __attribute__((no_sanitize("address", "thread"))) int64_t load_word(uintptr_t at)
{
    typedef int64_t __attribute__((may_alias)) any;
    return *(const any *)at;
}

void gs_allocator_read_cap(struct gs_thread *t, int device, int64_t reserved)
{
    if (!t || device < 0 || device >= DEVICES) return;
    struct cap *c = &caps[device];
    const uintptr_t end = gs_requested_end(device);
    if (!GET(c->total)) {
        if (!end || GET(c->tries) >= FAILURES || reserved <= 0) return;
        const int saved = errno;
        find_cap(c, end, reserved);
        errno = saved;
    }
    const uintptr_t total = GET(c->total), at = GET(c->at);
    if (!total) return;
    if (!end || load_word(total) != reserved) { /* it was not the allocator's total */
        SET(c->total, 0);
        return;
    }
    const bool set = !GET(c->optional) || (load_word(at + sizeof(int64_t)) & 0xff) == 1;
    const int64_t bytes = set ? load_word(at) : 0;
    record_if_changed(&c->latest, t, GS_ALLOCATOR_CAP, device, bytes);
}

/* --- emptied caches --------------------------------------------------------------------------- */

/* Follows DeviceStats.requested_bytes from PyTorch 2.3 to 2.15. In older versions a function's address is in the place
 * of `taken`. Each may be 0: the program may reset the statistics. */
struct counters {
    int64_t retries, ooms, oversize[8], synced, taken, given_back;
};
static struct syncs {
    struct latest latest;
    _Atomic uintptr_t at; /* where the counters were checked last */
    _Atomic bool wrong;
} syncs[DEVICES];

static __attribute__((noinline, cold)) bool are_counters(uintptr_t end)
{
    const int64_t most = (int64_t)1 << 36;
    const int saved = errno;
    struct counters c;
    const bool known = gs_peek(end, &c, sizeof c) == sizeof c;
    errno = saved;
    return known && c.synced >= 0 && c.synced < most && c.taken >= 0 && c.taken < most && c.given_back >= 0 &&
           c.given_back < most;
}

void gs_allocator_read_syncs(struct gs_thread *t, int device)
{
    const uintptr_t end = t ? gs_requested_end(device) : 0;
    if (!end) return;
    struct syncs *s = &syncs[device];
    if (end != GET(s->at) || !gs_requested_is_proven(device)) {
        SET(s->wrong, !are_counters(end));
        SET(s->at, end);
    }
    if (GET(s->wrong)) return;
    const int64_t now = load_word(end + offsetof(struct counters, synced));
    record_if_changed(&s->latest, t, GS_ALLOCATOR_SYNCED, device, now);
}

/* --- private pools ---------------------------------------------------------------------------- */

static _Atomic uint32_t failures;
static _Atomic size_t place; /* of the pointer to the block, on the stack */

struct block {
    int64_t bytes, address;
    uint64_t pool; /* found: the pool's identity, 0 the default one */
};

/* Is there a std::set at `at`? It has its comparison, then colour, root, first and last node and size. A node begins
 * with its colour and its parent; the root's parent is the colour's address. */
static bool are_bits_set(const uintptr_t *words, uintptr_t at)
{
    const uintptr_t header = at + sizeof *words, root = words[2], first = words[3], last = words[4], n = words[5];
    uintptr_t node[2];
    if (!root) return first == header && last == header && !n;
    return first && last && n && n < UINT32_MAX && !((root | first | last) % 8) && (n == 1) == (first == last) &&
           gs_peek(root, node, sizeof node) == sizeof node && node[1] == header;
}

/* BlockPool: sets of free blocks, of which newer versions have more; is_small; the PrivatePool that it is a member of.
 * Requests up to 1 MiB are small; their block may be larger (torch.cuda.MemPool(no_split=True)). */
static bool read_owner(struct block *b, int64_t requested, uintptr_t pool)
{
    enum { SETS = 4, SET_WORDS = 6 };
    uintptr_t words[SETS * SET_WORDS + 2];
    size_t at = 0;
    if (pool % 8 || gs_peek(pool, words, sizeof words) != sizeof words) return false;
    while (at < SETS * SET_WORDS && are_bits_set(&words[at], pool + at * sizeof *words)) at += SET_WORDS;
    if (!at || (words[at] & 0xff) != (requested <= 1 << 20)) return false;
    const uintptr_t owner = words[at + 1];
    if (owner && (owner % 8 || owner > pool || pool - owner > 1024)) return false;
    b->pool = owner;
    return true;
}

/* Block: …, its size, the requested size, its pool, its address. */
static bool is_block(void *self, uintptr_t word)
{
    struct block *b = self;
    int64_t words[32];
    const size_t n = gs_peek(word, words, sizeof words) / sizeof *words;
    for (size_t i = 0; i + 3 < n; i++) {
        if (words[i] != b->bytes || words[i + 3] != b->address || words[i + 1] <= 0 || words[i + 1] > b->bytes)
            continue;
        if (read_owner(b, words[i + 1], (uintptr_t)words[i + 2])) return true;
    }
    return false;
}

/* Private pools from which something may allocate. */
enum { POOLS = 64 };
static struct known {
    _Atomic uintptr_t pool; /* 0 none, 1 being filled */
    int64_t id[2];
    int device;
} pools[POOLS];

/* PrivatePool begins with its id, one half of which is 0, followed by its use count; up to 2.7 it begins with the use
 * count. */
static bool has_id(const int64_t *words)
{
    return (uint64_t)(words[0] | words[1]) <= UINT32_MAX && !words[0] != !words[1];
}

static void know_pool(uintptr_t pool, int device)
{
    int64_t words[2];
    size_t i = 0;
    while (i < POOLS && GET(pools[i].pool) != pool) i++;
    if (i < POOLS || gs_peek(pool, words, sizeof words) != sizeof words) return;
    for (i = 0; i < POOLS; i++) {
        uintptr_t none = 0;
        if (!atomic_compare_exchange_strong(&pools[i].pool, &none, 1)) continue;
        memcpy(pools[i].id, words, sizeof words);
        pools[i].device = device;
        atomic_store_explicit(&pools[i].pool, pool, memory_order_release);
        return;
    }
}

static bool is_used(const struct known *k, uintptr_t pool)
{
    int64_t words[3];
    if (gs_peek(pool, words, sizeof words) != sizeof words) return false;
    if (!has_id(k->id)) return (uint32_t)words[0] != 0;
    return words[0] == k->id[0] && words[1] == k->id[1] && (uint32_t)words[2] != 0;
}

void gs_allocator_read_unused(struct gs_thread *t)
{
    const int saved = errno;
    for (size_t i = 0; t && i < POOLS; i++) {
        uintptr_t pool = atomic_load_explicit(&pools[i].pool, memory_order_acquire);
        if (pool <= 1 || is_used(&pools[i], pool)) continue;
        const int device = pools[i].device;
        if (!atomic_compare_exchange_strong(&pools[i].pool, &pool, 0)) continue;
        record_state(t, GS_ALLOCATOR_UNUSED, device, 0, (int64_t)pool);
    }
    errno = saved;
}

void gs_allocator_read_pool(struct gs_thread *t, int device, uint64_t address, int64_t bytes)
{
    if (!t || GET(failures) >= FAILURES) return;
    const int saved = errno;
    struct block b = {.bytes = bytes, .address = (int64_t)address};
    const bool found = gs_peek_stack(is_block, &b, &place);
    SET(failures, found ? 0 : GET(failures) + 1);
    if (b.pool) know_pool((uintptr_t)b.pool, device);
    errno = saved;
    gs_allocator_read_unused(t);
    record_state(t, GS_ALLOCATOR_POOL, device, address, found ? (int64_t)b.pool : -1);
}
