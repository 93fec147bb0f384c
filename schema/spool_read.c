/* The reader's end of the spool: the records of all threads, merged in order of time, each once.
 *
 * Order. A record sorts by its time (gs_record_time), but never before its
 * predecessor in the same thread; definitions sort with the event that follows them. So the order
 * depends only on the spool's content: a drain that merges while the process runs and a
 * recovery that merges everything at once see the same sequence.
 *
 * How far a running merge may go. gs_reader_poll gets `now`, a time read before it reads the spool. For each thread it
 * reads `state`, then `busy`, then `used`:
 *
 * - busy is clear: `used` covers every record whose time was taken before busy was last cleared, because the writer
 *   publishes (release) before it clears. Later records take their time after busy was set again. The writer has no
 *   fence between setting busy and reading the clock, so the processor may read the clock while the store is not yet
 *   visible: nanoseconds to a few microseconds; an interrupt or a context switch completes the store. So the time of a
 *   later record is at least now - GS_SLACK_NS, a thousand times that delay.
 * - busy is set: the time of the next record may have been taken long ago (the thread was descheduled), but after the
 *   last poll that saw the thread idle, and the record sorts no earlier than the one before it. Once the thread's
 *   published records are merged, the higher of these two bounds limits the merge.
 * - the newest chunk seen is FULL: its successor was published after the map was read. The thread counts as busy until
 *   the next poll.
 * - busy is GS_BUSY_WAITING: the spool is full and the thread waits for the reader. If the merge waited for the thread,
 *   no chunk might become free. So the merge goes on, and the record is merged when it comes. The order that matters
 *   is kept: an address is reused only after its free was published.
 * - a thread without a chunk takes one, visibly busy, before it reads the clock. */
#include "schema/record.h"
#include "schema/spool.h"
#include "schema/spool_file.h"
#include "schema/system_call.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_CHUNK UINT16_MAX
#define MERGE_END (UINT64_MAX - 1) /* no record sorts after it */

_Static_assert(GS_SPOOL_CHUNKS < NO_CHUNK, "chunk numbers fit");

struct chunk_view { /* a chunk as the last poll saw it */
    uint64_t seq;   /* 0: not read yet */
    uint32_t used;
    uint16_t next; /* the thread's next chunk */
    uint8_t state;
    uint8_t busy;
    bool ignored; /* inconsistent, or read completely before this reader was opened */
    bool damaged; /* the rest of it is damaged */
};

struct cursor { /* one thread's reading */
    struct gs_progress at;
    uint64_t key;     /* by which its next record sorts */
    uint64_t idle_at; /* the last poll in which it was idle */
    uint16_t head;    /* its chunks, the one being read first */
    uint16_t tail;
    bool holding;  /* is, or may be, about to publish a time that it took before the poll */
    bool awaiting; /* continues in a chunk that no poll has seen yet */
    bool grouped;  /* key is the time of the event after the definitions being read */
    bool trailing; /* no event follows the definitions */
};

struct gs_reader {
    struct gs_spool *spool;
    uint64_t now_ns; /* of the last poll */
    struct cursor *cursors;
    uint32_t *heap; /* thread numbers that have something to read, by (key, thread) */
    uint32_t heap_count;
    uint32_t threads;  /* highest thread number seen */
    uint32_t capacity; /* of cursors and heap */
    uint64_t limit;    /* records that sort before this may be read */
    uint64_t damaged;
    bool final;
    uint32_t done_count;
    uint16_t done[GS_SPOOL_CHUNKS]; /* read to the end, to be returned */
    struct chunk_view chunks[GS_SPOOL_CHUNKS];
};

/* ---------------------------------------------------------------- opening */

