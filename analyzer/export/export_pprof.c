/* A profile in the format of `go tool pprof`: profile.proto, compressed. Memory has four values per sample, as heap
 * profiles have: live at the moment, and allocated in total. Waits are like mutex profiles: contentions and delay.
 * Samples have the labels device, category, layer, rank and process. */
#include <string.h>
#include <zlib.h>
#include "analyzer/profile/call_tree.h"
#include "analyzer/base/texts.h"
#include "analyzer/export/export.h"
#include "analyzer/profile/frame_label.h"
#include "analyzer/export/protobuf.h"
#include "analyzer/base/sort.h"
#include "schema/event.h"

/* Fields of profile.proto. */
enum {
    P_TYPE = 1,
    P_SAMPLE,
    P_MAPPING,
    P_LOCATION,
    P_FUNCTION,
    P_TEXT,
    P_TIME = 9,
    P_DURATION,
    P_COMMENT = 13,
    P_DEFAULT
};
enum { S_LOCATION = 1, S_VALUE, S_LABEL };
enum { VALUES = 4 };

struct sample {
    struct profile_entry of;
    int64_t values[VALUES];
};

struct symbol_module {
    const char *path, *build_id;
    uint64_t start, highest;
    bool named, filed;
};

struct location {
    const struct run_frame *frame;
    uint32_t module; /* RUN_NONE */
    uint32_t function;
};

struct function {
    uint64_t name, file;
};

struct path { /* of a stack: the range of its locations */
    size_t first, n;
};

struct pprof {
    struct export_run *e;
    struct arena arena;
    struct export_protobuf out, message, inner;
    struct texts texts;
    ARENA_LIST(struct sample, samples);
    ARENA_LIST(struct symbol_module, modules);
    ARENA_LIST(struct location, locations);
    ARENA_LIST(struct function, functions);
    struct map location_of, function_of, path_of;
    ARENA_LIST(struct path, paths);
    ARENA_LIST(uint64_t, steps); /* of all paths */
};

static uint64_t put_pprof_text(struct pprof *p, const char *text)
{
    return texts_number(&p->texts, text, strlen(text));
}

static uint32_t pprof_module_of(struct pprof *p, const struct run_frame *f)
{
    if (f->kind != GS_FRAME_NATIVE || !f->module) return RUN_NONE;
    size_t i = 0;
    while (i < p->modules_n && (p->modules[i].path != f->module || p->modules[i].build_id != f->build_id)) i++;
    if (i == p->modules_n)
        ARENA_APPEND(p->modules, .path = f->module, .build_id = f->build_id, .named = true, .filed = true);
    struct symbol_module *m = &p->modules[i];
    m->highest = f->offset > m->highest ? f->offset : m->highest;
    m->named = m->named && f->function;
    m->filed = m->filed && f->file;
    return (uint32_t)i;
}

static uint32_t function_of(struct pprof *p, const struct run_frame *f)
{
    char name[PROFILE_LABEL];
    const char *file = f->file ? f->file : f->module ? f->module : "";
    struct function new = {put_pprof_text(p, profile_frame_function(f, name)), put_pprof_text(p, file)};
    return MAP_INDEX_IN(&p->function_of, new.name << 32 | new.file, p->functions, new);
}

static uint64_t put_location(struct pprof *p, const struct run_frame *f)
{
    return 1 + MAP_INDEX_IN(&p->location_of, (uintptr_t)f, p->locations,
                            (struct location){f, pprof_module_of(p, f), function_of(p, f)});
}

/* Innermost first. */
static struct path pprof_path_of(struct pprof *p, uint32_t stack)
{
    const struct run_frame *frames[RUN_DEPTH_MAX];
    uint32_t *at = map_at(&p->path_of, stack);
    if (*at == MAP_NEW) {
        struct path path = {.first = p->steps_n,
                            .n = profile_frames(p->e->run, stack, p->e->native, frames, RUN_DEPTH_MAX)};
        *at = (uint32_t)p->paths_n;
        if (!path.n) frames[path.n++] = &profile_call_unknown;
        for (size_t i = path.n; i-- > 0;) *ARENA_ADD(p->steps) = put_location(p, frames[i]);
        *ARENA_ADD(p->paths) = path;
        return path;
    }
    return p->paths[*at];
}

static void add_pprof_profile(struct pprof *p, const struct profile *profile, size_t value)
{
    for (size_t i = 0; i < profile->n; i++) {
        struct sample *s = ARENA_ADD(p->samples);
        *s = (struct sample){.of = profile->entries[i]};
        s->values[value] = (int64_t)profile->entries[i].count;
        s->values[value + 1] = profile->entries[i].weight;
    }
}

SORT_ORDER(same_order, struct sample,
           SORT_UP(x->of.process, y->of.process) ?: SORT_UP(x->of.stack, y->of.stack)
               ?: SORT_UP(x->of.device, y->of.device)
               ?: SORT_UP(x->of.layer, y->of.layer)
               ?: SORT_UP(x->of.category, y->of.category))

