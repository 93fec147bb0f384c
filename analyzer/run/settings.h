/* How PyTorch's caching allocator was set: what the environment asked for, and what was seen of it,
 * which wins. */
#ifndef GPUSPY_SETTINGS_H
#define GPUSPY_SETTINGS_H

#include "analyzer/run/run.h"

/* Where PyTorch's blocks come from. */
/* clang-format off */
#define GS_BACKENDS(X)                                                        \
    X(UNKNOWN, "unknown")                                                     \
    X(NATIVE, "native")         /* its own caching allocator */               \
    X(ASYNC, "cudaMallocAsync") /* CUDA's pool */                             \
    X(NONE, "none")             /* PYTORCH_NO_CUDA_MEMORY_CACHING */
/* clang-format on */
#define GS_BACKEND_ENUM(symbol, word) GS_BACKEND_##symbol,
enum gs_backend { GS_BACKENDS(GS_BACKEND_ENUM) };
const char *gs_backend_word(enum gs_backend backend);

struct gs_torch_settings {
    bool known;               /* the recording tells the environment; false: of an old one, all below may
                                 be unknown */
    const char *variable;     /* that was set: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF; NULL none */
    const char *text;         /* as it was set, NULL */
    enum gs_known expandable; /* segments that grow */
    bool expandable_seen;     /* … were mapped: whoever asked for them */
    enum gs_backend backend;
    int64_t max_split_bytes;       /* larger blocks are not split; 0 no limit (the default),
                                      GS_UNKNOWN */
    double gc_threshold;           /* share of the memory from which cached segments are given back;
                                      0 never (the default), NAN unknown */
    const char *roundup_divisions; /* roundup_power2_divisions as it was set, NULL not or unknown */
    enum gs_known roundup;         /* whether it was set */
};

/* Strings lie in the run. Cheap: no pass over rows. */
struct gs_torch_settings gs_torch_settings(struct gs_run *run, uint32_t process);

/* Whether the innermost frame is native and in a module of that name ("libc10_cuda"): the caller of
 * the CUDA call. GS_UNSURE: native frames were not recorded. */
enum gs_known gs_called_by(const struct gs_run *run, uint32_t stack, const char *module);

/* The value of `key` in "key:value,key:[a:b,c:d],…"; false: it is not there. Exposed for its test. */
bool gs_conf_value(const char *conf, const char *key, const char **value, size_t *length);

#endif
