/* Calls whose size or direction is not an argument but part of a structure: arrays, boxes, batches. The application's
 * structures are read only after the real call has succeeded, which then has read them too; those of a batch before it,
 * so that the time to read them is not part of the call's. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/cuda_abi.h"
#include "schema/event.h"

/* Bytes of an array of `levels` mipmap levels (1: no mipmap) in a driver's format, or in a runtime's
 * channel description. 0 where the array has no memory of its own (sparse, mapped later). */
uint64_t gs_array_bytes(int format, unsigned channels, size_t width, size_t height, size_t depth, unsigned flags,
                        unsigned levels);
uint64_t gs_channel_array(const struct cudaChannelFormatDesc *channel, size_t width, size_t height, size_t depth,
                          unsigned flags, unsigned levels);
#define ARRAY_2D(p) gs_array_bytes((p)->Format, (p)->NumChannels, (p)->Width, (p)->Height, 0, 0, 1)
#define ARRAY_3D(p, levels) \
    gs_array_bytes((p)->Format, (p)->NumChannels, (p)->Width, (p)->Height, (p)->Depth, (p)->Flags, levels)

/* The allocation that begins at this device address, according to the driver; 0 unknown. */
uint64_t gs_range_bytes_at(uint64_t address);
#define gs_range_bytes(address) gs_range_bytes_at((uint64_t)(uintptr_t)(address))

/* Does the driver report that an address is a device's? */
bool gs_on_device(uint64_t address);

/* A CUmemLocation or struct cudaMemLocation: the device, GS_DEVICE_NONE for the host. */
int gs_location_device(const void *location);

/* One copy: source and destination. */
struct gs_route {
    uint64_t dst, src, bytes;
    uint8_t direction; /* enum gs_direction or GS_DIR_UNKNOWN */
};
struct gs_route gs_route(int dst_type, uint64_t dst, int src_type, uint64_t src, uint64_t bytes);
struct gs_route gs_route_peer(struct gs_route route);
struct gs_route gs_route_3d(const struct cudaMemcpy3DParms *p);
struct gs_route gs_route_3d_peer(const struct cudaMemcpy3DPeerParms *p);

/* The driver's structures state for each side what kind of memory it is. */
#define GS_SIDE(p, side)                                                                    \
    ((p)->side##MemoryType == GS_MEMORYTYPE_HOST    ? (uint64_t)(uintptr_t)(p)->side##Host  \
     : (p)->side##MemoryType == GS_MEMORYTYPE_ARRAY ? (uint64_t)(uintptr_t)(p)->side##Array \
                                                    : (uint64_t)(p)->side##Device)
#define GS_ROUTE(p, bytes) gs_route((p)->dstMemoryType, GS_SIDE(p, dst), (p)->srcMemoryType, GS_SIDE(p, src), bytes)
#define ROUTE_2D(p) GS_ROUTE(p, (uint64_t)(p)->WidthInBytes *(p)->Height)
#define ROUTE_3D(p) GS_ROUTE(p, (uint64_t)(p)->WidthInBytes *(p)->Height *(p)->Depth)

/* A batch, by direction. Addresses are those of the first copy in that direction. */
struct gs_batch {
    struct gs_route way[GS_DIR_H2H + 1]; /* by enum gs_direction; 0 bytes: no copy in that direction */
};
/* `dsts` and `srcs`: arrays of pointers or of CUdeviceptr. */
struct gs_batch gs_batch_linear(const void *dsts, const void *srcs, const size_t *sizes, size_t count);
struct gs_batch gs_batch_3d(const struct cudaMemcpy3DBatchOp *ops, size_t count);
struct gs_batch gs_batch_fabric(const CUDA_FABRIC_COPY_BATCH_OP *ops, size_t count);
struct gs_batch gs_batch_prefetch(const void *addresses, const size_t *sizes, size_t count,
                                  const struct cudaMemLocation *to, const size_t *first_of, size_t locations);
