/* A profile has one moment: live memory by call stack, as counts and bytes. It has no times, addresses or frees. The
 * importer keeps the whole file in memory, at most PROFILE_BYTES, and a copy of its texts. Fields:
 * github.com/google/pprof, profile.proto; how JAX fills them: xla/python/py_client.cc, HeapProfile. */
#include "analyzer/import/formats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/import/feed.h"
#include "analyzer/import/protobuf.h"
#include "schema/event.h"

enum { PROFILE_BYTES = 256 << 20, FRAMES = 1024, DEVICES = 64, MOST_ROWS = 1 << 20 };
static const int64_t most_bytes = (int64_t)1 << 48;
static const uint64_t first_made_up = (uint64_t)1 << 52;
enum { ALIGN = 512 };

enum { SAMPLE_TYPE = 1, SAMPLE = 2, LOCATION = 4, FUNCTION = 5, STRING = 6, TIME = 9 }; /* field numbers of a profile */

struct function {
    uint64_t name, file; /* indices of texts */
};

struct line {
    uint64_t function;
    int64_t line;
};

struct location {
    size_t first, n; /* its lines, innermost first */
};

struct profile {
    unsigned char *data;
    size_t size;
    struct arena arena;
    const char **texts;
    struct function *functions;
    struct line *lines;
    struct location *locations;
    size_t texts_n, texts_cap, functions_n, functions_cap, lines_n, lines_cap, locations_n, locations_cap;
    struct map function_ids, location_ids;
    int count_at, bytes_at; /* index of a sample's value; -1: none */
    uint64_t time_ns;
    struct import_feed *feed;
    uint64_t next_address, rows, unplaced_bytes, unsized, left_out, beyond;
    uint64_t others, unnamed;  /* devices that are not GPUs, and those of which only the number is known */
    uint64_t numbers[DEVICES]; /* of the devices, ascending; those of a process of a large job begin above DEVICES */
    bool named[DEVICES];
    int devices;
    int only; /* the device of executables, whose samples name none; -1: the CPU */
};

struct sample {
    int64_t count, bytes;
    uint64_t number; /* of its device */
    bool has_device, on_cpu, executable;
    const char *device_name; /* "": it has only a number */
    uint32_t stack;
};

bool import_is_pprof(const unsigned char *head, size_t n)
{
    /* The file begins with a ValueType, whose fields are two small integers. */
    return n >= 6 && head[0] == 0x0a && head[1] <= 12 && (head[2] == 0x08 || head[2] == 0x10);
}

static bool load_pprof(struct profile *p, const char *path, char *error, size_t error_size)
{
    gzFile file = gzopen(path, "rbe");
    size_t cap = 1 << 16;
    int got, code = Z_OK;
    if (!file) {
        snprintf(error, error_size, "%s", strerror(errno));
        return false;
    }
    p->data = arena_realloc(NULL, cap, 1);
    while ((got = gzread(file, p->data + p->size, (unsigned)(cap - p->size))) > 0) {
        p->size += (size_t)got;
        if (p->size > PROFILE_BYTES) break;
        if (p->size == cap) p->data = arena_realloc(p->data, cap *= 2, 1);
    }
    gzerror(file, &code);
    gzclose_r(file);
    if (p->size > PROFILE_BYTES) {
        snprintf(error, error_size, "it is a profile of more than %d MiB", PROFILE_BYTES >> 20);
        return false;
    }
    if (got < 0 || code != Z_OK) {
        snprintf(error, error_size, "it is damaged or incomplete: gzip cannot unpack it");
        return false;
    }
    return true;
}

static const char *pprof_text_of(const struct profile *p, uint64_t at)
{
    return at < p->texts_n ? p->texts[at] : "";
}

static void read_function(struct profile *p, struct import_message m)
{
    struct function function = {0};
    struct import_field field;
    uint64_t id = 0;
    while (import_protobuf_next(&m, &field)) {
        if (field.number == 1) id = field.integer;
        if (field.number == 2) function.name = field.integer;
        if (field.number == 4) function.file = field.integer;
    }
    *map_at(&p->function_ids, id) = (uint32_t)p->functions_n;
    *ARENA_ADD(p->functions) = function;
}

static void read_pprof_line(struct profile *p, struct import_message m)
{
    struct line line = {0};
    struct import_field field;
    while (import_protobuf_next(&m, &field)) {
        if (field.number == 1) line.function = field.integer;
        if (field.number == 2) line.line = (int64_t)field.integer;
    }
    *ARENA_ADD(p->lines) = line;
}

