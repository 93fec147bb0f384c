/* A small program in several builds: each runtime by its soname, the archive, and the toolkit's own
 * headers. Prints one line that ends in "ok". */
#ifdef SMOKE_TOOLKIT
#include <cuda_runtime_api.h>
#else
#include "fixtures/simcuda/include/simcuda.h"
#endif

#include <dlfcn.h>
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
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(memory));
    if (strcmp(back, text) != 0 || strcmp(device.properties.name, "Simulated GPU") != 0)
        return 2;
    int visible = dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL;
    printf("runtime %d, cudaMalloc %s, ok\n", version, visible ? "visible" : "hidden");
    return 0;
}
