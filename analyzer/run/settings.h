/* The settings of PyTorch's caching allocator: what the environment requested, and what was observed, which takes
 * precedence. */
#pragma once

#include "analyzer/run/run.h"

/* Where PyTorch's blocks come from. */
/* its own caching allocator */
#define RUN_BACKENDS(X)                                         \
    X(UNKNOWN, "unknown")                                       \
    X(NATIVE, "native")         /* its own caching allocator */ \
    X(ASYNC, "cudaMallocAsync") /* CUDA's pool */               \
    X(NONE, "none")             /* PYTORCH_NO_CUDA_MEMORY_CACHING */
/* clang-format on */
#define RUN_BACKEND_ENUM(symbol, word) RUN_BACKEND_##symbol,
enum run_backend { RUN_BACKENDS(RUN_BACKEND_ENUM) };
const char *run_backend_word(enum run_backend backend);

struct run_torch_settings {
    bool known;                /* the recording contains the environment; false: an old one, all below may be unknown */
    const char *variable;      /* which one was set: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF; NULL none */
    const char *text;          /* its value, NULL */
    enum run_known expandable; /* segments that grow */
    enum run_backend backend;
    int64_t max_split_bytes; /* larger blocks are not split; 0 no limit (the default), RUN_UNKNOWN */
    double
        gc_threshold; /* share of the memory from which cached segments are freed; 0 never (the default), NAN unknown */
};

/* A variable with settings of the allocator that PyTorch read. */
struct run_conf {
    const char *variable, *text;
};
/* How many there are: two only if it is unknown which one counts. */
int run_confs(struct run *run, uint32_t process, struct run_conf confs[2]);

/* Strings belong to the run. Cheap: no pass over rows. */
struct run_torch_settings run_torch_settings(struct run *run, uint32_t process);

/* Is the innermost frame native and in a module of that name ("libc10_cuda"), the caller of the CUDA call? RUN_UNSURE:
 * native frames were not recorded. */
enum run_known run_is_called_by(const struct run *run, uint32_t stack, const char *module);

/* The value of `key` in "key:value,key:[a:b,c:d],…"; false: not found. Exposed for its test. */
bool run_conf_value(const char *conf, const char *key, const char **value, size_t *length);
