/* Bytes and directions of copies given as a structure. */
#include "tests/cases.h"

#include "interpose/recorder.h"
#include "interpose/shape.h"

enum { U8 = 0x01, FLOAT = 0x20, BC1 = 0x91, NV12 = 0xb0 };

static void arrays_have_the_bytes_of_their_texels(void **state)
{
    assert_int_equal(gs_array_bytes(U8, 1, 100, 0, 0, 0, 1), 100);
    assert_int_equal(gs_array_bytes(U8, 4, 100, 20, 0, 0, 1), 8000);
    assert_int_equal(gs_array_bytes(FLOAT, 2, 16, 8, 4, 0, 1), 16 * 8 * 4 * 8);
    assert_int_equal(gs_array_bytes(BC1, 4, 64, 64, 0, 0, 1), 64 * 64 / 2);
    assert_int_equal(gs_array_bytes(NV12, 3, 64, 64, 0, 0, 1), 64 * 64 * 3 / 2);
    assert_int_equal(gs_array_bytes(FLOAT, 1, 1 << 20, 1 << 20, 0, 0, 1), 4ll << 40);
}

static void mipmaps_end_at_one_texel(void **state)
{
    assert_int_equal(gs_array_bytes(U8, 1, 16, 16, 0, 0, 2), 256 + 64);
    assert_int_equal(gs_array_bytes(U8, 1, 16, 16, 0, 0, 5), 256 + 64 + 16 + 4 + 1);
    assert_int_equal(gs_array_bytes(U8, 1, 16, 16, 0, 0, 4000000000u), 341);
    assert_int_equal(gs_array_bytes(U8, 1, 16, 2, 0, 0, 5), 32 + 8 + 4 + 2 + 1);
    assert_int_equal(gs_array_bytes(U8, 1, 8, 8, 8, 0, 2), 512 + 64);
    assert_int_equal(gs_array_bytes(U8, 1, 8, 8, 6, GS_ARRAY_LAYERED, 2), (64 + 16) * 6);
    assert_int_equal(gs_array_bytes(U8, 1, 8, 8, 6, GS_ARRAY_CUBEMAP, 2), (64 + 16) * 6);
}

static void memory_that_comes_later_does_not_count(void **state)
{
    assert_int_equal(gs_array_bytes(U8, 1, 16, 16, 0, GS_ARRAY_SPARSE, 1), 0);
    assert_int_equal(gs_array_bytes(U8, 1, 16, 16, 0, GS_ARRAY_DEFERRED, 1), 0);
}

static void channels_state_their_bits(void **state)
{
    const struct cudaChannelFormatDesc rgba = {8, 8, 8, 8, 1}, half = {16, 0, 0, 0, 2}, bc1 = {8, 8, 8, 8, 17},
                                       bc7 = {8, 8, 8, 8, 30}, nv12 = {8, 8, 8, 0, 4};
    assert_int_equal(gs_channel_array(&rgba, 10, 10, 0, 0, 1), 400);
    assert_int_equal(gs_channel_array(&half, 10, 10, 2, 0, 1), 400);
    assert_int_equal(gs_channel_array(&bc1, 16, 16, 0, 0, 1), 128);
    assert_int_equal(gs_channel_array(&bc7, 16, 16, 0, 0, 1), 256);
    assert_int_equal(gs_channel_array(&nv12, 16, 16, 0, 0, 1), 384);
}

static uint8_t direction(int dst, int src)
{
    return gs_route(dst, 0x1000, src, 0x2000, 1).direction;
}

static void the_kinds_of_memory_give_the_direction(void **state)
{
    assert_int_equal(direction(GS_MEMORYTYPE_DEVICE, GS_MEMORYTYPE_HOST), GS_DIR_H2D);
    assert_int_equal(direction(GS_MEMORYTYPE_ARRAY, GS_MEMORYTYPE_HOST), GS_DIR_H2D);
    assert_int_equal(direction(GS_MEMORYTYPE_HOST, GS_MEMORYTYPE_ARRAY), GS_DIR_D2H);
    assert_int_equal(direction(GS_MEMORYTYPE_DEVICE, GS_MEMORYTYPE_ARRAY), GS_DIR_D2D);
    assert_int_equal(direction(GS_MEMORYTYPE_HOST, GS_MEMORYTYPE_HOST), GS_DIR_H2H);
    /* open: decided by the code that knows the addresses, unless one side is a handle */
    assert_int_equal(direction(GS_MEMORYTYPE_UNIFIED, GS_MEMORYTYPE_HOST), GS_DIR_UNKNOWN);
    assert_int_equal(direction(GS_MEMORYTYPE_ARRAY, GS_MEMORYTYPE_UNIFIED), GS_DIR_H2D);
    struct gs_route r = gs_route(GS_MEMORYTYPE_DEVICE, 1, GS_MEMORYTYPE_DEVICE, 2, 3);
    assert_int_equal(gs_route_peer(r).direction, GS_DIR_P2P);
    r = gs_route(GS_MEMORYTYPE_HOST, 1, GS_MEMORYTYPE_DEVICE, 2, 3);
    assert_int_equal(gs_route_peer(r).direction, GS_DIR_D2H);
}

