/* A small program in several builds: each runtime by its soname, the archive, and the toolkit's own
 * headers. Prints one line that ends in "ok". */
#ifdef SMOKE_TOOLKIT
#include <cuda_runtime_api.h>
#else
#include "fixtures/simcuda/include/simcuda.h"
#endif

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define OK(call)                                                           \
    do {                                                                   \
        cudaError_t error = (call);                                        \
        if (error != cudaSuccess) {                                        \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
            return 1;                                                      \
        }                                                                  \
    } while (0)

/* Room for the device properties of every version of the struct. */
static union {
    struct cudaDeviceProp properties;
    char room[4096];
} device;

/* A function whose form differs between versions under the same name, in this build's form. */
static int replay(void *memory, char *back, size_t size, cudaStream_t stream)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    enum cudaStreamCaptureStatus status;
    unsigned long long id = 0;
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
#if defined(SMOKE_TOOLKIT) || SIMCUDART_VERSION >= 13000
    OK(cudaStreamGetCaptureInfo(stream, &status, &id, NULL, NULL, NULL, NULL));
#else
    OK(cudaStreamGetCaptureInfo(stream, &status, &id));
#endif
    OK(cudaMemsetAsync(memory, 0, 1, stream));
    OK(cudaMemcpyAsync(back, memory, size, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamEndCapture(stream, &graph));
#if !defined(SMOKE_TOOLKIT) && SIMCUDART_VERSION < 12000
    OK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
#else
    OK(cudaGraphInstantiate(&exec, graph, 0));
#endif
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    return status != cudaStreamCaptureStatusActive || id == 0 || back[0] != 0;
}

int main(void)
{
    int version;
    void *memory;
    char text[] = "smoke", back[sizeof text] = "";
    cudaStream_t stream;
    cudaEvent_t event;
    OK(cudaRuntimeGetVersion(&version));
    OK(cudaGetDeviceProperties(&device.properties, 0));
    OK(cudaMalloc(&memory, sizeof text));
    OK(cudaMemcpy(memory, text, sizeof text, cudaMemcpyHostToDevice));
    OK(cudaStreamCreate(&stream));
    OK(cudaEventCreate(&event));
    OK(cudaMemcpyAsync(back, memory, sizeof text, cudaMemcpyDeviceToHost, stream));
    OK(cudaEventRecord(event, stream));
    OK(cudaEventSynchronize(event));
    OK(cudaEventDestroy(event));
    bool same = strcmp(back, text) == 0;
    if (replay(memory, back, sizeof back, stream) != 0 || strcmp(back + 1, text + 1) != 0) return 3;
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(memory));
    if (!same || strcmp(device.properties.name, "Simulated GPU") != 0) return 2;
    int visible = dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL;
    printf("runtime %d, cudaMalloc %s, ok\n", version, visible ? "visible" : "hidden");
    return 0;
}
