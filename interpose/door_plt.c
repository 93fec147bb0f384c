/* The door of everybody who is linked to CUDA: one exported wrapper a row of cuda_api.def.
 *
 * The exported name is an alias of a static function, so that the addresses in gs_wrappers are the
 * wrappers themselves: by its exported name a function's address may be a PLT entry of a
 * non-PIE program. */
#include "interpose/acts.h"
#include "interpose/recorder.h"
#include "interpose/resolve.h"

#define GS_RESULT_RT cudaError_t
#define GS_RESULT_DRV CUresult
#define GS_MISSING_RT cudaErrorSharedObjectInitFailed
#define GS_MISSING_DRV CUDA_ERROR_SHARED_OBJECT_INIT_FAILED

/* --- wrappers -------------------------------------------------------------------------------- */

#define GS_ROW(layer, name, stream, params, args, act)                                             \
    static GS_RESULT_##layer gs_do_##name params                                                   \
    {                                                                                              \
        typedef GS_RESULT_##layer real_function params;                                            \
        real_function *real = (real_function *)gs_real(GS_API_##name);                             \
        if (__builtin_expect(!real, 0)) return (GS_RESULT_##layer)GS_MISSING_##layer;              \
        const uint64_t default_stream = stream;                                                    \
        (void)default_stream;                                                                      \
        struct gs_thread *t = gs_enter(GS_API_##name, __builtin_return_address(0));                \
        GS_BEFORE_##act GS_RESULT_##layer result = real args;                                      \
        GS_AFTER_##act gs_leave(t);                                                                \
        return result;                                                                             \
    }                                                                                              \
    extern GS_RESULT_##layer name params                                                           \
        __attribute__((alias("gs_do_" #name), visibility("default")));
#include "interpose/cuda_api.def"

void *const gs_wrappers[GS_API_CUDA_END] = {
#define GS_ROW(layer, name, stream, params, args, act) [GS_API_##name] = (void *)gs_do_##name,
#include "interpose/cuda_api.def"
};
