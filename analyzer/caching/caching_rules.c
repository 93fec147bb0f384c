/* PyTorch's default rules, what versions do differently, and the rounding of requests. */
#include "analyzer/caching/caching.h"

#include <stddef.h>

#define MIB ((int64_t)1 << 20)
static const int64_t least_block = 512;            /* kMinBlockSize */
static const int64_t most_rounded = INT64_MAX / 4; /* no sum overflows, even with a damaged file */

const struct caching_rules caching_default_rules = {.large_bytes = 20 * MIB, /* kLargeBuffer */
                                                    .max_split_bytes = INT64_MAX,
                                                    .max_round_bytes = 20 * MIB,
                                                    .allowed_bytes = INT64_MAX};

bool caching_rules_have(const struct caching_rules *rules, enum caching_version_rule rule, const char **since)
{
    static const struct {
        uint16_t major, minor;
        const char *text;
    } list[] = {
#define VERSION_RULE(name, major, minor, source) [CACHING_##name] = {major, minor, #major "." #minor},
#include "analyzer/caching/versions.def"
    };
    if (since) *since = list[rule].text;
    if (!rules->major) return true;
    return rules->major > list[rule].major || (rules->major == list[rule].major && rules->minor >= list[rule].minor);
}

/* [round_size, roundup_power2_next_division] */
int64_t caching_rounded(const struct caching_rules *rules, int64_t bytes)
{
    if (bytes < least_block) return least_block;
    if (bytes > most_rounded) return most_rounded; /* a request that always fails */
    int power = 63 - __builtin_clzll((uint64_t)bytes), index = power < 20 ? 0 : power > 35 ? 15 : power - 20;
    int64_t divisions = rules->divisions[index];
    if (divisions > 1 && bytes > least_block * divisions) {
        int64_t floor = (int64_t)1 << power, step = floor / divisions;
        if (bytes == floor) return bytes;
        return step ? (bytes + step - 1) / step * step : floor * 2;
    }
    if (divisions == 1 && bytes > least_block && !caching_rules_have(rules, CACHING_DIVISIONS_OFF, NULL)) return bytes;
    return (bytes + least_block - 1) / least_block * least_block;
}
