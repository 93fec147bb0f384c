/* Reads .safetensors: 8 bytes with a length, a JSON header, the data. Reads only the header. The rules are those of the
 * reference implementation (safetensors 0.8.0, src/tensor.rs): a header of at most 100 MB, offsets that follow each
 * other without a gap from 0 to the end of the file, sizes that agree with type and shape. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/files.h"
#include "analyzer/model/json_scan.h"
#include "analyzer/base/sort.h"

enum { HEADER_MAX = 100000000, RANK_MAX = 64, INDEX_MAX = 200000000 };

static const struct {
    const char *name;
    unsigned bits;
} types[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

struct entry {
    struct model_stored_tensor tensor;
    uint64_t begin, end;
    unsigned seen; /* bits: dtype, shape, data_offsets */
};

struct header {
    struct model_scan scan;
    struct model_file *f;
    struct entry *entries;
    size_t n, cap;
};

/* Prints a line that names the tensor. Returns false. */
static bool refuse_safetensors_tensor(const struct header *h, const struct entry *e, const char *what)
{
    char name[128], clean[128];

    snprintf(name, sizeof name, "%.*s", (int)(e->tensor.length > 100 ? 100 : e->tensor.length), e->tensor.name);
    return model_file_reject(h->f, "tensor '%s' %s", terminal_clean(clean, sizeof clean, name, true), what);
}

static bool is_header_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

static bool read_type(struct header *h, struct entry *e)
{
    const char *text;
    size_t n;

    if (!model_scan_string(&h->scan, &text, &n)) return false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (is_header_word(text, n, types[i].name)) {
            e->tensor.type = types[i].name;
            e->tensor.bits = types[i].bits;
            return true;
        }
    }
    return refuse_safetensors_tensor(h, e, "has an unknown dtype");
}

static bool read_shape(struct header *h, struct entry *e)
{
    struct model_stored_tensor *t = &e->tensor;
    uint64_t n;

    t->first = t->second = t->elements = 1;
    if (!model_scan_expect(&h->scan, '[')) return false;
    if (model_scan_take(&h->scan, ']')) return true;
    do {
        if (!model_scan_uint(&h->scan, &n)) return false;
        if (t->rank == RANK_MAX) return refuse_safetensors_tensor(h, e, "has more than 64 dimensions");
        if (t->rank < 2) *(t->rank ? &t->second : &t->first) = n;
        t->rank++;
        if (__builtin_mul_overflow(t->elements, n, &t->elements))
            return refuse_safetensors_tensor(h, e, "has a shape of 2^64 elements or more");
    } while (model_scan_take(&h->scan, ','));
    return model_scan_expect(&h->scan, ']');
}

static bool read_offsets(struct header *h, struct entry *e)
{
    return model_scan_expect(&h->scan, '[') && model_scan_uint(&h->scan, &e->begin) &&
           model_scan_expect(&h->scan, ',') && model_scan_uint(&h->scan, &e->end) && model_scan_expect(&h->scan, ']');
}

/* Checks type, shape and offsets against each other. */
static bool check_entry(struct header *h, struct entry *e)
{
    struct model_stored_tensor *t = &e->tensor;
    uint64_t bits;

    if (e->seen != 7) return refuse_safetensors_tensor(h, e, "lacks its dtype, its shape or its data_offsets");
    if (__builtin_mul_overflow(t->elements, t->bits, &bits))
        return refuse_safetensors_tensor(h, e, "has a shape of 2^64 bits or more");
    if (bits % 8) return refuse_safetensors_tensor(h, e, "does not end with a whole byte");
    t->bytes = bits / 8;
    if (e->end < e->begin || e->end - e->begin != t->bytes)
        return refuse_safetensors_tensor(h, e, "has data_offsets that are not what its dtype and shape need");
    return true;
}

