#include "tests/fuzz/spools.h"

#include <stddef.h>
#include <sys/shm.h>
#include <unistd.h>
#include "schema/spool_file.h"

#define CHUNKS 8 /* number of chunks in use, at most */
#define ROOM (GS_SPOOL_HEADER_BYTES + CHUNKS * GS_CHUNK_BYTES)

static uint64_t image[ROOM / 8];
static struct gs_spool spool = {.shmid = -1}; /* one segment for all inputs */

static void edit_header(struct fuzz_bytes *b, uint8_t *header)
{
    for (uint8_t n = fuzz_u8(b) % 8; n > 4; n--) {
        const size_t at = fuzz_number(b, 2) % (4096 - 8);
        const uint64_t value = fuzz_hostile(b);
        memcpy(header + at, &value, 1u << fuzz_u8(b) % 4);
    }
}

static void fill_counters(struct fuzz_bytes *b, struct gs_counter *counters)
{
    for (uint8_t n = fuzz_u8(b) % 8; n > 3; n--) {
        const uint8_t how = fuzz_u8(b);
        uint64_t key = gs_counter_key(how % 16, how % 5, how % 3, how & 32);
        uint32_t slot = gs_counter_slot(key);
        if (how > 200) {
            key = fuzz_hostile(b);
            slot = (uint32_t)fuzz_number(b, 2);
        }
        atomic_init(&counters[slot % GS_SPOOL_COUNTERS].key, key);
        atomic_init(&counters[slot % GS_SPOOL_COUNTERS].count, fuzz_hostile(b));
    }
}

/* Fills a chunk with records or arbitrary bytes; returns how many bytes. */
static uint32_t fill_chunk(struct fuzz_bytes *b, uint8_t *at, uint64_t *time)
{
    static uint64_t room[FUZZ_RECORD_ROOM / 8];
    const uint8_t how = fuzz_u8(b);
    uint32_t used = 0;
    if (how > 224) {
        size_t n;
        const void *bytes = fuzz_part(b, fuzz_number(b, 2) % 4096, &n);
        memcpy(at, bytes, n);
        return (uint32_t)((n + 7) & ~(size_t)7);
    }
    for (uint8_t n = how % 24; n; n--) {
        const size_t bytes = fuzz_record(b, time, room);
        memcpy(at + used, room, bytes);
        used += (uint32_t)bytes;
    }
    if (how > 192) { /* replaces one word of it */
        const uint64_t value = fuzz_hostile(b);
        memcpy(at + fuzz_number(b, 2) % (used + 8), &value, 8);
    }
    return used;
}

static void add_chunk(struct fuzz_bytes *b, struct gs_spool_header *h, uint64_t *time)
{
    const uint8_t where = fuzz_u8(b);
    const uint32_t index = where % CHUNKS;
    struct gs_chunk *chunk = (void *)((uint8_t *)image + GS_SPOOL_HEADER_BYTES + index * GS_CHUNK_BYTES);
    const uint8_t thread = fuzz_u8(b), state = fuzz_u8(b);
    chunk->thread = thread < 224 ? 1u + thread % 4 : (uint32_t)fuzz_hostile(b);
    chunk->seq = where < 224 ? index + 1 : fuzz_hostile(b);
    atomic_init(&chunk->state, state < 240 ? 1 + state % 3 : state);
    atomic_init(&chunk->busy, state >> 6 == 1);
    const uint32_t used = fill_chunk(b, (uint8_t *)(chunk + 1), time);
    atomic_init(&chunk->used, thread % 16 != 15 ? used : (uint32_t)fuzz_hostile(b));
    h->taken[index / 64] |= 1ull << index % 64;
    if (where > 250) h->taken[fuzz_u8(b) % GS_SPOOL_MAP_WORDS] |= fuzz_hostile(b);
}

/* A control file that names the segment, then perhaps with changed bytes. */
static void write_control(struct fuzz_bytes *edits, const char *path, uint32_t pid, uint8_t how)
{
    struct gs_spool_control c = {
        .version = GS_SPOOL_VERSION, .run_id = "run", .command = "python train.py", .shmid = spool.shmid};
    memcpy(c.magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC);
    memcpy(c.cookie, spool.cookie, sizeof c.cookie);
    gs_spool_identify(&c);
    c.pid = pid;
    c.process_start_ticks = 1;
    if (how >= 224) {
        const size_t at = fuzz_number(edits, 2) % (sizeof c - 8);
        const uint64_t value = fuzz_hostile(edits);
        /* does not change the id, which might then name a segment of another program */
        if (at + 8 <= offsetof(struct gs_spool_control, shmid) || at >= offsetof(struct gs_spool_control, pad))
            memcpy((uint8_t *)&c + at, &value, 1u << fuzz_u8(edits) % 4);
    }
    fuzz_write(path, &c, how >= 240 ? sizeof c - fuzz_number(edits, 2) % sizeof c : sizeof c);
}

/* Makes a new segment if the recovery of the last input removed it. */
static void make_segment(const char *path)
{
    struct shmid_ds ds;
    if (spool.map && !shmctl(spool.shmid, IPC_STAT, &ds) && !(ds.shm_perm.mode & SHM_DEST)) return;
    if (spool.map) gs_spool_close(&spool);
    unlink(path);
    FUZZ_CHECK(!gs_spool_create(&spool, path, "run", "python train.py", 0, 0), "no spool");
}

static void remove_segment(void)
{
    if (spool.map) shmctl(spool.shmid, IPC_RMID, NULL);
}

void fuzz_spool_file(struct fuzz_bytes *b, const char *path, uint32_t pid)
{
    static struct gs_spool_header first;
    const uint8_t how = fuzz_u8(b);
    static bool once;
    if (!once) once = !atexit(remove_segment);
    const uint8_t *before = spool.map;
    const int id = spool.shmid;
    make_segment(path);
    if (spool.map != before || spool.shmid != id) first = *spool.header;
    memset(image, 0, sizeof image);
    struct gs_spool_header *h = (void *)image;
    memcpy(h, &first, sizeof first);
    atomic_init(&h->next_seq, CHUNKS + 1);
    if (how & 1) atomic_init(&h->closed, 1);
    if (how & 2) atomic_init(&h->end_ns, fuzz_hostile(b));
    if (how & 4) atomic_init(&h->lost, fuzz_hostile(b));
    if (how & 8) atomic_init(&h->drained, 1);
    fill_counters(b, (struct gs_counter *)((uint8_t *)image + 4096));
    uint64_t time = 0;
    struct fuzz_bytes edits = {0};
    if (how >= 192) edits.at = fuzz_part(b, 32, &edits.left);
    while (b->left) add_chunk(b, h, &time);
    if (how >= 192) edit_header(&edits, (uint8_t *)image);
    memcpy(spool.map, image, sizeof image);
    write_control(&edits, path, pid, how);
}