/* Merges samples of two profiles with the same stack and labels. */
static void merge_pprof_samples(struct pprof *p)
{
    size_t kept = 0;
    SORT(p->samples, p->samples_n, same_order);
    for (size_t i = 0; i < p->samples_n; i++) {
        if (kept && same_order(&p->samples[kept - 1], &p->samples[i]) == 0) {
            for (size_t v = 0; v < VALUES; v++) {
                p->samples[kept - 1].values[v] =
                    arena_add_capped(p->samples[kept - 1].values[v], p->samples[i].values[v]);
            }
        } else {
            p->samples[kept++] = p->samples[i];
        }
    }
    p->samples_n = kept;
}

static void put_text_label(struct pprof *p, const char *key, const char *value)
{
    if (value && *value) {
        export_protobuf_int(&p->inner, 1, put_pprof_text(p, key));
        export_protobuf_int(&p->inner, 2, put_pprof_text(p, value));
        export_protobuf_message(&p->message, S_LABEL, &p->inner);
    }
}

static void put_number_label(struct pprof *p, const char *key, int64_t value)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    put_text_label(p, key, value == RUN_UNKNOWN ? NULL : digits);
}

static void write_pprof_sample(struct pprof *p, const struct sample *s, size_t values, bool memory)
{
    const struct run_process *process = run_process_at(p->e->run, s->of.process);
    struct path path = pprof_path_of(p, s->of.stack);
    export_protobuf_packed(&p->message, S_LOCATION, &p->steps[path.first], path.n);
    export_protobuf_packed(&p->message, S_VALUE, (const uint64_t *)s->values, values);
    put_number_label(p, "device", s->of.device < 0 ? RUN_UNKNOWN : s->of.device);
    if (memory) {
        put_text_label(p, "layer", result_series_word(s->of.layer));
        put_text_label(p, "category", result_category_word(s->of.category));
    }
    put_number_label(p, "rank", process->rank);
    put_number_label(p, "pid", process->pid);
    put_text_label(p, "host", process->host);
    export_protobuf_message(&p->out, P_SAMPLE, &p->message);
}

/* Each module gets its own range of addresses. */
static void write_modules(struct pprof *p)
{
    uint64_t start = 1 << 12;
    for (size_t i = 0; i < p->modules_n; i++) {
        struct symbol_module *m = &p->modules[i];
        m->start = start;
        uint64_t limit = start + (m->highest < UINT64_MAX / 2 ? m->highest : 0) + 1;
        start = limit + ((uint64_t)1 << 20);
        export_protobuf_int(&p->message, 1, i + 1);
        export_protobuf_int(&p->message, 2, m->start);
        export_protobuf_int(&p->message, 3, limit);
        export_protobuf_int(&p->message, 5, put_pprof_text(p, m->path));
        export_protobuf_int(&p->message, 6, m->build_id ? put_pprof_text(p, m->build_id) : 0);
        export_protobuf_int(&p->message, 7, m->named);
        export_protobuf_int(&p->message, 8, m->filed);
        export_protobuf_int(&p->message, 9, m->filed);
        export_protobuf_message(&p->out, P_MAPPING, &p->message);
    }
}

static void write_locations(struct pprof *p)
{
    for (size_t i = 0; i < p->locations_n; i++) {
        const struct location *l = &p->locations[i];
        export_protobuf_int(&p->message, 1, i + 1);
        if (l->module != RUN_NONE) {
            export_protobuf_int(&p->message, 2, l->module + 1);
            export_protobuf_int(&p->message, 3, p->modules[l->module].start + l->frame->offset);
        }
        export_protobuf_int(&p->inner, 1, l->function + 1);
        export_protobuf_int(&p->inner, 2, (uint64_t)l->frame->line);
        export_protobuf_message(&p->message, 4, &p->inner);
        export_protobuf_message(&p->out, P_LOCATION, &p->message);
    }
    for (size_t i = 0; i < p->functions_n; i++) {
        export_protobuf_int(&p->message, 1, i + 1);
        export_protobuf_int(&p->message, 2, p->functions[i].name);
        export_protobuf_int(&p->message, 3, p->functions[i].name);
        export_protobuf_int(&p->message, 4, p->functions[i].file);
        export_protobuf_message(&p->out, P_FUNCTION, &p->message);
    }
}

static void write_type(struct pprof *p, const char *type, const char *unit)
{
    export_protobuf_int(&p->message, 1, put_pprof_text(p, type));
    export_protobuf_int(&p->message, 2, put_pprof_text(p, unit));
    export_protobuf_message(&p->out, P_TYPE, &p->message);
}

