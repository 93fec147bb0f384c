/* The call sites of one recording for the matcher: for each line on any call path, what it calls and how much its calls
 * allocated. */
#include "analyzer/diff/diff_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"
#include "analyzer/base/sort.h"

/* A run has each string only once. */
static uint64_t place_key(const char *file, const char *function, int line)
{
    return map_hash((uintptr_t)file ^ map_hash((uintptr_t)function ^ map_hash((uint64_t)line)));
}

static uint32_t site_slot(struct diff_sites *s, const char *file, const char *function, int line)
{
    return MAP_INDEX(
        &s->by_frame, place_key(file, function, line), s->sites, s->n, s->cap,
        (struct diff_match_site){.file = file ? file : "", .function = function ? function : "", .line = line});
}

/* A native call site without a line is its function, or its offset. */
static uint32_t native_slot(struct diff_sites *s, const struct result_site *site)
{
    const char *function = site->function;
    if (site->kind == GS_FRAME_NATIVE && !function && site->line <= 0) {
        char text[32];
        int n = snprintf(text, sizeof text, "+0x%llx", (unsigned long long)site->offset);
        function = run_text(s->run, text, (size_t)n);
    }
    return site_slot(s, site->file, function, site->line);
}

struct call { /* a site calls a name */
    uint32_t site;
    uint64_t name;
};

struct through {
    struct diff_sites *s;
    int64_t *weight; /* by stack, including all that it called */
    uint64_t *count;
    bool *touched;
    ARENA_LIST(struct call, calls);
};

/* In PyTorch's native frames the operation distinguishes two lines. */
static uint64_t operation_below(struct run *run, uint32_t stack, uint32_t python)
{
    static const char prefix[] = "at::_ops::";
    uint64_t name = 1; /* memory that the line itself allocated */
    for (unsigned hops = 0; stack != python && stack != RUN_NONE && hops <= RUN_DEPTH_MAX; hops++) {
        const struct run_frame *f = run_stack_frame(run, stack);
        if (f && f->module && strstr(f->module, "/libtorch")) {
            f = run_frame_named(run, stack);
            if (f->function && strncmp(f->function, prefix, sizeof prefix - 1) == 0) {
                const char *at = f->function + sizeof prefix - 1, *end = strstr(at, "::");
                name = map_hash_bytes(0, at, end ? (size_t)(end - at) : strlen(at)); /* the outermost */
            }
        }
        stack = run_stack_parent(run, stack);
    }
    return name;
}

static void add_call(struct through *t, uint32_t site, uint64_t name)
{
    *ARENA_ADD(t->calls) = (struct call){site, name};
}

static void add_native_site(struct through *t, const struct profile_entry *e, const struct result_site *site,
                            uint64_t name)
{
    const uint32_t at = native_slot(t->s, site);
    t->s->sites[at].weight = arena_add_capped(t->s->sites[at].weight, e->weight);
    t->s->sites[at].count += e->count;
    add_call(t, at, name);
}

/* All of the program's own frames, because wrappers are passed; a stack without them has the site of its innermost. */
static void add_native(struct through *t, const struct profile_entry *e)
{
    struct run *run = t->s->run;
    const struct run_frame *frame;
    uint64_t name = 1; /* memory that the line itself allocated */
    for (uint32_t at = e->stack; (frame = run_stack_frame(run, at)) != NULL; at = run_stack_parent(run, at)) {
        size_t places;
        if (frame->kind != GS_FRAME_NATIVE || frame->rank != RUN_RANK_OWN) continue;
        frame = run_frame_places(run, at, &places);
        for (size_t i = 0; i < places; i++) {
            const struct result_site site = site_of_frame(&frame[i]);
            add_native_site(t, e, &site, name);
            name = map_hash_text(0, site.function ? site.function : "");
        }
    }
    const struct result_site site = site_of(run, e->stack, NULL);
    if (name == 1 && site.known && !site.exit) add_native_site(t, e, &site, name);
}

/* Of the entries with Python: their weight at their innermost Python frame, and what that line does. */
static void add_site_entries(struct through *t, const struct profile *p)
{
    struct run *run = t->s->run;
    struct map seen = {0};
    EACH (e, p->entries, p->n) {
        uint32_t python = e->stack != RUN_NONE ? run_stack_python(run, e->stack) : RUN_NONE;
        if (e->stack != RUN_NONE && python == RUN_NONE) add_native(t, e);
        if (python == RUN_NONE) continue;
        t->weight[python] = arena_add_capped(t->weight[python], e->weight);
        t->count[python] += e->count;
        t->touched[python] = true;
        uint32_t *at = map_at(&seen, e->stack);
        if (*at == MAP_NEW) {
            const struct run_frame *f = run_stack_frame(run, python);
            *at = 1;
            add_call(t, site_slot(t->s, f->file, f->function, f->line), operation_below(run, e->stack, python));
        }
    }
    map_free(&seen);
}

