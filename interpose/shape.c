#include "interpose/shape.h"

#include <string.h>
#include "interpose/ask.h"
#include "interpose/recorder.h"

GS_ASK(DRV, CUresult, cuPointerGetAttribute, void *, int, CUdeviceptr)
GS_ASK(DRV, CUresult, cuMemGetAddressRange_v2, CUdeviceptr *, size_t *, CUdeviceptr)
GS_ASK(DRV, CUresult, cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *, CUarray)

/* --- arrays ---------------------------------------------------------------------------------- */

/* Formats whose bits per texel do not follow from the number of channels: packed, planar and compressed ones.
 * X(CUarray_format, bits) */
/* clang-format off */
#define PACKED_FORMATS(X)                                                                          \
    X(0x50, 32) /* 10 10 10 2 */                                                                   \
    X(0xc0, 8) X(0xc1, 16) X(0xc2, 32) X(0xc3, 16) X(0xc4, 32) X(0xc5, 64)   /* unsigned norm. */  \
    X(0xc6, 8) X(0xc7, 16) X(0xc8, 32) X(0xc9, 16) X(0xca, 32) X(0xcb, 64)   /* signed norm. */    \
    X(0x91, 4) X(0x92, 4) X(0x97, 4) X(0x98, 4)                              /* BC1, BC4 */        \
    X(0x93, 8) X(0x94, 8) X(0x95, 8) X(0x96, 8) X(0x99, 8) X(0x9a, 8)        /* BC2, 3, 5 */       \
    X(0x9b, 8) X(0x9c, 8) X(0x9d, 8) X(0x9e, 8)                              /* BC6H, BC7 */       \
    X(0xb0, 12) X(0x9f, 24) X(0xa1, 24)                                      /* 4:2:0 */           \
    X(0xa2, 16) X(0xa3, 32) X(0xa4, 32) X(0xa5, 16) X(0xa6, 32) X(0xa7, 32)  /* 4:2:2 */           \
    X(0xa8, 32) X(0xa9, 32) X(0xb1, 64) X(0xb2, 24) X(0xb3, 48) X(0xb4, 24) X(0xb5, 48) /* 4:4:4 */
/* clang-format on */

static unsigned texel_bits(int format, unsigned channels)
{
    switch (format) {
    case 0x01: /* unsigned 8 */
    case 0x08: /* signed 8 */ return 8 * channels;
    case 0x02:
    case 0x09:
    case 0x10: /* half */ return 16 * channels;
    case 0x03:
    case 0x0a:
    case 0x20: /* float */ return 32 * channels;
#define FORMAT(value, bits) \
    case value: return bits;
        PACKED_FORMATS(FORMAT)
    default: /* of a later CUDA */ return 8 * channels;
    }
}

/* enum cudaChannelFormatKind: the description's bits are those of a texel, except for these. */
enum { CHANNEL_NV12 = 4, CHANNEL_BC1 = 17, CHANNEL_BC7_SRGB = 30 };

static unsigned channel_bits(const struct cudaChannelFormatDesc *c)
{
    if (c->f == CHANNEL_NV12) return 12;
    if (c->f >= CHANNEL_BC1 && c->f <= CHANNEL_BC7_SRGB) {
        static const uint8_t bits[] = {4, 4, 8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 8, 8};
        return bits[c->f - CHANNEL_BC1];
    }
    return (unsigned)(c->x + c->y + c->z + c->w);
}

static uint64_t at_least_one(uint64_t n)
{
    return n ? n : 1;
}

static uint64_t array_bytes_of(unsigned bits, uint64_t width, uint64_t height, uint64_t depth, unsigned flags,
                               unsigned levels)
{
    uint64_t texels = 0;
    const bool layers = flags & (GS_ARRAY_LAYERED | GS_ARRAY_CUBEMAP);
    if (flags & (GS_ARRAY_SPARSE | GS_ARRAY_DEFERRED)) return 0;
    for (unsigned level = 0; level < levels && level < 32; level++) {
        texels += at_least_one(width) * at_least_one(height) * at_least_one(depth);
        if (width <= 1 && height <= 1 && (layers || depth <= 1)) break;
        width /= 2;
        height /= 2;
        if (!layers) depth /= 2;
    }
    return texels * bits / 8;
}

uint64_t gs_array_bytes(int format, unsigned channels, size_t width, size_t height, size_t depth, unsigned flags,
                        unsigned levels)
{
    return array_bytes_of(texel_bits(format, channels), width, height, depth, flags, levels);
}

