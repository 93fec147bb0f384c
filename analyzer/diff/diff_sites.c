/* The places of one recording as the matcher sees them: for each line on any call path, what it calls and what
 * came through it. */
#include "analyzer/diff/diff_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"

static uint64_t hash_text(const char *text)
{
    uint64_t key = 0x9e3779b97f4a7c15u;
    for (const char *p = text ? text : ""; *p; p++) {
        key = (key ^ (unsigned char)*p) * 0x100000001b3u;
    }
    return gs_hash64(key);
}

/* Strings of a run are each there once. */
static uint64_t place_key(const char *file, const char *function, int line)
{
    return gs_hash64((uintptr_t)file ^ gs_hash64((uintptr_t)function ^ gs_hash64((uint64_t)line)));
}

static uint32_t site_number(struct gs_diff_sites *s, const char *file, const char *function, int line)
{
    uint32_t *at = gs_map_at(&s->by_frame, place_key(file, function, line));
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)s->n;
        *GS_PUSH(s->sites, s->n, s->cap) =
            (struct gs_match_site){.file = file ? file : "", .function = function ? function : "", .line = line};
    }
    return *at;
}

/* A native place without a line is its function, or its offset. */
static uint32_t native_number(struct gs_diff_sites *s, const struct gs_site *site)
{
    const char *function = site->function;
    if (site->kind == GS_FRAME_NATIVE && !function && site->line <= 0) {
        char text[32];
        int n = snprintf(text, sizeof text, "+0x%llx", (unsigned long long)site->offset);
        function = gs_run_text(s->run, text, (size_t)n);
    }
    return site_number(s, site->file, function, site->line);
}

/* --- what came through each stack ------------------------------------------------------------------
 */

struct call { /* a site calls a name */
    uint32_t site;
    uint64_t name;
};

struct through {
    struct gs_diff_sites *s;
    int64_t *weight; /* by stack, of all that it called */
    uint64_t *count;
    bool *touched;
    struct call *calls;
    size_t calls_n, calls_cap;
};

/* Of PyTorch's native frames the operation is what tells two lines apart. */
static uint64_t operation_below(struct gs_run *run, uint32_t stack, uint32_t python)
{
    static const char prefix[] = "at::_ops::";
    uint64_t name = 1; /* memory, taken by the line itself */
    for (unsigned hops = 0; stack != python && stack != GS_NONE && hops <= GS_DEPTH_MAX; hops++) {
        const struct gs_frame *f = gs_stack_frame(run, stack);
        if (f && f->module && strstr(f->module, "/libtorch")) {
            f = gs_frame_named(run, stack);
            if (f->function && strncmp(f->function, prefix, sizeof prefix - 1) == 0) {
                const char *at = f->function + sizeof prefix - 1, *end = strstr(at, "::");
                name = hash_text(gs_run_text(run, at, end ? (size_t)(end - at) : strlen(at))); /* the outermost */
            }
        }
        stack = gs_stack_parent(run, stack);
    }
    return name;
}

static void add_call(struct through *t, uint32_t site, uint64_t name)
{
    *GS_PUSH(t->calls, t->calls_n, t->calls_cap) = (struct call){site, name};
}

static void add_native(struct through *t, const struct gs_profile_entry *e)
{
    struct gs_site site = gs_site_of(t->s->run, e->stack, NULL);
    if (site.known && !site.exit) {
        uint32_t at = native_number(t->s, &site);
        t->s->sites[at].weight = gs_add(t->s->sites[at].weight, e->weight);
        t->s->sites[at].count += e->count;
        add_call(t, at, 1);
    }
}

/* Of the entries with Python: their weight at their innermost Python frame, and what that line does. */
static void add_entries(struct through *t, const struct gs_profile *p)
{
    struct gs_run *run = t->s->run;
    struct gs_map seen = {0};
    for (size_t i = 0; i < p->n; i++) {
        const struct gs_profile_entry *e = &p->entries[i];
        uint32_t python = e->stack != GS_NONE ? gs_stack_python(run, e->stack) : GS_NONE;
        if (e->stack != GS_NONE && python == GS_NONE) {
            add_native(t, e);
        }
        if (python == GS_NONE) {
            continue;
        }
        t->weight[python] = gs_add(t->weight[python], e->weight);
        t->count[python] += e->count;
        t->touched[python] = true;
        uint32_t *at = gs_map_at(&seen, e->stack);
        if (*at == GS_MAP_NEW) {
            const struct gs_frame *f = gs_stack_frame(run, python);
            *at = 1;
            add_call(t, site_number(t->s, f->file, f->function, f->line), operation_below(run, e->stack, python));
        }
    }
    gs_map_free(&seen);
}

/* From each stack to its caller, whose number is lower. */
static void add_callers(struct through *t)
{
    struct gs_run *run = t->s->run;
    for (uint32_t stack = (uint32_t)gs_run_stacks(run); stack-- > 0;) {
        if (!t->touched[stack]) {
            continue;
        }
        const struct gs_frame *f = gs_stack_frame(run, stack);
        uint32_t parent = gs_stack_parent(run, stack);
        if (f->kind == GS_FRAME_PYTHON) {
            uint32_t at = site_number(t->s, f->file, f->function, f->line);
            t->s->sites[at].weight = gs_add(t->s->sites[at].weight, t->weight[stack]);
            t->s->sites[at].count += t->count[stack];
        }
        if (parent == GS_NONE) {
            continue;
        }
        t->weight[parent] = gs_add(t->weight[parent], t->weight[stack]);
        t->count[parent] += t->count[stack];
        t->touched[parent] = true;
        const struct gs_frame *by = gs_stack_frame(run, parent);
        if (f->kind == GS_FRAME_PYTHON && by->kind == GS_FRAME_PYTHON) {
            add_call(t, site_number(t->s, by->file, by->function, by->line), hash_text(f->function));
        }
    }
}

