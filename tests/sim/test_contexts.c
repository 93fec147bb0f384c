/* Contexts by their newer and older calls, green contexts, events of whole contexts. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

static CUcontext primary(void)
{
    CUcontext ctx;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&ctx, 0));
    OK(cuCtxSetCurrent(ctx));
    return ctx;
}

static size_t used(void)
{
    size_t own, other, total;
    OK(simcudaMemoryUsed(0, &own, &other, &total));
    return own;
}

static CUcontext current(void)
{
    CUcontext ctx;
    OK(cuCtxGetCurrent(&ctx));
    return ctx;
}

/* ------------------------------------------------------------------ created and destroyed */

static void creation(void)
{
    CUcontext first = primary(), third, fourth;
    CUctxCreateParams params = {0};
    CUexecAffinityParam affinity = {.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT};
    OK(cuCtxCreate_v3(&third, NULL, 0, 0, 0));
    CHECK(current() == third);
    CHECK_EQ(cuCtxCreate_v3(&fourth, &affinity, 1, 0, 0), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    OK(cuCtxCreate_v4(&fourth, NULL, 0, 0));
    OK(cuCtxDestroy_v2(fourth));
    OK(cuCtxCreate_v4(&fourth, &params, 0, 0));
    CHECK_EQ(used(), 30 * MIB);
    params.cigParams = (CUctxCigParam *)&affinity;
    CHECK_EQ(cuCtxCreate_v4(&fourth, &params, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuCtxDestroy_v2(fourth));
    OK(cuCtxDestroy_v2(third));
    CHECK(current() == first);
    CHECK_EQ(used(), 10 * MIB);
}

static void attached(void)
{
    CUcontext first = primary(), created, again;
    CUdeviceptr memory;
    OK(cuCtxCreate_v2(&created, 0, 0));
    OK(cuMemAlloc_v2(&memory, 4 * MIB));
    CHECK_EQ(cuCtxAttach(&again, 1), CUDA_ERROR_INVALID_VALUE);
    OK(cuCtxAttach(&again, 0));
    CHECK(again == created);
    OK(cuCtxDetach(created));
    CHECK_EQ(used(), 24 * MIB);
    OK(cuCtxPushCurrent_v2(first));
    CHECK_EQ(cuCtxDetach(created), CUDA_ERROR_INVALID_CONTEXT); /* not current */
    OK(cuCtxPopCurrent_v2(&again));
    OK(cuCtxDetach(created)); /* the last reference: it is destroyed, with its memory */
    CHECK_EQ(used(), 10 * MIB);
    CHECK_EQ(cuCtxDetach(created), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxSetCurrent(NULL));
    CHECK_EQ(cuCtxAttach(&again, 0), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_creation(void **state)
{
    scenario(creation, "SIMCUDA_CONTEXT=10MiB", NULL);
    scenario(attached, "SIMCUDA_CONTEXT=10MiB", NULL);
}

/* ------------------------------------------------------------------ green contexts */

static CUgreenCtx green(unsigned sms)
{
    CUdevResource all, part;
    CUdevResourceDesc description;
    CUgreenCtx ctx;
    unsigned groups = 1;
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    OK(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, sms));
    CHECK_EQ(groups, 1);
    OK(cuDevResourceGenerateDesc(&description, &part, 1));
    OK(cuGreenCtxCreate(&ctx, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    return ctx;
}

static void resources(void)
{
    CUdevResource all, parts[8], rest;
    CUdevResourceDesc description;
    CUgreenCtx ctx;
    unsigned groups = 0;
    primary();
    OK(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(all.sm.smCount, 108);
    OK(cuDevSmResourceSplitByCount(NULL, &groups, &all, NULL, 0, 15)); /* only asks */
    CHECK_EQ(groups, 108 / 16);
    groups = 8;
    OK(cuDevSmResourceSplitByCount(parts, &groups, &all, &rest, 0, 15));
    CHECK(groups == 6 && parts[5].sm.smCount == 16 && rest.sm.smCount == 12);
    CHECK_EQ(cuDevSmResourceSplitByCount(parts, &groups, &parts[0], NULL, 0, 4),
             CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CHECK_EQ(cuDevSmResourceSplitByCount(parts, &groups, &all, NULL, 0, 109), CUDA_ERROR_INVALID_VALUE);
    OK(cuDevResourceGenerateDesc(&description, parts, 2));
    CHECK_EQ(cuGreenCtxCreate(&ctx, description, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuGreenCtxCreate(&ctx, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    OK(cuGreenCtxGetDevResource(ctx, &rest, CU_DEV_RESOURCE_TYPE_SM));
    CHECK_EQ(rest.sm.smCount, 32);
    CHECK_EQ(cuGreenCtxGetDevResource(ctx, &rest, CU_DEV_RESOURCE_TYPE_INVALID), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    parts[0].type = CU_DEV_RESOURCE_TYPE_INVALID;
    CHECK_EQ(cuDevResourceGenerateDesc(&description, parts, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
}

/* Memory belongs to the primary context; the streams and their order to the green one. */
static void green_memory(void)
{
    CUcontext first = primary(), ctx;
    CUgreenCtx one = green(16), of_stream;
    CUdeviceptr memory;
    CUstream stream;
    unsigned long long id, other;
    CHECK_EQ(used(), 10 * MIB); /* it needs no memory of its own */
    OK(cuCtxFromGreenCtx(&ctx, one));
    CHECK(ctx != first);
    OK(cuCtxPushCurrent_v2(ctx));
    OK(cuMemAlloc_v2(&memory, 4 * MIB));
    OK(cuGreenCtxStreamCreate(&stream, one, CU_STREAM_NON_BLOCKING, 0));
    OK(cuStreamGetGreenCtx(stream, &of_stream));
    CHECK(of_stream == one);
    OK(cuGreenCtxGetId(one, &id));
    OK(cuGreenCtxGetId(NULL, &other)); /* the current one's */
    CHECK_EQ(id, other);
    OK(simcudaLaunchBusy(stream, 300));
    OK(cuMemsetD8Async(memory, 1, 4 * MIB, stream));
    CHECK_EQ(cuCtxDestroy_v2(ctx), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuCtxPopCurrent_v2(&ctx));
    OK(cuStreamGetGreenCtx(NULL, &of_stream));
    CHECK(of_stream == NULL);
    CHECK_EQ(cuGreenCtxGetId(NULL, &other), CUDA_ERROR_INVALID_CONTEXT);
    OK(cuStreamDestroy_v2(stream));
    OK(cuGreenCtxDestroy(one));
    CHECK_EQ(cuGreenCtxDestroy(one), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(cuCtxPushCurrent_v2(ctx), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_EQ(used(), 14 * MIB);
    OK(cuMemFree_v2(memory)); /* outlives it */
    CHECK_EQ(used(), 10 * MIB);
}

static void green_keeps_primary(void)
{
    CUcontext ctx;
    CUdeviceptr memory;
    unsigned flags;
    int active;
    primary();
    CUgreenCtx one = green(8);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQ(active, 1);
    OK(cuCtxFromGreenCtx(&ctx, one));
    OK(cuCtxSetCurrent(ctx));
    OK(cuMemAlloc_v2(&memory, 4 * MIB));
    OK(cuGreenCtxDestroy(one));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK_EQ(active, 0);
    CHECK_EQ(used(), 0);
}

static void test_green(void **state)
{
    scenario(resources, NULL);
    scenario(green_memory, "SIMCUDA_CONTEXT=10MiB", NULL);
    scenario(green_keeps_primary, "SIMCUDA_CONTEXT=10MiB", NULL);
}

/* ------------------------------------------------------------------ events of whole contexts */

static void context_events(void)
{
    CUgreenCtx one, two;
    CUstream streams[2], waiting, later;
    CUcontext ctx;
    CUevent event, own;
    int64_t now;
    primary();
    one = green(8);
    two = green(8);
    OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(cuCtxFromGreenCtx(&ctx, two));
    for (int i = 0; i < 2; i++) OK(cuGreenCtxStreamCreate(&streams[i], one, CU_STREAM_NON_BLOCKING, 0));
    OK(cuGreenCtxStreamCreate(&waiting, two, CU_STREAM_NON_BLOCKING, 0));
    OK(simcudaLaunchBusy(streams[0], 100));
    OK(simcudaLaunchBusy(streams[1], 700));
    OK(cuGreenCtxRecordEvent(one, event)); /* all of it */
    CHECK_EQ(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    OK(cuGreenCtxWaitEvent(two, event));
    OK(simcudaLaunchBusy(waiting, 10));
    OK(cuGreenCtxStreamCreate(&later, two, CU_STREAM_NON_BLOCKING, 0)); /* waits, too */
    OK(simcudaLaunchBusy(later, 20));
    OK(cuStreamSynchronize(waiting));
    OK(simcudaNow(&now));
    CHECK_EQ(now / MICROSECOND, 710);
    OK(cuStreamSynchronize(later));
    OK(simcudaNow(&now));
    CHECK_EQ(now / MICROSECOND, 720);
    OK(cuEventCreate(&own, 0));
    OK(cuCtxRecordEvent(NULL, own));
    OK(cuCtxWaitEvent(NULL, own));
    OK(cuEventSynchronize(own));
    CHECK_EQ(cuGreenCtxRecordEvent((CUgreenCtx)&now, own), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_context_events(void **state)
{
    scenario(context_events, "SIMCUDA_CLOCK=virtual", NULL);
}

CASES(test_creation, test_green, test_context_events)
