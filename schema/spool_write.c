/* The writers' end of the spool: creation, chunks, appending. Everything that runs in an application's thread is
 * async-signal-safe and keeps errno. */
#include "schema/spool.h"
#include "schema/spool_file.h"
#include "schema/system_call.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/* A writer waits for a full spool as long as the drain frees chunks, but never longer than this without one: the
 * application comes first. */
#define WAIT_STEP_NS 100000
#define WAIT_STEPS 60000
#define WAIT_PATIENCE 10000

_Static_assert(GS_SPOOL_CHUNKS % 64 == 0 && GS_SPOOL_THREADS % 64 == 0, "the maps are whole words");

static struct gs_chunk *chunk_at(struct gs_spool *s, uint32_t index)
{
    return gs_spool_chunk(s, index);
}

/* ---------------------------------------------------------------- chunks */

static bool is_spool_stopped(struct gs_spool *s)
{
    return atomic_load_explicit(&s->stop, memory_order_relaxed);
}

/* Claims the lowest free chunk; -1 if all are taken. */
static int claim_lowest(struct gs_spool *s)
{
    for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&s->header->taken[word], memory_order_relaxed);
        while (~bits) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~bits);
            if (atomic_compare_exchange_weak_explicit(&s->header->taken[word], &bits, bits | 1ull << bit,
                                                      memory_order_acq_rel, memory_order_relaxed))
                return (int)(word * 64 + bit);
        }
    }
    return -1;
}

/* Waits for a chunk in small steps, as long as the drain is alive. While chunks change hands the time starts again, up
 * to a limit: the drain frees them, and other threads merely take them faster. If nothing moved at all, a thread that
 * waited without success sets a flag, and the next ones try only once: a drain that hangs costs the application one
 * wait, not one per event. */
static int claim_waiting(struct gs_writer *w)
{
    struct gs_spool *s = w->spool;
    struct timespec step = {0, WAIT_STEP_NS};
    if (w->chunk) /* the reader does not hold the merge back for a thread that waits for it */
        atomic_store_explicit(&w->chunk->busy, GS_BUSY_WAITING, memory_order_release);
    uint64_t seq = atomic_load_explicit(&s->header->next_seq, memory_order_relaxed);
    uint32_t patience = WAIT_PATIENCE;
    for (uint32_t i = 0; i < WAIT_STEPS && patience; i++, patience--) {
        int index = claim_lowest(s);
        if (index >= 0) return index;
        if (is_spool_stopped(s) || !atomic_load_explicit(&s->drain_alive, memory_order_relaxed) ||
            atomic_load_explicit(&s->stuck, memory_order_relaxed))
            return -1;
        uint64_t now = atomic_load_explicit(&s->header->next_seq, memory_order_relaxed);
        if (now != seq) patience = WAIT_PATIENCE;
        seq = now;
        nanosleep(&step, NULL);
    }
    if (!patience) atomic_store_explicit(&s->stuck, 1, memory_order_relaxed);
    return -1;
}

/* Takes a new chunk for the writer, marked busy from the first moment at which a reader can see it. Only then is the
 * old one released, so that the thread never appears idle in between. */
static bool next_chunk(struct gs_writer *w)
{
    struct gs_spool *s = w->spool;
    if (!s || is_spool_stopped(s) || w->thread >= GS_SPOOL_THREADS) return false;
    int index = claim_lowest(s);
    if (index < 0 && !w->impatient) index = claim_waiting(w);
    if (index < 0) return false;
    if (atomic_load_explicit(&s->stuck, memory_order_relaxed))
        atomic_store_explicit(&s->stuck, 0, memory_order_relaxed);
    struct gs_chunk *c = chunk_at(s, (uint32_t)index);
    c->thread = w->thread;
    atomic_store_explicit(&c->owner, w->owner, memory_order_relaxed);
    /* release: a reader that sees this number sees everything that the thread did before */
    c->seq = atomic_fetch_add_explicit(&s->header->next_seq, 1, memory_order_release) + 1;
    atomic_store_explicit(&c->used, 0, memory_order_relaxed);
    atomic_store_explicit(&c->busy, GS_BUSY, memory_order_relaxed);
    atomic_store_explicit(&c->state, GS_CHUNK_TAKEN, memory_order_release);
    /* Our last access to the old chunk: from here on the reader may give it to another thread. Its busy mark keeps its
     * value, because the reader ignores that of a full chunk. */
    if (w->chunk) atomic_store_explicit(&w->chunk->state, GS_CHUNK_FULL, memory_order_release);
    w->chunk = c;
    w->used = 0;
    return true;
}