/* The file that was started: the outermost code of a file that is no library's. */
static bool starts(const struct gs_match_site *s)
{
    return strcmp(s->function, "<module>") == 0 && s->file[0] != '<' && !gs_site_library_file(s->file);
}

static void mark_program(struct through *t)
{
    struct gs_run *run = t->s->run;
    const char *file = NULL;
    for (uint32_t stack = 0; stack < gs_run_stacks(run) && !file; stack++) {
        uint32_t at = stack;
        const struct gs_frame *f = gs_stack_frame(run, stack);
        for (unsigned hops = 0; t->touched[stack] && f && hops <= GS_DEPTH_MAX; hops++) {
            struct gs_match_site site = {.file = f->file ? f->file : "", .function = f->function ? f->function : ""};
            file = f->kind == GS_FRAME_PYTHON && starts(&site) ? f->file : file;
            at = gs_stack_parent(run, at);
            f = gs_stack_frame(run, at);
        }
    }
    for (size_t i = 0; i < t->s->n && file; i++) {
        t->s->sites[i].program = strcmp(t->s->sites[i].file, file) == 0;
    }
}

static int by_site(const void *p, const void *q)
{
    const struct call *a = p, *b = q;
    if (a->site != b->site) {
        return a->site < b->site ? -1 : 1;
    }
    return (a->name > b->name) - (a->name < b->name);
}

static void give_calls(struct through *t)
{
    uint64_t *names = gs_realloc(NULL, t->calls_n, sizeof *names);
    size_t n = 0;
    if (t->calls_n) {
        qsort(t->calls, t->calls_n, sizeof *t->calls, by_site);
    }
    for (size_t i = 0; i < t->calls_n; i++) {
        if (i && by_site(&t->calls[i - 1], &t->calls[i]) == 0) {
            continue;
        }
        struct gs_match_site *site = &t->s->sites[t->calls[i].site];
        site->calls = site->calls_n ? site->calls : &names[n];
        site->calls_n++;
        names[n++] = t->calls[i].name;
    }
    t->s->calls = names;
}

void gs_diff_sites_fill(struct gs_diff_sites *s, struct gs_run *run, const struct gs_profile *p)
{
    size_t stacks = gs_run_stacks(run);
    *s = (struct gs_diff_sites){.run = run};
    struct through t = {.s = s,
                        .weight = gs_realloc(NULL, stacks, sizeof *t.weight),
                        .count = gs_realloc(NULL, stacks, sizeof *t.count),
                        .touched = gs_realloc(NULL, stacks, sizeof *t.touched)};
    memset(t.weight, 0, stacks * sizeof *t.weight);
    memset(t.count, 0, stacks * sizeof *t.count);
    memset(t.touched, 0, stacks * sizeof *t.touched);
    add_entries(&t, p);
    add_callers(&t);
    mark_program(&t);
    give_calls(&t);
    gs_site_helpers(run, &s->helpers);
    free(t.weight);
    free(t.count);
    free(t.touched);
    free(t.calls);
}

void gs_diff_sites_free(struct gs_diff_sites *s)
{
    free(s->sites);
    free(s->calls);
    free(s->places);
    gs_map_free(&s->by_frame);
    gs_map_free(&s->helpers);
    gs_map_free(&s->of_stack);
    gs_arena_free(&s->arena);
}

void gs_diff_sites_agree(struct gs_diff_sites *a, struct gs_diff_sites *b, const struct gs_match *m)
{
    for (size_t i = 0; i < a->n; i++) {
        if (m->of_a[i] == GS_MATCH_ALONE) {
            continue;
        }
        const struct gs_match_site *s = &a->sites[i], *t = &b->sites[m->of_a[i]];
        if (!*s->function || !*t->function || !*s->file || !*t->file) {
            continue;
        }
        if (gs_site_is_helper(&a->helpers, s->function, s->file)) {
            gs_site_add_helper(&b->helpers, t->function, t->file);
        } else if (gs_site_is_helper(&b->helpers, t->function, t->file)) {
            gs_site_add_helper(&a->helpers, s->function, s->file);
        }
    }
}

const struct gs_diff_place *gs_diff_place_of(struct gs_diff_sites *s, uint32_t stack)
{
    uint32_t *at = gs_map_at(&s->of_stack, stack);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)s->places_n;
        struct gs_diff_place *p = GS_PUSH(s->places, s->places_n, s->places_cap);
        *p = (struct gs_diff_place){.number = GS_NONE};
        if (stack != GS_NONE) {
            p->site = gs_site_of(s->run, stack, &s->helpers);
        }
        if (p->site.exit) {
            p->number = GS_DIFF_EXIT;
        } else if (p->site.known) {
            p->number = p->site.kind == GS_FRAME_PYTHON ? site_number(s, p->site.file, p->site.function, p->site.line)
                                                        : native_number(s, &p->site);
        }
        return p;
    }
    return &s->places[*at];
}
