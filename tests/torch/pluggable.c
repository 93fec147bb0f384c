/* A custom allocator for torch.cuda.memory.CUDAPluggableAllocator: whole MiB from cudaMalloc. */
#include <stddef.h>
#include <sys/types.h>

int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
void *own_malloc(ssize_t bytes, int device, void *stream);
void own_free(void *pointer, ssize_t bytes, int device, void *stream);

void *own_malloc(ssize_t bytes, int device, void *stream)
{
    const size_t mib = 1 << 20;
    void *pointer = NULL;
    (void)device, (void)stream;
    return cudaMalloc(&pointer, ((size_t)bytes + mib - 1) / mib * mib) ? NULL : pointer;
}

void own_free(void *pointer, ssize_t bytes, int device, void *stream)
{
    (void)bytes, (void)device, (void)stream;
    cudaFree(pointer);
}
