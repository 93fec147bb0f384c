// A fixed sequence of allocations, copies, fills, waits, a graph and kernels, against the real CUDA.
// Compiled with the local nvcc against the shared and the static runtime; `-DDRIVER` adds what only
// the driver API has (virtual memory management, a context of its own). Every size is a multiple of
// 2 MiB, so that the device's free memory moves by exactly what is allocated: wherever cudaMemGetInfo
// is called, gpuspy's live bytes must have moved by as much since the call before.
//
// The sequence runs twice: CUDA loads its own kernels at their first use, so only the second round's
// samples are exact. Prints as JSON how often each kind of act was done: what the recording must show.
// With WORKLOAD_SIMULATED set, what the kernel computed is not looked at.
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB(n) ((size_t)(n) << 20)
#define OK(call)                                                                                   \
    do {                                                                                           \
        int r = (int)(call);                                                                       \
        if (r) {                                                                                   \
            fprintf(stderr, "%s:%d: %s gave %d\n", __FILE__, __LINE__, #call, r);                  \
            exit(9);                                                                               \
        }                                                                                          \
    } while (0)

static struct {
    int alloc, copy, set, sync, launch, sample;
} made;

__global__ void add_one(float *x, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        x[i] += 1;
}

static void launch(float *x, size_t n, cudaStream_t s)
{
    add_one<<<64, 256, 0, s>>>(x, n);
    OK(cudaGetLastError());
    made.launch++;
}

static void sample(void)
{
    size_t free_bytes, total;
    OK(cudaMemGetInfo(&free_bytes, &total));
    made.sample++;
}

static void *device(size_t bytes)
{
    void *p;
    OK(cudaMalloc(&p, bytes));
    made.alloc++;
    return p;
}

static void plain(void)
{
    sample();
    void *a = device(MIB(64)), *b = device(MIB(2)), *c = device(MIB(512));
    sample();
    OK(cudaFree(b));
    sample();
    b = device(MIB(6));
    sample();
    OK(cudaMemset(a, 1, MIB(64)));
    made.set++;
    OK(cudaMemcpy(c, a, MIB(64), cudaMemcpyDeviceToDevice));
    made.copy++;
    OK(cudaFree(a));
    OK(cudaFree(b));
    OK(cudaFree(c));
    sample();
}

static void host(void)
{
    float *pinned, *pageable = (float *)calloc(MIB(4), 1), *d = (float *)device(MIB(4)), *managed;
    OK(cudaMallocHost(&pinned, MIB(4)));
    OK(cudaMallocManaged(&managed, MIB(4), cudaMemAttachGlobal));
    made.alloc += 2;
    memset(pinned, 0, MIB(4));
    cudaStream_t s;
    OK(cudaStreamCreate(&s));
    OK(cudaMemcpy(d, pageable, MIB(4), cudaMemcpyHostToDevice));
    OK(cudaMemcpyAsync(d, pinned, MIB(4), cudaMemcpyHostToDevice, s));
    made.copy += 2;
    launch(d, MIB(1), s);
    OK(cudaMemcpyAsync(pinned, d, MIB(4), cudaMemcpyDeviceToHost, s));
    made.copy++;
    OK(cudaStreamSynchronize(s));
    made.sync++;
    if (pinned[0] != 1 && !getenv("WORKLOAD_SIMULATED")) exit(8);
    OK(cudaMemcpy(managed, d, MIB(4), cudaMemcpyDefault));
    made.copy++;
    OK(cudaDeviceSynchronize());
    made.sync++;
    OK(cudaStreamDestroy(s));
    OK(cudaFree(managed));
    OK(cudaFree(d));
    OK(cudaFreeHost(pinned));
    free(pageable);
    sample();
}

static void pitched(void)
{
    void *p, *q;
    size_t pitch;
    struct cudaPitchedPtr box;
    OK(cudaMallocPitch(&p, &pitch, MIB(1), 16));
    OK(cudaMalloc3D(&box, make_cudaExtent(MIB(1), 4, 4)));
    q = device(MIB(16));
    made.alloc += 2;
    OK(cudaMemcpy2D(q, MIB(1), p, pitch, MIB(1), 16, cudaMemcpyDeviceToDevice));
    made.copy++;
    sample();
    OK(cudaFree(p));
    OK(cudaFree(q));
    OK(cudaFree(box.ptr));
    sample();
}

static void ordered(void)
{
    cudaStream_t s;
    void *p, *q;
    OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    OK(cudaMallocAsync(&p, MIB(32), s));
    OK(cudaMallocAsync(&q, MIB(2), s));
    made.alloc += 2;
    OK(cudaFreeAsync(p, s));
    OK(cudaFreeAsync(q, s));
    OK(cudaStreamSynchronize(s));
    made.sync++;
    cudaMemPool_t pool;
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolTrimTo(pool, 0));
    OK(cudaStreamDestroy(s));
}

static void graph(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    float *d = (float *)device(MIB(2));
    OK(cudaStreamCreate(&s));
    OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    launch(d, MIB(2) / 4, s);
    OK(cudaStreamEndCapture(s, &g));
    OK(cudaGraphInstantiate(&exec, g, 0));
    for (int i = 0; i < 10; i++) OK(cudaGraphLaunch(exec, s));
    OK(cudaStreamSynchronize(s));
    made.sync++;
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(g));
    OK(cudaStreamDestroy(s));
    OK(cudaFree(d));
    sample();
}

static void refused(void)
{
    void *p;
    if (cudaMalloc(&p, (size_t)1 << 50) != cudaErrorMemoryAllocation) exit(7);
    cudaGetLastError();
}

#ifdef DRIVER
static void mapped(void)
{
    CUmemAllocationProp where;
    memset(&where, 0, sizeof where);
    where.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    where.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle first, second;
    CUdeviceptr range;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location = where.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    OK(cuMemAddressReserve(&range, MIB(64), 0, 0, 0));
    OK(cuMemCreate(&first, MIB(20), &where, 0));
    OK(cuMemCreate(&second, MIB(2), &where, 0));
    made.alloc += 2;
    sample();
    OK(cuMemMap(range, MIB(20), 0, first, 0));
    OK(cuMemMap(range + MIB(20), MIB(2), 0, second, 0));
    OK(cuMemSetAccess(range, MIB(22), &access, 1));
    OK(cuMemRelease(first)); /* the mapping keeps it */
    sample();
    OK(cuMemsetD8((CUdeviceptr)range, 0, MIB(22)));
    made.set++;
    OK(cuMemUnmap(range, MIB(22)));
    sample(); /* the first went, the second has its handle still */
    OK(cuMemRelease(second));
    OK(cuMemAddressFree(range, MIB(64)));
    sample();
}
#else
static void mapped(void)
{
}
#endif

int main(void)
{
    OK(cudaFree(0));
    for (int round = 0; round < 2; round++) {
        plain();
        host();
        pitched();
        ordered();
        graph();
        mapped();
        refused();
    }
    printf("{\"alloc\": %d, \"copy\": %d, \"set\": %d, \"sync\": %d, \"launch\": %d, \"sample\": %d}\n", made.alloc,
           made.copy, made.set, made.sync, made.launch, made.sample);
    return 0;
}
