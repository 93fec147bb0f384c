/* CUDA arrays and mipmapped arrays: their size, valid descriptors, copies into and out of them through both APIs, and
 * device variables. */
#include "fixtures/simcuda/include/simcuda.h"
#include "tests/sim/scenario.h"

static size_t used(void)
{
    size_t free, total;
    OK(cudaMemGetInfo(&free, &total));
    return total - free;
}

static void numbers(unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)(i * 7 + i / 251);
}

/* ------------------------------------------------------------------ lifetime and size */

static CUDA_ARRAY3D_DESCRIPTOR floats(size_t width, size_t height, size_t depth, unsigned flags)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                     .Height = height,
                                     .Depth = depth,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 1,
                                     .Flags = flags};
}

static void cost(void)
{
    OK(cudaFree(NULL));
    size_t before = used();
    CUarray array, small;
    CUDA_ARRAY3D_DESCRIPTOR desc = floats(1024, 1024, 4, 0), got;
    OK(cuArray3DCreate_v2(&array, &desc));
    CHECK_EQ(used() - before, 16 * MIB);
    OK(cuArray3DGetDescriptor_v2(&got, array));
    CHECK(got.Width == 1024 && got.Height == 1024 && got.Depth == 4 && got.Flags == 0);
    CHECK(got.Format == CU_AD_FORMAT_FLOAT && got.NumChannels == 1);
    desc = floats(17, 0, 0, 0);
    OK(cuArray3DCreate_v2(&small, &desc));
    CHECK_EQ(used() - before, 18 * MIB);
    CUDA_ARRAY_DESCRIPTOR flat;
    OK(cuArrayGetDescriptor_v2(&flat, small));
    CHECK(flat.Width == 17 && flat.Height == 0 && flat.NumChannels == 1);
    OK(cuArrayDestroy(array));
    CHECK_EQ(used() - before, 2 * MIB);
    CHECK_EQ(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuArray3DGetDescriptor_v2(&got, array), CUDA_ERROR_INVALID_HANDLE);
    array = NULL;
    desc = floats(16384, 16384, 1024, 0);
    CHECK_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(array == NULL);
    OK(cudaDeviceReset());
    CHECK_EQ(cuArrayDestroy(small), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    OK(cudaFree(NULL));
    CHECK_EQ(used(), before); /* it was freed with its context */
    CHECK_EQ(cuArrayDestroy(small), CUDA_ERROR_INVALID_HANDLE);
}

static void test_cost(void **state)
{
    scenario(cost, "SIMCUDA_MEMORY=1GiB", NULL);
}

static void descriptors(void)
{
    enum { GOOD = 0, BAD = CUDA_ERROR_INVALID_VALUE };
    static const struct {
        size_t width, height, depth;
        unsigned flags;
        int result;
    } cases[] = {
        {0, 0, 0, 0, BAD},
        {131072, 0, 0, 0, GOOD},
        {131073, 0, 0, 0, BAD},
        {131072, 0, 0, CUDA_ARRAY3D_SURFACE_LDST, BAD},
        {32768, 0, 0, CUDA_ARRAY3D_SURFACE_LDST, GOOD},
        {16, 0, 4, 0, BAD},
        {16, 0, 4, CUDA_ARRAY3D_LAYERED, GOOD},
        {16, 0, 0, CUDA_ARRAY3D_LAYERED, BAD},
        {16, 16, 2049, CUDA_ARRAY3D_LAYERED, BAD},
        {64, 64, 6, CUDA_ARRAY3D_CUBEMAP, GOOD},
        {64, 32, 6, CUDA_ARRAY3D_CUBEMAP, BAD},
        {64, 64, 5, CUDA_ARRAY3D_CUBEMAP, BAD},
        {64, 64, 12, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED, GOOD},
        {64, 64, 0, CUDA_ARRAY3D_TEXTURE_GATHER, GOOD},
        {64, 64, 2, CUDA_ARRAY3D_TEXTURE_GATHER, BAD},
        {8, 8, 16385, 0, GOOD}, /* by the alternative limits */
        {8193, 8, 16385, 0, BAD},
        {64, 64, 0, 0x1000, BAD},
    };
    OK(cudaFree(NULL));
    CUarray array;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CUDA_ARRAY3D_DESCRIPTOR desc = floats(cases[i].width, cases[i].height, cases[i].depth, cases[i].flags);
        CHECK_EQ(cuArray3DCreate_v2(&array, &desc), cases[i].result);
        if (cases[i].result == GOOD) OK(cuArrayDestroy(array));
    }
    CUDA_ARRAY3D_DESCRIPTOR desc = floats(16, 0, 0, 0);
    desc.NumChannels = 3;
    CHECK_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    desc.NumChannels = 2;
    desc.Format = CU_AD_FORMAT_UNORM_INT8X4;
    CHECK_EQ(cuArray3DCreate_v2(&array, &desc), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuArray3DCreate_v2(&array, NULL), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    desc = floats(1000, 1000, 0, CUDA_ARRAY3D_DEFERRED_MAPPING);
    size_t before = used();
    OK(cuArray3DCreate_v2(&array, &desc));
    CHECK_EQ(used(), before); /* its memory is mapped later */
    OK(cuArrayGetMemoryRequirements(&needs, array, 0));
    CHECK(needs.size >= 4000000 && needs.alignment != 0);
    char byte;
    CHECK_EQ(cuMemcpyAtoH_v2(&byte, array, 0, 4), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(array));
}

static void test_descriptors(void **state)
{
    scenario(descriptors, NULL);
}

static void channel_formats(void)
{
    static const struct cudaChannelFormatDesc good[] = {
        {8, 0, 0, 0, cudaChannelFormatKindUnsigned},
        {16, 16, 0, 0, cudaChannelFormatKindSigned},
        {32, 32, 32, 32, cudaChannelFormatKindFloat},
        {16, 0, 0, 0, cudaChannelFormatKindFloat},
        {8, 8, 8, 8, cudaChannelFormatKindUnsignedNormalized8X4},
    };
    static const struct cudaChannelFormatDesc bad[] = {
        {8, 8, 8, 0, cudaChannelFormatKindUnsigned},
        {8, 16, 0, 0, cudaChannelFormatKindUnsigned},
        {8, 0, 8, 0, cudaChannelFormatKindUnsigned},
        {64, 0, 0, 0, cudaChannelFormatKindFloat},
        {8, 8, 0, 0, cudaChannelFormatKindUnsignedNormalized8X4},
        {0, 0, 0, 0, cudaChannelFormatKindUnsigned},
    };
    cudaArray_t array;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct cudaChannelFormatDesc desc;
        struct cudaExtent extent;
        unsigned flags;
        OK(cudaMallocArray(&array, &good[i], 10, 20, cudaArraySurfaceLoadStore));
        OK(cudaArrayGetInfo(&desc, &extent, &flags, array));
        OK(memcmp(&desc, &good[i], sizeof desc));
        CHECK(extent.width == 10 && extent.height == 20 && extent.depth == 0);
        CHECK_EQ(flags, cudaArraySurfaceLoadStore);
        OK(cudaGetChannelDesc(&desc, array));
        OK(memcmp(&desc, &good[i], sizeof desc));
        OK(cudaFreeArray(array));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK_EQ(cudaMallocArray(&array, &bad[i], 10, 20, 0), cudaErrorInvalidValue);
    OK(cudaFreeArray(NULL));
    struct cudaChannelFormatDesc made = cudaCreateChannelDesc(8, 8, 0, 0, cudaChannelFormatKindUnsigned);
    CHECK(made.y == 8 && made.f == cudaChannelFormatKindUnsigned);
}

static void test_channel_formats(void **state)
{
    scenario(channel_formats, NULL);
}

static void mipmaps(void)
{
    struct cudaChannelFormatDesc desc = {8, 8, 8, 8, cudaChannelFormatKindUnsigned};
    cudaMipmappedArray_t mipmap, layered;
    cudaArray_t level;
    struct cudaExtent extent;
    OK(cudaFree(NULL));
    size_t before = used();
    OK(cudaMallocMipmappedArray(&mipmap, &desc, (struct cudaExtent){1024, 512, 0}, 99, 0));
    CHECK_EQ(used() - before, 4 * MIB); /* 2 MiB, and a third of it for the smaller levels */
    for (unsigned i = 0; i <= 10; i++) {
        OK(cudaGetMipmappedArrayLevel(&level, mipmap, i));
        OK(cudaArrayGetInfo(NULL, &extent, NULL, level));
        CHECK_EQ(extent.width, 1024 >> i);
        CHECK_EQ(extent.height, i < 10 ? 512 >> i : 1);
    }
    CHECK_EQ(cudaGetMipmappedArrayLevel(&level, mipmap, 11), cudaErrorInvalidValue);
    unsigned char out[2][64 * 4], in[sizeof out], back[sizeof out];
    numbers(in, sizeof in);
    for (unsigned i = 3; i <= 4; i++) { /* levels do not overlap */
        OK(cudaGetMipmappedArrayLevel(&level, mipmap, i));
        OK(cudaMemcpy2DToArray(level, 0, 0, in + i, 256, 256, 1, cudaMemcpyHostToDevice));
    }
    for (unsigned i = 3; i <= 4; i++) {
        OK(cudaGetMipmappedArrayLevel(&level, mipmap, i));
        OK(cudaMemcpy2DFromArray(back, 256, level, 0, 0, 256, 1, cudaMemcpyDeviceToHost));
        OK(memcmp(back, in + i, 256));
    }
    CHECK_EQ(cudaFreeArray(level), cudaErrorInvalidResourceHandle); /* belongs to the mipmap */
    OK(cudaMallocMipmappedArray(&layered, &desc, (struct cudaExtent){64, 64, 5}, 2, cudaArrayLayered));
    OK(cudaGetMipmappedArrayLevel(&level, layered, 1));
    OK(cudaArrayGetInfo(NULL, &extent, NULL, level));
    CHECK(extent.width == 32 && extent.height == 32 && extent.depth == 5);
    OK(cudaFreeMipmappedArray(layered));
    OK(cudaFreeMipmappedArray(mipmap));
    CHECK_EQ(used(), before);
    CHECK_EQ(cudaFreeMipmappedArray(mipmap), cudaErrorInvalidResourceHandle);
}

static void test_mipmaps(void **state)
{
    scenario(mipmaps, NULL);
}

/* ------------------------------------------------------------------ data */

enum { W = 40, H = 6, D = 3 }; /* a row is no whole number of blocks */

static void linear_array_copies(void)
{
    unsigned char in[W * 4], back[W * 4];
    CUDA_ARRAY_DESCRIPTOR desc = {W, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CUarray a, b;
    CUdeviceptr memory;
    numbers(in, sizeof in);
    OK(cudaFree(NULL));
    OK(cuArrayCreate_v2(&a, &desc));
    OK(cuArrayCreate_v2(&b, &desc));
    OK(cuMemAlloc_v2(&memory, sizeof in));
    OK(cuMemcpyHtoA_v2(a, 0, in, sizeof in));
    OK(cuMemcpyAtoA_v2(b, 8, a, 4, 16));
    OK(cuMemcpyAtoD_v2(memory, b, 8, 16));
    OK(cuMemcpyDtoA_v2(b, 40, memory, 16));
    OK(cuMemcpyAtoH_v2(back, b, 40, 16));
    OK(memcmp(back, in + 4, 16));
    CUstream stream;
    OK(cuStreamCreate(&stream, 0));
    OK(cuMemcpyHtoAAsync_v2(b, 80, in, 16, stream));
    OK(cuMemcpyAtoHAsync_v2(back, b, 80, 16, stream));
    OK(cuStreamSynchronize(stream));
    OK(memcmp(back, in, 16));
    CHECK_EQ(cuMemcpyAtoH_v2(back, a, 2, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyAtoH_v2(back, a, 0, 6), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyAtoH_v2(back, a, W * 4 - 4, 8), CUDA_ERROR_INVALID_VALUE);
    CHECK_EQ(cuMemcpyAtoH_v2(back, (CUarray)in, 0, 4), CUDA_ERROR_INVALID_HANDLE);
    CHECK_EQ(cuMemcpyAtoD_v2((uintptr_t)back, a, 0, 4), CUDA_ERROR_INVALID_VALUE);
}

static void test_linear_array_copies(void **state)
{
    scenario(linear_array_copies, NULL);
}

static void old_forms(void)
{
    unsigned char in[64], back[64];
    CUDA_ARRAY_DESCRIPTOR_v1 desc = {16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1}, got;
    CUDA_ARRAY3D_DESCRIPTOR_v1 solid = {4, 4, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, got_solid;
    CUarray array, cube;
    simcuda_ptr32 memory;
    numbers(in, sizeof in);
    OK(cudaFree(NULL));
    OK(cuArrayCreate(&array, &desc));
    OK(cuArrayGetDescriptor(&got, array));
    OK(memcmp(&got, &desc, sizeof got));
    OK(cuArray3DCreate(&cube, &solid));
    OK(cuArray3DGetDescriptor(&got_solid, cube));
    OK(memcmp(&got_solid, &solid, sizeof solid));
    OK(cuMemAlloc(&memory, 64));
    OK(cuMemsetD2D16(memory, 16, 0x4142, 3, 2));
    OK(cuMemcpyDtoH(back, memory, 32));
    OK(memcmp(back, "BABABA", 6));
    OK(memcmp(back + 16, "BABABA", 6));
    CUDA_MEMCPY2D_v1 up = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = in,
                           .srcPitch = 16,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .dstArray = array,
                           .WidthInBytes = 16,
                           .Height = 4};
    OK(cuMemcpy2D(&up));
    CUDA_MEMCPY2D_v1 down = {.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                             .srcArray = array,
                             .srcXInBytes = 3,
                             .srcY = 1,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = memory,
                             .dstPitch = 8,
                             .WidthInBytes = 5,
                             .Height = 3};
    OK(cuMemcpy2DUnaligned(&down));
    OK(cuMemcpyDtoH(back, memory, 24));
    OK(memcmp(back + 16, in + 3 * 16 + 3, 5));
    CUDA_MEMCPY3D_v1 whole = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                              .srcHost = in,
                              .srcPitch = 4,
                              .srcHeight = 4,
                              .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                              .dstArray = cube,
                              .WidthInBytes = 4,
                              .Height = 4,
                              .Depth = 4};
    OK(cuMemcpy3D(&whole));
    OK(cuMemcpyAtoH(back, cube, 0, 4));
    OK(memcmp(back, in, 4));
    OK(cuMemcpyHtoA(array, 0, "0123456789abcdef", 16));
    OK(cuMemcpyAtoD(memory, array, 4, 4));
    OK(cuMemcpyDtoH(back, memory, 4));
    OK(memcmp(back, "4567", 4));
}

static void test_old_forms(void **state)
{
    scenario(old_forms, NULL);
}

static void solid_copies(void)
{
    static unsigned char in[D][H][W * 2], back[D][H][W * 2];
    struct cudaChannelFormatDesc desc = {16, 0, 0, 0, cudaChannelFormatKindSigned};
    cudaArray_t array, other;
    numbers(in[0][0], sizeof in);
    OK(cudaMalloc3DArray(&array, &desc, (struct cudaExtent){W, H, D}, 0));
    OK(cudaMalloc3DArray(&other, &desc, (struct cudaExtent){W, H, D}, 0));
    struct cudaMemcpy3DParms p = {
        .srcPtr = {in, W * 2, W * 2, H}, .dstArray = array, .extent = {W, H, D}, .kind = cudaMemcpyHostToDevice};
    OK(cudaMemcpy3D(&p));
    p = (struct cudaMemcpy3DParms){.srcArray = array,
                                   .srcPos = {2, 1, 1},
                                   .dstArray = other,
                                   .dstPos = {4, 0, 0},
                                   .extent = {10, 5, 2},
                                   .kind = cudaMemcpyDeviceToDevice};
    OK(cudaMemcpy3D(&p));
    p = (struct cudaMemcpy3DParms){.srcArray = other,
                                   .srcPos = {4, 0, 0},
                                   .dstPtr = {back, W * 2, W * 2, H},
                                   .dstPos = {6, 1, 1}, /* in bytes: there is no array here */
                                   .extent = {10, 5, 2},
                                   .kind = cudaMemcpyDeviceToHost};
    OK(cudaMemcpy3DAsync(&p, NULL));
    OK(cudaDeviceSynchronize());
    for (int z = 1; z < D; z++)
        for (int y = 1; y < H; y++) OK(memcmp(&back[z][y][6], &in[z][y][4], 20));
    CHECK_EQ(back[0][0][0] + back[1][1][5] + back[1][1][26], 0);
    p.extent.width = W; /* outside of the array */
    CHECK_EQ(cudaMemcpy3D(&p), cudaErrorInvalidValue);
    p.extent = (struct cudaExtent){0, 5, 2};
    OK(cudaMemcpy3D(&p));
    p.extent = (struct cudaExtent){10, 5, 2};
    p.kind = cudaMemcpyHostToDevice;
    CHECK_EQ(cudaMemcpy3D(&p), cudaErrorInvalidMemcpyDirection);
    p.kind = cudaMemcpyDefault;
    p.dstArray = array; /* and also a pointer */
    CHECK_EQ(cudaMemcpy3D(&p), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpy3D(NULL), cudaErrorInvalidValue);
    p.dstArray = NULL;
    p.dstPtr.pitch = 8;
    CHECK_EQ(cudaMemcpy3D(&p), cudaErrorInvalidPitchValue);
}

static void test_solid_copies(void **state)
{
    scenario(solid_copies, NULL);
}

static void flat_copies(void)
{
    unsigned char in[H * W], back[H * W];
    struct cudaChannelFormatDesc desc = {8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    cudaArray_t array, narrow;
    cudaStream_t stream;
    numbers(in, sizeof in);
    OK(cudaStreamCreate(&stream));
    OK(cudaMallocArray(&array, &desc, W, H, 0));
    OK(cudaMallocArray(&narrow, &desc, 7, 9, 0));
    OK(cudaMemcpyToArray(array, 0, 0, in, sizeof in, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2DFromArray(back, 10, array, 5, 2, 10, 3, cudaMemcpyDeviceToHost));
    OK(memcmp(back + 20, in + 4 * W + 5, 10));
    /* From the middle of a row, over whole rows, into the middle of another row. */
    OK(cudaMemcpyFromArrayAsync(back, array, 30, 1, 3 * W, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    OK(memcmp(back, in + W + 30, 3 * W));
    OK(cudaMemcpyArrayToArray(narrow, 3, 1, array, 35, 0, 40, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpyFromArray(back, narrow, 3, 1, 40, cudaMemcpyDeviceToHost));
    OK(memcmp(back, in + 35, 40));
    OK(cudaMemcpy2DToArrayAsync(array, 1, 1, in, 3, 3, 2, cudaMemcpyHostToDevice, stream));
    OK(cudaMemcpy2DArrayToArray(narrow, 0, 0, array, 1, 1, 3, 2, cudaMemcpyDeviceToDevice));
    OK(cudaMemcpy2DFromArrayAsync(back, 3, narrow, 0, 0, 3, 2, cudaMemcpyDeviceToHost, stream));
    OK(cudaStreamSynchronize(stream));
    OK(memcmp(back, in, 6));
    CHECK_EQ(cudaMemcpyToArray(array, 1, 0, in, sizeof in, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyToArray(array, W, 0, in, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyToArray(array, 0, 0, in, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaMemcpy2DToArray(array, 0, 0, in, 2, 3, 2, cudaMemcpyHostToDevice), cudaErrorInvalidPitchValue);
}

static void test_flat_copies(void **state)
{
    scenario(flat_copies, NULL);
}

/* ------------------------------------------------------------------ device variables */

static void variables(void)
{
    static char shadow[100], other[8];
    char back[100];
    void *address, *again;
    size_t size;
    __cudaRegisterVar(__cudaRegisterFatBinary(NULL), shadow, shadow, "shadow", 0, sizeof shadow, 0, 0);
    CHECK_EQ(cudaMemcpyToSymbol(other, "x", 1, 0, cudaMemcpyHostToDevice), cudaErrorInvalidSymbol);
    CHECK_EQ(cudaGetSymbolSize(&size, other), cudaErrorInvalidSymbol);
    OK(cudaGetSymbolSize(&size, shadow));
    CHECK_EQ(size, sizeof shadow);
    OK(cudaGetSymbolAddress(&address, shadow));
    CHECK(address != (void *)shadow);
    OK(cudaMemcpyToSymbol(shadow, "symbol", 6, 10, cudaMemcpyHostToDevice));
    OK(cudaMemcpyFromSymbolAsync(back, shadow, 7, 9, cudaMemcpyDeviceToHost, NULL));
    OK(cudaDeviceSynchronize());
    OK(memcmp(back, "\0symbol", 7));
    OK(cudaMemcpy(back, (char *)address + 10, 6, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "symbol", 6));
    CHECK_EQ(cudaMemcpyToSymbol(shadow, back, 91, 10, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    CHECK_EQ(cudaMemcpyToSymbol(shadow, back, 1, 0, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaMemcpyFromSymbol(back, shadow, 1, 0, cudaMemcpyHostToDevice), cudaErrorInvalidMemcpyDirection);
    CHECK_EQ(cudaFree(address), cudaErrorInvalidValue); /* it is not an allocation */
    OK(cudaSetDevice(1));                               /* each device has its own */
    OK(cudaGetSymbolAddress(&again, shadow));
    CHECK(again != address);
    OK(cudaMemcpyFromSymbol(back, shadow, 6, 10, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "\0\0\0\0\0\0", 6));
    OK(cudaSetDevice(0));
    OK(cudaGetSymbolAddress(&again, shadow));
    CHECK(again == address);
    OK(cudaDeviceReset()); /* and a new context has a new one */
    OK(cudaMemcpyFromSymbol(back, shadow, 6, 10, cudaMemcpyDeviceToHost));
    OK(memcmp(back, "\0\0\0\0\0\0", 6));
}

static void test_variables(void **state)
{
    scenario(variables, "SIMCUDA_DEVICES=2", NULL);
}

static void views(void)
{
    static const char description[64]; /* the simulator does not read it */
    const struct cudaResourceDesc *of = (const void *)description;
    cudaTextureObject_t texture = 0;
    cudaSurfaceObject_t surface = 0;
    OK(cudaCreateTextureObject(&texture, of, (const void *)description, NULL));
    OK(cudaCreateSurfaceObject(&surface, of));
    CHECK(texture != 0 && surface != 0 && texture != surface);
    CHECK_EQ(cudaCreateSurfaceObject(&surface, NULL), cudaErrorInvalidValue);
    OK(cudaDestroyTextureObject(texture));
    OK(cudaDestroySurfaceObject(surface));
}

static void test_views(void **state)
{
    scenario(views, NULL);
}

CASES(test_cost, test_descriptors, test_channel_formats, test_mipmaps, test_linear_array_copies, test_old_forms,
      test_solid_copies, test_flat_copies, test_variables, test_views)
