/* Reads GGUF, version 2 and 3: metadata and the list of tensors, but not the data after them. The rules are ggml's
 * (llama.cpp, ggml/src/gguf.cpp): tensors follow each other, each begins at a multiple of general.alignment, rows are
 * whole blocks of their type. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/gguf.h"

/* TEXTS_MAX: strings in lists; a vocabulary of 200 000 and its merges are half a million. */
enum { KEYS_MAX = 100000, KEY_BYTES_MAX = 1000, DIMS_MAX = 4, TEXTS_MAX = 20000000 };

static const struct {
    uint32_t number;
    const char *name;
    uint64_t block, bytes;
} types[] = {
#define GGML_TYPE(number, name, block, bytes) {number, name, block, bytes},
#include "analyzer/model/ggml_types.def"
#include "analyzer/base/words.h"
#undef GGML_TYPE
};

enum value_type { U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64, VALUE_TYPES };
static const unsigned char value_bytes[VALUE_TYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct reader {
    struct model_file f;
    uint64_t at;
    uint64_t from; /* file offset of the buffer */
    size_t have;
    uint64_t texts; /* strings in lists so far: each one must be skipped */
    unsigned char buffer[1 << 16];
};

static bool cut_off(struct reader *r)
{
    return model_file_reject(&r->f, "is cut off: it ends after %ju bytes, among its metadata", (uintmax_t)r->f.size);
}

static bool has_gguf_room(struct reader *r, uint64_t n)
{
    return n <= r->f.size - r->at || cut_off(r);
}

static bool skip_gguf(struct reader *r, uint64_t n)
{
    if (!has_gguf_room(r, n)) return false;
    r->at += n;
    return true;
}

static bool take_gguf(struct reader *r, void *to, size_t n)
{
    if (!has_gguf_room(r, n)) return false;
    for (size_t done = 0; done < n;) {
        if (r->at < r->from || r->at >= r->from + r->have) {
            uint64_t left = r->f.size - r->at;
            r->from = r->at;
            r->have = left < sizeof r->buffer ? (size_t)left : sizeof r->buffer;
            if (!model_file_read(&r->f, r->from, r->buffer, r->have)) return false;
        }
        size_t offset = (size_t)(r->at - r->from), part = r->have - offset;
        part = part < n - done ? part : n - done;
        memcpy((char *)to + done, r->buffer + offset, part);
        done += part;
        r->at += part;
    }
    return true;
}

/* Little-endian. */
static bool read_uint(struct reader *r, unsigned bytes, uint64_t *n)
{
    unsigned char raw[8];

    if (!take_gguf(r, raw, bytes)) return false;
    *n = 0;
    for (unsigned i = bytes; i-- > 0;) *n = *n << 8 | raw[i];
    return true;
}

/* Reads a name of at most KEY_BYTES_MAX bytes and adds a 0. */
static bool read_gguf_name(struct reader *r, const char *of, char out[KEY_BYTES_MAX + 1], size_t *n)
{
    uint64_t length;

    if (!read_uint(r, 8, &length)) return false;
    if (length > KEY_BYTES_MAX)
        return length > r->f.size - r->at
                   ? cut_off(r)
                   : model_file_reject(&r->f, "%s's name has %ju bytes, which is too long for a name", of,
                                       (uintmax_t)length);
    *n = (size_t)length;
    out[*n] = 0;
    if (!take_gguf(r, out, *n)) return false;
    return !memchr(out, 0, *n) || model_file_reject(&r->f, "%s's name has a NUL in it", of);
}

struct value {
    bool is_number, varies;
    uint64_t number;
    char text[64];
};

static bool read_gguf_number(struct reader *r, enum value_type type, struct value *v)
{
    uint64_t n;

    if (!read_uint(r, value_bytes[type], &n)) return false;
    v->is_number = type != F32 && type != F64;
    /* negative numbers count as missing */
    const bool negative = (type == I8 && n > INT8_MAX) || (type == I16 && n > INT16_MAX) ||
                          (type == I32 && n > INT32_MAX) || (type == I64 && n > INT64_MAX);
    v->number = negative ? UINT64_MAX : n;
    return true;
}

static bool read_gguf_text(struct reader *r, struct value *v)
{
    uint64_t length;
    size_t kept;

    if (!read_uint(r, 8, &length) || !has_gguf_room(r, length)) return false;
    kept = length < sizeof v->text ? (size_t)length : sizeof v->text - 1;
    if (!take_gguf(r, v->text, kept)) return false;
    v->text[kept] = 0;
    return skip_gguf(r, length - kept);
}

/* Keeps the largest number of a list; skips lists of other types. */
static bool read_gguf_array(struct reader *r, struct value *v)
{
    uint64_t type, n, length;
    struct value one = {0};

    if (!read_uint(r, 4, &type) || !read_uint(r, 8, &n)) return false;
    if (type >= VALUE_TYPES || type == ARRAY)
        return model_file_reject(&r->f, type == ARRAY ? "has a list of lists in its metadata"
                                                      : "has a value of unknown type in its metadata");
    if (n > (r->f.size - r->at) / (type == STRING ? 8 : value_bytes[type])) return cut_off(r);
    if (type == STRING) {
        r->texts += n;
        if (r->texts > TEXTS_MAX)
            return model_file_reject(&r->f, "has more than %d strings in its metadata: it is damaged", TEXTS_MAX);
        for (uint64_t i = 0; i < n; i++)
            if (!read_uint(r, 8, &length) || !skip_gguf(r, length)) return false;
        return true;
    }
    if (n > 100000) /* a list about the vocabulary */
        return skip_gguf(r, n * value_bytes[type]);
    for (uint64_t i = 0; i < n; i++) {
        if (!read_gguf_number(r, type, &one)) return false;
        v->varies |= i > 0 && one.number != v->number;
        v->number = one.number > v->number ? one.number : v->number;
    }
    v->is_number = n > 0 && one.is_number;
    return true;
}

static bool read_gguf_value(struct reader *r, struct value *v)
{
    uint64_t type;

    if (!read_uint(r, 4, &type)) return false;
    if (type >= VALUE_TYPES)
        return model_file_reject(&r->f, "has a value of unknown type %ju in its metadata", (uintmax_t)type);
    return type == STRING  ? read_gguf_text(r, v)
           : type == ARRAY ? read_gguf_array(r, v)
                           : read_gguf_number(r, (enum value_type)type, v);
}

static void keep_gguf_value(struct model_gguf_metadata *d, const char *key, const struct value *v)
{
    static const char *const keys[] = {GGUF_KEYS(WORDS_FIRST)};
    const char *dot = strchr(key, '.');

    if (strcmp(key, "general.architecture") == 0) snprintf(d->architecture, sizeof d->architecture, "%s", v->text);
    if (!dot || !v->is_number) return;
    if (strcmp(key, "general.alignment") == 0) d->alignment = v->number;
    if (strcmp(key, "general.parameter_count") == 0) d->parameters = v->number;
    if (strcmp(key, "split.no") == 0) d->split_no = v->number;
    if (strcmp(key, "split.count") == 0) d->split_count = v->number;
    for (size_t i = 0; i < GGUF_KEYS_N && dot - key < 64; i++) {
        if (strcmp(dot + 1, keys[i]) == 0) {
            d->keys[i].present = true;
            d->keys[i].number = v->number;
            d->keys[i].varies = v->varies;
            snprintf(d->keys[i].prefix, sizeof d->keys[i].prefix, "%.*s", (int)(dot - key), key);
        }
    }
}

static bool read_gguf_metadata(struct reader *r, uint64_t n, struct model_gguf_metadata *d)
{
    struct map known = {0};
    char key[KEY_BYTES_MAX + 1], clean[100];
    size_t length;
    bool ok = n <= KEYS_MAX || model_file_reject(&r->f, "has %ju keys of metadata: it is damaged", (uintmax_t)n);

    for (uint64_t i = 0; ok && i < n; i++) {
        struct value v = {0};
        ok = read_gguf_name(r, "a key", key, &length) && read_gguf_value(r, &v);
        if (!ok) break;
        uint32_t *at = map_at(&known, map_hash_bytes(0, key, length));
        if (*at != MAP_NEW)
            ok = model_file_reject(&r->f, "has the key '%s' twice", terminal_clean(clean, sizeof clean, key, true));
        *at = 0;
        keep_gguf_value(d, key, &v);
    }
    map_free(&known);
    return ok;
}

static bool refuse_gguf_tensor(struct reader *r, const char *of, const char *what)
{
    char clean[100];

    return model_file_reject(&r->f, "tensor '%s' %s", terminal_clean(clean, sizeof clean, of, true), what);
}

static bool size_gguf_tensor(struct reader *r, const char *of, uint32_t type, const uint64_t *dims,
                             struct model_stored_tensor *t)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].number != type) continue;
        t->type = types[i].name;
        if (dims[0] % types[i].block)
            return refuse_gguf_tensor(r, of, "has rows that are not whole blocks of its type");
        if (__builtin_mul_overflow(t->elements / types[i].block, types[i].bytes, &t->bytes))
            return refuse_gguf_tensor(r, of, "has more than 2^64 bytes");
        return true;
    }
    return refuse_gguf_tensor(r, of, "has an unknown type: ggml removed it, or the file is newer than this gpuspy");
}

