/* The spool of a running recording as a stranger may look at it: read(2) alone. A mapping of a file
 * that its owner may cut or remove would be a way to die of it. */
#include "analyzer/top/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "schema/record.h"
#include "schema/spool.h"
#include "schema/spool_file.h"

enum { LOOKED_INTO = 4096 };

/* What NVML says once a second waits for most of that second: it is nothing that the program did. */
static int64_t without_samples(int fd, uint32_t index, uint32_t from, int64_t waiting)
{
    _Alignas(8) uint8_t bytes[LOOKED_INTO];
    const off_t at = (off_t)(gs_spool_chunk_offset(index) + sizeof(struct gs_chunk) + from);
    if (waiting > LOOKED_INTO || pread(fd, bytes, (size_t)waiting, at) != (ssize_t)waiting) {
        return waiting;
    }
    int64_t samples = 0;
    for (size_t i = 0; i + sizeof(struct gs_rec) <= (size_t)waiting;) {
        const struct gs_rec *rec = (const void *)(bytes + i);
        if (!gs_record_valid(rec, (size_t)waiting - i)) {
            break;
        }
        samples += rec->type == GS_REC_DEVICE_SAMPLE ? rec->size : 0;
        i += rec->size;
    }
    return waiting - samples;
}

static int64_t waiting_in(int fd, uint32_t index, const struct gs_progress *progress,
                          uint32_t threads)
{
    struct gs_chunk chunk;
    if (pread(fd, &chunk, sizeof chunk, (off_t)gs_spool_chunk_offset(index)) !=
        (ssize_t)sizeof chunk) {
        return 0;
    }
    uint32_t used = atomic_load_explicit(&chunk.used, memory_order_relaxed);
    if (used > GS_CHUNK_BYTES || chunk.thread == 0) {
        return 0;
    }
    struct gs_progress at = {0};
    if (chunk.thread < threads) {
        at = progress[chunk.thread];
    }
    if (chunk.seq < at.seq) {
        return 0;
    }
    const uint32_t from = chunk.seq > at.seq ? 0 : at.offset;
    return used > from ? without_samples(fd, index, from, (int64_t)(used - from)) : 0;
}

void top_spool_look(const char *database, const struct gs_progress *progress, uint32_t threads,
                    struct top_spool *out)
{
    char path[4096 + 8];
    struct gs_spool_header h;
    *out = (struct top_spool){0};
    snprintf(path, sizeof path, "%s.spool", database);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (pread(fd, &h, sizeof h, 0) == (ssize_t)sizeof h &&
        memcmp(h.magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC) == 0) {
        out->there = true;
        out->foreign = h.version != GS_SPOOL_VERSION;
    }
    if (out->there && !out->foreign) {
        out->pid = h.pid;
        out->start_mono_ns = (int64_t)h.start_mono_ns;
        for (uint32_t word = 0; word < GS_SPOOL_MAP_WORDS; word++) {
            uint64_t bits = atomic_load_explicit(&h.taken[word], memory_order_relaxed);
            for (; bits; bits &= bits - 1) {
                out->waiting_bytes += waiting_in(fd, word * 64 + (uint32_t)__builtin_ctzll(bits),
                                                 progress, threads);
            }
        }
    }
    close(fd);
    out->owned = out->there && (out->foreign || gs_spool_owner(path) != 0);
}