/* ---------------------------------------------------------------- the writer */

/* The lowest number that no writer has. Beyond the last one, writers record nothing. */
static uint32_t take_thread_number(struct gs_spool *s)
{
    for (uint32_t word = 0; word < GS_SPOOL_THREADS / 64; word++) {
        uint64_t bits = atomic_load_explicit(&s->numbers[word], memory_order_relaxed);
        while (~(bits | !word)) { /* number 0 belongs to no writer */
            uint64_t used = bits | !word, bit = ~used & (used + 1);
            if (atomic_compare_exchange_weak_explicit(&s->numbers[word], &bits, bits | bit, memory_order_acquire,
                                                      memory_order_relaxed))
                return word * 64 + (uint32_t)__builtin_ctzll(bit);
        }
    }
    return GS_SPOOL_THREADS;
}

void gs_spool_free_number(struct gs_spool *s, uint32_t thread)
{
    if (thread < GS_SPOOL_THREADS)
        atomic_fetch_and_explicit(&s->numbers[thread / 64], ~(1ull << thread % 64), memory_order_release);
}

static uint64_t owner_now(const struct gs_writer *w)
{
    return ((w->owner >> 32) + 1) << 32 | (uint32_t)gs_system_call(SYS_gettid);
}

void gs_writer_open(struct gs_writer *w, struct gs_spool *s)
{
    memset(w, 0, sizeof *w);
    w->spool = s;
    w->thread = take_thread_number(s);
    w->owner = owner_now(w);
}

bool gs_writer_park(struct gs_writer *w)
{
    if (!w->chunk) return false;
    gs_writer_idle(w);
    w->owner = w->owner >> 32 << 32 | GS_CHUNK_PARKED;
    atomic_store_explicit(&w->chunk->owner, w->owner, memory_order_release);
    return true;
}

void gs_writer_adopt(struct gs_writer *w)
{
    w->owner = owner_now(w);
    atomic_store_explicit(&w->chunk->owner, w->owner, memory_order_release);
}

/* The slow part of gs_writer_reserve and gs_writer_busy, out of line to keep those small. */
static __attribute__((noinline, cold)) bool next_chunk_keeping_errno(struct gs_writer *w)
{
    int saved = errno, cancel;
    /* the system calls in it are not the application's: it must not be cancelled in them */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    bool ok = next_chunk(w);
    pthread_setcancelstate(cancel, NULL);
    errno = saved;
    return ok;
}

void gs_writer_busy(struct gs_writer *w)
{
    /* A thread without a chunk is invisible to the reader, so its first time must come after it has one. If no chunk is
     * free, reserve will fail, too. */
    if (!w->chunk && !next_chunk_keeping_errno(w)) return;
    atomic_store_explicit(&w->chunk->busy, GS_BUSY, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst); /* the time is read after this; see GS_SLACK_NS */
    w->held = true;
}

void gs_writer_idle(struct gs_writer *w)
{
    w->held = false;
    if (w->chunk) atomic_store_explicit(&w->chunk->busy, 0, memory_order_release);
}

void *gs_writer_reserve(struct gs_writer *w, uint32_t bytes)
{
    struct gs_chunk *c = w->chunk;
    if (__builtin_expect(!c || bytes > GS_CHUNK_BYTES - sizeof *c - w->used, 0)) {
        if (bytes > GS_CHUNK_BYTES / 2 || bytes % 8 || !next_chunk_keeping_errno(w)) {
            gs_writer_idle(w);
            return NULL;
        }
        c = w->chunk;
    }
    if (__builtin_expect(is_spool_stopped(w->spool), 0)) {
        gs_writer_idle(w);
        return NULL;
    }
    atomic_store_explicit(&c->busy, GS_BUSY, memory_order_relaxed);
    return (uint8_t *)(c + 1) + w->used;
}