/* Reads one row of the list; `at` is the offset in the data at which it must begin. */
static bool read_gguf_tensor(struct reader *r, struct model_stored *s, uint64_t alignment, uint64_t *at, uint64_t *end)
{
    char called[KEY_BYTES_MAX + 1];
    struct model_stored_tensor t = {.name = called, .elements = 1};
    uint64_t dims[DIMS_MAX] = {1, 1, 1, 1}, rank, type, offset;

    if (!read_gguf_name(r, "a tensor", called, &t.length) || !read_uint(r, 4, &rank)) return false;
    if (rank > DIMS_MAX) return refuse_gguf_tensor(r, called, "has more than 4 dimensions");
    for (uint64_t i = 0; i < rank; i++) {
        if (!read_uint(r, 8, &dims[i])) return false;
        if (__builtin_mul_overflow(t.elements, dims[i], &t.elements) || t.elements > INT64_MAX)
            return refuse_gguf_tensor(r, called, "has 2^63 elements or more");
    }
    if (!read_uint(r, 4, &type) || !read_uint(r, 8, &offset) || !size_gguf_tensor(r, called, (uint32_t)type, dims, &t))
        return false;
    if (offset != *at) return refuse_gguf_tensor(r, called, "does not begin where the one before it ends");
    t.rank = (unsigned)rank;
    t.first = rank ? dims[rank - 1] : 1; /* GGUF lists the fastest dimension first */
    t.second = rank > 1 ? dims[rank - 2] : 1;
    if (__builtin_add_overflow(offset, t.bytes, end) || *end > INT64_MAX)
        return refuse_gguf_tensor(r, called, "ends after 2^63 bytes");
    *at = (*end + alignment - 1) / alignment * alignment;
    return model_stored_add(s, &r->f, &t);
}

