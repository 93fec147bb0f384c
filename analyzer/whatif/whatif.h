/* The memory that a recorded run would have needed with other settings of PyTorch's allocator, on another GPU, or
 * without a line: its requests and frees replayed by the allocator's own rules (caching.h).
 *
 * The replay is verified first: under the recorded settings it must request the recorded segments from the driver, in
 * their order, and place every block at its recorded address. Otherwise the proof has the first event at which it
 * diverged, and what-ifs are inexact.
 *
 * Units: bytes, nanoseconds; RUN_UNKNOWN. Strings belong to the proof.
 */
#pragma once

#include "analyzer/result/result.h"
#include "analyzer/run/run.h"
#include "analyzer/step/step.h"
#include "analyzer/caching/caching.h"

struct whatif_failure { /* a request that got no memory */
    int64_t time_ns, requested_bytes, reserved_bytes, allocated_bytes;
    uint64_t event; /* the device's tensor events before it */
    uint64_t step;  /* from 1; 0: in none, or unknown */
    uint32_t process, stack;
    int device;
};

/* Why the program may differ from its replay, although the recorded settings are reproduced; as bits. */
enum whatif_doubt {
    WHATIF_USE_ON_OOM = 1,
    WHATIF_HANDLED = 2,       /* a request that failed in the recording, and that the program handled, succeeds */
    WHATIF_FREE = 4,          /* the program asked CUDA how much memory is free, and gets another answer */
    WHATIF_FRACTION = 8,      /* the program sets the fraction that this scenario sets, too */
    WHATIF_STEPS = 16,        /* the scenario frees memory where steps end, and where they do is an inference */
    WHATIF_SIZE = 32,         /* the program decides by the size of the GPU, which the scenario changes */
    WHATIF_FIGURES = 64,      /* the program decides by figures of the allocator, which differ in the scenario */
    WHATIF_CAUGHT = 128,      /* the program handles the failure of the request that fails only in the scenario */
    WHATIF_RESETS = 256,      /* the program changes settings that the scenario changes, and the recording lacks that */
    WHATIF_FREED = 512,       /* why the recorded allocator freed segments is not known */
    WHATIF_SHARED = 1024,     /* the GPU has no room for the memory that other processes held */
    WHATIF_SCALED = 2048,     /* the scenario scales sizes, and which ones is an inference */
    WHATIF_SIZES = 4096,      /* some requests are known up to 1 MiB only */
    WHATIF_FREES = 8192,      /* some freed blocks waited for other streams, and the result depends on how long */
    WHATIF_CONTEXT = 16384,   /* the size of the context is unknown, or known for another GPU only */
    WHATIF_NEEDED = 32768,    /* the line that is left out allocates what all later steps need */
    WHATIF_HOLDS = 65536,     /* other tensors outlive their step with those of the line that is left out */
    WHATIF_THREADS = 131072,  /* threads allocate in turn */
    WHATIF_OWN_CONF = 262144, /* the program sets the variable whose settings the scenario changes */
    WHATIF_ADDRESSES = 524288,      /* the result depends on the addresses of segments, which CUDA chooses */
    WHATIF_BEFORE = 1048576,        /* what was reserved when the recording began does not fit */
    WHATIF_POOL = 2097152,          /* a request freed the cache, while another thread may have used a private pool */
    WHATIF_SUMS = 4194304,          /* sizes of tensors follow what the line that is left out keeps */
    WHATIF_CAPTURE_REUSE = 8388608, /* a CUDA graph was captured under another graph_capture_record_stream_reuse */
    WHATIF_USED = 16777216,         /* a later step may use what the line that is left out keeps */
    WHATIF_REJECTED = 33554432,     /* only a message states the size of the request that failed, rounded */
    WHATIF_HELD = 67108864, /* later tensors of the step outlive it, and may hold those of the line that is left out */
    WHATIF_EMPTIED = 134217728, /* when the program emptied a cache that had nothing to free is not known */
    WHATIF_BEGINS = 268435456,  /* the recording begins with memory that the scenario's changes would have changed */
};
enum { WHATIF_DOUBTS = 29 };
/* A sentence for each bit, without its full stop. */
extern const char *const whatif_doubt_texts[WHATIF_DOUBTS];