static void write_times(struct pprof *p, const struct profile *profile)
{
    size_t n;
    const struct run_process *all = run_processes(p->e->run, &n);
    int64_t first = RUN_UNKNOWN;
    for (size_t i = 0; i < n; i++) {
        int64_t at = profile->moments[i] == RUN_UNKNOWN ? 0 : profile->moments[i];
        if (all[i].start_real_ns != RUN_UNKNOWN &&
            (first == RUN_UNKNOWN || arena_add_capped(all[i].start_real_ns, at) < first))
            first = arena_add_capped(all[i].start_real_ns, at);
    }
    export_protobuf_int(&p->out, P_TIME, first > 0 ? (uint64_t)first : 0);
    export_protobuf_int(&p->out, P_DURATION, (uint64_t)run_duration(p->e->run));
}

static void write_comment(struct pprof *p, const char *comment)
{
    export_protobuf_int(&p->out, P_COMMENT, put_pprof_text(p, comment));
}

static bool compress_to(FILE *out, const struct export_protobuf *p)
{
    enum { GZIP = 15 + 16 };
    unsigned char buffer[1 << 16];
    z_stream z = {.next_in = p->bytes};
    size_t left = p->n;
    int rc = Z_OK;
    if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) return false;
    while (rc == Z_OK) {
        if (!z.avail_in) {
            z.avail_in = left < UINT32_MAX / 2 ? (uInt)left : UINT32_MAX / 2;
            left -= z.avail_in;
        }
        z.next_out = buffer;
        z.avail_out = sizeof buffer;
        rc = deflate(&z, left ? Z_NO_FLUSH : Z_FINISH);
        fwrite(buffer, 1, sizeof buffer - z.avail_out, out);
    }
    deflateEnd(&z);
    return rc == Z_STREAM_END;
}

static void pprof_free(struct pprof *p)
{
    arena_free(&p->arena);
    export_protobuf_free(&p->out);
    export_protobuf_free(&p->message);
    export_protobuf_free(&p->inner);
    texts_free(&p->texts);
    MAP_RELEASE(&p->location_of, &p->function_of, &p->path_of);
    ARENA_RELEASE(p->samples, p->modules, p->locations, p->functions, p->paths, p->steps);
}

static const struct types {
    const char *of[VALUES][2]; /* type and unit */
    size_t n, shown;           /* shown: the value that pprof shows first */
} memory_types =
    {{{"inuse_objects", "count"}, {"inuse_space", "bytes"}, {"alloc_objects", "count"}, {"alloc_space", "bytes"}},
     4,
     1},
  allocated_types = {{{"alloc_objects", "count"}, {"alloc_space", "bytes"}}, 2, 1},
  wait_types = {{{"contentions", "count"}, {"delay", "nanoseconds"}}, 2, 1},
  copy_types = {{{"copies", "count"}, {"copied", "bytes"}}, 2, 1};

static const struct types *pprof_types_of(enum profile_what what)
{
    return what == PROFILE_WAITS       ? &wait_types
           : what == PROFILE_COPIES    ? &copy_types
           : what == PROFILE_ALLOCATED ? &allocated_types
                                       : &memory_types;
}

static bool write_profile(struct pprof *p, const struct profile *profile, enum profile_what what)
{
    const struct types *types = pprof_types_of(what);
    bool memory = types == &memory_types || types == &allocated_types;
    put_pprof_text(p, ""); /* text number 0 must be "" */
    for (size_t i = 0; i < types->n; i++) write_type(p, types->of[i][0], types->of[i][1]);
    merge_pprof_samples(p);
    for (size_t i = 0; i < p->samples_n; i++) write_pprof_sample(p, &p->samples[i], types->n, memory);
    write_modules(p);
    write_locations(p);
    write_times(p, profile);
    write_comment(p, "gpuspy " GPUSPY_VERSION);
    write_comment(p, profile->title);
    export_protobuf_int(&p->out, P_DEFAULT, put_pprof_text(p, types->of[types->shown][0]));
    for (size_t i = 0; i < p->texts.n; i++)
        export_protobuf_bytes(&p->out, P_TEXT, p->texts.list[i], strlen(p->texts.list[i]));
    return compress_to(p->e->out, &p->out);
}

bool export_pprof(struct export_run *e, char *error, size_t error_size)
{
    enum profile_what what = e->what == PROFILE_KINDS_N ? PROFILE_PEAK : e->what;
    struct profile *all = NULL, *live = export_profile(e, what, true, error, error_size);
    struct pprof p = {.e = e};
    bool ok = live != NULL;
    if (ok && pprof_types_of(what) == &memory_types) {
        all = export_profile(e, PROFILE_ALLOCATED, true, error, error_size);
        ok = all != NULL;
    }
    if (ok) {
        add_pprof_profile(&p, live, 0);
        if (all) add_pprof_profile(&p, all, 2);
        ok = write_profile(&p, live, what);
        e->nothing = live->n == 0;
        snprintf(e->note, sizeof e->note, e->nothing ? "nothing was %s" : "%s; such as: go tool pprof -http=: FILE",
                 live->title);
        if (!ok) snprintf(error, error_size, "cannot compress the profile");
    }
    profile_free(live);
    profile_free(all);
    pprof_free(&p);
    return ok;
}
