/* The run as tables, in a folder: CSV for spreadsheets, one file per table; or lines of JSON, one file per table and
 * process, so that many machines can write into one folder. */
#include "analyzer/export/export_tables.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/output.h"
#include "analyzer/run/words.h"
#include "analyzer/step/step.h"
#include "schema/event.h"

enum { OOMS_MOST = 1000 };

static const struct {
    const char *word, *columns;
    void (*fill)(struct export_tables *x);
} tables[] = {
#define TABLE(name, columns, meaning) {#name, "run_id,host,pid,rank," columns, export_table_of_##name},
#include "analyzer/export/tables.def"
};
enum { TABLES = sizeof tables / sizeof *tables };

static const char table_words[] =
#define TABLE(name, columns, meaning) #name "|"
#include "analyzer/export/tables.def"
    ;

void export_table_of_processes(struct export_tables *x)
{
    size_t n;
    const struct run_process *p = run_processes(x->e->run, &n);
    for (uint32_t i = 0; i < n; i++) {
        if (export_table_keys(x, i))
            EXPORT_CELLS(&x->t, p[i].ppid, p[i].command, p[i].path, p[i].python_version, p[i].start_real_ns,
                         p[i].end_ns, p[i].complete, p[i].lost_events,
                         p[i].events ? (int64_t)p[i].events : RUN_UNKNOWN);
    }
}

/* The columns with which a device's row begins; false if the row is left out. */
static bool begin_device_row(struct export_tables *x, uint32_t process, int device)
{
    if (!export_includes_device(x->e, device) || !export_table_keys(x, process)) return false;
    export_table_device(&x->t, device);
    return true;
}

void export_table_of_devices(struct export_tables *x)
{
    RUN_EACH (d, run_devices, x->e->run)
        if (begin_device_row(x, d->process, d->device)) EXPORT_CELLS(&x->t, d->name, d->total_bytes);
}

void export_table_of_peaks(struct export_tables *x)
{
    EACH_IN (p, x->report->peaks) {
        if (begin_device_row(x, p->process, p->device))
            EXPORT_CELLS(&x->t, result_series_word(p->layer), p->bytes, p->count, p->time_ns, p->end_bytes,
                         p->end_count, p->allocations, p->frees, p->allocated_bytes);
    }
}

static uint64_t count_of_category(const struct result_by_category *c, enum result_category category)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->shares_n; i++) n += c->shares[i].category == category ? c->shares[i].count : 0;
    return n;
}

void export_table_of_categories(struct export_tables *x)
{
    EACH_IN (p, x->report->peaks) {
        for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
            if (p->by_category.bytes[c] && begin_device_row(x, p->process, p->device))
                EXPORT_CELLS(&x->t, result_series_word(p->layer), result_category_word((enum result_category)c),
                             p->by_category.bytes[c], count_of_category(&p->by_category, (enum result_category)c));
        }
    }
}

void export_table_of_timeline(struct export_tables *x)
{
    EACH_IN (l, x->report->timelines) {
        for (size_t k = 0; k < l->n; k++)
            if (begin_device_row(x, l->process, l->device))
                EXPORT_CELLS(&x->t, result_series_word(l->layer), export_ns(l->points[k].time_s), l->points[k].bytes);
    }
}

void export_table_of_ooms(struct export_tables *x)
{
    EACH_IN (o, x->report->ooms) {
        if (begin_device_row(x, o->process, o->device))
            EXPORT_CELLS(&x->t, o->time_ns, o->requested_bytes, o->free_bytes, o->total_bytes, o->fatal, o->handled,
                         o->failures, result_cause_word(o->cause), o->verdict, o->stack.site.function,
                         o->stack.site.file, o->stack.site.line ? o->stack.site.line : RUN_UNKNOWN);
    }
}

void export_table_of_steps(struct export_tables *x)
{
    for (size_t i = 0; i < x->report->steps_n; i++) {
        const struct step_list *s = x->report->steps[i];
        if (export_table_keys(x, s->process))
            EXPORT_CELLS(&x->t, s->n, s->median_ns, step_source_word(s->source), s->evidence);
    }
}

void export_table_of_scopes(struct export_tables *x)
{
    EACH_IN (s, x->report->scopes) {
        if (begin_device_row(x, s->process, s->device))
            EXPORT_CELLS(&x->t, result_series_word(s->layer), s->domain, s->name, s->count, s->open, s->peak_bytes,
                         s->peak_ns, s->entry_bytes, s->exit_bytes);
    }
}

struct mark {
    const char *name, *domain;
    uint8_t kind;
    int64_t count, total, longest;
    uint32_t next;
};

struct marks {
    struct mark *list;
    size_t n, cap;
    struct map index;
};

static void table_on_mark(void *self, const struct run_mark *m)
{
    struct marks *s = self;
    uint64_t hash = map_hash((uintptr_t)m->name) ^ map_hash((uintptr_t)m->domain + m->kind + 1);
    uint32_t *head = map_at(&s->index, hash), i = *head;
    while (i != MAP_NEW && (s->list[i].name != m->name || s->list[i].domain != m->domain || s->list[i].kind != m->kind))
        i = s->list[i].next;
    if (i == MAP_NEW) {
        i = (uint32_t)s->n;
        ARENA_APPEND_TO(s->list, s->n, s->cap, .name = m->name, .domain = m->domain, .kind = m->kind, .next = *head);
        *head = i;
    }
    struct mark *to = &s->list[i];
    int64_t ns = m->end_ns == RUN_NEVER ? 0 : m->end_ns - m->start_ns;
    to->count++;
    to->total = arena_add_capped(to->total, ns);
    to->longest = ns > to->longest ? ns : to->longest;
}

