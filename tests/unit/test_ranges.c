/* The map of address ranges, compared with the simplest model: an array of bytes. */
#include "tests/unit/events.h"
#include "schema/ranges.h"
#include "schema/tables.h"

#define SPACE 512

static void check_all(const struct gs_ranges *r, const struct gs_range *owner[SPACE])
{
    uint32_t count = 0;
    for (uint64_t a = 0; a < SPACE; a++) {
        const struct gs_range *found = gs_ranges_find(r, a);
        assert_int_equal(found != NULL, owner[a] != NULL);
        if (found) {
            assert_int_equal(found->start, owner[a]->start);
            assert_int_equal(found->bytes, owner[a]->bytes);
            assert_int_equal(found->device, owner[a]->device);
            count += found->start == a;
        }
    }
    assert_int_equal(r->count, count);
    uint64_t from = 0;
    uint32_t walked = 0;
    for (const struct gs_range *x; (x = gs_ranges_from(r, from)); walked++) {
        assert_true(x->start >= from);
        from = x->start + x->bytes;
    }
    assert_int_equal(walked, count);
}

static void random_changes(void **state)
{
    static struct gs_range pool[20000];
    uint64_t random = 42;
    for (int round = 0; round < 20; round++) {
        struct gs_ranges r = {0};
        const struct gs_range *owner[SPACE] = {0};
        for (int i = 0; i < 1000; i++) {
            struct gs_range *x = &pool[round * 1000 + i];
            x->start = ev_below(&random, SPACE - 40);
            x->bytes = ev_below(&random, 40);
            x->device = (int16_t)i;
            if (ev_below(&random, 3) == 0) {
                const struct gs_range *old = owner[x->start];
                bool there = old && old->start == x->start;
                assert_int_equal(gs_ranges_remove(&r, x->start), there);
                for (uint64_t a = x->start; there && a < old->start + old->bytes; a++) owner[a] = NULL;
            } else {
                assert_true(gs_ranges_add(&r, x));
                for (uint64_t a = x->start; a < x->start + x->bytes; a++) {
                    const struct gs_range *old = owner[a];
                    for (uint64_t o = 0; old && o < SPACE; o++)
                        if (owner[o] == old) owner[o] = NULL;
                }
                for (uint64_t a = x->start; a < x->start + x->bytes; a++) owner[a] = x;
            }
            if (i % 16 == 0) check_all(&r, owner);
        }
        check_all(&r, owner);
        gs_ranges_free(&r);
    }
}

static void many(void **state)
{
    struct gs_ranges r = {0};
    enum { N = 200000 };
    for (uint64_t i = 0; i < N; i++) { /* in order: a plain tree would become a list */
        struct gs_range x = {i * 64, 64, 0, 0, 0};
        assert_true(gs_ranges_add(&r, &x));
    }
    assert_int_equal(r.count, N);
    for (uint64_t i = 0; i < N; i++) assert_int_equal(gs_ranges_find(&r, i * 64 + 63)->start, i * 64);
    for (uint64_t i = 0; i < N; i++) assert_true(gs_ranges_remove(&r, i * 64));
    assert_null(gs_ranges_find(&r, 0));
    gs_ranges_free(&r);
}

static void the_edges(void **state)
{
    struct gs_ranges r = {0};
    assert_null(gs_ranges_find(&r, 0));
    assert_false(gs_ranges_remove(&r, 0));
    struct gs_range last = {UINT64_MAX - 9, 100, 1, 0, 0}, empty = {5, 0, 1, 0, 0};
    assert_true(gs_ranges_add(&r, &last));
    assert_true(gs_ranges_add(&r, &empty));
    assert_int_equal(r.count, 1);
    assert_non_null(gs_ranges_find(&r, UINT64_MAX - 1));
    assert_null(gs_ranges_find(&r, UINT64_MAX - 10));
    gs_ranges_free(&r);
}

/* The live allocations, with keys that collide in the lower bits. */
static void live_map(void **state)
{
    struct gs_live_map m = {0};
    uint64_t random = 7;
    static bool there[3][4096];
    size_t count = 0;
    for (int i = 0; i < 300000; i++) {
        uint8_t layer = (uint8_t)ev_below(&random, 3);
        uint32_t slot = ev_below(&random, i < 100000 ? 4096 : 64);
        struct gs_live *live = gs_live_find(&m, layer, (uint64_t)slot << 21);
        assert_int_equal(live != NULL, there[layer][slot]);
        if (live) {
            assert_int_equal(live->bytes, slot);
            gs_live_remove(&m, live);
            count--;
        } else {
            struct gs_live new = {.address = (uint64_t)slot << 21, .id = 1, .bytes = slot, .layer = layer};
            assert_true(gs_live_add(&m, &new));
            count++;
        }
        there[layer][slot] = !there[layer][slot];
        assert_int_equal(m.count, count);
    }
    for (uint8_t layer = 0; layer < 3; layer++)
        for (uint32_t slot = 0; slot < 4096; slot++)
            assert_int_equal(gs_live_find(&m, layer, (uint64_t)slot << 21) != NULL, there[layer][slot]);
    gs_live_free(&m);
}

static void contents(void **state)
{
    struct gs_id_map m = {0};
    char text[32] = "";
    struct gs_content seed = {0, 0};
    assert_int_equal(gs_id_find(&m, gs_content_hash(seed, "x", 1)), 0);
    for (uint32_t i = 1; i <= 50000; i++) {
        int n = snprintf(text, sizeof text, "name%u", i);
        struct gs_content key = gs_content_hash(seed, text, (size_t)n);
        assert_int_equal(gs_id_find(&m, key), 0);
        assert_true(gs_id_add(&m, key, i));
    }
    for (uint32_t i = 1; i <= 50000; i++) {
        int n = snprintf(text, sizeof text, "name%u", i);
        assert_int_equal(gs_id_find(&m, gs_content_hash(seed, text, (size_t)n)), i);
    }
    /* the length counts: zeros are content too */
    struct gs_content a = gs_content_hash(seed, "\0", 1), b = gs_content_hash(seed, "\0\0", 2);
    assert_true(a.a != b.a || a.b != b.b);
    gs_id_free(&m);
}

CASES(random_changes, many, the_edges, live_map, contents)