void gs_writer_commit_more(struct gs_writer *w, uint32_t bytes)
{
    w->used += bytes;
    atomic_store_explicit(&w->chunk->used, w->used, memory_order_release);
}

void gs_writer_commit(struct gs_writer *w, uint32_t bytes)
{
    struct gs_chunk *c = w->chunk;
    const struct gs_rec *rec = (const struct gs_rec *)((uint8_t *)(c + 1) + w->used);
    bool definition = rec->type < GS_REC_ALLOC;
    gs_writer_commit_more(w, bytes);
    if (w->held && definition) return;
    w->held = false;
    atomic_store_explicit(&c->busy, 0, memory_order_release);
}

void gs_writer_close(struct gs_writer *w)
{
    struct gs_chunk *c = w->chunk;
    if (c && w->used + sizeof(struct gs_rec) <= GS_CHUNK_BYTES - sizeof *c) {
        struct gs_rec *rec = (struct gs_rec *)((uint8_t *)(c + 1) + w->used);
        memset(rec, 0, sizeof *rec);
        rec->size = sizeof *rec;
        rec->type = GS_REC_RESET;
        w->used += sizeof *rec;
        atomic_store_explicit(&c->used, w->used, memory_order_release);
    }
    if (c) /* from here on the chunk belongs to another thread, as in next_chunk */
        atomic_store_explicit(&c->state, GS_CHUNK_LAST, memory_order_release);
    if (w->spool && !w->keeps_number) gs_spool_free_number(w->spool, w->thread);
    memset(w, 0, sizeof *w);
}

void gs_spool_lost(struct gs_spool *s, uint64_t time_ns)
{
    uint64_t none = 0;
    atomic_fetch_add_explicit(&s->header->lost, 1, memory_order_relaxed);
    atomic_compare_exchange_strong(&s->header->lost_first_ns, &none, time_ns ? time_ns : 1);
}

void gs_spool_end(struct gs_spool *s, uint64_t end_ns)
{
    atomic_store(&s->header->end_ns, end_ns);
    atomic_store(&s->header->closed, 1);
    atomic_store(&s->stop, 1);
}

void gs_spool_exit(struct gs_spool *s, int status)
{
    atomic_store(&s->header->exit_status, ((uint32_t)status & 0xff) + 1);
}

void gs_spool_exception(struct gs_spool *s, const char *exception, const char *place, bool collector_off)
{
    struct gs_spool_header *h = s->header;
    snprintf(h->exception, sizeof h->exception, "%s", exception);
    snprintf(h->exception_place, sizeof h->exception_place, "%s", place);
    h->collector_off = collector_off;
}

/* ---------------------------------------------------------------- counters */

/* True if the slot belongs to `key` now. */
static bool claim_counter(struct gs_counter *slot, uint64_t key)
{
    uint64_t found = atomic_load_explicit(&slot->key, memory_order_relaxed);
    if (!found && atomic_compare_exchange_strong(&slot->key, &found, key)) return true;
    return found == key;
}

static bool count_in(struct gs_counter *slots, uint64_t key)
{
    const bool any = (key & GS_COUNTER_ANY) == GS_COUNTER_ANY;
    uint32_t at = gs_counter_slot(key);
    for (int i = 0; i < GS_COUNTER_PROBES; i++, at++) {
        struct gs_counter *slot = &slots[at % GS_SPOOL_COUNTERS];
        if ((!any && gs_counter_is_kept(at)) || !claim_counter(slot, key)) continue;
        atomic_fetch_add_explicit(&slot->count, 1, memory_order_release);
        return true;
    }
    return false;
}

bool gs_spool_count(struct gs_spool *s, uint64_t key)
{
    return count_in(s->counters, key) || count_in(s->counters, key | GS_COUNTER_ANY);
}
