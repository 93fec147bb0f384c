/* The door of all code that is linked to CUDA: one exported wrapper per row of cuda_api.def and, for the runtime's
 * rows, per version.
 *
 * A runtime wrapper is exported under its runtime's own version node: a reference to cudaMalloc@libcudart.so.12
 * binds to the wrapper that calls libcudart.so.12's, whichever other runtimes exist. 13 is the default, for
 * references without a version.
 *
 * The exported name is an alias of a static function, so that the addresses in gs_wrappers are the wrappers
 * themselves: the address of an exported name may be a PLT entry of a non-PIE program. */
#include "interpose/act_signatures.h"
#include "interpose/acts.h"
#include "interpose/door_procaddress.h"
#include "interpose/recorder.h"
#include "interpose/resolve.h"

#define GS_RESULT_RT cudaError_t
#define GS_RESULT_DRV CUresult
#define GS_MISSING_RT cudaErrorSharedObjectInitFailed
#define GS_MISSING_DRV CUDA_ERROR_SHARED_OBJECT_INIT_FAILED
#define GS_IS_DRIVER_RT false
#define GS_IS_DRIVER_DRV true

/* --- wrappers -------------------------------------------------------------------------------- */

/* One wrapper: of the row `symbol`, for `version`, as the C function gs_do_<where>_<symbol>. */
#define GS_WRAPPER(layer, where, version, symbol, stream, params, args, act)                                       \
    static GS_RESULT_##layer gs_do_##where##_##symbol params                                                       \
    {                                                                                                              \
        typedef GS_RESULT_##layer real_function params;                                                            \
        real_function *real = (real_function *)gs_real(GS_API_##symbol, version);                                  \
        if (__builtin_expect(!real, 0)) return (GS_RESULT_##layer)GS_MISSING_##layer;                              \
        struct gs_hooked *call = &(struct gs_hooked){.default_stream = stream, .at_driver = GS_IS_DRIVER_##layer}; \
        struct gs_limit_call cap;                                                                                  \
        struct gs_batch batch;                                                                                     \
        (void)&cap, (void)&batch;                                                                                  \
        cap.capped = false;                                                                                        \
        call->t = gs_enter(GS_API_##symbol, __builtin_return_address(0));                                          \
        GS_BEFORE(act);                                                                                            \
        call->result = call->withheld ? GS_OOM : (int)real args;                                                   \
        GS_AFTER(act);                                                                                             \
        gs_leave(call->t);                                                                                         \
        return (GS_RESULT_##layer)call->result;                                                                    \
    }

/* The same for a finder: nothing is entered or recorded. */
#define GS_FINDING(layer, where, version, symbol, stream, params, args, act)          \
    static GS_RESULT_##layer gs_do_##where##_##symbol params                          \
    {                                                                                 \
        typedef GS_RESULT_##layer real_function params;                               \
        real_function *real = (real_function *)gs_real(GS_API_##symbol, version);     \
        if (__builtin_expect(!real, 0)) return (GS_RESULT_##layer)GS_MISSING_##layer; \
        const GS_RESULT_##layer result = real args;                                   \
        if (result == 0) GS_AFTER(act);                                               \
        return result;                                                                \
    }

/* gs_at_… exists to carry the version; libgpuspy.map keeps it local. */
#define GS_VERSIONED(v, at, wrapper, symbol, name, stream, params, args, act)                                         \
    wrapper(RT, v, GS_VERSION_##v, symbol, stream, params, args, act) extern GS_RESULT_RT gs_at_##v##_##symbol params \
        __attribute__((alias("gs_do_" #v "_" #symbol), visibility("default"), used));                                 \
    __asm__(".symver gs_at_" #v "_" #symbol "," #name at);
#define GS_EXPORT_11(...) GS_VERSIONED(11, "@libcudart.so.11.0", __VA_ARGS__)
#define GS_EXPORT_12(...) GS_VERSIONED(12, "@libcudart.so.12", __VA_ARGS__)
#define GS_EXPORT_13(...) GS_VERSIONED(13, "@@libcudart.so.13", __VA_ARGS__)
#define GS_EXPORT_11_12(...) GS_EXPORT_11(__VA_ARGS__) GS_EXPORT_12(__VA_ARGS__)
#define GS_EXPORT_12_13(...) GS_EXPORT_12(__VA_ARGS__) GS_EXPORT_13(__VA_ARGS__)
#define GS_EXPORT_ALL(...) GS_EXPORT_11_12(__VA_ARGS__) GS_EXPORT_13(__VA_ARGS__)
#define GS_EXPORT_RT(versions, wrapper, symbol, name, stream, params, args, act) \
    GS_EXPORT_##versions(wrapper, symbol, name, stream, params, args, act)

#define GS_EXPORT_DRV(versions, wrapper, symbol, name, stream, params, args, act)                           \
    wrapper(DRV, cu, GS_VERSION_DRIVER, symbol, stream, params, args, act) extern GS_RESULT_DRV name params \
        __attribute__((alias("gs_do_cu_" #symbol), visibility("default")));

#define GS_ROW(layer, symbol, name, versions, stream, params, args, act) \
    GS_EXPORT_##layer(versions, GS_WRAPPER, symbol, name, stream, params, args, act)
#define GS_FINDER_ROW(layer, symbol, name, versions, params, args, asked, pointer) \
    GS_EXPORT_##layer(versions, GS_FINDING, symbol, name, 0, params, args, FIND(asked, pointer))
#define GS_TELLER_ROW(layer, symbol, name, versions, params, args, total, device) \
    GS_EXPORT_##layer(versions, GS_FINDING, symbol, name, 0, params, args, TELL(total, device))
#include "interpose/cuda_api.def"

/* --- their addresses ------------------------------------------------------------------------- */

#define GS_AT_11(symbol) [GS_VERSION_11] = (void *)gs_do_11_##symbol,
#define GS_AT_12(symbol) [GS_VERSION_12] = (void *)gs_do_12_##symbol,
#define GS_AT_13(symbol) [GS_VERSION_13] = (void *)gs_do_13_##symbol,
#define GS_AT_11_12(symbol) GS_AT_11(symbol) GS_AT_12(symbol)
#define GS_AT_12_13(symbol) GS_AT_12(symbol) GS_AT_13(symbol)
#define GS_AT_ALL(symbol) GS_AT_11_12(symbol) GS_AT_13(symbol)
#define GS_ALL_AT_RT(versions, symbol) GS_AT_##versions(symbol)
#define GS_ALL_AT_DRV(versions, symbol) [GS_VERSION_DRIVER] = (void *)gs_do_cu_##symbol,

void *const gs_wrappers[GS_API_CUDA_END][GS_VERSIONS] = {
#define GS_ROW(layer, symbol, name, versions, stream, params, args, act) \
    [GS_API_##symbol] = {GS_ALL_AT_##layer(versions, symbol)},
#include "interpose/cuda_api.def"
};
