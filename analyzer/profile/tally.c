#include "analyzer/profile/tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/question/question.h"
#include "analyzer/site/owner.h"
#include "analyzer/base/sort.h"

struct tally_private {
    struct arena arena;
    struct map index; /* key → row */
    size_t cap;
    uint64_t *last; /* by row: the entry that was added last, so that a recursion counts once */
    size_t last_cap;
};

struct tallying {
    struct profile_tally *t;
    struct run *run;
    enum profile_tally_by by;
    bool native, inner;
    const char *cwd;
    struct site_builder b; /* sites, owners */
    struct result_report report;
    const struct run_frame *frames[RUN_DEPTH_MAX];
};

static const char *after_packages(const char *file)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    const char *found = NULL;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        const char *at = strstr(file, folders[i]);
        found = at ? at + strlen(folders[i]) : found;
    }
    if (found) return found;
    const char *lib = strstr(file, "/lib/python"); /* the standard library */
    const char *slash = lib ? strchr(lib + 5, '/') : NULL;
    return slash ? slash + 1 : NULL;
}

void profile_tally_module(const struct run_frame *f, const char *cwd, char *out, size_t size)
{
    const char *path = f->kind == GS_FRAME_NATIVE && f->module ? f->module : f->file;

    if (!path) {
        snprintf(out, size, "%s", f->function ? f->function : "?");
        return;
    }
    if (f->kind == GS_FRAME_NATIVE) {
        snprintf(out, size, "%s", basename(path));
        return;
    }
    const char *name = after_packages(path);
    size_t n = cwd ? strlen(cwd) : 0;
    if (!name && n > 1 && strncmp(path, cwd, n) == 0 && path[n] == '/') name = path + n + 1;
    name = name ? name : basename(path);
    snprintf(out, size, "%s", name);
    size_t length = strlen(out);
    if (length > 3 && strcmp(out + length - 3, ".py") == 0) out[length -= 3] = 0;
    if (length > 9 && strcmp(out + length - 9, "/__init__") == 0) out[length - 9] = 0;
    for (char *p = out; *p && *path != '<'; p++) *p = *p == '/' ? '.' : *p;
}

static struct profile_tally_row *tally_row_of(struct tallying *w, uint64_t key)
{
    struct tally_private *p = w->t->private;
    uint32_t *at = map_at(&p->index, key);

    if (*at == MAP_NEW) {
        *at = (uint32_t)w->t->n;
        *ARENA_PUSH(w->t->rows, w->t->n, p->cap) = (struct profile_tally_row){0};
        *SITE_REACH(p->last, *at, p->last_cap) = 0;
    }
    return &w->t->rows[*at];
}

static struct profile_tally_row *named_row(struct tallying *w, const char *name)
{
    struct profile_tally_row *row = tally_row_of(w, map_hash_text(0, name));

    if (!row->name) row->name = arena_printf(&w->t->private->arena, "%s", name);
    return row;
}

/* Equal texts of a run are the same pointer. */
static struct profile_tally_row *frame_row(struct tallying *w, const struct run_frame *f)
{
    bool function = w->by != TALLY_FILE, line = w->by == TALLY_LINE, file = f && (f->file || f->module);

    if (!f) return tally_row_of(w, 0);
    uint64_t h = map_hash((uintptr_t)(f->file ? f->file : f->module) ^ 1);
    h = map_hash(h + (function || !file ? (uintptr_t)f->function : 0));
    h = map_hash(h + (line ? (uint64_t)f->line : 0));
    h = !f->function && !f->line && function ? map_hash(h + f->offset) : h;
    struct profile_tally_row *row = tally_row_of(w, h | 1);
    if (!row->frame) {
        struct run_frame *own = arena_alloc(&w->t->private->arena, sizeof *own);
        *own = *f;
        own->line = line ? f->line : 0;
        own->function = function || !file ? f->function : NULL;
        row->frame = own;
    }
    return row;
}

static struct profile_tally_row *module_row(struct tallying *w, const struct run_frame *f)
{
    char name[512] = "(no stack recorded)";

    if (f) profile_tally_module(f, w->cwd, name, sizeof name);
    return named_row(w, name);
}

static const struct run_frame *site_frame(struct tallying *w, uint32_t stack, struct run_frame *out)
{
    uint32_t number = site_index(&w->b, stack); /* first: it may move the sites */
    const struct result_site *s = &w->b.sites[number];

    if (!s->known) return NULL;
    *out = (struct run_frame){
        .kind = s->kind, .function = s->function, .line = s->line, .offset = s->offset, .file = s->file};
    if (s->kind == GS_FRAME_NATIVE && s->line <= 0) {
        out->file = NULL;
        out->module = s->file;
    }
    return out;
}

static void add_own(struct profile_tally_row *row, const struct profile_entry *e)
{
    row->own = arena_add_capped(row->own, e->weight);
    row->own_count += e->count;
}

static void add_row_total(struct tallying *w, struct profile_tally_row *row, const struct profile_entry *e,
                          uint64_t number)
{
    uint64_t *last = &w->t->private->last[row - w->t->rows];

    if (*last == number) return;
    *last = number;
    row->total = arena_add_capped(row->total, e->weight);
    row->total_count += e->count;
}

