/* Ranges and defaults: CUDAAllocatorConfig.cpp of PyTorch 2.6, AcceleratorAllocatorConfig.cpp of 2.11. Differences
 * between versions: versions.def. */
#include "analyzer/whatif/rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/options.h"
#include "analyzer/run/settings.h"

#define MIB ((int64_t)1 << 20)

struct parser {
    struct caching_rules *rules;
    char *error;
    size_t error_size;
};

static bool reject_setting(const struct parser *p, const char *key, const char *value, const char *accepted)
{
    snprintf(p->error, p->error_size, "%s: '%s' is not %s", key, value, accepted);
    return false;
}

static bool rules_have(const struct parser *p, const char *key, enum caching_version_rule rule)
{
    const char *since;
    if (caching_rules_have(p->rules, rule, &since)) return true;
    snprintf(p->error, p->error_size, "%s: PyTorch %u.%u does not have it, only %s and later", key, p->rules->major,
             p->rules->minor, since);
    return false;
}

static bool parse_setting_number(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value);
}

#define SET_SWITCH(field)                                                                       \
    static bool set_##field(const struct parser *p, const char *key, const char *value)         \
    {                                                                                           \
        p->rules->field = strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;            \
        return p->rules->field || strcasecmp(value, "false") == 0 || strcmp(value, "0") == 0 || \
               reject_setting(p, key, value, "True or False");                                  \
    }
SET_SWITCH(expandable)
SET_SWITCH(capture_reuse)
SET_SWITCH(throws)

static bool set_mebibytes(const struct parser *p, const char *value, const char *key, int64_t *to)
{
    double n;
    const bool at_least = caching_rules_have(p->rules, CACHING_SPLIT_AT_LEAST, NULL);
    if (!parse_setting_number(value, &n) || n < 20 || (n == 20 && !at_least) || n > 1e9 || n != floor(n)) {
        return reject_setting(p, key, value,
                              at_least ? "a whole number of MiB, at least 20" : "a whole number of MiB above 20");
    }
    *to = (int64_t)n * MIB;
    return true;
}

static bool set_max_split(const struct parser *p, const char *key, const char *value)
{
    return set_mebibytes(p, value, key, &p->rules->max_split_bytes);
}

static bool set_max_round(const struct parser *p, const char *key, const char *value)
{
    return set_mebibytes(p, value, key, &p->rules->max_round_bytes);
}

/* Unless max_non_split_rounding_mb is set, it is the same. */
static bool set_large_segment(const struct parser *p, const char *key, const char *value)
{
    double n;
    if (!parse_setting_number(value, &n) || n <= 10 || n > 1e6 || n != floor(n))
        return reject_setting(p, key, value, "a whole number of MiB above 10");
    if (p->rules->max_round_bytes == p->rules->large_bytes) p->rules->max_round_bytes = (int64_t)n * MIB;
    p->rules->large_bytes = (int64_t)n * MIB;
    return true;
}

static bool set_threshold(const struct parser *p, const char *key, const char *value)
{
    double n;
    if (!parse_setting_number(value, &n) || n <= 0 || n >= 1)
        return reject_setting(p, key, value, "a share between 0 and 1");
    p->rules->gc_threshold = n;
    return true;
}

/* set_per_process_memory_fraction */
static int64_t share_of_device(const struct caching_rules *rules, double fraction)
{
    const double bytes = fraction * (double)rules->device_bytes;
    return (int64_t)(caching_rules_have(rules, CACHING_FRACTION_ROUNDS, NULL) ? round(bytes) : bytes);
}

int64_t whatif_rules_cap_on(const struct caching_rules *rules, int64_t cap, int64_t device_bytes)
{
    if (cap <= 0 || device_bytes <= 0 || device_bytes == INT64_MAX || device_bytes == rules->device_bytes) return cap;
    return share_of_device(rules, (double)cap / (double)device_bytes);
}

static bool set_fraction(const struct parser *p, const char *key, const char *value)
{
    double n;
    if (!parse_setting_number(value, &n) || n <= 0 || n > 1)
        return reject_setting(p, key, value, "a share above 0, at most 1");
    const bool off = n == 1 && caching_rules_have(p->rules, CACHING_FRACTION_OFF, NULL);
    p->rules->gc_memory = off ? 0 : share_of_device(p->rules, n);
    p->rules->allowed_bytes = off ? INT64_MAX : p->rules->gc_memory;
    p->rules->throws_share = n;
    return true;
}

/* "0.5" of the device's memory, or "40G". */
static bool set_reserve(const struct parser *p, const char *key, const char *value)
{
    char *end;
    const double n = strtod(value, &end);
    const bool gibibytes = end != value && (*end == 'G' || *end == 'g');
    if (end == value || end[gibibytes] || !(n > 0 && n < 1e6))
        return reject_setting(p, key, value, "a share of the memory, such as 0.5, or GiB, such as 40G");
    p->rules->reserve_share = gibibytes ? 0 : n;
    p->rules->reserve_bytes = gibibytes ? (int64_t)(n * (double)(1 << 30)) : 0;
    return true;
}

