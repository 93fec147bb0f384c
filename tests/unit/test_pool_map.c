/* Which private pool an address belongs to: by segments, by neighbouring pages, and by time. */
#include "tests/cases.h"
#include "analyzer/base/arena.h"
#include "analyzer/whatif/pool_map.h"
#include "schema/event.h"

#define MIB ((int64_t)1 << 20)
#define AT(mib) ((uint64_t)1 << 40 | (uint64_t)(mib) << 20)

static void add_fact(struct whatif_facts *f, int64_t ns, uint64_t address, int64_t pool)
{
    *ARENA_PUSH(f->list, f->n, f->cap) = (struct whatif_fact){ns, address, pool, GS_ALLOCATOR_POOL};
}

static void test_a_segment_has_the_pool_of_its_block(void **state)
{
    struct whatif_facts f = {0};
    struct whatif_pool_map m = {0};
    (void)state;
    add_fact(&f, 10, AT(100), 2);
    add_fact(&f, 20, AT(121), 0);
    add_fact(&f, 40, AT(100), 1);
    whatif_pool_map_add(&m, AT(100), 20 * MIB, false);
    whatif_pool_map_add(&m, AT(120), 2 * MIB, false);
    assert_int_equal(whatif_pool_map_at(&m, &f, 9, AT(110)), -1);
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(110)), 2);
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(120)), -1); /* a neighbour is another segment */
    assert_int_equal(whatif_pool_map_at(&m, &f, 20, AT(120)), 0);
    assert_int_equal(whatif_pool_map_at(&m, &f, 20, AT(122)), -1);
    assert_int_equal(whatif_pool_map_at(&m, &f, 20, AT(99)), -1);
    assert_int_equal(whatif_pool_map_remove(&m, &f, 30, AT(100), 20 * MIB), 2);
    assert_int_equal(whatif_pool_map_at(&m, &f, 30, AT(110)), -1);
    whatif_pool_map_add(&m, AT(100), 20 * MIB, false);
    assert_int_equal(whatif_pool_map_at(&m, &f, 40, AT(119)), 1);
    whatif_pool_map_free(&m);
    whatif_facts_free(&f);
}

static void test_adjacent_pages_belong_to_one_pool(void **state)
{
    struct whatif_facts f = {0};
    struct whatif_pool_map m = {0};
    (void)state;
    add_fact(&f, 10, AT(101), 3);
    whatif_pool_map_add(&m, AT(100), 2 * MIB, true);
    whatif_pool_map_add(&m, AT(102), 2 * MIB, true);
    whatif_pool_map_add(&m, AT(106), 2 * MIB, true);
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(103)), 3);
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(106)), -1);
    whatif_pool_map_add(&m, AT(104), 2 * MIB, true); /* closes the gap */
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(107)), 3);
    assert_int_equal(whatif_pool_map_remove(&m, &f, 11, AT(102), 2 * MIB), 3);
    assert_int_equal(whatif_pool_map_at(&m, &f, 11, AT(103)), -1);
    assert_int_equal(whatif_pool_map_at(&m, &f, 11, AT(101)), 3);
    assert_int_equal(whatif_pool_map_at(&m, &f, 11, AT(105)), 3);
    assert_int_equal(whatif_pool_map_remove(&m, &f, 11, AT(102), 2 * MIB), -1); /* it was already removed */
    whatif_pool_map_free(&m);
    whatif_facts_free(&f);
}

static void test_impossible_input_does_no_harm(void **state)
{
    struct whatif_facts f = {0};
    struct whatif_pool_map m = {0};
    (void)state;
    add_fact(&f, 1, UINT64_MAX, 5);
    whatif_pool_map_add(&m, UINT64_MAX - 5, MIB, true);
    whatif_pool_map_add(&m, AT(1), -MIB, false);
    whatif_pool_map_add(&m, AT(1), 0, false);
    assert_int_equal(whatif_pool_map_at(&m, &f, INT64_MAX, AT(1)), -1);
    assert_int_equal(whatif_pool_map_remove(&m, &f, INT64_MAX, AT(1), INT64_MAX), -1);
    whatif_facts_add_unused(&f, 7, 2);
    whatif_facts_add_unused(&f, 8, 2); /* once is enough */
    assert_int_equal(f.n, 2);
    whatif_facts_add_unused(&f, 0, 3);
    assert_int_equal(f.list[0].value, 3);
    whatif_pool_map_free(&m);
    whatif_facts_free(&f);
}

/* For a recording: the addresses of pages are known from their mappings. */
static void test_pages_that_are_mapped(void **state)
{
    (void)state;
    struct whatif_facts f = {0};
    struct whatif_pool_map m = {0};
    const struct whatif_fact list[] = {{5, AT(100), 2 * MIB, WHATIF_FACT_MAP},
                                       {6, AT(102), 2 * MIB, WHATIF_FACT_MAP},
                                       {10, AT(101), 3, GS_ALLOCATOR_POOL},
                                       {20, AT(102), 2 * MIB, WHATIF_FACT_UNMAP}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) *ARENA_PUSH(f.list, f.n, f.cap) = list[i];
    assert_int_equal(whatif_pool_map_at(&m, &f, 9, AT(101)), -1);
    assert_int_equal(whatif_pool_map_at(&m, &f, 10, AT(103)), 3); /* its neighbour is of the same segment */
    whatif_pool_map_advance(&m, &f, 20);
    assert_int_equal(m.unmapped, 3);
    assert_int_equal(whatif_pool_map_at(&m, &f, 20, AT(103)), -1);
    assert_int_equal(whatif_pool_map_at(&m, &f, 20, AT(101)), 3);
    whatif_pool_map_free(&m);
    whatif_facts_free(&f);
}

CASES(test_pages_that_are_mapped, test_a_segment_has_the_pool_of_its_block, test_adjacent_pages_belong_to_one_pool,
      test_impossible_input_does_no_harm)
