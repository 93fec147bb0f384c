/* Reads a page back: extracts the data from its element and checks it. For unit tests and fuzzing; functions return
 * NULL if all is well, otherwise the error. */
#pragma once

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/page/view_html.h"

struct page_numbers {
    double *list;
    size_t n;
};

/* The values of a column; the caller frees the list. */
static inline struct page_numbers page_numbers(const json_t *o, const char *key)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *text = json_string_value(json_object_get(o, key));
    struct page_numbers c = {NULL, 0};
    if (!text) return c;
    c.list = malloc((strlen(text) + 1) * sizeof *c.list);
    uint64_t value = 0;
    for (unsigned shift = 0; *text; text++) {
        const char *at = strchr(digits, *text);
        uint64_t digit = at ? (uint64_t)(at - digits) : 0;
        value |= shift < 64 ? (digit & 31) << shift : 0;
        shift += 5;
        if (digit < 32) {
            c.list[c.n++] = value & 1 ? -(double)(value >> 1) : (double)(value >> 1);
            value = 0;
            shift = 0;
        }
    }
    return c;
}

static inline double page_int(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

/* The data element of a page; the caller frees it. On failure NULL and `why`. */
static inline json_t *page_data(const char *html, const char **why)
{
    static const char begin[] = "<script type=\"application/json\" id=\"gpuspy-data\">";
    const char *from = strstr(html, begin), *to = from ? strstr(from, "</script>") : NULL;
    json_error_t error;
    *why = NULL;
    if (!to || strstr(from + 1, begin)) {
        *why = "no data element, or two";
        return NULL;
    }
    from += sizeof begin - 1;
    for (const char *p = from; p < to; p++) {
        if (*p == '<' || *p == '>' || (unsigned char)*p < 0x20 || *p == 0x7f) {
            *why = "a character in the data that may end it";
            return NULL;
        }
    }
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_DECODE_INT_AS_REAL | JSON_REJECT_DUPLICATES, &error);
    *why = data ? NULL : "the data is not JSON";
    return data;
}

static inline const char *page_check_exact(const json_t *series, const double *high, size_t n, size_t lines)
{
    struct page_numbers exact = page_numbers(series, "exact");
    double sum = 0, line = 0, peak = page_int(series, "peak");
    const char *bad = exact.n % 3 ? "exact: not three of each" : NULL;
    for (size_t i = 0; !bad && i + 2 < exact.n; i += 3) {
        line += exact.list[i];
        sum += exact.list[i + 1];
        bad = line < 0 || line >= (double)lines ? "exact: no such line" : NULL;
    }
    if (!bad && exact.n && (peak < 0 || peak >= (double)n || sum != high[(size_t)peak])) bad = "exact: not the peak";
    free(exact.list);
    return bad;
}

/* The live bytes at each moment add up, and no line is negative. */
static inline const char *page_check_changes(const json_t *series, const double *high, size_t n, size_t lines)
{
    struct page_numbers c = page_numbers(series, "changes");
    double *bytes = calloc(lines + 1, sizeof *bytes), *blocks = calloc(lines + 1, sizeof *blocks);
    double total = 0;
    size_t at = 0;
    const char *bad = NULL;
    for (size_t i = 0; !bad && i < n; i++) {
        double line = 0, changes = at < c.n ? c.list[at++] : -1;
        if (changes < 0 || changes * 3 > (double)(c.n - at)) bad = "changes: they end too early";
        for (; !bad && changes > 0; changes--, at += 3) {
            line += c.list[at];
            if (line < 0 || line >= (double)lines) {
                bad = "changes: no such line";
                break;
            }
            bytes[(size_t)line] += c.list[at + 1];
            blocks[(size_t)line] += c.list[at + 2];
            total += c.list[at + 1];
            bad = bytes[(size_t)line] < 0 || blocks[(size_t)line] < 0 ? "changes: less than nothing" : NULL;
        }
        bad = bad ? bad : total != high[i] ? "changes: they do not sum to what is live" : NULL;
    }
    bad = bad ? bad : at != c.n ? "changes: there are more" : NULL;
    free(bytes);
    free(blocks);
    free(c.list);
    return bad;
}

