/* Functions that the files of the spool share; no other file includes this. */
#ifndef GPUSPY_SPOOL_FILE_H
#define GPUSPY_SPOOL_FILE_H

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

/* The inode number of a namespace of this process ("pid", "ipc"), 0 unknown. */
uint64_t gs_namespace(const char *which);
/* Whether the process is gone: no such process, another one with its number, or a zombie whose
 * threads are all gone. Only for a process of this pid namespace. */
bool gs_process_is_gone(uint32_t pid, uint64_t start_ticks);
/* Whether this is this very process, or was before an exec. */
bool gs_spool_is_own(const struct gs_spool_control *c);
/* The number is free for the next writer. */
void gs_spool_free_number(struct gs_spool *s, uint32_t thread);
/* Fills in which process, host, boot and namespaces this is. */
void gs_spool_identify(struct gs_spool_control *c);

/* spool_segment.c. 0 or an errno. */
int gs_segment_create(struct gs_spool *s); /* private memory where shared memory is refused */
int gs_segment_create_private(struct gs_spool *s);
/* EIDRM: it is not there any more, or the id is another segment's now. */
int gs_segment_attach(struct gs_spool *s, const struct gs_spool_control *c, bool writable);
void gs_segment_detach(struct gs_spool *s);
void gs_segment_remove(int shmid);
/* Removes the oldest spools of dead processes beyond GS_SPOOL_ORPHANS that were detached so long ago:
 * until then their next program, or a report, may be about to complete them. */
#define GS_ORPHAN_S 60
void gs_segment_remove_orphans(long age_s);

#endif
