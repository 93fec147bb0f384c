/* Functions that the files of the spool share; no other file includes this. */
#pragma once

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
/* Is the process dead? It does not exist, another one has its number, or it is a zombie all of whose threads have
 * ended. Only for a process of this pid namespace. */
bool gs_process_is_gone(uint32_t pid, uint64_t start_ticks);
/* Is the owner this process, possibly before an exec? */
bool gs_spool_is_own(const struct gs_spool_control *c);
/* Frees the number for the next writer. */
void gs_spool_free_number(struct gs_spool *s, uint32_t thread);
/* Fills in the identity of this process: host, boot and namespaces. */
void gs_spool_identify(struct gs_spool_control *c);

/* spool_segment.c. 0 or an errno. */
int gs_segment_create(struct gs_spool *s); /* private memory if shared memory is refused */
int gs_segment_create_private(struct gs_spool *s);
/* EIDRM: it does not exist any more, or the id now belongs to another segment. */
int gs_segment_attach(struct gs_spool *s, const struct gs_spool_control *c, bool writable);
void gs_segment_detach(struct gs_spool *s);
void gs_segment_remove(int shmid);
/* Removes the oldest spools of dead processes beyond the limits of spool.h that have been detached for this long:
 * before that their next program, or a report, may be about to complete them. */
#define GS_ORPHAN_S 60
void gs_segment_remove_orphans(long age_s);