static bool grow_cursors(struct gs_reader *r, uint32_t threads)
{
    if (threads < r->capacity) return true;
    uint32_t capacity = r->capacity ? r->capacity : 64;
    while (capacity <= threads) capacity *= 2;
    struct cursor *cursors = realloc(r->cursors, capacity * sizeof *cursors);
    if (cursors) r->cursors = cursors;
    uint32_t *heap = realloc(r->heap, capacity * sizeof *heap);
    if (heap) r->heap = heap;
    if (!cursors || !heap) return false;
    memset(cursors + r->capacity, 0, (capacity - r->capacity) * sizeof *cursors);
    for (uint32_t i = r->capacity; i < capacity; i++) cursors[i].head = cursors[i].tail = NO_CHUNK;
    r->capacity = capacity;
    return true;
}

struct gs_reader *gs_reader_open(struct gs_spool *s, const struct gs_progress *start, uint32_t threads)
{
    struct gs_reader *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->spool = s;
    if (threads > GS_SPOOL_THREADS) threads = GS_SPOOL_THREADS;
    if (!grow_cursors(r, threads)) {
        gs_reader_close(r);
        return NULL;
    }
    for (uint32_t t = 1; t < threads; t++) {
        r->cursors[t].at = start[t];
        if (start[t].seq) r->threads = t;
        if (start[t].offset % 8) { /* not an offset that gpuspy wrote: do not read that chunk */
            r->cursors[t].at.offset = GS_CHUNK_BYTES;
            r->damaged++;
        }
    }
    return r;
}

void gs_reader_close(struct gs_reader *r)
{
    if (!r) return;
    free(r->cursors);
    free(r->heap);
    free(r);
}

/* ---------------------------------------------------------------- looking at the chunks */

/* Inserts a chunk into its thread's list, by seq. False if another chunk has its number: how far that one was read does
 * not apply to this one. */
static bool insert_cursor(struct gs_reader *r, struct cursor *c, uint16_t index)
{
    struct chunk_view *v = &r->chunks[index];
    uint16_t before = NO_CHUNK, after = c->head;
    if (c->tail != NO_CHUNK && r->chunks[c->tail].seq <= v->seq) {
        before = c->tail;
        after = NO_CHUNK;
    }
    while (after != NO_CHUNK && r->chunks[after].seq <= v->seq) {
        before = after;
        after = r->chunks[after].next;
    }
    if (before != NO_CHUNK && r->chunks[before].seq == v->seq) return false;
    v->next = after;
    if (before != NO_CHUNK)
        r->chunks[before].next = index;
    else
        c->head = index;
    if (after == NO_CHUNK) c->tail = index;
    return true;
}

/* Reading starts at the beginning of the chunk, or where the database's progress ends. */
static void start_chunk(struct gs_reader *r, struct cursor *c)
{
    uint64_t seq = r->chunks[c->head].seq;
    if (seq != c->at.seq) {
        c->at.seq = seq;
        c->at.offset = 0;
    }
}

/* A chunk that is new to the reader. False: out of memory. */
static bool meet_chunk(struct gs_reader *r, uint16_t index, const struct gs_chunk *chunk)
{
    struct chunk_view *v = &r->chunks[index];
    uint32_t thread = chunk->thread;
    memset(v, 0, sizeof *v);
    v->seq = chunk->seq ? chunk->seq : UINT64_MAX;
    if (thread == 0 || thread >= GS_SPOOL_THREADS || chunk->seq == 0) {
        v->ignored = true;
        r->damaged++;
        return true;
    }
    if (!grow_cursors(r, thread)) {
        v->seq = 0;
        return false;
    }
    if (thread > r->threads) r->threads = thread;
    struct cursor *c = &r->cursors[thread];
    if (v->seq < c->at.seq) { /* all of it is in the database already, or (damaged) out of order */
        v->ignored = true;
        return true;
    }
    if (!insert_cursor(r, c, index)) {
        v->ignored = true;
        r->damaged++;
        return true;
    }
    c->awaiting = false;
    return true;
}

