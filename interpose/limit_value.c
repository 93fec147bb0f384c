/* GPUSPY_LIMIT's value, and what other processes hold of a capped device. */
#include <stdlib.h>
#include <string.h>
#include "interpose/limit_value.h"

#define DEVICES GS_LIMIT_DEVICES
#define UNKNOWN UINT64_MAX

_Atomic bool gs_limit_set;
static uint64_t all, one[DEVICES];       /* written once, before gs_limit_set */
static _Atomic uint64_t others[DEVICES]; /* plus 1; 0: not queried yet */
static _Atomic uint64_t physical[DEVICES];

/* strncasecmp depends on the program's locale. `lower` has letters only. */
static bool equal_ignoring_case(const char *lower, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (lower[i] != (text[i] | 0x20)) return false;
    return true;
}

static double factor_of(const char *unit, size_t len)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"b", 1},      {"kib", 0x1p10}, {"mib", 0x1p20}, {"gib", 0x1p30}, {"tib", 0x1p40},
                 {"kb", 1e3},   {"mb", 1e6},     {"gb", 1e9},     {"tb", 1e12},    {"k", 0x1p10},
                 {"m", 0x1p20}, {"g", 0x1p30},   {"t", 0x1p40}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strlen(units[i].unit) == len && equal_ignoring_case(units[i].unit, unit, len)) return units[i].factor;
    return 0;
}

/* Reads a size that ends at a comma or at the end of the text. */
static bool read_size(const char **at, uint64_t *bytes)
{
    const char *p = *at;
    double number = 0, scale = 1;
    if (*p < '0' || *p > '9') return false;
    for (; *p >= '0' && *p <= '9'; p++) number = number * 10 + (*p - '0');
    if (*p == '.') /* strtod's decimal point depends on the program's locale */
        for (p++; *p >= '0' && *p <= '9'; p++) number += (*p - '0') * (scale /= 10);
    while (*p == ' ') p++;
    const size_t len = strcspn(p, ", ");
    const double size = number * factor_of(p, len);
    for (p += len; *p == ' ';) p++;
    if (!(size >= 1) || size > 0x1p60 || (*p && *p != ',')) return false;
    *bytes = (uint64_t)size;
    *at = p;
    return true;
}

bool gs_size_read(const char *text, uint64_t *bytes)
{
    return read_size(&text, bytes) && !*text;
}

static bool read_limit_entry(const char **at, uint64_t *everywhere, uint64_t *each)
{
    const char *p = *at;
    uint64_t *to = everywhere;
    while (*p == ' ') p++;
    const size_t digits = strspn(p, "0123456789");
    if (digits && digits <= 2 && p[digits] == ':') {
        const int device = atoi(p);
        if (device >= DEVICES) return false;
        to = &each[device];
        p += digits + 1;
    }
    if (*to || !read_size(&p, to)) return false; /* the same device twice */
    *at = p;
    return true;
}

bool gs_limit_read(const char *value)
{
    uint64_t everywhere = 0, each[DEVICES] = {0};
    const char *p = value;
    for (bool more = true; more; p += more) {
        if (!read_limit_entry(&p, &everywhere, each)) return false;
        more = *p == ',';
    }
    all = everywhere;
    memcpy(one, each, sizeof one);
    atomic_store(&gs_limit_set, true);
    return true;
}

uint64_t gs_limit_of(int device)
{
    if (device < 0 || device >= DEVICES || !gs_limited()) return 0;
    return one[device] ? one[device] : all;
}

void gs_limit_physical(int device, uint64_t bytes)
{
    if (device >= 0 && device < DEVICES) atomic_store_explicit(&physical[device], bytes, memory_order_relaxed);
}

uint64_t gs_limit_physical_of(int device)
{
    return device < 0 || device >= DEVICES ? 0 : atomic_load_explicit(&physical[device], memory_order_relaxed);
}

void gs_limit_others(int device, uint64_t bytes)
{
    if (device < 0 || device >= DEVICES || !gs_limited()) return;
    atomic_store_explicit(&others[device], bytes == UNKNOWN ? 1 : bytes + 1, memory_order_relaxed);
}

bool gs_limit_others_known(int device, uint64_t *bytes)
{
    const uint64_t known = atomic_load_explicit(&others[device], memory_order_relaxed);
    if (known) *bytes = known - 1;
    return known;
}

void gs_limit_value_forget(void)
{
    for (int i = 0; i < DEVICES; i++) atomic_store(&others[i], 0);
}