static inline const char *page_check_series(const json_t *series, size_t stacks)
{
    struct page_numbers time = page_numbers(series, "time"), high = page_numbers(series, "high"),
                        low = page_numbers(series, "low"), start = page_numbers(series, "start"),
                        stack = page_numbers(series, "stack"), category = page_numbers(series, "category"),
                        merged = page_numbers(series, "merged");
    const char *bad = time.n != high.n || low.n != high.n || start.n != high.n || !high.n
                          ? "series: columns of different lengths"
                      : stack.n != category.n || merged.n != stack.n ? "lines: columns of different lengths"
                                                                     : NULL;
    for (size_t i = 1; !bad && i < high.n; i++) {
        high.list[i] += high.list[i - 1];
        bad = time.list[i] < 0 || start.list[i] < 0 ? "series: time runs backwards" : NULL;
    }
    for (size_t i = 0; !bad && i < high.n; i++)
        bad = low.list[i] < 0 || low.list[i] > high.list[i] ? "series: the least is more than the most" : NULL;
    for (size_t i = 0; !bad && i < stack.n; i++)
        bad = stack.list[i] < -1 || stack.list[i] >= (double)stacks ? "lines: no such stack" : NULL;
    bad = bad ? bad : page_check_changes(series, high.list, high.n, stack.n);
    bad = bad ? bad : page_check_exact(series, high.list, high.n, stack.n);
    struct page_numbers *all[] = {&time, &high, &low, &start, &stack, &category, &merged};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->list);
    return bad;
}

static inline const char *page_check_stacks(const json_t *data, size_t *stacks)
{
    const json_t *s = json_object_get(data, "stacks"), *f = json_object_get(data, "frames");
    struct page_numbers parent = page_numbers(s, "parent"), frame = page_numbers(s, "frame"),
                        name = page_numbers(f, "function"), file = page_numbers(f, "file");
    double strings = (double)json_array_size(json_object_get(data, "strings"));
    const char *bad = parent.n != frame.n || name.n != file.n ? "stacks: columns of different lengths" : NULL;
    for (size_t i = 0; !bad && i < parent.n; i++) {
        bad = parent.list[i] < 0 || parent.list[i] > (double)i       ? "stacks: a cycle"
              : frame.list[i] < 0 || frame.list[i] >= (double)name.n ? "stacks: no such frame"
                                                                     : NULL;
    }
    for (size_t i = 0; !bad && i < name.n; i++) {
        bad = name.list[i] < 0 || name.list[i] > strings || file.list[i] < 0 || file.list[i] > strings
                  ? "frames: no such text"
                  : NULL;
    }
    *stacks = parent.n;
    free(parent.list);
    free(frame.list);
    free(name.list);
    free(file.list);
    return bad;
}

static inline const char *page_check_map(const json_t *map, size_t stacks)
{
    const json_t *segments = json_object_get(map, "segments");
    struct page_numbers b = page_numbers(map, "blocks"), bytes = page_numbers(segments, "bytes"),
                        blocks = page_numbers(segments, "blocks");
    double unit = page_int(map, "unit");
    size_t at = 0;
    const char *bad = bytes.n != blocks.n ? "map: columns of different lengths" : NULL;
    for (size_t i = 0; !bad && i < bytes.n; i++) {
        double from = 0, size = bytes.list[i];
        for (double n = blocks.list[i]; !bad && n > 0; n--, at += 5) {
            if (at + 5 > b.n) {
                bad = "map: blocks are missing";
            } else if (b.list[at] < 0 || b.list[at + 1] <= 0) {
                bad = "map: blocks that overlap or hold nothing";
            } else {
                from += (b.list[at] + b.list[at + 1]) * unit;
                bad = from > size                        ? "map: a block outside of its segment"
                      : b.list[at + 2] >= (double)stacks ? "map: no such stack"
                                                         : NULL;
            }
        }
    }
    bad = bad ? bad : at != b.n ? "map: more blocks than segments say" : NULL;
    free(bytes.list);
    free(blocks.list);
    free(b.list);
    return bad;
}

static inline const char *page_check(const json_t *data)
{
    size_t i, stacks = 0;
    const json_t *o;
    const char *bad = page_check_stacks(data, &stacks);
    json_array_foreach(json_object_get(data, "series"), i, o)
    {
        bad = bad ? bad : page_check_series(o, stacks);
    }
    json_array_foreach(json_object_get(data, "maps"), i, o)
    {
        bad = bad ? bad : page_check_map(o, stacks);
    }
    bad = bad ? bad : !json_is_object(json_object_get(data, "report")) ? "no report" : NULL;
    return bad;
}

/* Opens the recording, makes the report and the page; the caller frees it. On failure NULL and `error`. */
static inline char *page_make(const char *path, struct run_options options, char *error, size_t error_size)
{
    char *html = NULL;
    size_t size;
    options.memory_map = true;
    struct run *run = run_open(&path, 1, &options, error, error_size);
    struct page *page = run ? page_new(run, &options) : NULL;
    struct result_report *report = run ? report_build(run, &options, error, error_size) : NULL;
    FILE *f = report ? open_memstream(&html, &size) : NULL;
    bool ok = f && page_write(page, report, path, f, error, error_size);
    if (f) fclose(f);
    char *copy = ok ? strdup(html) : NULL; /* otherwise gcc thinks that the pointer refers to itself */
    free(html);
    if (report) report_free(report);
    page_free(page);
    if (run) run_close(run);
    return copy;
}