static bool is_divisor(double n)
{
    return n >= 1 && n <= 1 << 20 && n == floor(n) && ((uint32_t)n & ((uint32_t)n - 1)) == 0;
}

/* "8", or "[256:1,512:2,1024:4,>:8]": by size in MiB, the last for all that is larger. 0 and 1: rounded to 512 bytes.
 */
static bool set_divisions(const struct parser *p, const char *key, const char *value)
{
    static const char accepted[] = "a power of two, or a list such as [256:1,512:2,>:8]";
    uint32_t *divisions = p->rules->divisions;
    const size_t n = sizeof p->rules->divisions / sizeof *divisions;
    double size, parts;
    char entry[64];
    if (*value != '[') {
        if (!parse_setting_number(value, &parts) || !is_divisor(parts)) return reject_setting(p, key, value, accepted);
        for (size_t i = 0; i < n; i++) divisions[i] = (uint32_t)parts;
        return true;
    }
    if (!rules_have(p, key, CACHING_DIVISIONS_LIST)) return false;
    const size_t after = caching_rules_have(p->rules, CACHING_DIVISIONS_REST, NULL);
    bool first = true;
    size_t last = 0;
    for (const char *at = value + 1; *at && *at != ']';) {
        const size_t length = strcspn(at, ",]");
        snprintf(entry, sizeof entry, "%.*s", (int)length, at);
        char *colon = strchr(entry, ':');
        if (!colon || !parse_setting_number(colon + 1, &parts) || (parts != 0 && !is_divisor(parts)))
            return reject_setting(p, key, value, accepted);
        if (parts == 0 && !rules_have(p, key, CACHING_DIVISIONS_OFF)) return false;
        *colon = 0;
        const bool rest = strcmp(entry, ">") == 0;
        if (!rest && (!parse_setting_number(entry, &size) || !is_divisor(size)))
            return reject_setting(p, key, value, accepted);
        size_t index = rest ? last + after : (size_t)log2(size);
        if (!rest && index >= n) index = n - 1;
        for (size_t i = first && !rest ? 0 : index; i < n && (i <= index || rest); i++) divisions[i] = (uint32_t)parts;
        first &= rest;
        last = index;
        at += length + (at[length] == ',');
    }
    return true;
}

static bool set_backend(const struct parser *p, const char *key, const char *value)
{
    return strcasecmp(value, "native") == 0 ||
           reject_setting(p, key, value, "'native', the allocator that gpuspy replays (cudaMallocAsync is CUDA's own)");
}

static bool ignore_setting(const struct parser *p, const char *key, const char *value)
{
    return true;
}

enum { ALWAYS = -1 };
static const struct {
    const char *key;
    bool (*set)(const struct parser *p, const char *key, const char *value);
    int rule; /* enum caching_version_rule; ALWAYS */
} keys[] = {
    {"expandable_segments", set_expandable, CACHING_EXPANDABLE},
    {"expandable_segments_reserve", set_reserve, CACHING_EXPANDABLE_RESERVE},
    {"expandable_segments_reserve_by_class", ignore_setting,
     CACHING_EXPANDABLE_RESERVE}, /* of streams that C++ code tags */
    {"large_segment_size_mb", set_large_segment, CACHING_LARGE_SEGMENT},
    {"max_split_size_mb", set_max_split, ALWAYS},
    {"max_non_split_rounding_mb", set_max_round, CACHING_MAX_ROUND},
    {"garbage_collection_threshold", set_threshold, ALWAYS},
    {"per_process_memory_fraction", set_fraction, ALWAYS}, /* by set_per_process_memory_fraction */
    {"roundup_power2_divisions", set_divisions, ALWAYS},
    {"backend", set_backend, CACHING_BACKEND},
    {"release_lock_on_cudamalloc", ignore_setting, CACHING_RELEASE_LOCK},
    {"release_lock_on_hipmalloc", ignore_setting, CACHING_RELEASE_LOCK},
    {"pinned_use_cuda_host_register", ignore_setting, CACHING_PINNED_REGISTER},
    {"pinned_use_hip_host_register", ignore_setting, CACHING_PINNED_REGISTER},
    {"pinned_num_register_threads", ignore_setting, CACHING_PINNED_REGISTER},
    {"pinned_use_background_threads", ignore_setting, CACHING_PINNED_BACKGROUND},
    {"pinned_reserve_segment_size_mb", ignore_setting, CACHING_PINNED_RESERVE},
    {"graph_capture_record_stream_reuse", set_capture_reuse, CACHING_GRAPH_REUSE},
    {"throw_on_cudamalloc_oom", set_throws, CACHING_THROW_ON_OOM},
    {"pinned_free_catch_all", ignore_setting, CACHING_PINNED_CATCH_ALL},
    {"pinned_max_round_threshold_mb", ignore_setting, CACHING_PINNED_CAPS},
    {"pinned_max_cached_size_mb", ignore_setting, CACHING_PINNED_CAPS},
};