static void a_batch_without_its_arrays_is_empty(void **state)
{
    const size_t size = 1, first = 0;
    const struct cudaMemLocation here = {cudaMemLocationTypeDevice, 0};
    void *p = &p;
    struct gs_batch b[] = {gs_batch_linear(NULL, &p, &size, 1),
                           gs_batch_linear(&p, &p, NULL, 1),
                           gs_batch_3d(NULL, 1),
                           gs_batch_fabric(NULL, 1),
                           gs_batch_prefetch(&p, &size, 1, NULL, &first, 1),
                           gs_batch_prefetch(&p, &size, 1, &here, &first, 0)};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        for (int way = 0; way <= GS_DIR_H2H; way++) assert_int_equal(b[i].way[way].bytes, 0);
}

static void a_batch_of_migrations_goes_where_its_locations_say(void **state)
{
    uint64_t at[] = {0x1000, 0x2000, 0x3000, 0x4000};
    const size_t size[] = {1, 20, 300, 4000}, first[] = {0, 1, 3};
    const struct cudaMemLocation to[] = {
        {cudaMemLocationTypeDevice, 0}, {(enum cudaMemLocationType)2, 0}, {cudaMemLocationTypeDevice, 1}};
    struct gs_batch b = gs_batch_prefetch(at, size, 4, to, first, 3);
    assert_int_equal(b.way[GS_DIR_H2D].bytes, 4001);
    assert_int_equal(b.way[GS_DIR_H2D].src, 0x1000);
    assert_int_equal(b.way[GS_DIR_D2H].bytes, 320);
    assert_int_equal(b.way[GS_DIR_D2H].src, 0x2000);
    assert_int_equal(gs_location_device(&to[2]), 1);
    assert_int_equal(gs_location_device(&to[1]), GS_DEVICE_NONE);
}

/* No driver runs here: every pointer is the host's. */
static void a_logical_endpoint_is_a_gpu_without_an_address(void **state)
{
    CUDA_FABRIC_COPY_BATCH_OP ops[3] = {{.size = 10}, {.size = 200}, {.size = 3000}};
    for (int i = 0; i < 3; i++) {
        ops[i].src.type = i == 1 ? GS_OPERAND_ENDPOINT : GS_OPERAND_POINTER;
        ops[i].dst.type = i == 0 ? GS_OPERAND_ENDPOINT : GS_OPERAND_POINTER;
        ops[i].src.op.ptr.ptr = 0x1000;
        ops[i].dst.op.ptr.ptr = 0x2000;
    }
    const struct gs_batch b = gs_batch_fabric(ops, 3);
    const uint64_t want[][3] = {[GS_DIR_H2D] = {10, 0, 0x1000},
                                [GS_DIR_D2H] = {200, 0x2000, 0},
                                [GS_DIR_D2D] = {0, 0, 0},
                                [GS_DIR_P2P] = {0, 0, 0},
                                [GS_DIR_H2H] = {3000, 0x2000, 0x1000}};
    for (int way = 0; way <= GS_DIR_H2H; way++) {
        assert_int_equal(b.way[way].bytes, want[way][0]);
        assert_int_equal(b.way[way].dst, want[way][1]);
        assert_int_equal(b.way[way].src, want[way][2]);
    }
}

CASES(arrays_have_the_bytes_of_their_texels, mipmaps_end_at_one_texel, memory_that_comes_later_does_not_count,
      channels_state_their_bits, the_kinds_of_memory_give_the_direction, a_batch_without_its_arrays_is_empty,
      a_batch_of_migrations_goes_where_its_locations_say, a_logical_endpoint_is_a_gpu_without_an_address)
