/* What the proof finds out about each device and the what-ifs need. */
#pragma once

#include "analyzer/category/category.h"
#include "analyzer/category/category_use.h"
#include "analyzer/site/source_context.h"
#include "analyzer/whatif/lane.h"
#include "analyzer/whatif/pool_map.h"
#include "analyzer/whatif/whatif.h"

struct whatif_moment {
    int64_t ns, bytes;
};

struct whatif_device {
    uint32_t process;
    int device;
    struct caching_rules rules;              /* as recorded */
    int64_t total;                           /* bytes of the device; INT64_MAX unknown */
    ARENA_LIST(struct whatif_moment, bases); /* memory in use on the device that was not recorded, from that time on */
    size_t bases_settled;                    /* of them, the first that no later query lowers */
    ARENA_LIST(struct whatif_moment,
               switches); /* switches of expandable_segments while the program ran; bytes: 1 on, 0 off */
    ARENA_LIST(struct whatif_moment,
               flushes); /* when the program emptied the cache; bytes: the private pool, 0 all of it */
    ARENA_LIST(struct whatif_moment,
               retries); /* requests that waited for other streams; bytes: the time from which on they did */
    ARENA_LIST(struct whatif_moment, ends);  /* of steps, as the program's lines show; bytes: how many have ended */
    ARENA_LIST(struct whatif_piece, pieces); /* that existed when the recording began */
    struct whatif_facts facts;
    struct map failed_in; /* index of run_ooms → 2 × private pool in which the request was made, + 1: PyTorch did not
                             retry */
    struct map failed_on; /* index of run_ooms → index in streams: where the request was made, if not on the last one */
    ARENA_LIST(uint64_t, streams); /* streams on which tensors were allocated */
    ARENA_LIST(uint32_t, unsplit); /* private pools that never split a block */
    bool user_pools;               /* torch.cuda.MemPool */
    bool captures;                 /* CUDA graphs */
    bool capturing;                /* the last tensor belongs to a graph that is being captured */
    uint32_t thread;               /* the last one on which a script or a thread that it started allocated; RUN_NONE */
    uint32_t turns;                /* how often that was another thread than before */
    uint8_t running;               /* 0, or the caller, if it did something since a thread of autograd allocated … */
    bool freed_beside;             /* … and since then that thread freed a tensor … */
    bool races;                    /* … and then the program went on, so that the order can differ */
    size_t loops;                  /* how often the loop of the steps ended, and the program then allocated */
    bool unsure_flushes; /* the program emptied the cache, or a pool ended: the recording shows only that one did */
    bool freed_unknown;  /* segments were freed by a call without a stack: for a request, or by the program */
    int64_t ascents; /* number of new segments with a higher address than the segment before, minus those with a lower
                        one */
    struct whatif_outcome recorded;
};

struct whatif_before { /* a segment that existed when the rows of a bounded recording begin */
    uint32_t process;
    int device;
    uint64_t address, stream;
    int64_t bytes;
    bool known; /* its stream */
};

struct whatif {
    struct run *run;
    const struct run_process *processes;
    struct arena arena;
    const struct step_list *const *steps;
    size_t steps_n;
    bool imported;
    struct whatif_device *devices;
    size_t devices_n, devices_cap, device; /* device: of the last event */
    struct map device_at;                  /* whatif_device_key → index */
    uint8_t *owners;                       /* by stack: 0 not examined, 1 PyTorch's allocator, 2 another */
    uint8_t *begins;  /* likewise: 0 not examined, 1 a free at the beginning of a step, 2 another */
    uint8_t *after;   /* likewise: 0 not examined, 1 allocates after the loop of the steps, 2 elsewhere */
    uint8_t *callers; /* likewise: enum caller of parts.c */
    const struct step_list *loop_steps; /* of these … */
    uint32_t loop;                      /* … the call path of the function with their loop; RUN_NONE unknown */
    int loop_last;                      /* the last line of that loop */
    uint8_t *spread; /* likewise: bit 0 allocates within steps, bit 1 in the pauses between them; if there are pauses */
    size_t owners_n;
    ARENA_LIST(struct run_pending, pending); /* of all processes, by process, by free_ns */
    int64_t longest_wait;                    /* of these that ended */
    ARENA_LIST(struct whatif_before, before);
    struct category_finder *categorizer; /* NULL until a scenario scales a category */
    struct category_uses *uses;
    struct map parameters, gradients; /* bytes requested for parameters, for gradients → 1 */
    struct map activations;           /* likewise for activations and inputs */
    struct map graders;               /* call paths that allocate gradients → 1 */
    struct map varying;               /* other stacks that allocate a size which no parameter has → 1 */
    struct site_builder sources;      /* only what site/source_context.h needs */
    unsigned source_facts;            /* enum whatif_source; known once source_was_read */
    bool source_was_read;
    size_t assumed;         /* index of the version that is assumed for a recording without one */
    bool until_parted;      /* the replay ends where it diverges from the recording */
    uint64_t parted_blocks; /* tensors allocated when it diverged */
    struct whatif_proof proof;
};

