/* The replayed allocator with random requests: blocks never overlap, totals are the sums of the blocks, and everything
 * is returned to the driver at the end. Whether it does the same as PyTorch's is tested with recordings in
 * tests/e2e/test_whatif.py and tests/torch/test_whatif.py. */
#include "tests/cases.h"
#include <stdio.h>
#include <string.h>

#include "analyzer/caching/block_set.h"
#include "analyzer/caching/caching.h"
#include "analyzer/whatif/lane.h"
#include "analyzer/whatif/rules.h"

#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)

static uint64_t seed = 1;

static uint64_t draw(uint64_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

static struct caching_rules rules_on(int64_t device_bytes, const char *conf)
{
    char error[256] = "";
    struct caching_rules rules = caching_default_rules;
    rules.device_bytes = device_bytes;
    assert_true(whatif_rules_parse(&rules, conf, error, sizeof error));
    return rules;
}

static struct caching_rules rules_of(const char *conf)
{
    return rules_on(512 * MIB, conf);
}

/* --- blocks ----------------------------------------------------------------------------------------- */

enum { LIVE = 400, EVENTS = 20000, ORDERS = 1 + (WHATIF_MIRRORED | WHATIF_MIXED) };

struct live {
    uint32_t block;
    uint64_t address;
    int64_t bytes;
};

static void check_apart(const struct whatif_lane *lane, const struct live *live, size_t n)
{
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += live[i].bytes;
        assert_int_equal(caching_block_address(lane->allocator, live[i].block), live[i].address);
        for (size_t j = 0; j < i; j++) {
            assert_true(live[i].address + (uint64_t)live[i].bytes <= live[j].address ||
                        live[j].address + (uint64_t)live[j].bytes <= live[i].address);
        }
    }
    const struct caching_totals *t = caching_totals(lane->allocator);
    int64_t largest, cached = caching_cached(lane->allocator, &largest);
    assert_int_equal(t->allocated, sum);
    assert_int_equal(t->reserved, sum + cached);
    assert_int_equal(lane->other, t->reserved);
    assert_true(largest <= cached && t->reserved <= lane->capacity && t->peak_reserved >= t->reserved);
}

static int64_t random_request(void)
{
    static const int64_t most[] = {4 * KIB, MIB, 9 * MIB, 60 * MIB};
    return 1 + (int64_t)draw((uint64_t)most[draw(4)]);
}

static void run_with(const char *conf, unsigned order)
{
    const struct caching_rules rules = rules_of(conf);
    struct whatif_lane lane;
    struct live live[LIVE];
    size_t n = 0, refused = 0;
    whatif_lane_start(&lane, &rules, draw(2), 512 * MIB);
    lane.order = order;
    for (int i = 0; i < EVENTS; i++) {
        if (n == LIVE || (n && draw(100) < 52)) {
            const size_t at = draw(n);
            caching_release(lane.allocator, live[at].block);
            live[at] = live[--n];
        } else if (draw(500) == 0) {
            caching_empty_cache(lane.allocator);
        } else {
            const int64_t bytes = caching_rounded(&rules, random_request());
            const uint32_t block = caching_allocate(lane.allocator, bytes, draw(2), 0);
            refused += block == CACHING_NO_BLOCK;
            if (block == CACHING_NO_BLOCK) continue;
            live[n] = (struct live){block, caching_block_address(lane.allocator, block),
                                    caching_block_bytes(lane.allocator, block)};
            assert_true(live[n++].bytes >= bytes);
        }
        if (i % 200 == 0) check_apart(&lane, live, n);
    }
    check_apart(&lane, live, n);
    assert_true(caching_totals(lane.allocator)->retries >= refused);
    while (n) caching_release(lane.allocator, live[--n].block);
    caching_empty_cache(lane.allocator);
    check_apart(&lane, live, 0);
    assert_int_equal(caching_totals(lane.allocator)->reserved, 0);
    assert_int_equal(caching_totals(lane.allocator)->segments == 0 || rules.expandable, 1);
    whatif_lane_free(&lane);
}

static void test_blocks_lie_apart(void **state)
{
    static const char *const confs[] = {"",
                                        "expandable_segments:True",
                                        "max_split_size_mb:21",
                                        "roundup_power2_divisions:4",
                                        "per_process_memory_fraction:0.8,garbage_collection_threshold:0.5",
                                        "expandable_segments:True,max_split_size_mb:32"};
    (void)state;
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) run_with(confs[i], (unsigned)i % ORDERS);
    for (unsigned order = 1; order < ORDERS; order++) run_with("", order);
}

