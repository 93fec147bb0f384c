/* What the parts of the spool share among themselves. */
#ifndef GPUSPY_SPOOL_FILE_H
#define GPUSPY_SPOOL_FILE_H

#include <sys/types.h>
#include "schema/spool.h"

/* gs_chunk.busy */
enum {
    GS_BUSY = 1,
    GS_BUSY_WAITING = 2, /* the spool is full and this thread waits for the drain */
};

static inline size_t gs_spool_chunk_offset(uint32_t index)
{
    return GS_SPOOL_HEADER_BYTES + (size_t)index * GS_CHUNK_BYTES;
}

static inline struct gs_chunk *gs_spool_chunk(const struct gs_spool *s, uint32_t index)
{
    return (struct gs_chunk *)(void *)(s->map + gs_spool_chunk_offset(index));
}

/* False where the descriptor is not the spool's any more, but closed or one of the application's. */
bool gs_spool_fd_ours(const struct gs_spool *s);
/* Disk space for `count` chunks from `first`; 0 or an errno. */
int gs_spool_fallocate(int fd, uint32_t first, uint32_t count);
/* Field 22 of /proc/pid/stat, 0 where it can't be read. */
uint64_t gs_process_start_ticks(uint32_t pid);
/* As gs_spool_owner, of an open one: also who else completes it just now. */
uint32_t gs_spool_owner_of(const struct gs_spool *s);
/* Takes the whole file's write lock: 0, or an errno (EAGAIN, EACCES: somebody has it). */
int gs_spool_lock(int fd);

#endif