static void inspect_part(struct gs_reader *r, uint16_t index, uint64_t newest)
{
    struct chunk_view *v = &r->chunks[index];
    const struct gs_chunk *chunk = gs_spool_chunk(r->spool, index);
    uint32_t state = atomic_load_explicit(&chunk->state, memory_order_acquire);
    if (v->seq == 0 && (state == GS_CHUNK_FREE || chunk->seq > newest || !meet_chunk(r, index, chunk))) return;
    if (v->ignored) return;
    v->state = (uint8_t)state;
    v->busy = (uint8_t)atomic_load_explicit(&chunk->busy, memory_order_acquire);
    uint32_t used = atomic_load_explicit(&chunk->used, memory_order_acquire);
    if (used > GS_CHUNK_BYTES - sizeof *chunk || used % 8 || used < v->used || state > GS_CHUNK_LAST) {
        if (!v->damaged) r->damaged++;
        v->damaged = true;
        return;
    }
    v->used = used;
}

/* Chunks that are taken during the inspection are left for the next poll: a thread may take one behind the current
 * position and the next one ahead of it, and its records would be read in the wrong order. `newest` is read first, so
 * the predecessors of an accepted chunk were published before the inspection began. */
static void inspect_parts(struct gs_reader *r)
{
    uint64_t newest = r->final ? UINT64_MAX : atomic_load_explicit(&r->spool->header->next_seq, memory_order_acquire);
    for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&r->spool->header->taken[word], memory_order_acquire);
        for (; bits; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            inspect_part(r, (uint16_t)index, newest);
        }
    }
}

/* ---------------------------------------------------------------- one thread's records */

static bool used_up(const struct chunk_view *v, uint32_t offset)
{
    return v->damaged || offset >= v->used;
}

static bool is_view_finished(const struct gs_reader *r, const struct chunk_view *v)
{
    return r->final || v->state == GS_CHUNK_FULL || v->state == GS_CHUNK_LAST;
}

static const struct gs_rec *record_at(const struct gs_reader *r, uint16_t index, uint32_t offset)
{
    const uint8_t *base = (const uint8_t *)(gs_spool_chunk(r->spool, index) + 1);
    return (const struct gs_rec *)(const void *)(base + offset);
}

/* The record at (index, offset), in the thread's next chunk if this one is used up. NULL: none now. A damaged record
 * ends its chunk. */
static const struct gs_rec *record_from(struct gs_reader *r, uint16_t *index, uint32_t *offset)
{
    for (;;) {
        struct chunk_view *v = &r->chunks[*index];
        if (!used_up(v, *offset)) {
            const struct gs_rec *rec = record_at(r, *index, *offset);
            if (gs_record_valid(rec, v->used - *offset)) return rec;
            v->damaged = true;
            r->damaged++;
        }
        if (v->next == NO_CHUNK || !is_view_finished(r, v)) return NULL;
        *index = v->next;
        *offset = 0;
    }
}

/* The time of the event to which the definitions from here on belong; false if there is none (yet). */
static bool find_event(struct gs_reader *r, const struct cursor *c, uint64_t *time)
{
    uint16_t index = c->head;
    uint32_t offset = c->at.offset;
    const struct gs_rec *rec;
    while ((rec = record_from(r, &index, &offset)) && gs_record_is_definition(rec)) offset += rec->size;
    if (rec) *time = gs_record_time(rec);
    return rec != NULL;
}

static uint64_t merge_key(const struct cursor *c, uint64_t time)
{
    if (time > MERGE_END) time = MERGE_END;
    return time > c->at.time_ns ? time : c->at.time_ns;
}

/* Finds the thread's next record and its sort key. False: nothing to read now. */
static bool prepare_cursor(struct gs_reader *r, struct cursor *c)
{
    if (c->head == NO_CHUNK) return false;
    uint16_t head = c->head;
    uint32_t offset = c->at.offset;
    const struct gs_rec *rec = record_from(r, &head, &offset);
    while (c->head != head) {
        r->done[r->done_count++] = c->head;
        c->head = r->chunks[c->head].next;
        start_chunk(r, c);
    }
    if (!rec) return false;
    if (!gs_record_is_definition(rec)) {
        c->key = merge_key(c, gs_record_time(rec));
        c->grouped = c->trailing = false;
        return true;
    }
    if (c->grouped || c->trailing) return true;
    uint64_t time = 0;
    c->grouped = find_event(r, c, &time);
    c->trailing = !c->grouped && (r->final || r->chunks[c->tail].state == GS_CHUNK_LAST);
    c->key = merge_key(c, time);
    return c->grouped || c->trailing;
}