static void test_pending_memory_is_nobodys(void **state)
{
    struct whatif_lane lane;
    (void)state;
    whatif_lane_start(&lane, &caching_default_rules, false, 64 * MIB);
    const uint32_t first = caching_allocate(lane.allocator, 20 * MIB, 0, 0);
    const uint64_t address = caching_block_address(lane.allocator, first);
    caching_release_later(lane.allocator, first);
    const uint32_t second = caching_allocate(lane.allocator, 20 * MIB, 0, 0);
    assert_int_not_equal(caching_block_address(lane.allocator, second), address);
    caching_finish_pending(lane.allocator, first);
    const uint32_t third = caching_allocate(lane.allocator, 20 * MIB, 0, 0);
    assert_int_equal(caching_block_address(lane.allocator, third), address);
    caching_release_later(lane.allocator, third);
    assert_int_not_equal(caching_allocate(lane.allocator, 30 * MIB, 0, 0),
                         CACHING_NO_BLOCK); /* it waits for all of them */
    assert_int_equal(caching_totals(lane.allocator)->retries, 1);
    whatif_lane_free(&lane);
}

static uint64_t address_of_next(struct whatif_lane *lane, uint32_t number, int64_t bytes)
{
    return caching_block_address(lane->allocator, whatif_lane_allocate(lane, number, bytes, 0, 0));
}

static void test_segments_have_their_recorded_addresses_until_they_differ(void **state)
{
    const uint64_t address = (uint64_t)127 << 40;
    struct whatif_lane lane;
    (void)state;
    whatif_lane_start(&lane, &caching_default_rules, true, INT64_MAX);
    whatif_lane_note_segment(&lane, address, 30 * MIB);
    assert_int_equal(address_of_next(&lane, 0, 30 * MIB), address);
    caching_release(lane.allocator, whatif_lane_take(&lane, 0, address));
    caching_empty_cache(lane.allocator);
    whatif_lane_note_segment(&lane, address + 20 * MIB, 30 * MIB);
    assert_int_equal(address_of_next(&lane, 0, 30 * MIB), address + 20 * MIB);
    whatif_lane_note_segment(&lane, address + 60 * MIB, 40 * MIB);
    assert_int_equal(address_of_next(&lane, 1, 40 * MIB), address + 60 * MIB);
    caching_release(lane.allocator, whatif_lane_take(&lane, 1, address));
    caching_empty_cache(lane.allocator);
    whatif_lane_note_segment(&lane, address + 200 * MIB, 34 * MIB);
    const uint64_t other = address_of_next(&lane, 2, 36 * MIB); /* where the one of 40 MiB was */
    assert_true(other >= address + 60 * MIB && other + 36 * MIB <= address + 100 * MIB);
    whatif_lane_note_segment(&lane, address + 300 * MIB, 38 * MIB);
    assert_true(address_of_next(&lane, 3, 38 * MIB) < address);
    whatif_lane_free(&lane);
}

/* Whatever the order of the addresses: a segment that was freed is allocated again at one of the addresses that CUDA
 * had given. Mixed ones neither ascend nor descend. */
static void test_orders_of_segments(void **state)
{
    enum { N = 24 };
    (void)state;
    for (unsigned order = 0; order < ORDERS; order++) {
        struct whatif_lane lane;
        uint64_t at[N];
        unsigned up = 0, known = 0;
        whatif_lane_start(&lane, &caching_default_rules, false, N * 30 * MIB);
        lane.order = order;
        for (uint32_t i = 0; i < N; i++) at[i] = address_of_next(&lane, i, 30 * MIB);
        for (uint32_t i = 1; i < N; i++) up += at[i] > at[i - 1];
        if (order & WHATIF_MIXED)
            assert_in_range(up, N / 6, N - 1 - N / 6);
        else
            assert_int_equal(up, order & WHATIF_MIRRORED ? 0 : N - 1);
        for (uint32_t i = 0; i < N; i++) caching_release(lane.allocator, whatif_lane_take(&lane, i, at[i]));
        caching_empty_cache(lane.allocator);
        assert_int_equal(lane.other, 0);
        for (uint32_t i = 0; i < N; i++) {
            const uint64_t address = address_of_next(&lane, i, 30 * MIB);
            for (uint32_t k = 0; k < N; k++) known += at[k] == address;
        }
        assert_int_equal(known, N);
        whatif_lane_free(&lane);
    }
}

