#include "analyzer/page/page_events.h"

#include <stdlib.h>
#include "analyzer/allocator/allocator.h"
#include "analyzer/step/step.h"
#include "analyzer/base/sort.h"
#include "analyzer/run/words.h"

enum {
    MARKS = 8000, /* in all */
    MARKS_OF_NAME = 1024,
    NAMES = 400,
    STEPS = 20000, /* in all */
    RETRIES = 500,
};

static void put_when(struct page_writer *w, const char *kind, uint32_t process, int device, double time_s, size_t index)
{
    page_put_open(w, NULL, '{');
    page_put_text(w, "kind", kind);
    page_put_int(w, "process", process);
    page_put_int(w, "device", device);
    page_put_real(w, "time", time_s);
    page_put_int(w, "index", (int64_t)index); /* in the report's list */
}

void page_events_put(const struct result_report *r, struct page_writer *w)
{
    page_put_open(w, "events", '[');
    for (size_t i = 0; i < r->ooms_n; i++) {
        const struct result_oom_verdict *v = &r->ooms[i];
        put_when(w, "oom", v->process, v->device, v->time_s, i);
        page_put_bool(w, "fatal", v->fatal);
        page_put_int(w, "bytes", v->requested_bytes);
        page_put_text(w, "text", v->verdict);
        page_put_close(w, '}');
    }
    for (size_t i = 0; i < r->retries_n && i < RETRIES; i++) {
        const struct result_retry *x = &r->retries[i];
        put_when(w, "retry", x->process, x->device, x->time_s, i);
        page_put_int(w, "bytes", x->requested_bytes);
        page_put_real(w, "seconds", x->blocked_s);
        page_put_int(w, "count", x->failures);
        page_put_close(w, '}');
    }
    for (size_t i = 0; i < r->flushes_n; i++) {
        const struct allocator_cache_flush *f = &r->flushes[i];
        put_when(w, "flush", f->process, f->device, f->first_s, i);
        page_put_real(w, "end", f->last_s);
        page_put_text(w, "what", allocator_flush_word(f->kind));
        page_put_int(w, "bytes", f->bytes);
        page_put_real(w, "seconds", f->blocked_s);
        page_put_int(w, "count", (int64_t)f->count);
        page_put_close(w, '}');
    }
    page_put_close(w, ']');
    page_put_open(w, "steps", '[');
    for (size_t i = 0; i < r->steps_n; i++) {
        const struct step_list *s = r->steps[i];
        size_t stride = s->n / (STEPS / r->steps_n + 1) + 1;
        struct page_column starts = {0};
        for (size_t k = 0; k < s->n; k += stride) page_column_step(&starts, step_start_ns(s, k));
        page_column_step(&starts, step_start_ns(s, s->n));
        page_put_open(w, NULL, '{');
        page_put_int(w, "process", s->process);
        page_put_text(w, "source", step_source_word(s->source));
        page_put_text(w, "by", s->by);
        page_put_int(w, "n", (int64_t)s->n);
        page_put_int(w, "stride", (int64_t)stride);
        page_put_column(w, "starts", &starts);
        page_put_close(w, '}');
    }
    page_put_close(w, ']');
}

struct mark {
    int64_t start_ns, end_ns;
    uint32_t thread, name; /* name: index in `names` */
};
struct name { /* per process: every `stride`-th of its marks is kept */
    uint32_t process;
    const char *name, *domain;
    uint8_t kind;
    uint64_t seen, stride;
    struct mark *marks;
    size_t n, cap;
};
struct marks {
    uint32_t process;
    ARENA_LIST(struct name, names);
    struct map of;
    uint64_t left_out;
};

static void thin_marks(struct name *name)
{
    for (size_t i = 0; i < name->n; i += 2) name->marks[i / 2] = name->marks[i];
    name->n = (name->n + 1) / 2;
    name->stride *= 2;
}