uint64_t gs_channel_array(const struct cudaChannelFormatDesc *channel, size_t width, size_t height, size_t depth,
                          unsigned flags, unsigned levels)
{
    return array_bytes_of(channel_bits(channel), width, height, depth, flags, levels);
}

/* Bits of a texel of an array, 8 if it cannot be queried. */
static unsigned array_bits(const void *array)
{
    CUresult (*get)(CUDA_ARRAY3D_DESCRIPTOR *, CUarray) = real_cuArray3DGetDescriptor_v2();
    CUDA_ARRAY3D_DESCRIPTOR d;
    if (!get || get(&d, (CUarray)array) != CUDA_SUCCESS) return 8;
    return texel_bits(d.Format, d.NumChannels);
}

/* --- addresses ------------------------------------------------------------------------------- */

uint64_t gs_range_bytes_at(uint64_t address)
{
    CUresult (*get)(CUdeviceptr *, size_t *, CUdeviceptr) = real_cuMemGetAddressRange_v2();
    CUdeviceptr base;
    size_t bytes;
    return get && get(&base, &bytes, address) == CUDA_SUCCESS ? bytes - (address - base) : 0;
}

bool gs_on_device(uint64_t address)
{
    CUresult (*get)(void *, int, CUdeviceptr) = real_cuPointerGetAttribute();
    int type;
    return get && get(&type, GS_POINTER_MEMORY_TYPE, address) == CUDA_SUCCESS && type == GS_MEMORYTYPE_DEVICE;
}

int gs_location_device(const void *location)
{
    struct cudaMemLocation l;
    memcpy(&l, location, sizeof l);
    return l.type == cudaMemLocationTypeDevice ? l.id : GS_DEVICE_NONE;
}

/* --- one copy -------------------------------------------------------------------------------- */

static uint8_t direction_between(bool to_device, bool from_device)
{
    if (to_device) return from_device ? GS_DIR_D2D : GS_DIR_H2D;
    return from_device ? GS_DIR_D2H : GS_DIR_H2H;
}

struct gs_route gs_route(int dst_type, uint64_t dst, int src_type, uint64_t src, uint64_t bytes)
{
    const bool open = dst_type == GS_MEMORYTYPE_UNIFIED || src_type == GS_MEMORYTYPE_UNIFIED;
    const bool to_array = dst_type == GS_MEMORYTYPE_ARRAY, from_array = src_type == GS_MEMORYTYPE_ARRAY;
    struct gs_route r = {dst, src, bytes, GS_DIR_UNKNOWN};
    if (!open)
        r.direction = direction_between(dst_type != GS_MEMORYTYPE_HOST, src_type != GS_MEMORYTYPE_HOST);
    else if (to_array || from_array) /* the handle of an array does not show where its memory is */
        r.direction = direction_between(to_array || dst_type == GS_MEMORYTYPE_DEVICE || gs_on_device(dst),
                                        from_array || src_type == GS_MEMORYTYPE_DEVICE || gs_on_device(src));
    return r;
}

struct gs_route gs_route_peer(struct gs_route route)
{
    if (route.direction == GS_DIR_D2D || route.direction == GS_DIR_UNKNOWN) route.direction = GS_DIR_P2P;
    return route;
}

static uint64_t box_bytes(const struct cudaExtent *e, const void *dst_array, const void *src_array)
{
    const void *array = dst_array ? dst_array : src_array; /* if there is an array, the width counts texels */
    const uint64_t texels = (uint64_t)e->width * e->height * e->depth;
    return array ? texels * array_bits(array) / 8 : texels;
}

/* Whose memory an array or pointer of the runtime's structures is. */
static int array_space_of(const void *array)
{
    return array ? GS_MEMORYTYPE_ARRAY : GS_MEMORYTYPE_UNIFIED;
}

#define RUNTIME_ROUTE(p)                                                                                               \
    gs_route(                                                                                                          \
        array_space_of((p)->dstArray), (uint64_t)(uintptr_t)((p)->dstArray ? (void *)(p)->dstArray : (p)->dstPtr.ptr), \
        array_space_of((p)->srcArray), (uint64_t)(uintptr_t)((p)->srcArray ? (void *)(p)->srcArray : (p)->srcPtr.ptr), \
        box_bytes(&(p)->extent, (p)->dstArray, (p)->srcArray))