static inline uint64_t whatif_device_key(uint32_t process, int device)
{
    return (uint64_t)process << 32 | (uint32_t)device;
}

/* The time from which on a process's recording has every event. Another tool's recording has the earlier memory at time
 * 0; a recording that GPUSPY_KEEP bounds has it at this time. */
static inline int64_t whatif_begin(const struct whatif *w, uint32_t process)
{
    return w->imported ? 1 : w->processes[process].kept_from_ns;
}
/* Existed when the replay began, so it is not allocated in it. */
static inline bool whatif_was_before(const struct whatif *w, uint32_t process, const struct run_lifetime *life)
{
    return life->alloc_ns < whatif_begin(w, process);
}
/* Freed before the replay begins. */
static inline bool whatif_is_gone(const struct whatif *w, uint32_t process, const struct run_lifetime *life)
{
    return life->free_ns < whatif_begin(w, process);
}

/* Lists the segments from before in w->before, if GPUSPY_KEEP bounded the recording. False and a line in `error` if a
 * database could not be read. */
bool whatif_find_before(struct whatif *w, char *error, size_t error_size);
/* The stream of a segment from before; 0 if it is unknown. */
uint64_t whatif_stream_before(const struct whatif *w, uint32_t process, const struct run_lifetime *life);

/* One for each order in which PyTorch's versions choose free blocks; the most usual one first. */
#define WHATIF_ASSUMED_N 4

/* Index of a process's device, created with its settings if it is new. Most events are of the last one's device. */
size_t whatif_device_find(struct whatif *w, uint32_t process, int device);
static inline size_t whatif_device_of(struct whatif *w, uint32_t process, int device)
{
    const struct whatif_device *last = w->device < w->devices_n ? &w->devices[w->device] : NULL;
    return last && last->process == process && last->device == device ? w->device
                                                                      : whatif_device_find(w, process, device);
}
/* parts.c, of whatif_device.bases: adds one; lowers those that a later one shows to be too high; the memory that CUDA
 * would report as used without other processes. */
void whatif_push_base(struct whatif_device *d, int64_t since_ns, int64_t bytes);
void whatif_settle_bases(struct whatif_device *d);
int64_t whatif_used_bytes(const struct run_device_sample *s, int64_t total);
/* After the proof's replay. */
void whatif_conclude_proof(struct whatif *w);
/* The stream of a request that failed; `last` unless the proof found that it was another. */
uint64_t whatif_failed_stream(const struct whatif_device *d, size_t oom, uint64_t last);
/* Its private pool, 0: the default one. *held: PyTorch did not free the cache and try again. */
uint32_t whatif_failed_pool(const struct whatif_device *d, size_t oom, bool *held);
/* Did PyTorch's allocator make this CUDA allocation, as far as its stack shows? */
bool whatif_is_segment(struct whatif *w, const struct run_lifetime *life);
static inline const struct step_list *whatif_steps_of(const struct whatif *w, uint32_t process)
{
    for (size_t i = 0; i < w->steps_n; i++)
        if (w->steps[i]->process == process) return w->steps[i];
    return NULL;
}
/* Is a free that is followed by the first allocation of a step part of that step? Then its line is above the line by
 * which steps are counted, in the same function: zero_grad() at the top of the loop. */
bool whatif_is_beginning(struct whatif *w, const struct step_list *steps, uint32_t free_stack);
/* Does a call path leave that of the steps after their loop, as an evaluation after each epoch does? Then the last step
 * has ended, although the next one has not begun. */
bool whatif_is_after_loop(struct whatif *w, const struct step_list *steps, uint32_t stack);
/* Is it certain where the steps end? A loop around an optimizer or a backward pass shows its own end, if every call of
 * it was recorded. A loop that replays a CUDA graph calls neither. */
bool whatif_ends_are_sure(struct whatif *w);
/* Notes whether a call path allocates within steps or in the pauses between them. */
void whatif_note_pause(struct whatif *w, uint32_t process, const struct run_lifetime *life);
/* Count how often a script and the threads that it starts allocate in turn; find out whether a thread of autograd frees
 * tensors after backward() has returned, while the program runs on. */
void whatif_note_thread(struct whatif *w, struct whatif_device *d, const struct run_lifetime *life);
void whatif_note_freeing(struct whatif *w, struct whatif_device *d, const struct run_lifetime *life);
/* torch.cuda.graph() empties the cache before it captures, which an older recording shows only if that freed something:
 * notes it at the first tensor of each capture, unless `a`, as recorded, kept segments. */
