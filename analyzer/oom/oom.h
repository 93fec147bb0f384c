/* The facts about failures. oom.c finds the calls that belong to one failure and the memory that was live then;
 * oom_cause.c derives the cause from these facts. */
#pragma once

#include "analyzer/allocator/heap_map.h"
#include "analyzer/question/question.h"

struct oom_taken { /* live CUDA allocations of a call path */
    uint32_t location, stack;
    uint8_t space;
    int64_t bytes;
    uint64_t count;
};

/* oom_after.c: a process's activity after a failure. */
struct oom_after {
    uint64_t times, again; /* allocations of its thread or the main one; of them on earlier call paths */
    bool granted;          /* the line that failed succeeded, or requested more once more */
    bool raised;           /* the exception that ended the program came from it */
    bool own_thread;       /* a thread of Python's other than the main one: the exception ends only that thread */
    int exit_status;       /* of the process; -1 unknown */
    const char *prompt;    /* oom_notebook_prompt */
    int64_t steps;         /* that ended later, including the failed one; RUN_UNKNOWN */
    uint64_t allocations;  /* of the layer that counts, by all threads, and their bytes */
    int64_t bytes, live;   /* live: when it failed */
    uint32_t first_stack;  /* of the first allocation, RUN_NONE */
    uint32_t failed, thread, main_thread;
    size_t known_paths;
};