struct whatif_outcome {
    bool fits;                 /* no request failed that the program did not handle */
    struct whatif_failure oom; /* unless it fits */
    unsigned doubts;           /* of enum whatif_doubt */
    bool request_fits;      /* the request that failed in the recording, at which the recording ends, succeeds: … */
    int64_t spare_bytes;    /* … and then this many bytes of the GPU are left; RUN_UNKNOWN */
    int64_t capacity_bytes; /* of the device; RUN_UNKNOWN */
    int64_t peak_allocated_bytes, peak_reserved_bytes, peak_ns;
    int64_t cached_bytes, largest_free_bytes; /* reserved and in no block, at the end or the failure */
    uint64_t segments, retries;               /* segments: at the peak of reserved memory */
    uint32_t process;
    int device; /* the device of these figures: the one on which it failed, else the one with the highest peak */
};

struct whatif_request { /* one that failed in the recording */
    bool fits;
    int64_t spare_bytes; /* of the GPU, after it; RUN_UNKNOWN */
};

/* Memory over time of the outcome's device: the most in each of WHATIF_CURVE equal parts of [0, end_ns]. */
enum { WHATIF_CURVE = 1024 };
struct whatif_curve {
    int64_t end_ns;                 /* given by the caller, above 0 */
    int64_t reserved[WHATIF_CURVE]; /* bytes in PyTorch's segments; RUN_UNKNOWN after a failure */
};

struct whatif_scale {               /* factors for the sizes of tensors */
    double of[RESULT_CATEGORIES_N]; /* by category */
    double batch;                   /* of all whose size depends on the batch */
};

struct whatif_scenario {
    const char *name;
    const char *conf;                 /* "key:value,…" over the recorded settings; NULL */
    int64_t limit;                    /* bytes of each device; 0: as recorded */
    const char *without;              /* "train.py:42": its tensors are freed at the end of their step; NULL */
    uint64_t flush_every;             /* steps; 0 never */
    const struct whatif_scale *scale; /* NULL: none */
    struct whatif_curve *curve;       /* filled; NULL: not requested */
    struct whatif_outcome outcome;
    struct whatif_request *requests; /* by index of run_ooms, cleared by the caller; NULL: not requested */
    const char *error;               /* why it cannot be replayed; NULL */
};

struct whatif_proof {
    bool exact;
    uint64_t blocks, blocks_placed;   /* tensors allocated; of them at the recorded address */
    uint64_t segments, segments_same; /* recorded; of them those that the replay requested in this order */
    uint64_t parted_at_event;         /* 0: nowhere */
    int64_t parted_ns;
    int64_t begin_ns;          /* from when on a bounded recording has all events; 0: from its start on */
    const char *reason;        /* why what-ifs are not exact; NULL */
    const char *torch_version; /* whose rules are replayed, as recorded; NULL unknown, and then … */
    const char *torch_assumed; /* … the version that reproduces most, such as "2.11"; NULL: of none */
    bool unsure_sizes;         /* some requests are known up to 1 MiB only */
    bool unsure_context; /* the size of the context on a GPU is unknown: assumed to be as on another, or nothing */
    bool unsure_frees;   /* some freed blocks still waited for other streams at the next request */
    struct whatif_outcome recorded; /* the outcome of the recording itself; fits: no fatal OOM */
};

struct whatif;
/* Replays the recorded settings. Opened with options.memory_map. NULL and a line in `error`: the run has no memory of
 * PyTorch's allocator, or could not be read. `steps` by process, as result_report has them; NULL: found later or not
 * needed. */
struct whatif *whatif_start(struct run *run, const struct step_list *const *steps, size_t steps_n, char *error,
                            size_t error_size);
const struct whatif_proof *whatif_proof(const struct whatif *w);
/* Fills outcome or error of each, in one replay. */
bool whatif_run(struct whatif *w, struct whatif_scenario *scenarios, size_t n, char *error, size_t error_size);
/* After whatif_run, which has the doubts WHATIF_FREES and WHATIF_ADDRESSES wherever they are possible: keeps them only
 * if other waits, or other addresses, give another outcome. Takes one replay more, unless nothing would be exact. */
bool whatif_vary(struct whatif *w, struct whatif_scenario *scenarios, size_t n, char *error, size_t error_size);
/* In which steps requests failed, if the steps were not known before. */
void whatif_name_steps(struct whatif *w, const struct step_list *const *steps, size_t steps_n,
                       struct whatif_scenario *scenarios, size_t n);
void whatif_free(struct whatif *w);