static bool read_header_entry(struct header *h, const char *name, size_t length)
{
    struct entry e = {.tensor = {.name = name, .length = length}};
    const char *key;
    size_t n;
    bool first = true;

    if (!model_scan_expect(&h->scan, '{')) return false;
    while (model_scan_key(&h->scan, &first, &key, &n)) {
        const unsigned bit = is_header_word(key, n, "dtype")          ? 1
                             : is_header_word(key, n, "shape")        ? 2
                             : is_header_word(key, n, "data_offsets") ? 4
                                                                      : 0;
        if (e.seen & bit) return refuse_safetensors_tensor(h, &e, "has a key twice");
        e.seen |= bit;
        if (!(bit == 1   ? read_type(h, &e)
              : bit == 2 ? read_shape(h, &e)
              : bit == 4 ? read_offsets(h, &e)
                         : model_scan_skip(&h->scan)))
            return false;
    }
    if (h->scan.problem || !check_entry(h, &e)) return false;
    *ARENA_PUSH(h->entries, h->n, h->cap) = e;
    return true;
}

SORT_ORDER(by_begin, struct entry, SORT_UP(x->begin, y->begin) ?: SORT_UP(x->end, y->end))

static bool check_layout(struct header *h, uint64_t data)
{
    uint64_t at = 0;

    SORT(h->entries, h->n, by_begin);
    for (size_t i = 0; i < h->n; i++) {
        if (h->entries[i].begin != at)
            return refuse_safetensors_tensor(
                h, &h->entries[i], h->entries[i].begin < at ? "overlaps the one before it" : "has a gap before it");
        at = h->entries[i].end;
    }
    if (at > data)
        return model_file_reject(h->f, "is cut off: its tensors have %ju bytes, the file has %ju of them",
                                 (uintmax_t)at, (uintmax_t)data);
    return at == data || model_file_reject(h->f, "has %ju bytes after its last tensor", (uintmax_t)(data - at));
}

static bool read_tensors(struct header *h)
{
    const char *key;
    size_t n;
    bool first = true;

    if (model_scan_expect(&h->scan, '{'))
        while (model_scan_key(&h->scan, &first, &key, &n)) {
            const char *at = h->scan.at;
            if (!(is_header_word(key, n, "__metadata__") ? model_scan_skip(&h->scan) : read_header_entry(h, key, n))) {
                if (!h->scan.problem) return false; /* a line was printed */
                h->scan.at = (char *)at;
                break;
            }
        }
    if (!h->scan.problem) model_scan_is_done(&h->scan);
    return !h->scan.problem || model_file_reject(h->f, "its header %s", h->scan.problem);
}

static bool read_header(struct model_file *f, char *bytes, size_t n, struct model_stored *s)
{
    struct header h = {.scan = {bytes, bytes + n, NULL}, .f = f};
    bool ok;

    if (!model_scan_utf8(bytes, n)) return model_file_reject(f, "its header is not UTF-8");
    ok = read_tensors(&h) && check_layout(&h, f->size - 8 - n);
    for (size_t i = 0; ok && i < h.n; i++) ok = model_stored_add(s, f, &h.entries[i].tensor);
    free(h.entries);
    return ok;
}

bool model_safetensors_read(const char *command, const char *path, int *exit_code, struct model_stored *s)
{
    struct model_file f;
    unsigned char head[8];
    uint64_t n = 0;
    bool ok = false;

    if (!model_file_open(&f, command, path, exit_code)) return false;
    if (f.size < 8)
        model_file_reject(&f, "is not a safetensors file: it has %ju bytes", (uintmax_t)f.size);
    else if (model_file_read(&f, 0, head, 8)) {
        for (int i = 7; i >= 0; i--) n = n << 8 | head[i];
        if (memcmp(head, "version ", 8) == 0)
            model_file_reject(&f, "is a Git LFS pointer, not the file; type: git lfs pull");
        else if (n > HEADER_MAX)
            model_file_reject(
                &f, "is not a safetensors file: its header would have %ju bytes, and at most 100 MB are allowed",
                (uintmax_t)n);
        else if (n > f.size - 8)
            model_file_reject(&f, "is cut off: its header has %ju bytes, the file %ju", (uintmax_t)n,
                              (uintmax_t)f.size);
        else if (model_stored_header(s, &f, n)) {
            char *bytes = arena_realloc(NULL, (size_t)n + 1, 1);
            ok = model_file_read(&f, 8, bytes, (size_t)n) && read_header(&f, bytes, (size_t)n, s);
            free(bytes);
        }
    }
    model_file_close(&f);
    return ok;
}