/* ---------------------------------------------------------------- the merge */

static bool sorts_before(const struct gs_reader *r, uint32_t a, uint32_t b)
{
    uint64_t ka = r->cursors[a].key, kb = r->cursors[b].key;
    return ka < kb || (ka == kb && a < b);
}

static void sift_cursor_down(struct gs_reader *r, uint32_t at)
{
    uint32_t *heap = r->heap, thread = heap[at];
    for (;;) {
        uint32_t child = at * 2 + 1;
        if (child >= r->heap_count) break;
        if (child + 1 < r->heap_count && sorts_before(r, heap[child + 1], heap[child])) child++;
        if (!sorts_before(r, heap[child], thread)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = thread;
}

/* The thread has nothing (more) to read: what it may still publish limits the merge. */
static void hold_back(struct gs_reader *r, const struct cursor *c)
{
    if (!c->holding || r->final) return;
    uint64_t bound = c->idle_at > GS_SLACK_NS ? c->idle_at - GS_SLACK_NS : 0;
    if (bound < c->at.time_ns) bound = c->at.time_ns;
    if (bound < r->limit) r->limit = bound;
}

static void judge_cursor(struct gs_reader *r, struct cursor *c, uint64_t now_ns)
{
    c->holding = c->awaiting;
    if (c->tail != NO_CHUNK) {
        const struct chunk_view *v = &r->chunks[c->tail];
        c->holding = v->state == GS_CHUNK_FULL || (v->state == GS_CHUNK_TAKEN && v->busy == GS_BUSY);
        /* Inspected just before it was marked full: reading stops at its end, whatever follows. */
        for (uint16_t i = c->head; i != c->tail && !c->holding; i = r->chunks[i].next)
            c->holding = !is_view_finished(r, &r->chunks[i]);
    }
    if (!c->holding) c->idle_at = now_ns;
}

uint64_t gs_reader_poll(struct gs_reader *r, uint64_t now_ns, bool final)
{
    r->final = final;
    r->now_ns = now_ns;
    r->limit = final ? UINT64_MAX : now_ns > GS_SLACK_NS ? now_ns - GS_SLACK_NS : 0;
    inspect_parts(r);
    r->heap_count = 0;
    for (uint32_t t = 1; t <= r->threads; t++) {
        struct cursor *c = &r->cursors[t];
        judge_cursor(r, c, now_ns);
        if (c->head != NO_CHUNK) start_chunk(r, c);
        c->trailing = false; /* this poll may see an event */
        if (prepare_cursor(r, c))
            r->heap[r->heap_count++] = t;
        else
            hold_back(r, c);
    }
    for (uint32_t i = r->heap_count / 2; i-- > 0;) sift_cursor_down(r, i);
    return r->limit;
}

/* Definitions without a following event: those of the process are kept, a thread's frames and stacks are no longer
 * needed. */
static bool worth_reading(const struct cursor *c, const struct gs_rec *rec)
{
    return !c->trailing ||
           (rec->type != GS_REC_FRAME_PYTHON && rec->type != GS_REC_FRAME_NATIVE && rec->type != GS_REC_STACK);
}

const struct gs_rec *gs_reader_next(struct gs_reader *r, uint32_t *thread)
{
    while (r->heap_count) {
        uint32_t t = r->heap[0];
        struct cursor *c = &r->cursors[t];
        if (c->key >= r->limit) return NULL;
        const struct gs_rec *rec = record_at(r, c->head, c->at.offset);
        bool worth = worth_reading(c, rec);
        c->at.offset += rec->size;
        c->at.time_ns = c->key;
        if (!prepare_cursor(r, c)) {
            hold_back(r, c);
            r->heap[0] = r->heap[--r->heap_count];
        }
        if (r->heap_count) sift_cursor_down(r, 0);
        if (worth) {
            *thread = t;
            return rec;
        }
    }
    return NULL;
}

/* ---------------------------------------------------------------- afterwards */

struct gs_progress gs_reader_progress(const struct gs_reader *r, uint32_t thread)
{
    struct gs_progress none = {0};
    return thread && thread <= r->threads ? r->cursors[thread].at : none;
}

uint32_t gs_reader_threads(const struct gs_reader *r)
{
    return r->threads;
}

static void give_back_chunk(struct gs_reader *r, uint16_t index)
{
    struct gs_chunk *chunk = gs_spool_chunk(r->spool, index);
    memset(&r->chunks[index], 0, sizeof r->chunks[index]);
    atomic_store_explicit(&chunk->state, GS_CHUNK_FREE, memory_order_relaxed);
    atomic_fetch_and_explicit(&r->spool->header->taken[index / 64], ~(1ull << (index % 64)), memory_order_release);
}

void gs_reader_release(struct gs_reader *r)
{
    atomic_store_explicit(&r->spool->header->drained, 1, memory_order_relaxed);
    for (uint32_t i = 0; i < r->done_count; i++) give_back_chunk(r, r->done[i]);
    r->done_count = 0;
    for (uint32_t t = 1; t <= r->threads; t++) {
        struct cursor *c = &r->cursors[t];
        if (c->head == NO_CHUNK || c->head != c->tail) continue;
        const struct chunk_view *v = &r->chunks[c->head];
        bool over = v->state == GS_CHUNK_FULL || v->state == GS_CHUNK_LAST;
        if (!over || c->at.seq != v->seq || !used_up(v, c->at.offset)) continue;
        c->awaiting = v->state == GS_CHUNK_FULL;
        uint16_t index = c->head;
        c->head = c->tail = NO_CHUNK;
        give_back_chunk(r, index);
    }
}

/* The writer's thread has ended, and only this thread gives chunks back. */
static void close_buried(struct gs_spool *s, struct gs_chunk *chunk)
{
    const uint32_t thread = chunk->thread;
    uint32_t taken = GS_CHUNK_TAKEN;
    if (atomic_compare_exchange_strong(&chunk->state, &taken, GS_CHUNK_LAST)) gs_spool_free_number(s, thread);
}

void gs_reader_bury(struct gs_reader *r)
{
    int saved = errno;
    for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&r->spool->header->taken[word], memory_order_acquire);
        for (; bits; bits &= bits - 1) {
            const uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            struct gs_chunk *chunk = gs_spool_chunk(r->spool, index);
            /* the chunk describes its writer only if its state is TAKEN */
            if (atomic_load_explicit(&chunk->state, memory_order_acquire) != GS_CHUNK_TAKEN) continue;
            uint64_t owner = atomic_load_explicit(&chunk->owner, memory_order_acquire);
            const pid_t tid = (pid_t)(uint32_t)owner;
            if (tid == GS_CHUNK_PARKED || !gs_system_call(SYS_tgkill, getpid(), tid, 0) || errno != ESRCH) continue;
            /* Unless it was parked before the thread ended, and possibly adopted since: then it has a new owner. */
            if (atomic_compare_exchange_strong(&chunk->owner, &owner, owner >> 32 << 32)) close_buried(r->spool, chunk);
        }
    }
    errno = saved;
}

uint64_t gs_reader_damaged(const struct gs_reader *r)
{
    return r->damaged;
}

double gs_reader_fill(const struct gs_reader *r)
{
    uint32_t taken = 0;
    for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++)
        taken +=
            (uint32_t)__builtin_popcountll(atomic_load_explicit(&r->spool->header->taken[word], memory_order_relaxed));
    return (double)taken / GS_SPOOL_CHUNKS;
}

const struct gs_counter *gs_reader_counters(const struct gs_reader *r)
{
    return r->spool->counters;
}

uint64_t gs_reader_now(const struct gs_reader *r)
{
    const struct gs_spool_header *h = r->spool->header;
    const uint64_t end = atomic_load(&h->closed) ? atomic_load(&h->end_ns) : 0;
    return end && end < r->now_ns ? end : r->now_ns;
}
