/* The replay of PyTorch's allocator with any settings, requests, frees and flushes, on a device of any size: blocks
 * must be within reserved memory, totals must be sums, and reserved memory must equal what the driver allocated. */
#include "tests/fuzz/fuzz.h"

#include "analyzer/whatif/lane.h"
#include "analyzer/whatif/rules.h"

enum { LIVE = 64 };

static const char *const settings[] = {
    "",
    "expandable_segments:True",
    "max_split_size_mb:21",
    "max_split_size_mb:64,roundup_power2_divisions:8",
    "roundup_power2_divisions:[1:2,4:8,>:4]",
    "per_process_memory_fraction:0.5,garbage_collection_threshold:0.3",
    "expandable_segments:True,per_process_memory_fraction:0.4,roundup_power2_divisions:4",
    "max_split_size_mb:33,max_non_split_rounding_mb:22,per_process_memory_fraction:0.9",
    "per_process_memory_fraction:0.9,garbage_collection_threshold:0.1",
};

static void apply(struct caching_rules *rules, struct fuzz_bytes *b)
{
    char text[256], error[320] = "";
    const uint8_t how = fuzz_u8(b);
    size_t n;
    if (how < 224) {
        const char *conf = settings[how % (sizeof settings / sizeof *settings)];
        FUZZ_CHECK(whatif_rules_parse(rules, conf, error, sizeof error), "'%s': %s", conf, error);
        return;
    }
    const void *part = fuzz_part(b, fuzz_u8(b), &n);
    memcpy(text, part, n);
    text[n] = 0;
    const bool ok = whatif_rules_parse(rules, text, error, sizeof error);
    FUZZ_CHECK(ok || *error, "a reason for '%s'", text);
}

struct live {
    uint32_t block;
    int64_t bytes;
};

static void check(const struct whatif_lane *lane, const struct live *live, size_t n)
{
    const struct caching_totals *t = caching_totals(lane->allocator);
    int64_t sum = 0, largest;
    for (size_t i = 0; i < n; i++) {
        FUZZ_CHECK(caching_block_bytes(lane->allocator, live[i].block) == live[i].bytes, "block %zu has changed", i);
        sum += live[i].bytes;
    }
    FUZZ_CHECK(t->allocated == sum, "allocated %lld, blocks %lld", (long long)t->allocated, (long long)sum);
    FUZZ_CHECK(t->reserved >= sum + caching_cached(lane->allocator, &largest), "reserved %lld", (long long)t->reserved);
    FUZZ_CHECK(lane->other == t->reserved, "the driver gave %lld, reserved %lld", (long long)lane->other,
               (long long)t->reserved);
    FUZZ_CHECK(t->reserved <= lane->capacity && t->peak_reserved >= t->reserved, "of %lld", (long long)lane->capacity);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    struct caching_rules rules = caching_default_rules;
    struct whatif_lane lane;
    struct live live[LIVE];
    size_t n = 0;
    rules.device_bytes = (int64_t)(fuzz_hostile(&b) >> 1);
    apply(&rules, &b);
    const bool limited = fuzz_u8(&b) % 4;
    whatif_lane_start(&lane, &rules, fuzz_u8(&b) % 2, limited ? (int64_t)fuzz_u8(&b) << 22 : INT64_MAX);
    while (b.left) {
        const uint8_t how = fuzz_u8(&b);
        if (n < LIVE && how < 150) {
            const int64_t asked = how < 20 ? (int64_t)fuzz_hostile(&b) : (int64_t)fuzz_number(&b, 2) << (how % 12);
            const uint32_t block =
                caching_allocate(lane.allocator, caching_rounded(&rules, asked), how & 1, how >> 1 & 1);
            if (block == CACHING_NO_BLOCK) continue;
            FUZZ_CHECK(caching_block_bytes(lane.allocator, block) >= (asked < 1 ? 1 : asked), "%lld bytes",
                       (long long)asked);
            live[n++] = (struct live){block, caching_block_bytes(lane.allocator, block)};
        } else if (n && how < 240) {
            const size_t at = fuzz_u8(&b) % n;
            if (how < 200) {
                caching_release(lane.allocator, live[at].block);
            } else {
                caching_release_later(lane.allocator, live[at].block);
                if (how % 2) caching_finish_pending(lane.allocator, live[at].block);
            }
            live[at] = live[--n];
        } else {
            caching_empty_cache(lane.allocator);
        }
        if (how % 16 == 0) check(&lane, live, n);
    }
    check(&lane, live, n);
    whatif_lane_free(&lane);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 5;
    for (size_t i = 0; i < 64; i++) {
        uint8_t bytes[600];
        for (size_t k = 0; k < sizeof bytes; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (uint8_t)(random >> 56);
        }
        bytes[0] = (uint8_t)(i % 4 ? 220 : 200 + i / 4);
        bytes[1] = (uint8_t)i;
        put(bytes, 20 + i * 9);
    }
    put("\xdc\xff\x40"
        "expandable_segments:True,max_split_size_mb:21,roundup_power2_divisions:[1:2,>:4]",
        84);
}