void whatif_note_capture(struct whatif_device *d, const struct caching_allocator *a, const struct run_lifetime *life);
/* enum whatif_source, read once. */
unsigned whatif_read_source(struct whatif *w);
/* May the program have emptied a cache without unused segments, and the recording not show it? */
bool whatif_may_miss_flush(struct whatif *w, const struct whatif_device *d);
/* Memory of a handle of cuBLAS or cuDNN, which no tensor of the program's line holds. */
bool whatif_is_workspace(struct whatif *w, uint32_t stack);
/* Does a call path belong to steps: an optimizer's, backward's, or one that creates a handle of cuBLAS or cuDNN? */
bool whatif_is_of_step(struct whatif *w, uint32_t stack);
/* What a tensor is for, as far as its own calls show. */
enum result_category whatif_category(struct whatif *w, const struct run_lifetime *life);

/* Of whatif_device.flushes. */
static inline void whatif_empty_as_recorded(struct caching_allocator *a, const struct whatif_moment *flush)
{
    if (flush->bytes)
        caching_empty_pool(a, (uint32_t)flush->bytes);
    else
        caching_empty_cache(a);
}

static inline uint64_t whatif_stream_of(const struct run_lifetime *life)
{
    return life->stream == GS_STREAM_UNKNOWN ? 0 : life->stream;
}

/* The pool of a tensor; `unknown` is set if it may be in a private one that is not known. */
static inline uint32_t whatif_pool_of(const struct whatif_device *d, struct whatif_pool_map *m,
                                      const struct run_lifetime *life, bool *unknown)
{
    const bool captured = life->space == GS_SPACE_POOL;
    const int64_t pool = d->facts.pools ? whatif_pool_map_at(m, &d->facts, life->alloc_ns, life->address) : -1;
    *unknown = pool < 0 && (captured || m->any_private);
    return pool >= 0 ? (uint32_t)pool : captured;
}
/* torch.compile restores the blocks of a private pool as they were at an earlier moment: PyTorch makes all of them, and
 * then frees those that were free. Is the tensor such a block, and done? */
bool whatif_restores(struct whatif_lane *l, const struct run *run, const struct run_lifetime *life, uint32_t pool);
/* For memory of PyTorch's allocator: a segment, or pages of one. Returns the pool of freed memory, -1 unknown. */
int64_t whatif_note_segment(const struct whatif_device *d, struct whatif_pool_map *m, const struct run_lifetime *life,
                            bool freed);

/* The bytes that a recorded allocation requests: the request if it is known, else its block; rounded by the rules. */
static inline int64_t whatif_asked(const struct caching_rules *rules, const struct run_lifetime *life)
{
    const int64_t requested = run_requested(life);
    return caching_rounded(rules, requested == RUN_UNKNOWN ? life->bytes : requested);
}

/* A tensor that was freed while another stream could use it: when the allocator found that the stream had finished;
 * RUN_UNKNOWN: an ordinary free. `next` runs over w->pending. */
int64_t whatif_pending_until(const struct whatif *w, uint32_t process, size_t *next, const struct run_lifetime *life);

/* scale.c: reads the categories of tensors in separate replays. */
bool whatif_read_categories(struct whatif *w, char *error, size_t error_size);
/* The bytes that an allocation requests, with the sizes of the categories scaled. */
int64_t whatif_scaled(const struct whatif *w, const struct caching_rules *rules, const struct run_lifetime *life,
                      uint32_t process, const struct whatif_scale *scale);

struct whatif_due {
    int64_t ns;
    uint64_t address;
    uint32_t block;
};
struct whatif_dues {
    struct whatif_due *list;
    size_t n, cap;
};
void whatif_release_at(struct whatif_dues *d, struct caching_allocator *a, uint32_t block, int64_t until_ns);
void whatif_release_all_due(struct whatif_dues *d, struct caching_allocator *a, int64_t ns);
static inline void whatif_release_due(struct whatif_dues *d, struct caching_allocator *a, int64_t ns)
{
    if (d->n) whatif_release_all_due(d, a, ns);
}

/* curve.c: memory reserved over time, of one device. */
struct whatif_drawing {
    struct whatif_curve *curve; /* NULL: not requested */
    size_t at;                  /* the last known part of the curve */
    int64_t last;
};
void whatif_draw(struct whatif_drawing *d, int64_t ns, int64_t reserved);
void whatif_draw_end(const struct whatif_drawing *d, bool failed);

/* When the wait of a block ends that was freed before the replay begins; 0: it had ended by then. */
int64_t whatif_waits_until(const struct whatif *w, uint32_t process, const struct run_lifetime *life);
/* Places what existed when the recording began. */
void whatif_place(struct whatif_lane *l, struct whatif_dues *dues, const struct whatif_device *d);

/* Are the figures and the failure of two scenarios equal? */
bool whatif_is_same_outcome(const struct whatif_outcome *a, const struct whatif_outcome *b);

/* proof.c: fills devices and proof. */
bool whatif_prove(struct whatif *w, char *error, size_t error_size);
