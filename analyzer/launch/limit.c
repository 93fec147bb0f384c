#include "analyzer/launch/limit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/estimate/gpu.h"

#define DEVICES 64 /* as in the recorder */

/* The device before the colon, "0:" is 0; -1: there is no colon; -2: not a device number. */
static int parse_limit_device(const char **part)
{
    const size_t digits = strspn(*part, "0123456789");
    int device = 0;
    if (!digits || (*part)[digits] != ':') return -1;
    if (digits > 2) return -2;
    for (size_t i = 0; i < digits; i++) device = device * 10 + ((*part)[i] - '0');
    *part += digits + 1;
    return device < DEVICES ? device : -2;
}

static bool parse_limit_size(const char *part, bool names, uint64_t *bytes)
{
    char why[UNITS_WHY];
    if (units_parse_bytes(part, bytes, why)) return *bytes > 0 && *bytes <= (uint64_t)1 << 60;
    const struct estimate_gpu *gpu = names ? estimate_gpu_find(part) : NULL;
    if (gpu) *bytes = gpu->total_bytes;
    return gpu && *bytes > 0;
}

bool launch_limit_value(const char *text, bool names, char *out, size_t size, char *wrong, size_t wrong_size)
{
    bool given[DEVICES + 1] = {false};
    char part[128];
    size_t at = 0;

    out[0] = 0;
    for (const char *p = text;; p++) {
        const size_t len = strcspn(p, ",");
        const char *what = part;
        uint64_t bytes;
        text_put(part, sizeof part, "%.*s", len < sizeof part ? (int)len : (int)sizeof part - 1, p);
        const int device = parse_limit_device(&what);
        if (device < -1 || given[device + 1] || len >= sizeof part || !parse_limit_size(what, names, &bytes)) {
            text_put(wrong, wrong_size, "%s", part);
            return false;
        }
        given[device + 1] = true;
        char entry[64];
        const int n = device < 0 ? snprintf(entry, sizeof entry, "%s%" PRIu64 "B", at ? "," : "", bytes)
                                 : snprintf(entry, sizeof entry, "%s%d:%" PRIu64 "B", at ? "," : "", device, bytes);
        if (at + (size_t)n >= size) {
            text_put(wrong, wrong_size, "%s", part);
            return false;
        }
        memcpy(out + at, entry, (size_t)n + 1);
        at += (size_t)n;
        p += len;
        if (!*p) return true;
    }
}