static bool read_gguf_tensors(struct reader *r, uint64_t n, const struct model_gguf_metadata *d, struct model_stored *s)
{
    uint64_t at = 0, end = 0, a = d->alignment;

    if (a == 0 || a > 1 << 30 || (a & (a - 1)))
        return model_file_reject(&r->f, "general.alignment is not a power of two");
    if (n > (r->f.size - r->at) / 24) return cut_off(r);
    for (uint64_t i = 0; i < n; i++)
        if (!read_gguf_tensor(r, s, a, &at, &end)) return false;
    uint64_t data = (r->at + a - 1) / a * a, present = data < r->f.size ? r->f.size - data : 0;
    return end <= present ||
           model_file_reject(&r->f, "is cut off: its tensors have %ju bytes, the file has %ju of them", (uintmax_t)end,
                             (uintmax_t)present);
}

static bool read_gguf_head(struct reader *r, uint64_t *tensors_n, uint64_t *keys_n)
{
    char magic[4];
    uint64_t version;

    if (r->f.size < 4 || !take_gguf(r, magic, 4) || memcmp(magic, "GGUF", 4) != 0)
        return model_file_reject(&r->f, "is not a GGUF file");
    if (!read_uint(r, 4, &version)) return false;
    if (version && !(version & 0xffff))
        return model_file_reject(&r->f, "is a big-endian GGUF file, which gpuspy does not read");
    if (version < 2 || version > 3)
        return model_file_reject(&r->f, "is GGUF version %ju; gpuspy reads 2 and 3", (uintmax_t)version);
    return read_uint(r, 8, tensors_n) && read_uint(r, 8, keys_n);
}