static void read_location(struct profile *p, struct import_message m)
{
    struct location location = {.first = p->lines_n};
    struct import_field field;
    uint64_t id = 0;
    while (import_protobuf_next(&m, &field)) {
        if (field.number == 1) id = field.integer;
        if (field.number == 4 && field.is_bytes) read_pprof_line(p, field.bytes);
    }
    location.n = p->lines_n - location.first;
    *map_at(&p->location_ids, id) = (uint32_t)p->locations_n;
    *ARENA_ADD(p->locations) = location;
}

static bool read_tables(struct profile *p)
{
    struct import_message all = {p->data, p->data + p->size, false};
    struct import_field field;
    while (import_protobuf_next(&all, &field)) {
        if (field.number == TIME && !field.is_bytes) p->time_ns = field.integer;
        if (!field.is_bytes) continue;
        if (field.number == FUNCTION) read_function(p, field.bytes);
        if (field.number == LOCATION) read_location(p, field.bytes);
        if (field.number == STRING) {
            *ARENA_ADD(p->texts) =
                arena_printf(&p->arena, "%.*s", (int)(field.bytes.end - field.bytes.at), (const char *)field.bytes.at);
        }
    }
    return !all.broken;
}

static bool has_pprof_text(const struct profile *p, const char *text)
{
    size_t i = 0;
    while (i < p->texts_n && strcmp(p->texts[i], text) != 0) i++;
    return i < p->texts_n;
}

/* Finds which values of a sample are counts and bytes; their names may come later in the file. JAX has these types, and
 * the names of its labels even if there is no sample. Other tools' memory profiles have other types, or no kinds. */
static bool read_types(struct profile *p)
{
    struct import_message all = {p->data, p->data + p->size, false};
    struct import_field field, part;
    int at = 0;
    p->count_at = p->bytes_at = -1;
    while (import_protobuf_next(&all, &field)) {
        if (field.number != SAMPLE_TYPE || !field.is_bytes) continue;
        const char *texts[] = {"", "", ""}; /* [1]: the type, [2]: its unit */
        while (import_protobuf_next(&field.bytes, &part))
            if (part.number == 1 || part.number == 2) texts[part.number] = pprof_text_of(p, part.integer);
        if (strcmp(texts[1], "space") == 0 && strcmp(texts[2], "bytes") == 0) p->bytes_at = at;
        if (strcmp(texts[1], "allocations") == 0) p->count_at = at;
        at++;
    }
    if (p->count_at < 0 || !has_pprof_text(p, "kind")) p->bytes_at = -1;
    return p->bytes_at >= 0;
}

static bool read_profile(struct profile *p, const char *path, char *error, size_t error_size)
{
    *p = (struct profile){.next_address = first_made_up};
    if (!load_pprof(p, path, error, error_size)) return false;
    if (!read_tables(p)) {
        snprintf(error, error_size, "it is damaged: a field ends outside of its message");
        return false;
    }
    if (!read_types(p)) {
        snprintf(error, error_size,
                 "it is a pprof profile, but not one that jax.profiler.save_device_memory_profile() wrote");
        return false;
    }
    return true;
}

static void release_pprof(struct profile *p)
{
    MAP_RELEASE(&p->function_ids, &p->location_ids);
    ARENA_RELEASE(p->data, p->texts, p->functions, p->lines, p->locations);
    arena_free(&p->arena);
}

bool import_pprof_is_memory(const char *path)
{
    struct profile p;
    char ignored[160];
    read_profile(&p, path, ignored, sizeof ignored);
    bool memory = p.bytes_at >= 0 && p.texts_n;
    release_pprof(&p);
    return memory;
}

static bool has_before(const char *text, char end, const char *part)
{
    const char *at = strcasestr(text, part), *stop = strchr(text, end);
    return at && (!stop || at < stop);
}

/* Such as "gpu:0", "cuda:1", "CudaDevice(id=2)", "TPU_3(host=0,(0,1,0,0))", "TFRT_CPU_0". */
static void read_pprof_device(const char *text, struct sample *s)
{
    s->has_device = true;
    s->device_name = text;
    s->on_cpu = has_before(text, '(', "cpu") || has_before(text, '(', "host");
    s->number = strtoul(text + strcspn(text, "0123456789"), NULL, 10);
}

/* In 2020, JAX wrote a device as a number, which protobuf leaves out if it is 0. */
static void read_label(struct profile *p, struct import_message m, struct sample *s)
{
    struct import_field field;
    const char *key = "", *value = "";
    uint64_t number = 0;
    while (import_protobuf_next(&m, &field)) {
        if (field.number == 1) key = pprof_text_of(p, field.integer);
        if (field.number == 2) value = pprof_text_of(p, field.integer);
        if (field.number == 3) number = field.integer;
    }
    if (strcmp(key, "kind") == 0) s->executable = strcmp(value, "executable") == 0;
    if (strcmp(key, "device") != 0) return;
    read_pprof_device(value, s);
    if (!*value) s->number = number;
}