/* Of expandable segments, whole pages are freed: of 20 MiB. */
static void test_what_an_emptied_cache_would_free(void **state)
{
    const struct {
        const char *conf;
        int64_t first, second; /* MiB; the second is freed */
        bool spare;
    } cases[] = {{"", 30, 30, true},
                 {"", 8, 8, false}, /* one segment */
                 {"expandable_segments:True", 20, 20, true},
                 {"expandable_segments:True", 8, 8, false},
                 {"expandable_segments:True", 8, 30, true},
                 {"expandable_segments:True", 25, 12, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct caching_rules rules = rules_of(cases[i].conf);
        struct whatif_lane lane;
        whatif_lane_start(&lane, &rules, false, 256 * MIB);
        (void)caching_allocate(lane.allocator, cases[i].first * MIB, 0, 0);
        const uint32_t second = caching_allocate(lane.allocator, cases[i].second * MIB, 0, 0);
        assert_false(caching_has_spare(lane.allocator));
        caching_release(lane.allocator, second);
        const int64_t reserved = caching_totals(lane.allocator)->reserved;
        assert_int_equal(caching_has_spare(lane.allocator), cases[i].spare);
        caching_empty_cache(lane.allocator);
        assert_int_equal(caching_totals(lane.allocator)->reserved < reserved, cases[i].spare);
        whatif_lane_free(&lane);
    }
}

static void test_the_end_of_a_pool_frees_its_own_segments(void **state)
{
    struct whatif_lane lane;
    (void)state;
    whatif_lane_start(&lane, &caching_default_rules, false, 128 * MIB);
    caching_release(lane.allocator, caching_allocate(lane.allocator, 20 * MIB, 0, 0));
    caching_release(lane.allocator, caching_allocate(lane.allocator, 30 * MIB, 0, 1));
    caching_release_later(lane.allocator, caching_allocate(lane.allocator, 40 * MIB, 0, 1));
    caching_empty_pool(lane.allocator, 1);
    assert_int_equal(caching_totals(lane.allocator)->reserved, 20 * MIB);
    whatif_lane_free(&lane);
}

static void test_a_request_in_a_private_pool_frees_the_cache_since_2_13(void **state)
{
    const struct {
        uint16_t minor;
        bool capturing, served;
    } cases[] = {{12, false, false}, {13, false, true}, {13, true, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct caching_rules rules = caching_default_rules;
        struct whatif_lane lane;
        rules.major = 2;
        rules.minor = cases[i].minor;
        whatif_lane_start(&lane, &rules, false, 64 * MIB);
        caching_release(lane.allocator, caching_allocate(lane.allocator, 40 * MIB, 0, 0));
        caching_set_capturing(lane.allocator, cases[i].capturing);
        assert_int_equal(caching_allocate(lane.allocator, 40 * MIB, 0, 1) != CACHING_NO_BLOCK, cases[i].served);
        assert_int_equal(caching_totals(lane.allocator)->retries, cases[i].served);
        whatif_lane_free(&lane);
    }
}

/* Measured with PyTorch 2.6, 2.11 and 2.15. */
static void test_a_fraction_of_one_is_no_cap_since_2_10(void **state)
{
    (void)state;
    for (uint16_t minor = 9; minor <= 10; minor++) {
        char error[256] = "";
        struct caching_rules rules = caching_default_rules;
        rules.major = 2;
        rules.minor = minor;
        rules.device_bytes = 512 * MIB;
        assert_true(whatif_rules_parse(&rules, "per_process_memory_fraction:1.0", error, sizeof error));
        assert_int_equal(rules.gc_memory, minor >= 10 ? 0 : 512 * MIB);
        assert_int_equal(rules.allowed_bytes, minor >= 10 ? INT64_MAX : 512 * MIB);
    }
}

/* Measured with PyTorch 2.15 on a device of 1000 MiB, 100 of which are its context: 100 MiB are live and 300 cached. */
static void test_throw_on_cudamalloc_oom(void **state)
{
    const struct {
        const char *conf;
        int64_t mib;
        bool served;
    } cases[] = {{"", 602, true},
                 {"throw_on_cudamalloc_oom:False", 602, true},
                 {"throw_on_cudamalloc_oom:True", 550, true}, /* the driver refuses: PyTorch frees its cache */
                 {"throw_on_cudamalloc_oom:True", 600, true},
                 {"throw_on_cudamalloc_oom:True", 602, false},
                 {"throw_on_cudamalloc_oom:True,expandable_segments:True", 550, true},
                 {"throw_on_cudamalloc_oom:True,expandable_segments:True", 920, false},
                 {"throw_on_cudamalloc_oom:True,max_split_size_mb:200", 602, false},
                 {"throw_on_cudamalloc_oom:True,per_process_memory_fraction:1.0", 602, false},
                 {"throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.99", 602, true}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct caching_rules rules = rules_on(1000 * MIB, cases[i].conf);
        struct whatif_lane lane;
        whatif_lane_start(&lane, &rules, false, 900 * MIB);
        (void)caching_allocate(lane.allocator, 100 * MIB, 0, 0);
        caching_release(lane.allocator, caching_allocate(lane.allocator, 300 * MIB, 0, 0));
        const bool served = caching_allocate(lane.allocator, cases[i].mib * MIB, 0, 0) != CACHING_NO_BLOCK;
        assert_int_equal(served, cases[i].served);
        if (!served) assert_int_equal(caching_totals(lane.allocator)->retries, 0);
        whatif_lane_free(&lane);
    }
}

/* PyTorch before 2.6 raises an internal error where it would free a large block of an expandable segment. */
static void test_large_expandable_blocks_fail_requests_before_2_6(void **state)
{
    (void)state;
    struct caching_rules rules = rules_of("expandable_segments:True,max_split_size_mb:48");
    for (uint16_t minor = 5; minor <= 6; minor++) {
        struct whatif_lane lane;
        rules.major = 2;
        rules.minor = minor;
        whatif_lane_start(&lane, &rules, false, 300 * MIB);
        const uint32_t first = caching_allocate(lane.allocator, 100 * MIB, 0, 0);
        assert_int_not_equal(caching_allocate(lane.allocator, 100 * MIB, 0, 0), CACHING_NO_BLOCK);
        caching_release(lane.allocator, first);
        assert_int_equal(caching_allocate(lane.allocator, 120 * MIB, 0, 0) != CACHING_NO_BLOCK, minor >= 6);
        assert_int_equal(caching_totals(lane.allocator)->retries, minor >= 6);
        whatif_lane_free(&lane);
    }
}

/* A thread used a private pool last: other threads' requests may be made while the pool is in use. */
static void test_a_retry_beside_a_private_pool_is_unsure(void **state)
{
    (void)state;
    const struct caching_rules rules = rules_of("");
    for (uint32_t left = 0; left < 2; left++) { /* whether that thread left the pool before */
        struct whatif_lane lane;
        whatif_lane_start(&lane, &rules, false, 300 * MIB);
        whatif_lane_note_thread(&lane, 1, 0);
        caching_release(lane.allocator, whatif_lane_allocate(&lane, 0, 200 * MIB, 0, 0));
        whatif_lane_note_thread(&lane, 1, 3);
        (void)whatif_lane_allocate(&lane, 1, 20 * MIB, 0, 3);
        if (left) whatif_lane_note_thread(&lane, 1, 0);
        whatif_lane_note_thread(&lane, 2, 0);
        assert_int_not_equal(whatif_lane_allocate(&lane, 2, 230 * MIB, 0, 0), CACHING_NO_BLOCK);
        assert_int_equal(lane.unsure_retry, !left);
        whatif_lane_free(&lane);
    }
}

static void test_an_expandable_segment_without_pages_ends(void **state)
{
    const struct caching_rules rules = rules_of("expandable_segments:True");
    struct whatif_lane lane;
    (void)state;
    whatif_lane_start(&lane, &rules, false, 128 * MIB);
    caching_release(lane.allocator, caching_allocate(lane.allocator, 30 * MIB, 0, 0));
    const uint64_t once = lane.reserved;
    caching_release(lane.allocator, caching_allocate(lane.allocator, 50 * MIB, 0, 0));
    assert_int_equal(lane.reserved, once);
    for (unsigned i = 2; i < 5; i++) {
        caching_empty_cache(lane.allocator);
        assert_int_equal(caching_totals(lane.allocator)->reserved, 0);
        caching_release(lane.allocator, caching_allocate(lane.allocator, 30 * MIB, 0, 0));
        assert_int_equal(lane.reserved, i * once);
    }
    whatif_lane_free(&lane);
}

/* 30 MiB are a segment of their size, or two pages of 20 MiB. */
static void test_private_pools_are_expandable_since_2_5(void **state)
{
    static const struct {
        uint16_t minor;
        int64_t reserved;
    } cases[] = {{4, 30 * MIB}, {5, 40 * MIB}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct caching_rules rules = rules_of("expandable_segments:True");
        struct whatif_lane lane;
        rules.major = 2;
        rules.minor = cases[i].minor;
        whatif_lane_start(&lane, &rules, false, 128 * MIB);
        caching_allocate(lane.allocator, 30 * MIB, 0, 1);
        assert_int_equal(caching_totals(lane.allocator)->reserved, cases[i].reserved);
        caching_allocate(lane.allocator, 30 * MIB, 0, 0); /* the default pool always is */
        assert_int_equal(caching_totals(lane.allocator)->reserved, cases[i].reserved + 40 * MIB);
        whatif_lane_free(&lane);
    }
}

/* --- rules ------------------------------------------------------------------------------------------ */

/* The example in torch.cuda.memory's documentation, 1200 and four divisions, in MiB: 1024, 1280, 1536, 1792. */
static void test_rounding(void **state)
{
    const struct caching_rules four = rules_of("roundup_power2_divisions:4"),
                               by_size = rules_of("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]");
    (void)state;
    assert_int_equal(caching_rounded(&caching_default_rules, 1), 512);
    assert_int_equal(caching_rounded(&caching_default_rules, 513), 1024);
    assert_int_equal(caching_rounded(&four, 1200 * MIB), 1280 * MIB);
    assert_int_equal(caching_rounded(&four, 1024 * MIB), 1024 * MIB);
    assert_int_equal(caching_rounded(&by_size, 300 * MIB + 1), 300 * MIB + 512);
    assert_int_equal(caching_rounded(&by_size, 600 * MIB), 768 * MIB);
    assert_int_equal(caching_rounded(&by_size, 1200 * MIB), 1280 * MIB);
    assert_int_equal(caching_rounded(&by_size, 2100 * MIB), 2304 * MIB);
}

/* Measured with PyTorch 2.11, torch.cuda.memory_allocated(): in KiB. */
static void test_one_division_does_not_round_before_2_4(void **state)
{
    struct caching_rules rules = rules_of("roundup_power2_divisions:1");
    (void)state;
    rules.major = 2;
    rules.minor = 3;
    assert_int_equal(caching_rounded(&rules, 300 * MIB + 1), 300 * MIB + 1);
    assert_int_equal(caching_rounded(&rules, 100), 512);
    rules.minor = 4;
    assert_int_equal(caching_rounded(&rules, 300 * MIB + 1), 300 * MIB + 512);
}

static void test_divisions_by_size(void **state)
{
    static const struct {
        const char *conf;
        int64_t request, block;
    } cases[] = {
        {"[1:2,4:8,>:4]", 4198, 4608}, {"[1:2,4:8,>:4]", 8294, 10240}, {"[1:2,4:8,>:4]", 1126, 1536},
        {"[>:4]", 1126, 1126},         {"[>:4]", 2150, 2560},          {"[4:2,1:8]", 1126, 1152},
        {"[4:2,1:8]", 2150, 3072},     {"[4:0,8:8]", 4198, 4198},      {"[4:0,8:8]", 8294, 9216},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char conf[64];
        snprintf(conf, sizeof conf, "roundup_power2_divisions:%s", cases[i].conf);
        const struct caching_rules rules = rules_of(conf);
        assert_int_equal(caching_rounded(&rules, cases[i].request << 10), cases[i].block << 10);
    }
}

static int64_t reserved_for(const char *conf, int64_t bytes)
{
    const struct caching_rules rules = rules_of(conf);
    struct whatif_lane lane;
    whatif_lane_start(&lane, &rules, false, INT64_MAX);
    (void)caching_allocate(lane.allocator, bytes, 0, 0);
    const int64_t reserved = caching_totals(lane.allocator)->reserved;
    whatif_lane_free(&lane);
    return reserved;
}

/* Measured with PyTorch 2.11, torch.cuda.memory_reserved(). */
static void test_large_segment_size(void **state)
{
    (void)state;
    assert_int_equal(reserved_for("large_segment_size_mb:12", 2 * MIB), 12 * MIB);
    assert_int_equal(reserved_for("large_segment_size_mb:12", 11 * MIB), 12 * MIB);
    assert_int_equal(reserved_for("large_segment_size_mb:40,expandable_segments:True", 2 * MIB), 40 * MIB);
    assert_int_equal(reserved_for("large_segment_size_mb:40,expandable_segments:True", 50 * MIB), 80 * MIB);
}

static void test_refused_settings(void **state)
{
    static const char *const confs[] = {"max_split_size_mb:19",
                                        "max_split_size_mb:1e400",
                                        "garbage_collection_threshold:1",
                                        "per_process_memory_fraction:0",
                                        "roundup_power2_divisions:3",
                                        "roundup_power2_divisions:[256:1,x]",
                                        "roundup_power2_divisions:[",
                                        "expandable_segments",
                                        "a:b",
                                        ":",
                                        "large_segment_size_mb:10",
                                        "large_segment_size_mb:40,max_split_size_mb:30",
                                        "max_split_size_mb:30,large_segment_size_mb:40",
                                        "expandable_segments:True,large_segment_size_mb:11"};
    (void)state;
    for (size_t i = 0; i < sizeof confs / sizeof *confs; i++) {
        char error[256] = "";
        struct caching_rules rules = caching_default_rules;
        const bool taken = whatif_rules_parse(&rules, confs[i], error, sizeof error);
        assert_true(!taken == (error[0] != 0));
        assert_true(!taken || i == 6); /* an empty list sets nothing */
    }
}

struct since {
    const char *conf;
    uint16_t major, minor; /* the first version that accepts it */
};

static bool takes(const char *conf, uint16_t major, uint16_t minor)
{
    char error[256] = "";
    struct caching_rules rules = caching_default_rules;
    rules.device_bytes = 512 * MIB;
    rules.major = major;
    rules.minor = minor;
    return whatif_rules_parse(&rules, conf, error, sizeof error);
}

/* Measured with libc10 and libc10_cuda of PyTorch 1.13 to 2.15. */
static void test_versions_take_settings(void **state)
{
    static const struct since cases[] = {{"backend:native", 2, 0},
                                         {"expandable_segments:True", 2, 1},
                                         {"max_non_split_rounding_mb:64", 2, 6},
                                         {"max_split_size_mb:20", 2, 9},
                                         {"max_non_split_rounding_mb:20", 2, 9},
                                         {"large_segment_size_mb:40", 2, 11},
                                         {"expandable_segments_reserve:0.5", 2, 15},
                                         {"expandable_segments_reserve_by_class:[a:0.2,b:1G]", 2, 15},
                                         {"release_lock_on_hipmalloc:True", 2, 2},
                                         {"pinned_num_register_threads:8", 2, 2},
                                         {"pinned_use_background_threads:True", 2, 6},
                                         {"graph_capture_record_stream_reuse:True", 2, 9},
                                         {"pinned_reserve_segment_size_mb:64", 2, 10},
                                         {"throw_on_cudamalloc_oom:True", 2, 12},
                                         {"pinned_free_catch_all:True", 2, 12},
                                         {"pinned_max_cached_size_mb:64", 2, 13},
                                         {"max_split_size_mb:21", 0, 0},
                                         {"roundup_power2_divisions:[2:4,>:8]", 2, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct since *c = &cases[i];
        assert_true(takes(c->conf, 0, 0)); /* unknown: the newest */
        assert_true(takes(c->conf, 2, 15) && takes(c->conf, 3, 0));
        for (uint16_t major = 1; major <= 2; major++) {
            for (uint16_t minor = 0; minor < 20; minor++) {
                assert_int_equal(takes(c->conf, major, minor),
                                 major > c->major || (major == c->major && minor >= c->minor));
            }
        }
    }
}

/* Measured with libc10_cuda of 2.2, 2.5, 2.7 and 2.8, and libc10 of 2.9 and 2.14. */
static void test_rest_of_a_list_by_version(void **state)
{
    static const struct {
        uint16_t minor;
        uint32_t at_4_mib;
    } cases[] = {{2, 4}, {8, 4}, {9, 8}, {14, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[256] = "";
        struct caching_rules rules = caching_default_rules;
        rules.major = 2;
        rules.minor = cases[i].minor;
        assert_true(whatif_rules_parse(&rules, "roundup_power2_divisions:[1:2,4:8,>:4]", error, sizeof error));
        assert_int_equal(rules.divisions[0], 2);
        assert_int_equal(rules.divisions[1], 0);
        assert_int_equal(rules.divisions[2], cases[i].at_4_mib);
        assert_int_equal(rules.divisions[3], 4);
        assert_int_equal(rules.divisions[15], 4);
    }
}

/* The allocator keeps the lane's address: it is started where it stays. */
static void start_lane(struct whatif_lane *lane, uint16_t minor)
{
    struct caching_rules rules = caching_default_rules;
    rules.device_bytes = 512 * MIB;
    rules.major = 2;
    rules.minor = minor;
    whatif_lane_start(lane, &rules, true, INT64_MAX); /* a newer segment has a lower address */
}

static uint32_t take(struct whatif_lane *lane, int64_t bytes)
{
    return caching_allocate(lane->allocator, bytes, 0, 0);
}

static uint64_t next_address(struct whatif_lane *lane, int64_t bytes)
{
    return caching_block_address(lane->allocator, take(lane, bytes));
}

/* As measured with PyTorch 2.11, 2.12 and 2.13. */
static void test_order_of_equal_blocks_by_version(void **state)
{
    (void)state;
    for (uint16_t minor = 10; minor <= 15; minor++) {
        struct whatif_lane lane;
        start_lane(&lane, minor);
        const uint32_t first = take(&lane, 12 * MIB), second = take(&lane, 12 * MIB);
        const uint64_t addresses[] = {caching_block_address(lane.allocator, first),
                                      caching_block_address(lane.allocator, second)};
        assert_true(addresses[1] < addresses[0]);
        caching_release(lane.allocator, first);
        caching_release(lane.allocator, second);
        assert_int_equal(next_address(&lane, 12 * MIB), addresses[minor < 12]);
        whatif_lane_free(&lane);
    }
    for (uint16_t minor = 12; minor <= 13; minor++) {
        struct whatif_lane lane;
        start_lane(&lane, minor);
        const uint32_t old = take(&lane, MIB);
        (void)take(&lane, MIB);
        (void)take(&lane, MIB);
        const uint32_t young = take(&lane, MIB);
        const uint64_t addresses[] = {caching_block_address(lane.allocator, old),
                                      caching_block_address(lane.allocator, young)};
        caching_release(lane.allocator, old);
        const uint32_t front = take(&lane, MIB / 2), rest = take(&lane, MIB / 2); /* of the old segment */
        caching_release(lane.allocator, rest);
        caching_release(lane.allocator, front); /* the block that was made last remains of both */
        caching_release(lane.allocator, young);
        assert_int_equal(next_address(&lane, MIB), addresses[minor == 12]);
        whatif_lane_free(&lane);
    }
}

/* As measured with PyTorch 2.15 on a GPU of 2 GiB: the largest request that succeeds. */
static void test_what_an_expandable_segment_reserves(void **state)
{
    static const struct {
        const char *conf;
        int64_t largest, too_large;
    } cases[] = {{"expandable_segments:True", 1200 * MIB, 2400 * MIB},
                 {"expandable_segments:True,expandable_segments_reserve:0.5", 900 * MIB, 1200 * MIB},
                 {"expandable_segments:True,expandable_segments_reserve:1G", 900 * MIB, 1200 * MIB},
                 {"expandable_segments:True,expandable_segments_reserve:40G", 1200 * MIB, 2400 * MIB}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char error[256] = "";
        struct whatif_lane lane;
        struct caching_rules rules = caching_default_rules;
        rules.device_bytes = 2048 * MIB;
        assert_true(whatif_rules_parse(&rules, cases[i].conf, error, sizeof error));
        whatif_lane_start(&lane, &rules, false, INT64_MAX);
        assert_int_not_equal(take(&lane, cases[i].largest), CACHING_NO_BLOCK);
        assert_int_equal(take(&lane, cases[i].too_large), CACHING_NO_BLOCK);
        whatif_lane_free(&lane);
    }
    /* A second segment is where the lane's other segments are: below or above the first. */
    for (int descending = 0; descending < 2; descending++) {
        char error[256] = "";
        struct whatif_lane lane;
        struct caching_rules rules = caching_default_rules;
        rules.device_bytes = 2048 * MIB;
        assert_true(whatif_rules_parse(&rules, cases[1].conf, error, sizeof error));
        whatif_lane_start(&lane, &rules, descending, INT64_MAX);
        const uint64_t first = next_address(&lane, 900 * MIB), second = next_address(&lane, 800 * MIB);
        assert_int_equal(descending, second < first);
        whatif_lane_free(&lane);
    }
    static const char *const refused[] = {"-1", "0", "700M", "x"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char conf[64], error[256] = "";
        struct caching_rules rules = caching_default_rules;
        snprintf(conf, sizeof conf, "expandable_segments_reserve:%s", refused[i]);
        assert_false(whatif_rules_parse(&rules, conf, error, sizeof error));
        assert_non_null(strstr(error, "a share of the memory, such as 0.5, or GiB, such as 40G"));
    }
}

/* --- sets of blocks --------------------------------------------------------------------------------- */

enum { BLOCKS = 200, CHANGES = 4000 };

static int order_keys(bool by_address, const struct caching_block *a, const struct caching_block *b)
{
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    if (!by_address && a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    if (!by_address && a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->address < b->address ? -1 : a->address > b->address;
}

/* The nearest block of the set on one side of `key`: the first that is not below it (`side` 0) or above it (1), or the
 * last of its stream that is below it (-1). */
static uint32_t nearest(bool by_address, const struct caching_block *blocks, const struct caching_block *key, int side)
{
    uint32_t found = CACHING_NONE;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        const int order = order_keys(by_address, &blocks[i], key);
        if (!blocks[i].mapped || (side < 0 ? order >= 0 || blocks[i].stream != key->stream : order < side)) continue;
        const int better = found == CACHING_NONE ? 1 : order_keys(by_address, &blocks[found], &blocks[i]);
        if (found == CACHING_NONE || (side < 0 ? better < 0 : better > 0)) found = i;
    }
    return found;
}

static void draw_key(struct caching_block *b, uint64_t address)
{
    static const uint64_t streams[] = {0, 1, 1, 1, UINT64_MAX};
    b->stream = streams[draw(5)];
    b->bytes = (int64_t)(512 * (1 + draw(20)) << draw(20));
    b->rank = draw(2);
    b->address = address;
}

static void test_a_set_finds_the_nearest_block(void **state)
{
    (void)state;
    for (int by_address = 0; by_address < 2; by_address++) {
        struct caching_block blocks[BLOCKS] = {0}, key;
        struct caching_set set = {.by_address = by_address};
        for (uint32_t i = 0; i < BLOCKS; i++) {
            blocks[i].left = blocks[i].right = blocks[i].up = CACHING_NONE;
            blocks[i].priority = (uint32_t)draw(UINT32_MAX);
        }
        for (int k = 0; k < CHANGES; k++) {
            const uint32_t at = (uint32_t)draw(BLOCKS);
            caching_set_erase(blocks, &set, at); /* nothing, if it is not in the set */
            blocks[at].mapped = draw(3) > 0;
            draw_key(&blocks[at], draw(50) * BLOCKS + at);
            if (blocks[at].mapped) caching_set_insert(blocks, &set, at);
            draw_key(&key, draw(50 * BLOCKS));
            if (draw(2)) key = blocks[draw(BLOCKS)];
            for (int above = 0; above < 2; above++)
                assert_int_equal(caching_set_find(blocks, &set, caching_key_of(&key), above),
                                 nearest(by_address, blocks, &key, above));
            assert_int_equal(caching_set_before(blocks, &set, caching_key_of(&key)),
                             nearest(by_address, blocks, &key, -1));
        }
        caching_set_free(&set);
    }
}

CASES(test_blocks_lie_apart, test_pending_memory_is_nobodys,
      test_segments_have_their_recorded_addresses_until_they_differ, test_orders_of_segments,
      test_what_an_emptied_cache_would_free, test_the_end_of_a_pool_frees_its_own_segments,
      test_a_request_in_a_private_pool_frees_the_cache_since_2_13, test_a_fraction_of_one_is_no_cap_since_2_10,
      test_throw_on_cudamalloc_oom, test_large_expandable_blocks_fail_requests_before_2_6,
      test_a_retry_beside_a_private_pool_is_unsure, test_an_expandable_segment_without_pages_ends, test_rounding,
      test_one_division_does_not_round_before_2_4, test_private_pools_are_expandable_since_2_5, test_divisions_by_size,
      test_large_segment_size, test_refused_settings, test_versions_take_settings, test_rest_of_a_list_by_version,
      test_order_of_equal_blocks_by_version, test_what_an_expandable_segment_reserves,
      test_a_set_finds_the_nearest_block)