static void reject_unknown(const struct parser *p, const char *name)
{
    char words[1024] = "", near[64];
    size_t used = 0;

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        used += (size_t)snprintf(words + used, sizeof words - used, "%s|", keys[i].key);
    if (options_nearest(name, words, near, sizeof near))
        snprintf(p->error, p->error_size, "'%s' is unknown; did you mean '%s'?", name, near);
    else
        snprintf(p->error, p->error_size,
                 "'%s' is not a setting of PyTorch's allocator that gpuspy knows; 'gpuspy "
                 "whatif --help' lists them",
                 name);
}

/* Combinations of settings that PyTorch refuses. */
static bool check_rules(const struct caching_rules *rules, char *error, size_t error_size)
{
    if (rules->max_split_bytes < rules->large_bytes) {
        snprintf(error, error_size, "max_split_size_mb: %lld is less than large_segment_size_mb, %lld",
                 (long long)(rules->max_split_bytes / MIB), (long long)(rules->large_bytes / MIB));
        return false;
    }
    if (rules->expandable && rules->large_bytes % (2 * MIB)) {
        snprintf(error, error_size,
                 "large_segment_size_mb: %lld is odd; expandable segments have pages of a multiple of 2 MiB",
                 (long long)(rules->large_bytes / MIB));
        return false;
    }
    return true;
}

/* "key:value", up to `end`. */
static bool parse_setting(const struct parser *p, const char *at, const char *end)
{
    char key[64], value[256];
    size_t i = 0;
    const char *colon = memchr(at, ':', (size_t)(end - at));
    if (!colon) {
        const int sign = (int)strcspn(at, "=");
        if (sign < (int)(end - at))
            snprintf(p->error, p->error_size, "'%.*s' has a '=' instead of a ':'; write %.*s:%.*s", (int)(end - at), at,
                     sign, at, (int)(end - at) - sign - 1, at + sign + 1);
        else
            snprintf(p->error, p->error_size, "'%.*s' is not key:value, such as max_split_size_mb:256", (int)(end - at),
                     at);
        return false;
    }
    snprintf(key, sizeof key, "%.*s", (int)(colon - at), at);
    for (size_t from = (size_t)(colon + 1 - at); from < (size_t)(end - at) && i + 1 < sizeof value; from++)
        if (!strchr(" \t'\"", at[from])) value[i++] = at[from];
    value[i] = 0;
    char *name = key + strspn(key, " \t'\"");
    name[strcspn(name, " \t'\"")] = 0;
    for (i = 0; i < sizeof keys / sizeof *keys && strcmp(keys[i].key, name) != 0; i++) continue;
    if (i == sizeof keys / sizeof *keys) {
        reject_unknown(p, name);
        return false;
    }
    if (keys[i].rule != ALWAYS && !rules_have(p, name, (enum caching_version_rule)keys[i].rule)) return false;
    return keys[i].set(p, name, value);
}

bool whatif_rules_parse(struct caching_rules *rules, const char *conf, char *error, size_t error_size)
{
    struct parser p = {rules, error, error_size};
    char more[256]; /* errors after the first one */
    bool ok = true;
    const char *end;
    for (const char *at = conf; *at; at = *end ? end + 1 : end) {
        end = at + strcspn(at, ",");
        if (strchr(at, '[') && strchr(at, '[') < end) end = strchr(at, ']') ? strchr(at, ']') + 1 : at + strlen(at);
        if (parse_setting(&p, at, end)) continue;
        p = (struct parser){rules, more, sizeof more};
        ok = false;
    }
    return ok && check_rules(rules, error, error_size);
}

/* "2.6.0+cu124" */
static void read_version(struct caching_rules *rules, const char *version)
{
    unsigned major, minor;
    if (!version || sscanf(version, "%3u.%3u", &major, &minor) != 2) return;
    rules->major = (uint16_t)major;
    rules->minor = (uint16_t)minor;
}

bool whatif_rules_recorded(struct caching_rules *rules, struct run *run, uint32_t process, const char *version,
                           int64_t device_bytes, char *error, size_t error_size)
{
    struct run_conf confs[2];
    char why[256];
    bool all = true;
    *rules = caching_default_rules;
    read_version(rules, version);
    rules->device_guessed = device_bytes <= 0 || device_bytes == INT64_MAX;
    rules->device_bytes = rules->device_guessed ? (int64_t)80 << 30 : device_bytes;
    const int n = run_confs(run, process, confs);
    for (int i = 0; i < n; i++) {
        if (whatif_rules_parse(rules, confs[i].text, why, sizeof why)) continue;
        snprintf(error, error_size, "the recorded %s is not replayed: %s", confs[i].variable, why);
        all = false;
    }
    if (run_torch_settings(run, process).expandable == RUN_YES) rules->expandable = true;
    return all;
}
