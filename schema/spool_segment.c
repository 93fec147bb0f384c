/* The spool's memory: a System V shared memory segment, or private memory if that is refused. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* SHM_STAT */
#endif
#include "schema/spool.h"
#include "schema/spool_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

static void mapped_at(struct gs_spool *s, void *map)
{
    s->map = map;
    s->header = map;
    s->counters = (struct gs_counter *)((char *)map + 4096);
}

int gs_segment_create(struct gs_spool *s)
{
    void *map = (void *)-1;
    /* without SHM_NORESERVE: where memory is never overcommitted, it is refused here and not later */
    s->shmid = shmget(IPC_PRIVATE, GS_SPOOL_BYTES, IPC_CREAT | 0600);
    if (s->shmid >= 0) map = shmat(s->shmid, NULL, 0);
    if (map == (void *)-1) {
        s->private_error = errno;
        if (s->shmid >= 0) shmctl(s->shmid, IPC_RMID, NULL);
        return gs_segment_create_private(s);
    }
    mapped_at(s, map);
    return 0;
}

int gs_segment_create_private(struct gs_spool *s)
{
    s->shmid = -1;
    void *map = mmap(NULL, GS_SPOOL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return errno;
    mapped_at(s, map);
    return 0;
}

void gs_segment_detach(struct gs_spool *s)
{
    if (s->map && s->shmid >= 0)
        shmdt(s->map);
    else if (s->map)
        munmap(s->map, GS_SPOOL_BYTES);
}

void gs_segment_remove(int shmid)
{
    if (shmid >= 0) shmctl(shmid, IPC_RMID, NULL);
}

/* ---------------------------------------------------------------- an existing segment */

int gs_segment_attach(struct gs_spool *s, const struct gs_spool_control *c, bool writable)
{
    struct shmid_ds ds;
    if (c->shmid < 0) return EIDRM;
    if (shmctl(c->shmid, IPC_STAT, &ds)) return errno == EINVAL ? EIDRM : errno;
    if (ds.shm_segsz != GS_SPOOL_BYTES) /* the id was reused */
        return EIDRM;
    void *map = shmat(c->shmid, NULL, writable ? 0 : SHM_RDONLY);
    if (map == (void *)-1) return errno == EINVAL ? EIDRM : errno;
    s->shmid = c->shmid;
    mapped_at(s, map);
    const struct gs_spool_header *h = s->header;
    if (!memcmp(h->magic, c->magic, sizeof h->magic) && h->version == c->version &&
        !memcmp(h->cookie, c->cookie, sizeof h->cookie)) {
        memcpy(s->cookie, c->cookie, sizeof s->cookie);
        return 0;
    }
    gs_segment_detach(s);
    s->map = NULL;
    return EIDRM;
}

/* ---------------------------------------------------------------- orphans */

/* At most so much of it is in memory: chunks are numbered in the order in which writers take them. */
static uint64_t used_bytes(const struct gs_spool_header *h)
{
    const uint64_t taken = atomic_load_explicit(&h->next_seq, memory_order_acquire);
    return GS_SPOOL_HEADER_BYTES + (taken < GS_SPOOL_CHUNKS ? taken : GS_SPOOL_CHUNKS) * GS_CHUNK_BYTES;
}

/* A spool of this user that no process has had attached for this long? `bytes`: of memory that it uses at most. */
static bool is_orphan(int shmid, const struct shmid_ds *ds, long age_s, uint64_t *bytes)
{
    if (ds->shm_segsz != GS_SPOOL_BYTES || ds->shm_nattch || ds->shm_perm.uid != geteuid() ||
        ds->shm_perm.cuid != geteuid() || ds->shm_perm.__key != IPC_PRIVATE)
        return false;
    if (!ds->shm_dtime || ds->shm_dtime > time(NULL) - age_s) return false;
    const struct gs_spool_header *h = shmat(shmid, NULL, SHM_RDONLY);
    if (h == (void *)-1) return false;
    const bool ours = !memcmp(h->magic, GS_SPOOL_MAGIC, sizeof GS_SPOOL_MAGIC);
    const bool here = h->pid_namespace && h->pid_namespace == gs_namespace("pid");
    const bool gone = !here || gs_process_is_gone(h->pid, h->process_start_ticks);
    *bytes = ours && gone ? used_bytes(h) : 0;
    shmdt(h);
    return ours && gone;
}

void gs_segment_remove_orphans(long age_s)
{
    struct shmid_ds ds;
    struct shm_info info;
    struct {
        int shmid;
        time_t since;
        uint64_t bytes;
    } kept[GS_SPOOL_ORPHANS + 1];
    uint64_t total = 0;
    int n = 0;
    const int last = shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
    if (last < 0 || (uint64_t)info.used_ids * GS_SPOOL_BYTES <= GS_SPOOL_ORPHAN_BYTES) return;
    for (int i = 0; i <= last; i++) {
        uint64_t bytes;
        int shmid = shmctl(i, SHM_STAT, &ds);
        if (shmid < 0 || !is_orphan(shmid, &ds, age_s, &bytes)) continue;
        kept[n].shmid = shmid;
        kept[n].bytes = bytes;
        kept[n++].since = ds.shm_dtime;
        for (total += bytes; n > GS_SPOOL_ORPHANS || total > GS_SPOOL_ORPHAN_BYTES;) {
            int oldest = 0;
            for (int k = 1; k < n; k++)
                if (kept[k].since < kept[oldest].since) oldest = k;
            gs_segment_remove(kept[oldest].shmid);
            total -= kept[oldest].bytes;
            kept[oldest] = kept[--n];
        }
    }
}