static size_t add_frames(const struct profile *p, uint64_t id, struct import_frame *frames, size_t n)
{
    uint32_t at = map_get(&p->location_ids, id);
    for (size_t i = 0; at != MAP_NEW && i < p->locations[at].n && n < FRAMES; i++) {
        const struct line *line = &p->lines[p->locations[at].first + i];
        uint32_t function = map_get(&p->function_ids, line->function);
        if (function == MAP_NEW) continue;
        const char *file = pprof_text_of(p, p->functions[function].file);
        frames[n++] = (struct import_frame){.file = *file ? file : NULL,
                                            .function = pprof_text_of(p, p->functions[function].name),
                                            .line = line->line > 0 && line->line <= INT32_MAX ? (int)line->line : 0,
                                            .python = *file};
    }
    return n;
}

static struct sample read_pprof_sample(struct profile *p, struct import_message m, bool stacks)
{
    struct sample s = {.count = 1};
    struct import_frame frames[FRAMES + 1];
    struct import_field field;
    size_t n = 0;
    int values = 0;
    uint64_t value;
    while (import_protobuf_next(&m, &field)) {
        if (field.number == 3 && field.is_bytes) read_label(p, field.bytes, &s);
        while (field.number == 2 && import_protobuf_integer(&field, &value)) {
            if (values == p->count_at) s.count = (int64_t)value;
            if (values++ == p->bytes_at) s.bytes = (int64_t)value;
        }
        while (stacks && field.number == 1 && n < FRAMES && import_protobuf_integer(&field, &value))
            n = add_frames(p, value, frames, n);
    }
    if (!stacks || s.bytes <= 0) return s;
    if (s.executable) {
        memmove(frames + 1, frames, n++ * sizeof *frames);
        frames[0] = (struct import_frame){.function = "[executable]"};
    }
    s.stack = import_feed_stack(p->feed, frames, n);
    return s;
}

static void each_sample(struct profile *p, bool stacks, void (*take)(struct profile *p, const struct sample *s))
{
    struct import_message all = {p->data, p->data + p->size, false};
    struct import_field field;
    while (import_protobuf_next(&all, &field)) {
        if (field.number != SAMPLE || !field.is_bytes) continue;
        struct sample s = read_pprof_sample(p, field.bytes, stacks);
        take(p, &s);
    }
}

/* The device is not a GPU, such as "TPU_0(process=0,(0,0,0,0))". */
static bool is_other(const char *device)
{
    static const char *const gpus[] = {"gpu", "cuda", "rocm", "StreamExecutorGpu"};
    return !ANY_OF(g, gpus, COUNT_OF(gpus), strncasecmp(device, *g, strlen(*g)) == 0);
}

/* The index of the first device whose number is not lower. */
static int place_of_device(const struct profile *p, uint64_t number)
{
    int at = 0;
    while (at < p->devices && p->numbers[at] < number) at++;
    return at;
}

static bool is_noted(const struct profile *p, uint64_t number, int at)
{
    return at < p->devices && p->numbers[at] == number;
}

static void note_pprof_device(struct profile *p, const struct sample *s)
{
    const int at = place_of_device(p, s->number);
    if (!s->has_device || s->on_cpu || p->devices == DEVICES || is_noted(p, s->number, at)) return;
    memmove(&p->numbers[at + 1], &p->numbers[at], (size_t)(p->devices++ - at) * sizeof *p->numbers);
    p->numbers[at] = s->number;
    p->unnamed += !*s->device_name;
    p->others += *s->device_name && is_other(s->device_name);
}

static bool is_renumbered(const struct profile *p)
{
    return p->devices && p->numbers[p->devices - 1] >= DEVICES;
}

/* -1: the CPU; -2: none that can be shown. */
static int device_of_sample(const struct profile *p, const struct sample *s)
{
    if (!s->has_device) return p->only;
    if (s->on_cpu) return -1;
    const int at = place_of_device(p, s->number);
    if (!is_noted(p, s->number, at)) return -2;
    return is_renumbered(p) ? at : (int)s->number;
}

static void name_device(struct profile *p, const struct sample *s)
{
    char name[64];
    const int device = s->has_device ? device_of_sample(p, s) : -1;
    if (device < 0 || p->named[device] || !*s->device_name || !is_other(s->device_name)) return;
    p->named[device] = true;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(s->device_name, "("), s->device_name);
    import_feed_device(p->feed, device, name, 0);
}