static void events_on_mark(void *self, const struct run_mark *m)
{
    struct marks *all = self;
    uint64_t key =
        map_hash((uintptr_t)m->name) ^ map_hash((uintptr_t)m->domain * 3 + m->kind) ^ map_hash(~(uint64_t)all->process);
    const uint32_t number = MAP_INDEX_IN(
        &all->of, key, all->names,
        (struct name){.process = all->process, .name = m->name, .domain = m->domain, .kind = m->kind, .stride = 1});
    struct name *name = &all->names[number];
    if (name->seen++ % name->stride) return;
    *ARENA_PUSH(name->marks, name->n, name->cap) = (struct mark){m->start_ns, m->end_ns, m->thread, number};
    if (name->n >= MARKS_OF_NAME) thin_marks(name);
}

/* The rarest names first: a name with all of its marks is the most useful. */
SORT_ORDER(order_marks_by_rarity, struct name, SORT_UP(x->seen, y->seen) ?: SORT_UP(x->process, y->process))

SORT_ORDER(order_marks_by_time, struct mark,
           SORT_UP(x->start_ns, y->start_ns) ?: SORT_DOWN(x->end_ns, y->end_ns) /* the outer one */
               ?: SORT_UP(x->name, y->name))

/* As many as there is room for, in order of time. */
static struct mark *gather_marks(struct marks *all, size_t *n)
{
    size_t cap = 0;
    struct mark *list = NULL;
    *n = 0;
    SORT(all->names, all->names_n, order_marks_by_rarity);
    for (size_t i = 0; i < all->names_n; i++) {
        struct name *name = &all->names[i];
        size_t names_left = all->names_n - i, room = *n < MARKS ? (MARKS - *n) / names_left : 0;
        while (name->n > room + 1 && i < NAMES) thin_marks(name);
        if (i >= NAMES) name->n = 0;
        all->left_out += name->seen - name->n;
        for (size_t k = 0; k < name->n; k++) {
            *ARENA_PUSH(list, *n, cap) = name->marks[k];
            list[*n - 1].name = (uint32_t)i;
        }
    }
    SORT(list, *n, order_marks_by_time);
    return list;
}

static void put_marks(const struct marks *all, const struct mark *list, size_t n, struct page_stacks *stacks,
                      struct page_writer *w)
{
    struct page_column name = {0}, start = {0}, length = {0}, process = {0}, thread = {0}, kind = {0}, domain = {0},
                       of = {0};
    for (size_t i = 0; i < n; i++) {
        const struct name *its = &all->names[list[i].name];
        int64_t end = list[i].end_ns;
        page_column_add(&name, page_string(stacks, its->name));
        page_column_add(&domain, page_string(stacks, its->domain));
        page_column_add(&kind, page_string(stacks, run_mark_word(its->kind & 7)));
        page_column_step(&start, list[i].start_ns);
        page_column_add(&length, end == RUN_NEVER ? -1 : end - list[i].start_ns);
        page_column_add(&process, its->process);
        page_column_add(&thread, list[i].thread);
        page_column_add(&of, (int64_t)its->stride);
    }
    page_put_open(w, "marks", '{');
    PAGE_PUT_COLUMNS(w, name, domain, kind, start, length, process, thread, of);
    page_put_close(w, '}');
}

bool page_marks_put(struct run *run, struct page_stacks *stacks, struct page_writer *w, uint64_t *left_out, char *error,
                    size_t error_size)
{
    struct marks all = {0};
    size_t n, processes;
    bool ok = true;
    run_processes(run, &processes);
    for (all.process = 0; ok && all.process < processes; all.process++)
        ok = run_each_mark(run, all.process, events_on_mark, &all, error, error_size);
    struct mark *list = gather_marks(&all, &n);
    put_marks(&all, list, n, stacks, w);
    *left_out = all.left_out;
    for (size_t i = 0; i < all.names_n; i++) free(all.names[i].marks);
    map_free(&all.of);
    ARENA_RELEASE(all.names, list);
    return ok;
}