struct gs_route gs_route_3d(const struct cudaMemcpy3DParms *p)
{
    static const uint8_t direction_of[] = {
        [cudaMemcpyHostToHost] = GS_DIR_H2H,
        [cudaMemcpyHostToDevice] = GS_DIR_H2D,
        [cudaMemcpyDeviceToHost] = GS_DIR_D2H,
        [cudaMemcpyDeviceToDevice] = GS_DIR_D2D,
    };
    struct gs_route r = RUNTIME_ROUTE(p);
    if ((unsigned)p->kind < sizeof direction_of) r.direction = direction_of[p->kind];
    return r;
}

struct gs_route gs_route_3d_peer(const struct cudaMemcpy3DPeerParms *p)
{
    return gs_route_peer(RUNTIME_ROUTE(p));
}

/* --- batches --------------------------------------------------------------------------------- */

static void add_to_batch(struct gs_batch *b, uint8_t direction, uint64_t dst, uint64_t src, uint64_t bytes)
{
    struct gs_route *way = &b->way[direction];
    if (!way->bytes) *way = (struct gs_route){dst, src, 0, direction};
    way->bytes += bytes;
}

static uint64_t address_at(const void *addresses, size_t i)
{
    uint64_t address;
    memcpy(&address, (const char *)addresses + i * sizeof address, sizeof address);
    return address;
}

struct gs_batch gs_batch_linear(const void *dsts, const void *srcs, const size_t *sizes, size_t count)
{
    struct gs_batch b = {0};
    if (!dsts || !srcs || !sizes) return b;
    for (size_t i = 0; i < count; i++) {
        const uint64_t dst = address_at(dsts, i), src = address_at(srcs, i);
        add_to_batch(&b, direction_between(gs_on_device(dst), gs_on_device(src)), dst, src, sizes[i]);
    }
    return b;
}

static bool operand_address(const struct cudaMemcpy3DOperand *o, uint64_t *address, const void **array)
{
    if (o->type == GS_OPERAND_ARRAY) {
        *array = o->op.array.array;
        *address = (uint64_t)(uintptr_t)*array;
        return true;
    }
    *array = NULL;
    *address = (uint64_t)(uintptr_t)o->op.ptr.ptr;
    return gs_on_device(*address);
}

struct gs_batch gs_batch_3d(const struct cudaMemcpy3DBatchOp *ops, size_t count)
{
    struct gs_batch b = {0};
    for (size_t i = 0; ops && i < count; i++) {
        uint64_t dst, src;
        const void *dst_array, *src_array;
        const bool to = operand_address(&ops[i].dst, &dst, &dst_array);
        const bool from = operand_address(&ops[i].src, &src, &src_array);
        add_to_batch(&b, direction_between(to, from), dst, src, box_bytes(&ops[i].extent, dst_array, src_array));
    }
    return b;
}

/* A logical endpoint is memory of another GPU and has no address here. */
static uint8_t fabric_direction(const CUfabricCpyOperand *dst, const CUfabricCpyOperand *src)
{
    if (dst->type == GS_OPERAND_ENDPOINT) return gs_on_device(src->op.ptr.ptr) ? GS_DIR_P2P : GS_DIR_H2D;
    if (src->type == GS_OPERAND_ENDPOINT) return gs_on_device(dst->op.ptr.ptr) ? GS_DIR_P2P : GS_DIR_D2H;
    return direction_between(gs_on_device(dst->op.ptr.ptr), gs_on_device(src->op.ptr.ptr));
}

struct gs_batch gs_batch_fabric(const CUDA_FABRIC_COPY_BATCH_OP *ops, size_t count)
{
    struct gs_batch b = {0};
    for (size_t i = 0; ops && i < count; i++) {
        const CUfabricCpyOperand *to = &ops[i].dst, *from = &ops[i].src;
        const uint64_t dst = to->type == GS_OPERAND_POINTER ? to->op.ptr.ptr : 0;
        const uint64_t src = from->type == GS_OPERAND_POINTER ? from->op.ptr.ptr : 0;
        add_to_batch(&b, fabric_direction(to, from), dst, src, ops[i].size);
    }
    return b;
}

struct gs_batch gs_batch_prefetch(const void *addresses, const size_t *sizes, size_t count,
                                  const struct cudaMemLocation *to, const size_t *first_of, size_t locations)
{
    struct gs_batch b = {0};
    size_t at = 0;
    if (!addresses || !sizes || !to || !first_of || !locations) return b;
    for (size_t i = 0; i < count; i++) {
        while (at + 1 < locations && first_of[at + 1] <= i) at++;
        const uint64_t address = address_at(addresses, i);
        add_to_batch(&b, to[at].type == cudaMemLocationTypeDevice ? GS_DIR_H2D : GS_DIR_D2H, address, address,
                     sizes[i]);
    }
    return b;
}
