/* The spool of another process's recording: attached read-only. */
#include "analyzer/top/model.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "schema/record.h"
#include "schema/spool.h"
#include "schema/spool_file.h"

enum { LOOKED_INTO = 4096 };

/* NVML's samples, one per second, wait in the spool for most of that second: they are not the program's events. */
static int64_t without_samples(const uint8_t *at, int64_t waiting)
{
    _Alignas(8) uint8_t bytes[LOOKED_INTO]; /* a copy, because the original may change while it is read */
    if (waiting > LOOKED_INTO) return waiting;
    memcpy(bytes, at, (size_t)waiting);
    int64_t samples = 0;
    for (size_t i = 0; i + sizeof(struct gs_rec) <= (size_t)waiting;) {
        const struct gs_rec *rec = (const void *)(bytes + i);
        if (!gs_record_valid(rec, (size_t)waiting - i)) break;
        samples += rec->type == GS_REC_DEVICE_SAMPLE ? rec->size : 0;
        i += rec->size;
    }
    return waiting - samples;
}

static int64_t waiting_in(const struct gs_spool *spool, uint32_t index, const struct gs_progress *progress,
                          uint32_t threads)
{
    const struct gs_chunk *chunk = gs_spool_chunk(spool, index);
    const uint32_t used = atomic_load_explicit(&chunk->used, memory_order_acquire);
    const uint32_t thread = chunk->thread;
    const uint64_t seq = chunk->seq;
    if (used > GS_CHUNK_BYTES - sizeof *chunk || thread == 0) return 0;
    struct gs_progress at = {0};
    if (thread < threads) at = progress[thread];
    if (seq < at.seq) return 0;
    const uint32_t from = seq > at.seq ? 0 : at.offset;
    return used > from ? without_samples((const uint8_t *)(chunk + 1) + from, used - from) : 0;
}

static int64_t waiting_bytes(const char *path, const struct gs_progress *progress, uint32_t threads)
{
    struct gs_spool spool;
    char error[160];
    int64_t waiting = 0;
    if (gs_spool_peek(&spool, path, error, sizeof error)) return 0;
    for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++) {
        uint64_t bits = atomic_load_explicit(&spool.header->taken[word], memory_order_relaxed);
        for (; bits; bits &= bits - 1)
            waiting += waiting_in(&spool, word * 64 + (uint32_t)__builtin_ctzll(bits), progress, threads);
    }
    gs_spool_close(&spool);
    return waiting;
}

void top_spool_read(const char *database, const struct gs_progress *progress, uint32_t threads, struct top_spool *out)
{
    char path[4096 + 8], error[160];
    struct gs_spool_control c;
    *out = (struct top_spool){0};
    snprintf(path, sizeof path, "%s.spool", database);
    const int code = gs_spool_read_control(path, &c, error, sizeof error);
    out->foreign =
        code == EINVAL && memcmp(c.magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC) == 0 && c.version != GS_SPOOL_VERSION;
    out->exists = !code || out->foreign;
    out->owned = out->foreign;
    if (code) return;
    const enum gs_spool_state state = gs_spool_state(&c);
    out->pid = c.pid;
    out->start_mono_ns = (int64_t)c.start_mono_ns;
    out->owned = state == GS_SPOOL_RECORDING || state == GS_SPOOL_ELSEWHERE;
    out->exists = state != GS_SPOOL_LOST;
    out->waiting_bytes = waiting_bytes(path, progress, threads);
}
