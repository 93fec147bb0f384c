/* Copies by line: direction, kind of host memory, bytes, and a bandwidth if the time of the host shows one. Advice is
 * given only above thresholds, and never for data that is copied once in the process's warm-up or, if the program's
 * steps are known, outside of them. */
#include "analyzer/question/library.h"
#include "analyzer/base/sort.h"
#include "analyzer/category/category.h"
#include "analyzer/step/cadence.h"
#include "analyzer/question/signature.h"
#include "analyzer/question/question.h"
#include "analyzer/site/native_source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ITEM_BYTES = 8,
    TINY_BYTES = 64 << 10,
    BULK_BYTES = 1 << 20,
    TINY_PER_S = 100,
    TINY_PER_STEP = 5,
    MASS_PER_STEP = 30
};
static const double loading_share = 0.8, slow_share = 0.5;
static const double modest_link = 12e9; /* bytes/s of PCIe 3 ×16 in practice, which any server reaches */

struct flow {
    uint32_t stack; /* of its first call */
    uint8_t direction, host_memory;
    bool async;
    uint64_t count, tiny, seen; /* seen: those with rows */
    int64_t bytes, early_bytes, blocked_ns;
    struct step_cadence cadence;
};

struct question_transfers {
    struct site_builder *b;
    struct step_clock clock;
    bool reads;       /* a call site in the program's steps copies from the GPU */
    uint32_t process; /* of the last call */
    uint64_t calls;   /* its copies and waits so far */
    struct flow *flows;
    size_t n, cap;
    struct map index;
};

static struct flow *flow_at(struct question_transfers *t, const struct run_copy *c)
{
    uint32_t site = site_index(t->b, c->stack);
    uint64_t key = (uint64_t)site << 16 | c->direction << 8 | c->host_memory << 1 | c->async;
    uint32_t *at = map_at(&t->index, key);
    if (*at == MAP_NEW) {
        *at = (uint32_t)t->n;
        ARENA_APPEND_TO(t->flows, t->n, t->cap, .stack = c->stack, .direction = c->direction,
                        .host_memory = c->host_memory, .async = c->async);
    }
    return &t->flows[*at];
}

/* The sums of rows that a recording of bounded size lost. */
static void add_removed_flows(struct question_transfers *t)
{
    RUN_EACH (r, run_removed, t->b->run) {
        if (r->what != GS_REMOVED_COPY) continue;
        struct flow *f = flow_at(t, &(struct run_copy){.process = r->process,
                                                       .stack = r->stack,
                                                       .direction = r->direction,
                                                       .host_memory = r->host_memory,
                                                       .async = r->async});
        if (!f->count) /* otherwise the remaining rows show when it occurs */
            step_cadence_add(t->b, &t->clock, &f->cadence, r->process, 0, 0);
        f->count += r->count;
        f->tiny += r->size < 2 ? r->count : 0;
        f->bytes = arena_add_capped(f->bytes, r->bytes);
        f->blocked_ns = arena_add_capped(f->blocked_ns, r->ns);
    }
}

void question_transfers_add(struct question_transfers *t, const struct run_copy *copy, const struct run_sync *sync)
{
    const uint32_t process = copy ? copy->process : sync->process;
    const uint64_t earlier = process == t->process ? t->calls : 0;
    t->process = process;
    t->calls = earlier + 1;
    if (!copy) return;
    const bool early = question_in_warm_up(earlier, run_process_at(t->b->run, process)->calls);
    struct flow *f = flow_at(t, copy);
    f->count++;
    f->seen++;
    f->tiny += copy->bytes < TINY_BYTES;
    f->bytes = arena_add_capped(f->bytes, copy->bytes);
    f->early_bytes = arena_add_capped(f->early_bytes, early ? copy->bytes : 0);
    f->blocked_ns = arena_add_capped(f->blocked_ns, copy->blocked_ns);
    step_cadence_add(t->b, &t->clock, &f->cadence, copy->process, copy->start_ns, copy->blocked_ns);
}

struct question_transfers *question_transfers_start(struct site_builder *b)
{
    struct question_transfers *t = ARENA_NEW(struct question_transfers, .b = b);
    return t;
}

/* Known if the host stays in the call until the data has moved, and no longer. A copy to the host first waits for the
 * kernels that make the data, up to 1,600 times as long as the GPU copied in public traces. */
static double flow_bandwidth(const struct flow *f)
{
    const bool held = !f->async || f->host_memory == GS_HOSTMEM_PAGEABLE;
    const bool large = f->count && f->bytes / (int64_t)f->count >= TINY_BYTES; /* of smaller ones, it is the call's */
    return f->direction == GS_DIR_H2D && held && large && f->blocked_ns > 0
               ? (double)f->bytes * 1e9 / (double)f->blocked_ns
               : NAN;
}

static bool many_tiny(const struct flow *f, const struct result_pace *pace, bool simulated)
{
    double span = (double)(f->cadence.last_ns - f->cadence.first_ns) / 1e9;
    bool often = f->seen >= TINY_PER_S && (double)f->seen >= TINY_PER_S * span;
    bool late = f->async && f->host_memory == GS_HOSTMEM_PINNED; /* costs only the call */
    int least = late ? 2 * MASS_PER_STEP : pace->bunched ? TINY_PER_STEP : MASS_PER_STEP;
    bool in_steps = pace->calls_per_step >= least;
    if (f->tiny * 2 <= f->count) return false;
    return pace->phase == RESULT_PHASE_UNKNOWN ? often : in_steps && (often || simulated);
}