void export_table_of_marks(struct export_tables *x)
{
    char error[256]; /* the report has already stated what cannot be read */
    for (uint32_t p = 0; p < RUN_COUNT(run_processes, x->e->run); p++) {
        struct marks s = {0};
        run_each_mark(x->e->run, p, table_on_mark, &s, error, sizeof error);
        for (size_t i = 0; i < s.n && export_table_keys(x, p); i++) {
            const struct mark *m = &s.list[i];
            EXPORT_CELLS(&x->t, run_mark_word(m->kind), m->domain, m->name, m->count, m->total, m->longest);
        }
        map_free(&s.index);
        free(s.list);
    }
}

static bool is_table_chosen(const struct export_run *e, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = e->tables; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strncmp(p, word, n) == 0 && (!p[n] || p[n] == ',')) return true;
    return !e->tables;
}

const char *export_tables(void)
{
    return table_words;
}

const char *export_unknown_table(const char *words)
{
    for (const char *p = words; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t i = 0, n = strcspn(p, ",");
        while (i < TABLES && (strncmp(tables[i].word, p, n) != 0 || tables[i].word[n])) i++;
        if (i == TABLES) return p;
    }
    return NULL;
}

static bool make_tables_folder(const char *path, char *error, size_t error_size)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        snprintf(error, error_size, "cannot create the folder '%s': %s", path, strerror(errno));
        return false;
    }
    return true;
}

static bool write_table(struct export_tables *x, size_t i, const char *path, bool json, char *error, size_t error_size)
{
    struct output out;
    if (!output_open(&out, "export", path)) {
        snprintf(error, error_size, "'%s' could not be written", path);
        return false;
    }
    export_table_begin(&x->t, out.file, json, tables[i].columns);
    tables[i].fill(x);
    if (!output_keep(&out, "export")) {
        snprintf(error, error_size, "'%s' is not complete", path);
        return false;
    }
    return true;
}

/* Keeps only characters that are safe in a file name. */
static const char *file_word(char *out, size_t size, const char *text)
{
    size_t n = 0;
    for (; text && *text && n + 1 < size && n < 64; text++) {
        bool plain = (*text >= '0' && *text <= '9') || ((*text | 32) >= 'a' && (*text | 32) <= 'z');
        out[n] = plain || (n && strchr("-_.", *text)) ? *text : '_';
        n++;
    }
    out[n] = 0;
    return n ? out : "unknown";
}

/* Writes folder/table/run-host-pid.ndjson, a name that no two processes of any run share. */
static bool write_by_process(struct export_tables *x, size_t i, char *error, size_t error_size)
{
    size_t n;
    const struct run_process *p = run_processes(x->e->run, &n);
    char path[PATH_MAX], run[80], host[80];
    bool ok = true;
    snprintf(path, sizeof path, "%s/%s", x->e->folder, tables[i].word);
    ok = make_tables_folder(path, error, error_size);
    for (x->process = 0; ok && x->process < n; x->process++) {
        const struct run_process *of = &p[x->process];
        snprintf(path, sizeof path, "%s/%s/%s-%s-%u.ndjson", x->e->folder, tables[i].word,
                 file_word(run, sizeof run, of->run_id), file_word(host, sizeof host, of->host), of->pid);
        ok = write_table(x, i, path, true, error, error_size);
    }
    return ok;
}

static bool write_tables(struct export_tables *x, bool json, char *error, size_t error_size)
{
    char path[PATH_MAX];
    bool ok = true;
    x->process = RUN_NONE;
    for (size_t i = 0; ok && i < TABLES; i++) {
        if (!is_table_chosen(x->e, tables[i].word)) continue;
        if (!x->e->folder) {
            export_table_begin(&x->t, x->e->out, json, tables[i].columns);
            tables[i].fill(x);
        } else if (json) {
            ok = write_by_process(x, i, error, error_size);
        } else {
            snprintf(path, sizeof path, "%s/%s.csv", x->e->folder, tables[i].word);
            ok = write_table(x, i, path, false, error, error_size);
        }
    }
    return ok;
}

static bool export_chosen_tables(struct export_run *e, bool json, char *error, size_t error_size)
{
    struct run_options options = {.top = OOMS_MOST};
    struct export_tables x = {.e = e};
    x.report = report_build(e->run, &options, error, error_size);
    bool ok = x.report && export_tables_gather(&x, error, error_size) && write_tables(&x, json, error, error_size);
    export_lines_free(&x.sites);
    export_lines_free(&x.waits);
    export_lines_free(&x.copies);
    report_free(x.report);
    return ok;
}

bool export_csv(struct export_run *e, char *error, size_t error_size)
{
    return export_chosen_tables(e, false, error, error_size);
}

bool export_ndjson(struct export_run *e, char *error, size_t error_size)
{
    return export_chosen_tables(e, true, error, error_size);
}