static void write_imported_sample(struct profile *p, const struct sample *s)
{
    if (s->bytes == 0) return;
    /* XLA writes -1 per executable if it does not know the size */
    if (s->executable && s->bytes == -(s->count > 0 ? s->count : 1)) {
        p->unsized += (uint64_t)-s->bytes;
        return;
    }
    const int device = device_of_sample(p, s);
    if (s->bytes < 0 || s->bytes > most_bytes || s->count < 0) {
        p->left_out++;
        return;
    }
    if (device < -1) {
        p->beyond++;
        return;
    }
    uint64_t rows = s->count > 0 ? (uint64_t)s->count : 1;
    if (rows > (uint64_t)s->bytes || p->rows + rows > MOST_ROWS) rows = 1;
    p->rows += rows;
    if (!s->has_device) p->unplaced_bytes += (uint64_t)s->bytes;
    int64_t each = s->bytes / (int64_t)rows, rest = s->bytes % (int64_t)rows;
    for (uint64_t i = 0; i < rows; i++, rest = 0) {
        struct import_event e = {.device = device,
                                 .stack = s->stack,
                                 .address = p->next_address,
                                 .bytes = each + rest,
                                 .stream = GS_STREAM_UNKNOWN,
                                 .no_totals = true};
        import_feed_tensor(p->feed, &e, false);
        p->next_address += (uint64_t)(e.bytes + ALIGN - 1) / ALIGN * ALIGN;
        if (p->next_address >> 62) p->next_address = first_made_up;
    }
}

static void write_pprof_notes(struct profile *p)
{
    char bytes[UNITS_TEXT];
    uint32_t notes = 0;
    import_feed_note(p->feed, "lacks", "waits copies history times segments pinned");
    import_feed_note(p->feed, "lacks.history",
                     "a JAX device memory profile records one moment, without times and frees");
    import_feed_note(p->feed, "has",
                     "the arrays and executables that were live at one moment, with their call stacks, but no "
                     "addresses, times, frees, waits or copies");
    if (p->unplaced_bytes) {
        units_format_bytes(bytes, p->unplaced_bytes);
        if (p->devices) {
            import_feed_remark(p->feed, ++notes, "%s of executables name no device: they are counted on GPU %d, %s",
                               bytes, p->only,
                               p->devices == 1 ? "the only one in the profile" : "the first in the profile");
        } else {
            import_feed_remark(p->feed, ++notes,
                               "%s of executables name no device, and no array is on a GPU: they are "
                               "counted as CPU memory",
                               bytes);
        }
    }
    if (is_renumbered(p)) {
        const unsigned long long first = p->numbers[0], last = p->numbers[p->devices - 1];
        if (p->devices == 1)
            import_feed_remark(p->feed, ++notes, "device %llu of the profile is called GPU 0 here", first);
        else
            import_feed_remark(p->feed, ++notes, "devices %llu to %llu of the profile are called GPU 0 to %d here",
                               first, last, p->devices - 1);
    }
    if (p->others)
        import_feed_remark(p->feed, ++notes, "the profile is of devices that are not GPUs; they are called GPU here");
    if (p->unnamed)
        import_feed_remark(p->feed, ++notes,
                           "the profile numbers its devices, but does not name them: they are called GPU here");
    if (p->unsized) {
        import_feed_remark(p->feed, ++notes, "the size of %s is unknown: totals do not include them",
                           UNITS_PLURAL(p->unsized, "executable", NULL));
    }
    if (p->beyond) {
        import_feed_remark(p->feed, ++notes, "left out %s of more than %d devices",
                           UNITS_PLURAL(p->beyond, "sample", NULL), DEVICES);
    }
    if (p->left_out) {
        import_feed_remark(p->feed, ++notes, "left out %s with impossible values",
                           UNITS_PLURAL(p->left_out, "sample", NULL));
    }
}

bool import_pprof(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size)
{
    struct profile p;
    bool ok = read_profile(&p, path, error, error_size);
    struct import_source source = {.format = "JAX device memory profile",
                                   .file = basename(path),
                                   .start_real_ns = p.time_ns < INT64_MAX ? p.time_ns : 0};
    if (ok) p.feed = import_feed_start(to, &source, error, error_size);
    ok = ok && p.feed;
    if (ok) {
        each_sample(&p, false, note_pprof_device);
        p.only = !p.devices ? -1 : is_renumbered(&p) ? 0 : (int)p.numbers[0];
        each_sample(&p, false, name_device);
        each_sample(&p, true, write_imported_sample);
        write_pprof_notes(&p);
        ok = import_feed_end(p.feed, error, error_size);
    }
    release_pprof(&p);
    return ok;
}