/* Memory that earlier trials (oom_trials.h) still hold. */
struct oom_earlier {
    size_t trials; /* that hold a module's block */
    int64_t bytes; /* allocated from the first trial's beginning to the current one's, and still live; if call paths
                    * repeat, without those of a single trial, which the trials share: data, a backbone */
    int64_t all_bytes, again_bytes; /* with them; those of several trials */
    uint64_t count;                 /* blocks */
    int64_t model_bytes;            /* of it, by building or moving modules */
    bool repeated;                  /* a call path that builds or moves a module holds blocks of several trials */
    bool rerun;                     /* … which begins in a cell of a notebook: the cell ran again */
    bool served;                    /* only forward passes separate them */
    bool complete;                  /* and many more have followed the last of them */
    bool ensemble;                  /* the program uses the models of several trials together */
    int64_t from_ns;                /* when the first trial began */
    int64_t since_ns;               /* when the current trial began */
    uint32_t stack;                 /* of the largest earlier block of a module; RUN_NONE none */
    int64_t largest;
};
/* Values that cells of a notebook displayed, and that Out[] keeps (oom_notebook.c). */
struct oom_displayed {
    int64_t bytes;
    uint64_t times; /* the cells, or the runs of one */
    uint32_t stack; /* of the most; RUN_NONE none */
};
/* What an earlier run of the cell that requests has left (oom_rerun.c). */
struct oom_rerun {
    int64_t bytes, until_ns; /* all of it was allocated by then */
    uint32_t stack;          /* of the most; RUN_NONE none */
};
/* Memory that earlier passes that ran out of memory still hold (oom_failed.c). */
struct oom_failed_pass {
    int64_t bytes, largest;
    uint64_t count;         /* blocks */
    uint64_t same;          /* the most of one call path in one of the passes */
    int64_t from_ns, to_ns; /* the first began, the last failed */
    int64_t first_ns;       /* the earliest of those failures */
    uint32_t stack;         /* of the largest block; RUN_NONE none */
};
/* Does an autograd graph hold the memory that grows inside passes? See oom_graph.c. */
enum oom_graph_evidence { OOM_GRAPH_NONE, OOM_GRAPH_UNKNOWN, OOM_GRAPH_INFERRED };
struct oom_facts {
    const struct run_oom *row; /* the one to report */
    unsigned failures;
    bool fatal, device_failed; /* a CUDA call was among the failures */
    bool examined;             /* the live memory at the failure is known, as for the first and the last failures */
    bool attached;             /* the process's allocations from before the recording are unknown */
    uint32_t stack;
    int64_t requested, free, total; /* RUN_UNKNOWN */
    int64_t device_requested;       /* from CUDA: a whole segment; 0: no request */
    enum run_series_layer layer;    /* whose live bytes count: tensors if there are any */
    int64_t live, device_live;
    int64_t tensor_allocated, tensor_reserved; /* RUN_UNKNOWN */
    int64_t private_idle;                      /* free in private pools of PyTorch's */
    bool private_whole;                        /* … and all of their memory is */
    int64_t outside, outside_first;            /* RUN_UNKNOWN */
    int64_t graphs;                            /* held by the device for graphs */
    const struct run_device_sample *nvml;      /* of NVML, at about that time; NULL none */
    double turnover;                  /* share of the bytes ever allocated in the layer that were freed; NAN unknown */
    int64_t growing, growing_in_pass; /* live bytes of growing locations; of them in passes */
    unsigned growing_sites;
    uint32_t growing_stack;                     /* the largest of them */
    uint32_t pass;                              /* the line that called the pass, if the largest is made after it */
    ARENA_ROWS(const uint32_t, growing_stacks); /* all of them, ascending */
    int64_t growing_heaviest;
    uint64_t growing_count; /* live allocations there */
    uint64_t growing_times; /* all of them, freed or not */
    uint64_t growing_turns; /* how often the line made the live ones, several at once; 0 unknown */
    int64_t growing_kept;   /* of `growing`: outputs of forward passes that remained while others were freed */
    bool growing_continued; /* the failed request would have replaced its block by a larger one */
    bool growing_larger;    /* its live blocks are larger than those that were freed, or their sizes are unknown */
    int64_t driven; /* live bytes of other call paths whose blocks became larger from time to time, as those do that
                       are computed from a growing buffer */
    bool appended;  /* the statement of the largest growth appends to what it replaces: x = cat([x, y]) */
    int64_t growing_left;   /* of the growing call paths, at the end of the recording */
    bool growing_native;    /* no Python called */
    int64_t growing_states; /* of `growing`: optimizer states */
    bool growing_queued;    /* a statement puts each block into a queue */
    bool growing_keyed;     /* a loop over a collection stores each block under its key: as many as it has keys */
    bool growing_stored;    /* a statement is known that stores each block: neither parameters nor data from the host */
    bool growing_varies;    /* its blocks differ in size, and most have a size of their own */
    uint32_t widened;       /* the line that replaces a parameter by a larger one again and again; RUN_NONE none */
    bool adds_modules;      /* beside optimizer states: what they belong to grows */
    uint64_t growing_passes;                     /* the fewest live allocations of a growing call path: once per pass */
    int64_t growing_first_ns, heaviest_first_ns; /* the first of them all; of the largest's */
    bool growing_earlier;       /* the first is older than all kept rows: the number of steps since then is unknown */
    int64_t growing_middle_ns;  /* when half of the largest's blocks had been made */
    int64_t growing_last_ns;    /* the last of them all */
    double growing_turnover;    /* of the bytes allocated from the first to the last: the share that was freed, or of a
                                   recording of bounded size, that fell; NAN unknown */
    int64_t growing_end_ns;     /* the failure; at most when the next one was due: the program may have paused before it
                                   failed */
    double heaviest_first_rank; /* of the latter: the share of the call path's blocks, freed or not, that came before */
    const struct result_growth *growth; /* its largest entry; NULL none */
    int64_t growing_low;                /* the least in total soon after it began; -1 unknown */
    int64_t before_growth;              /* live in total when it began; 0 unknown */
    int64_t backward_ns;                /* of the last backward pass before the failure; RUN_UNKNOWN: there was none */
    int64_t grad_ns;                    /* likewise of torch.autograd.grad() */
    int64_t growing_freed; /* of growing_in_pass: on call paths whose earlier blocks a backward pass freed */
    enum oom_graph_evidence graph;
    bool graph_freed; /* the evidence: those frees; otherwise that the inputs of the passes are kept */
    struct oom_earlier trials, optimizers;
    struct oom_failed_pass failed_pass;
    struct oom_displayed displayed;
    struct oom_rerun rerun;
    bool pending;                     /* no backward pass since it began to grow, and one is expected */
    const struct site_window *window; /* … after which the program empties what keeps it; NULL unknown */
    bool evaluates;                   /* … and none is expected */
    bool replaced;      /* the growing memory is reallocated each time, larger: only the last blocks exist */
    bool of_step;       /* many blocks of the current step; those of earlier steps were freed */
    int64_t turned_ns;  /* when a line outside of all passes last occurred again; RUN_UNKNOWN */
    int64_t entered_ns; /* when data was last copied to the device at a line outside of passes that did so three times;
                           RUN_UNKNOWN */
    int64_t once_ns;    /* when a line in a pass last occurred for the first time; RUN_UNKNOWN */
    int64_t earlier;    /* the most that was live before this step besides the growing memory; RUN_UNKNOWN */
    int64_t largest;    /* the largest live allocation on the device */
    uint32_t largest_stack;
    int64_t rounding; /* bytes of the live blocks that no tensor requested; RUN_UNKNOWN */
    const struct result_preallocation
        *preallocated;                            /* a framework preallocated the device, in this process; NULL none */
    const char *preallocates, *preallocates_less; /* the failed request is a framework's preallocation: its name, and
                                                     how to make it smaller; NULL: it is not */
    uint32_t holder_stack;                        /* the stack that held most */
    int64_t holder;
    struct allocator_heap_map map;
    const struct oom_layout *layout;           /* oom_layout.h; NULL unknown */
    ARENA_ROWS(const struct oom_taken, taken); /* of the device's layer */
    enum result_oom_outcome outcome;
    struct oom_after after; /* only if `examined` */
};
struct oom_live { /* the live memory of one location at that moment */
    uint32_t location;
    int64_t bytes;
    uint64_t count;
    uint64_t times;                       /* its allocations, freed or not */
    uint64_t seen, turns;                 /* as in oom_history */
    int64_t made;                         /* their bytes; 0 unknown */
    int64_t first_ns, middle_ns, last_ns; /* of its live blocks' allocations; middle: of as many before as after it */
    double first_rank, last_rank, mean_rank; /* the same as shares of the location's allocations that came before */
    uint64_t late;                           /* of its live blocks, those since middle_ns */
    double turned_rank;                      /* likewise, of when a line outside of all passes last occurred again */
    double passes;          /* that allocated on the path of the latest pass, from its first to its last live block */
    int64_t least, most;    /* bytes of its smallest and its largest live block, except the newest */
    uint64_t sizes;         /* different sizes of its live blocks */
    bool freed_in_backward; /* a backward pass freed earlier blocks of it */
    int64_t silent_ns;      /* when a thread without Python frames last freed one of its blocks; 0 never */
};
/* oom_growth.c: the largest holder; the growing memory, and the ends of its graphs. */
void oom_find_growing(struct site_builder *b, const struct oom_live *live, size_t n, struct oom_facts *f);
/* May an optimizer's states of that size belong to parameters of that size? */
bool oom_is_of_parameters(int64_t parameters, int64_t states);
/* The share of the bytes up to the failure that was freed, at least, as far as coarse totals show it; NAN unknown. */
double oom_levels_turnover(const struct run *run, const struct oom_facts *f);
/* Below a module's call, a function named forward, or a backward pass. */
bool oom_is_in_pass(const struct run *run, uint32_t stack);
/* A lazy module that makes its parameters at its first call. */
bool oom_is_lazy(const struct run *run, uint32_t stack);
/* The memory that the program had needed before; after _growing, and after the timelines. */
void oom_find_demand(struct site_builder *b, struct oom_facts *f);
/* oom_step.c: the number of the step in which it failed, from 1 on; RUN_UNKNOWN. */
int64_t oom_step_of(const struct site_builder *b, const struct result_oom_verdict *v);
void oom_find_cause(struct site_builder *b, const struct oom_facts *f, struct result_oom_verdict *v);

struct oom_failures;
struct oom_failures *oom_start(struct site_builder *b, struct run_observer *observer);
void oom_finish(struct oom_failures *o);      /* ooms, retries, fragmentation's holes */
void oom_explain_all(struct site_builder *b); /* cause and advice; after categories, allocators */