/* As far as the recording shows: a recording of another tool may have no stacks. */
static bool has_python_program(const struct site_builder *b)
{
    bool has = step_has_tensors(b) || category_has_python(b->run);
    for (uint32_t p = 0; p < RUN_COUNT(run_processes, b->run); p++) has = has || site_runs_python(b->run, p);
    return has;
}

static const char *advise_transfer(const struct question_transfers *t, const struct flow *f,
                                   const struct result_pace *pace, double speed, double link)
{
    const struct site_builder *b = t->b;
    bool host = f->direction == GS_DIR_H2D || f->direction == GS_DIR_D2H, known = pace->phase;
    bool simulated = b->report->simulated;
    if (!host || (known ? pace->phase != RESULT_PHASE_STEP || pace->calls_per_step < 0.5
                        : (double)f->early_bytes >= loading_share * (double)f->bytes))
        return NULL;
    if (pace->loop && !t->reads && step_has_tensors(b)) /* of a loop that reads nothing back: it loads */
        return NULL;
    bool item = f->direction == GS_DIR_D2H && f->bytes <= ITEM_BYTES * (int64_t)f->count;
    if (item || (simulated && !known && step_has_tensors(b)))
        return NULL; /* .item(): advice is given on the wait; or times mean nothing */
    if (many_tiny(f, pace, simulated)) return question_advice_small_copies();
    bool bulk = f->bytes / (int64_t)f->count >= BULK_BYTES && !(simulated && known);
    if (f->host_memory == GS_HOSTMEM_PAGEABLE && bulk && speed < slow_share * link) {
        /* Not .pin_memory() in the loop: pinning each batch costs more than it saves. */
        return has_python_program(b) ? "slow copy from pageable memory: pin it in the loader "
                                       "(`DataLoader(pin_memory=True)`) and copy with `non_blocking=True`"
                                     : "slow copy from pageable memory: allocate its source with cudaMallocHost, and "
                                       "copy with cudaMemcpyAsync";
    }
    return NULL;
}

SORT_ORDER(order_flows_by_bytes, struct result_transfer,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_DOWN(x->count, y->count) ?: SORT_UP(x->site.line, y->site.line))

static struct result_transfer describe_transfer(const struct question_transfers *t, const struct flow *f, double link)
{
    const struct site_builder *b = t->b;
    double speed = flow_bandwidth(f);
    const struct result_site site = site_of_call(b, f->stack);
    struct result_pace pace = step_pace(&f->cadence, &site);
    return (struct result_transfer){.direction = f->direction,
                                    .host_memory = f->host_memory,
                                    .pinned = f->host_memory == GS_HOSTMEM_PINNED     ? 1
                                              : f->host_memory == GS_HOSTMEM_PAGEABLE ? 0
                                                                                      : -1,
                                    .async = f->async,
                                    .count = f->count,
                                    .bytes = f->bytes,
                                    .blocked_s = (double)f->blocked_ns / 1e9,
                                    .bytes_per_s = speed,
                                    .first_s = site_seconds(f->cadence.first_ns),
                                    .last_s = site_seconds(f->cadence.last_ns),
                                    .pace = pace,
                                    .site = site,
                                    .advice = question_library_advice(b->run, f->stack, &site,
                                                                      advise_transfer(t, f, &pace, speed, link),
                                                                      f->direction == GS_DIR_H2D)};
}

static uint64_t transfer_kind_of(const void *row)
{
    const struct result_transfer *x = row;
    return (uint64_t)x->direction << 8 | x->host_memory;
}

static void add_copies(void *into, const void *from)
{
    struct result_transfer *to = into;
    const struct result_transfer *x = from;
    const double seconds = (double)to->bytes / to->bytes_per_s + (double)x->bytes / x->bytes_per_s; /* NAN: unknown */
    to->bytes = arena_add_capped(to->bytes, x->bytes);
    to->bytes_per_s = (double)to->bytes / seconds;
    to->count += x->count;
    to->blocked_s += x->blocked_s;
    to->first_s = fmin(to->first_s, x->first_s);
    to->last_s = fmax(to->last_s, x->last_s);
    to->async = to->async && x->async;
    to->advice = to->advice ? to->advice : x->advice;
    site_add_pace(&to->pace, &x->pace);
}

SITE_LINE_PATH(transfer_path_of, struct result_transfer, .bytes = x->bytes, .count = x->count,
               .blocked_s = x->blocked_s, .site = x->site)

static const struct site_line_form line_form =
    SITE_LINE_FORM(struct result_transfer, site, .kind = transfer_kind_of, .add = add_copies, .path = transfer_path_of,
                   .order = order_flows_by_bytes);

void question_transfers_finish(struct question_transfers *t)
{
    struct result_report *report = t->b->report;
    double link = modest_link;
    add_removed_flows(t);
    for (size_t i = 0; i < t->n; i++) {
        double speed = t->flows[i].bytes >= BULK_BYTES ? flow_bandwidth(&t->flows[i]) : NAN;
        link = speed > link ? speed : link;
        t->reads = t->reads || (t->flows[i].direction == GS_DIR_D2H &&
                                step_pace(&t->flows[i].cadence, NULL).phase == RESULT_PHASE_STEP);
    }
    struct result_transfer *work = arena_realloc(NULL, t->n, sizeof *work);
    for (size_t i = 0; i < t->n; i++) work[i] = describe_transfer(t, &t->flows[i], link);
    report->transfers =
        site_list(t->b, work, t->n, sizeof *work, order_flows_by_bytes, &report->transfers_n, &report->transfers_total);
    report->transfer_lines =
        site_lines_of(t->b, work, t->n, &line_form, &report->transfer_lines_n, &report->transfer_lines_total);
    ARENA_RELEASE(work, t->flows);
    map_free(&t->index);
    free(t);
}
