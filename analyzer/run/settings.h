/* How PyTorch's caching allocator was set: what the environment asked for, and what was seen of it,
 * which wins. */
#ifndef GPUSPY_SETTINGS_H
#define GPUSPY_SETTINGS_H

#include "analyzer/run/run.h"

/* Where PyTorch's blocks come from. */
/* clang-format off */
#define RUN_BACKENDS(X)                                                        \
    X(UNKNOWN, "unknown")                                                     \
    X(NATIVE, "native")         /* its own caching allocator */               \
    X(ASYNC, "cudaMallocAsync") /* CUDA's pool */                             \
    X(NONE, "none")             /* PYTORCH_NO_CUDA_MEMORY_CACHING */
/* clang-format on */
#define RUN_BACKEND_ENUM(symbol, word) RUN_BACKEND_##symbol,
enum run_backend { RUN_BACKENDS(RUN_BACKEND_ENUM) };
const char *run_backend_word(enum run_backend backend);

struct run_torch_settings {
    bool known;                /* the recording tells the environment; false: of an old one, all below may
                                  be unknown */
    const char *variable;      /* that was set: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF; NULL none */
    const char *text;          /* as it was set, NULL */
    enum run_known expandable; /* segments that grow */
    bool expandable_seen;      /* … were mapped: whoever asked for them */
    enum run_backend backend;
    int64_t max_split_bytes;       /* larger blocks are not split; 0 no limit (the default),
                                      RUN_UNKNOWN */
    double gc_threshold;           /* share of the memory from which cached segments are given back;
                                      0 never (the default), NAN unknown */
    const char *roundup_divisions; /* roundup_power2_divisions as it was set, NULL not or unknown */
    enum run_known roundup;        /* whether it was set */
};

/* Strings lie in the run. Cheap: no pass over rows. */
struct run_torch_settings run_torch_settings(struct run *run, uint32_t process);

/* Whether the innermost frame is native and in a module of that name ("libc10_cuda"): the caller of
 * the CUDA call. RUN_UNSURE: native frames were not recorded. */
enum run_known run_is_called_by(const struct run *run, uint32_t stack, const char *module);

/* The value of `key` in "key:value,key:[a:b,c:d],…"; false: it is not there. Exposed for its test. */
bool run_conf_value(const char *conf, const char *key, const char **value, size_t *length);

#endif