/* From each stack to its caller, whose number is lower. */
static void add_callers(struct through *t)
{
    struct run *run = t->s->run;
    for (uint32_t stack = (uint32_t)run_stack_count(run); stack-- > 0;) {
        if (!t->touched[stack]) continue;
        const struct run_frame *f = run_stack_frame(run, stack);
        uint32_t parent = run_stack_parent(run, stack);
        if (f->kind == GS_FRAME_PYTHON) {
            uint32_t at = site_slot(t->s, f->file, f->function, f->line);
            t->s->sites[at].weight = arena_add_capped(t->s->sites[at].weight, t->weight[stack]);
            t->s->sites[at].count += t->count[stack];
        }
        if (parent == RUN_NONE) continue;
        t->weight[parent] = arena_add_capped(t->weight[parent], t->weight[stack]);
        t->count[parent] += t->count[stack];
        t->touched[parent] = true;
        const struct run_frame *by = run_stack_frame(run, parent);
        if (f->kind == GS_FRAME_PYTHON && by->kind == GS_FRAME_PYTHON)
            add_call(t, site_slot(t->s, by->file, by->function, by->line), map_hash_text(0, f->function));
    }
}

/* The file that was started: the outermost code of a file that is not a library's. */
static bool start_of_function(const struct diff_match_site *s)
{
    return strcmp(s->function, "<module>") == 0 && s->file[0] != '<' && !site_is_library_file(s->file);
}

static void mark_program(struct through *t)
{
    struct run *run = t->s->run;
    const char *file = NULL;
    for (uint32_t stack = 0; stack < run_stack_count(run) && !file; stack++) {
        uint32_t at = stack;
        const struct run_frame *f = run_stack_frame(run, stack);
        for (unsigned hops = 0; t->touched[stack] && f && hops <= RUN_DEPTH_MAX; hops++) {
            struct diff_match_site site = {.file = f->file ? f->file : "", .function = f->function ? f->function : ""};
            file = f->kind == GS_FRAME_PYTHON && start_of_function(&site) ? f->file : file;
            at = run_stack_parent(run, at);
            f = run_stack_frame(run, at);
        }
    }
    for (size_t i = 0; i < t->s->n && file; i++) t->s->sites[i].program = strcmp(t->s->sites[i].file, file) == 0;
}

SORT_ORDER(order_entries_by_site, struct call, SORT_UP(x->site, y->site) ?: SORT_UP(x->name, y->name))

static void give_calls(struct through *t)
{
    uint64_t *names = arena_realloc(NULL, t->calls_n, sizeof *names);
    size_t n = 0;
    SORT(t->calls, t->calls_n, order_entries_by_site);
    for (size_t i = 0; i < t->calls_n; i++) {
        if (i && order_entries_by_site(&t->calls[i - 1], &t->calls[i]) == 0) continue;
        struct diff_match_site *site = &t->s->sites[t->calls[i].site];
        site->calls = site->calls_n ? site->calls : &names[n];
        site->calls_n++;
        names[n++] = t->calls[i].name;
    }
    t->s->calls = names;
}

void diff_sites_fill(struct diff_sites *s, struct run *run, const struct profile *p)
{
    size_t stacks = run_stack_count(run);
    *s = (struct diff_sites){.run = run};
    struct through t = {.s = s,
                        .weight = arena_realloc(NULL, stacks, sizeof *t.weight),
                        .count = arena_realloc(NULL, stacks, sizeof *t.count),
                        .touched = arena_realloc(NULL, stacks, sizeof *t.touched)};
    memset(t.weight, 0, stacks * sizeof *t.weight);
    memset(t.count, 0, stacks * sizeof *t.count);
    memset(t.touched, 0, stacks * sizeof *t.touched);
    add_site_entries(&t, p);
    add_callers(&t);
    mark_program(&t);
    give_calls(&t);
    for (size_t i = 0; i < s->n; i++) s->sites[i].cell = run_cell_text(run, s->sites[i].file);
    site_helpers(run, &s->helpers);
    ARENA_RELEASE(t.weight, t.count, t.touched, t.calls);
}

void diff_sites_free(struct diff_sites *s)
{
    ARENA_RELEASE(s->sites, s->calls, s->places);
    MAP_RELEASE(&s->by_frame, &s->helpers, &s->of_stack);
    arena_free(&s->arena);
}

void diff_sites_agree(struct diff_sites *a, struct diff_sites *b, const struct diff_match *m)
{
    for (size_t i = 0; i < a->n; i++) {
        if (m->of_a[i] == DIFF_MATCH_ALONE) continue;
        const struct diff_match_site *s = &a->sites[i], *t = &b->sites[m->of_a[i]];
        if (!*s->function || !*t->function || !*s->file || !*t->file) continue;
        if (site_is_helper(&a->helpers, s->function, s->file))
            site_add_helper(&b->helpers, t->function, t->file);
        else if (site_is_helper(&b->helpers, t->function, t->file))
            site_add_helper(&a->helpers, s->function, s->file);
    }
}

const struct diff_place *diff_place_of(struct diff_sites *s, uint32_t stack)
{
    uint32_t *at = map_at(&s->of_stack, stack);
    if (*at == MAP_NEW) {
        *at = (uint32_t)s->places_n;
        struct diff_place *p = ARENA_ADD(s->places);
        *p = (struct diff_place){.number = RUN_NONE};
        if (stack != RUN_NONE) p->site = site_of(s->run, stack, &s->helpers);
        if (p->site.exit) {
            p->number = DIFF_EXIT;
        } else if (p->site.known) {
            p->number = p->site.kind == GS_FRAME_PYTHON ? site_slot(s, p->site.file, p->site.function, p->site.line)
                                                        : native_slot(s, &p->site);
        }
        return p;
    }
    return &s->places[*at];
}