/* Names in the C library are not looked up, because its calls have nothing of their own unless all are its. */
static size_t own_frames(struct tallying *w, uint32_t stack)
{
    size_t n = 0, places;

    for (; stack != RUN_NONE; stack = run_stack_parent(w->run, stack)) {
        if (run_stack_frame(w->run, stack)->rank == RUN_RANK_PLUMBING) continue;
        const struct run_frame *f = run_frame_places(w->run, stack, &places);
        for (size_t i = 0; i < places && n < RUN_DEPTH_MAX; i++) w->frames[n++] = &f[i];
    }
    return n;
}

static void add_by_frames(struct tallying *w, const struct profile_entry *e, uint64_t number)
{
    struct profile_tally_row *(*of)(struct tallying *, const struct run_frame *) =
        w->by == TALLY_MODULE ? module_row : frame_row;
    const bool all = w->inner || run_stack_python(w->run, e->stack) != RUN_NONE;
    const size_t n =
        all ? profile_frames(w->run, e->stack, w->native, w->frames, RUN_DEPTH_MAX) : own_frames(w, e->stack);
    struct run_frame site;
    const struct run_frame *own =
        w->by == TALLY_MODULE ? (n ? w->frames[n - 1] : NULL) : site_frame(w, e->stack, &site);
    struct profile_tally_row *row = of(w, own);

    add_own(row, e);
    add_row_total(w, row, e, number);
    for (size_t i = 0; i < n; i++) add_row_total(w, of(w, w->frames[i]), e, number);
}

static void add_by_word(struct tallying *w, const struct profile_entry *e, uint64_t number)
{
    const char *word = w->by == TALLY_CATEGORY ? result_category_word(e->category)
                                               : site_owner_word(&w->b, site_owner_of(&w->b, e->stack));
    struct profile_tally_row *row = named_row(w, word);

    add_own(row, e);
    add_row_total(w, row, e, number);
}

struct profile_tally *profile_tally_build(struct run *run, const struct profile *profile, enum profile_tally_by by,
                                          bool native, bool inner)
{
    struct run_observer unused;
    struct tallying *w = arena_realloc(NULL, 1, sizeof *w);
    struct profile_tally *t = arena_realloc(NULL, 1, sizeof *t);

    *t = (struct profile_tally){.private = arena_realloc(NULL, 1, sizeof *t->private)};
    *t->private = (struct tally_private){0};
    *w = (struct tallying){
        .t = t, .run = run, .by = by, .native = native, .inner = inner, .cwd = run_process_at(run, 0)->cwd};
    w->b = (struct site_builder){.run = run, .report = &w->report, .arena = &t->private->arena};
    site_helpers(run, &w->b.helpers);
    site_owners_start(&w->b, &unused);
    for (size_t i = 0; i < profile->n; i++) {
        bool words = by == TALLY_CATEGORY || by == TALLY_OWNER;
        (words ? add_by_word : add_by_frames)(w, &profile->entries[i], i + 1);
    }
    site_owners_free(&w->b);
    site_builder_free(&w->b);
    free(w);
    return t;
}

void profile_tally_free(struct profile_tally *t)
{
    if (t) {
        arena_free(&t->private->arena);
        map_free(&t->private->index);
        ARENA_RELEASE(t->private->last, t->private, t->rows, t);
    }
}

static int are_row_names_same(const struct profile_tally_row *x, const struct profile_tally_row *y)
{
    if (x->name && y->name) return strcmp(x->name, y->name);
    const struct run_frame *f = x->frame, *g = y->frame;
    if (!f || !g) return (f == NULL) - (g == NULL);
    return strcmp(f->file ? f->file : f->module ? f->module : "", g->file ? g->file : g->module ? g->module : "")
               ?: SORT_UP(f->line, g->line)
               ?: strcmp(f->function ? f->function : "", g->function ? g->function : "");
}

static double bytes_for_each(const struct profile_tally_row *r)
{
    return r->own_count ? (double)r->own / (double)r->own_count : 0;
}

#define ORDER(name, first)                                                                                        \
    static int name(const void *a, const void *b)                                                                 \
    {                                                                                                             \
        const struct profile_tally_row *x = a, *y = b;                                                            \
        return (first) ?: SORT_DOWN(x->own, y->own) ?: SORT_DOWN(x->total, y->total) ?: are_row_names_same(x, y); \
    }
ORDER(by_own, SORT_DOWN(x->own, y->own))
ORDER(by_total, SORT_DOWN(x->total, y->total))
ORDER(by_count, SORT_DOWN(x->own_count, y->own_count))
ORDER(by_each, SORT_DOWN(bytes_for_each(x), bytes_for_each(y)))
ORDER(order_rows_by_name, SORT_DOWN(x->own > 0, y->own > 0) ?: are_row_names_same(x, y))

void profile_tally_sort(struct profile_tally *t, enum profile_tally_sort sort)
{
    static int (*const orders[])(const void *, const void *) = {
        [TALLY_BY_OWN] = by_own,   [TALLY_BY_TOTAL] = by_total,          [TALLY_BY_COUNT] = by_count,
        [TALLY_BY_EACH] = by_each, [TALLY_BY_NAME] = order_rows_by_name,
    };

    SORT(t->rows, t->n, orders[sort]);
}