static bool read_one(const char *command, const char *path, int *exit_code, struct model_gguf_metadata *d,
                     struct model_stored *s)
{
    struct reader *r = arena_realloc(NULL, 1, sizeof *r);
    uint64_t tensors_n = 0, keys_n = 0;
    bool ok;

    memset(r, 0, sizeof *r);
    *d = (struct model_gguf_metadata){.alignment = 32};
    ok = model_file_open(&r->f, command, path, exit_code);
    if (ok) {
        ok = read_gguf_head(r, &tensors_n, &keys_n) && read_gguf_metadata(r, keys_n, d) &&
             read_gguf_tensors(r, tensors_n, d, s);
        model_file_close(&r->f);
    }
    free(r);
    return ok;
}

static bool read_splits(const struct model_file *f, const struct model_gguf_metadata *given,
                        struct model_gguf_metadata *d, struct model_stored *s)
{
    struct model_gguf_metadata one;
    bool ok = true;

    if (model_parts(f->path, ".gguf") != given->split_count)
        return model_file_reject(
            f, "is one of %ju files, but is not called …-00001-of-%05ju.gguf; gpuspy cannot find the others",
            (uintmax_t)given->split_count, (uintmax_t)given->split_count);
    for (uint64_t i = 1; ok && i <= given->split_count; i++) {
        char *path = model_part(f->path, ".gguf", i);
        ok = read_one(f->command, path, f->exit_code, &one, s);
        if (ok && (one.split_no != i - 1 || one.split_count != given->split_count)) {
            const struct model_file other = {f->command, path, f->exit_code, -1, 0};
            ok = model_file_reject(&other, "states that it is part %ju of %ju, but its name does not",
                                   (uintmax_t)one.split_no + 1, (uintmax_t)one.split_count);
        }
        if (i == 1) *d = one;
        free(path);
    }
    return ok;
}

bool model_from_gguf(const char *command, const char *path, struct model *m, int *exit_code)
{
    const struct model_file f = {command, path, exit_code, -1, 0};
    struct model_gguf_metadata given, d;
    struct model_shape shape = {0};
    struct model_stored *s = model_stored_new();
    bool ok;

    *m = (struct model){.source = "gguf"};
    ok = read_one(command, path, exit_code, &given, s);
    d = given;
    if (ok && given.split_count > 1) {
        model_stored_free(s);
        s = model_stored_new();
        ok = read_splits(&f, &given, &d, s);
    }
    if (ok) ok = model_gguf_shape(&d, s, &f, &shape, m->note, sizeof m->note);
    if (ok) {
        const struct model_stored_hints hints = {shape.family == MODEL_UNKNOWN ? NULL : &shape, 0};
        ok = model_build_stored(s, &f, &hints, m);
    }
    if (ok && d.parameters && d.parameters != m->params)
        snprintf(m->note, sizeof m->note, "general.parameter_count is %ju, but its tensors have %ju",
                 (uintmax_t)d.parameters, (uintmax_t)m->params);
    if (ok) model_name_of(path, m->name, sizeof m->name);
    model_stored_free(s);
    return ok;
}
