#include "analyzer/whatif/parts.h"

#include <string.h>
#include "analyzer/run/settings.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/whatif/rules.h"
#include "analyzer/whatif/source.h"

static void read_settings(struct whatif *w, struct whatif_device *d)
{
    static const char *const assumed[WHATIF_ASSUMED_N] = {"2.11", "2.15", "2.12", "2.4"};
    char error[320];
    size_t n;
    const struct run_process *list = run_processes(w->run, &n);
    const char *version = list[d->process].torch_version;
    w->proof.torch_version = version;
    if (!version)
        version = !w->assumed && list[d->process].torch_like ? list[d->process].torch_like : assumed[w->assumed];
    if (!w->proof.torch_version) w->proof.torch_assumed = version;
    if (!whatif_rules_recorded(&d->rules, w->run, d->process, version, d->total, error, sizeof error))
        w->proof.reason = arena_printf(&w->arena, "%s", error);
}

size_t whatif_device_find(struct whatif *w, uint32_t process, int device)
{
    uint32_t *at = map_at(&w->device_at, whatif_device_key(process, device));
    const bool known = *at != MAP_NEW;
    if (!known) *at = (uint32_t)w->devices_n;
    w->device = *at;
    if (known) return w->device;
    struct whatif_device *d = ARENA_ADD(w->devices);
    *d = (struct whatif_device){.process = process,
                                .device = device,
                                .total = INT64_MAX,
                                .thread = RUN_NONE,
                                .recorded = {.fits = true, .process = process, .device = device}};
    size_t n;
    const struct run_device *list = run_devices(w->run, &n);
    for (size_t i = 0; i < n; i++)
        if (list[i].process == process && list[i].device == device && list[i].total_bytes > 0)
            d->total = list[i].total_bytes;
    read_settings(w, d);
    whatif_facts_read(&d->facts, w->run, process, device);
    return w->devices_n - 1;
}

void whatif_push_base(struct whatif_device *d, int64_t since_ns, int64_t bytes)
{
    if (d->bases_n && d->bases[d->bases_n - 1].bytes == bytes) return;
    *ARENA_ADD(d->bases) = (struct whatif_moment){since_ns, bytes};
}

/* A query of NVML that includes an allocation which is not recorded yet is too high: a later one lowers it. */
void whatif_settle_bases(struct whatif_device *d)
{
    for (size_t i = d->bases_n; i-- > d->bases_settled + 1;)
        if (d->bases[i - 1].bytes > d->bases[i].bytes) d->bases[i - 1].bytes = d->bases[i].bytes;
}

/* The memory that CUDA would report as used without the other processes: NVML's figure for this process, and memory of
 * no process (9 MiB of an H200). On a real device, NVML's total includes memory that the driver keeps; CUDA's does not.
 */
int64_t whatif_used_bytes(const struct run_device_sample *s, int64_t total)
{
    const bool known = run_is_known(s->free_bytes) && run_is_known(s->other_bytes) && s->total_bytes >= total;
    const int64_t used = known ? total - s->free_bytes - s->other_bytes : 0;
    return used > s->own_bytes ? used : s->own_bytes;
}

/* For a run that ends before NVML was queried about its second GPU, or about any. */
static void assume_context(struct whatif *w, struct whatif_device *d)
{
    w->proof.unsure_context = w->proof.unsure_context || (!d->bases_n && !w->imported);
    for (size_t i = 0; i < w->devices_n && !d->bases_n && !w->imported; i++) {
        const struct whatif_device *other = &w->devices[i];
        if (other->process != d->process || !other->bases_n) continue;
        whatif_push_base(d, 0, other->bases[other->bases_n - 1].bytes);
    }
}

void whatif_conclude_proof(struct whatif *w)
{
    struct whatif_proof *p = &w->proof;
    const struct whatif_device *worst = NULL;
    EACH_IN (d, w->devices) {
        whatif_settle_bases(d);
        assume_context(w, d);
        d->recorded.capacity_bytes = d->total == INT64_MAX ? RUN_UNKNOWN : d->total;
        d->recorded.spare_bytes = RUN_UNKNOWN;
        if (!worst || (worst->recorded.fits && !d->recorded.fits) ||
            (worst->recorded.fits == d->recorded.fits &&
             d->recorded.peak_reserved_bytes > worst->recorded.peak_reserved_bytes))
            worst = d;
    }
    if (worst) p->recorded = worst->recorded;
    p->begin_ns = run_kept_from(w->run);
    p->exact = p->blocks && !p->parted_at_event && !p->reason;
}

uint64_t whatif_failed_stream(const struct whatif_device *d, size_t oom, uint64_t last)
{
    const uint32_t at = map_get(&d->failed_on, oom);
    return at < d->streams_n ? d->streams[at] : last;
}

uint32_t whatif_failed_pool(const struct whatif_device *d, size_t oom, bool *held)
{
    const uint32_t found = map_get(&d->failed_in, oom);
    *held = found != MAP_NEW && found & 1;
    return found == MAP_NEW ? 0 : found / 2;
}

bool whatif_restores(struct whatif_lane *l, const struct run *run, const struct run_lifetime *life, uint32_t pool)
{
    if (!pool || life->space == GS_SPACE_POOL) return false;
    const uint32_t line = run_stack_python(run, life->stack);
    if (!run_stack_is_in(run, line, NULL, "apply_checkpoint_execution_state_in_allocator")) return false;
    const bool freed = life->free_ns != RUN_NEVER && line == run_stack_python(run, run_free_stack(run, life));
    return freed || whatif_lane_restore(l, run_live_number(run, life), life->address, pool);
}

int64_t whatif_note_segment(const struct whatif_device *d, struct whatif_pool_map *m, const struct run_lifetime *life,
                            bool freed)
{
    if (!d->facts.pools) return -1;
    if (d->facts.mapped && life->space == GS_SPACE_VMM) { /* its address is a handle */
        whatif_pool_map_advance(m, &d->facts, freed ? life->free_ns : life->alloc_ns);
        return freed ? m->unmapped : -1;
    }
    if (freed) return whatif_pool_map_remove(m, &d->facts, life->free_ns, life->address, life->bytes);
    whatif_pool_map_add(m, life->address, life->bytes, life->space == GS_SPACE_VMM);
    return -1;
}

bool whatif_is_segment(struct whatif *w, const struct run_lifetime *life)
{
    if (life->layer != GS_LAYER_DEVICE || (life->space != GS_SPACE_DEVICE && life->space != GS_SPACE_VMM)) return false;
    if (w->imported || life->stack == RUN_NONE || life->stack >= w->owners_n) return true;
    uint8_t *owner = &w->owners[life->stack];
    if (!*owner) *owner = run_is_called_by(w->run, life->stack, "libc10_cuda") == RUN_NO ? 2 : 1;
    return *owner == 1;
}

static bool is_known_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

bool whatif_is_beginning(struct whatif *w, const struct step_list *steps, uint32_t free_stack)
{
    if (free_stack == RUN_NONE || free_stack >= w->owners_n) return false;
    uint8_t *known = &w->begins[free_stack];
    for (uint32_t at = free_stack; !*known && at != RUN_NONE; at = run_stack_parent(w->run, at)) {
        const struct run_frame *f = run_stack_frame(w->run, at);
        if (is_known_same(f->function, steps->site.function) && is_known_same(f->file, steps->site.file))
            *known = f->line > 0 && f->line < steps->site.line ? 1 : 2;
    }
    if (!*known) *known = 2;
    return *known == 1;
}

static void find_step_loop(struct whatif *w, const struct step_list *steps)
{
    w->loop_steps = steps;
    w->loop = RUN_NONE;
    for (uint32_t at = steps->stack; at != RUN_NONE && w->loop == RUN_NONE; at = run_stack_parent(w->run, at)) {
        struct site_code code;
        size_t k;
        if (!site_open_source(&w->sources, run_stack_frame(w->run, at), &code, &k)) continue;
        for (k = site_code_parent(&code, k); k < code.n && !site_code_begins(&code.list[k], "def");
             k = site_code_parent(&code, k)) {
            if (!site_is_loop(&code.list[k])) continue;
            w->loop = at;
            w->loop_last = code.list[site_code_end(&code, k) - 1].last;
            break;
        }
    }
}

/* `of_steps`, `other`: where two call paths part. Within the function of the loop, or in one that calls it; the head of
 * a loop calls it if it is a generator. */
static bool leaves_loop(struct whatif *w, uint32_t of_steps, uint32_t other)
{
    const struct run_frame *p = run_stack_frame(w->run, of_steps), *q = run_stack_frame(w->run, other);
    uint32_t at = w->loop;
    struct site_code code;
    size_t k;
    if (!is_known_same(p->function, q->function) || !is_known_same(p->file, q->file)) return false;
    while (at != RUN_NONE && at != of_steps) at = run_stack_parent(w->run, at);
    if (at == RUN_NONE || at == w->loop) return at != RUN_NONE && q->line > w->loop_last;
    const bool known = site_open_source(&w->sources, p, &code, &k), loop = known && site_is_loop(&code.list[k]);
    return known && q->line > (loop ? code.list[site_code_end(&code, k) - 1].last : p->line);
}

bool whatif_is_after_loop(struct whatif *w, const struct step_list *steps, uint32_t stack)
{
    if (stack >= w->owners_n || w->imported) return false;
    if (w->loop_steps != steps) {
        find_step_loop(w, steps);
        memset(w->after, 0, w->owners_n);
    }
    uint8_t *known = &w->after[stack];
    for (uint32_t other = stack; !*known && other != RUN_NONE; other = run_stack_parent(w->run, other)) {
        const uint32_t parent = run_stack_parent(w->run, other);
        uint32_t at = steps->stack;
        while (at != RUN_NONE && run_stack_parent(w->run, at) != parent) at = run_stack_parent(w->run, at);
        if (at != RUN_NONE) *known = leaves_loop(w, at, other) ? 1 : 2;
    }
    if (!*known) *known = 2;
    return *known == 1;
}

/* Is a time between two steps, in a pause of the program? */
static bool is_in_pause(const struct step_list *steps, int64_t ns)
{
    const int64_t first = step_start_ns(steps, 0), last = step_start_ns(steps, steps->n);
    return steps->end_ns && ns >= first && ns <= last && step_at(steps, ns) == SIZE_MAX;
}

void whatif_note_pause(struct whatif *w, uint32_t process, const struct run_lifetime *life)
{
    const struct step_list *steps = whatif_steps_of(w, process);
    const size_t stack = life->stack < w->owners_n ? life->stack : w->owners_n; /* the last: without a call path */
    if (!steps || !steps->end_ns) return;
    if (is_in_pause(steps, life->alloc_ns))
        w->spread[stack] |= 2;
    else if (step_at(steps, life->alloc_ns) != SIZE_MAX && stack < w->owners_n)
        w->spread[stack] |= 1;
}

/* Whose call path it is. Autograd's threads run while their caller waits, and have its call path or none of Python:
 * that of backward() or grad(). The forward pass of an autograd.Function and hooks of saved tensors are in other files.
 */
enum caller { NOT_EXAMINED, AUTOGRAD, SCRIPT, SCRIPT_GRAD /* within torch.func.grad and its kin */ };

static enum caller caller_of(struct whatif *w, uint32_t stack)
{
    if (stack >= w->owners_n) return AUTOGRAD;
    uint8_t *caller = &w->callers[stack];
    if (*caller) return *caller;
    *caller = (!run_stack_is_in(w->run, stack, NULL, "_bootstrap_inner") &&
               !run_stack_is_in(w->run, stack, NULL, "<module>")) ||
                      run_stack_is_in(w->run, stack, "/torch/autograd/__init__.py", NULL)
                  ? AUTOGRAD
              : run_stack_is_in(w->run, stack, "/torch/_functorch/eager_transforms", NULL) ? SCRIPT_GRAD
                                                                                           : SCRIPT;
    return *caller;
}

/* What a thread of autograd has freed since the program last ran was in no fixed order with it. */
static void note_running(struct whatif_device *d, enum caller caller)
{
    d->races = d->races || d->freed_beside;
    d->running = caller;
    d->freed_beside = false;
}

/* torch.func drops the graph as soon as its backward pass has returned: the thread that ran it may still hold a part.
 */
void whatif_note_thread(struct whatif *w, struct whatif_device *d, const struct run_lifetime *life)
{
    const enum caller caller = w->imported ? AUTOGRAD : caller_of(w, life->stack);
    if (caller == AUTOGRAD) {
        d->races = d->races || d->running == SCRIPT_GRAD;
        d->running = 0;
        d->freed_beside = false;
        return;
    }
    note_running(d, caller);
    if (life->thread == d->thread) return;
    d->turns += d->thread != RUN_NONE;
    d->thread = life->thread;
}

void whatif_note_freeing(struct whatif *w, struct whatif_device *d, const struct run_lifetime *life)
{
    if (w->imported) return;
    const uint32_t stack = run_free_stack(w->run, life);
    const enum caller caller = caller_of(w, stack);
    if (caller != AUTOGRAD)
        note_running(d, caller);
    else if (d->running && (stack == RUN_NONE || !whatif_has_python(w->run, stack)))
        d->freed_beside = true;
}

unsigned whatif_read_source(struct whatif *w)
{
    if (!w->source_was_read) w->source_facts = whatif_source_facts(w->run);
    w->source_was_read = true;
    return w->source_facts;
}

bool whatif_may_miss_flush(struct whatif *w, const struct whatif_device *d)
{
    const unsigned facts = d->unsure_flushes ? 0 : whatif_read_source(w);
    return d->unsure_flushes || (facts & WHATIF_EMPTIES && (!d->facts.syncs || facts & WHATIF_RESETS_COUNTS));
}

void whatif_note_capture(struct whatif_device *d, const struct caching_allocator *a, const struct run_lifetime *life)
{
    const bool captures = life->space == GS_SPACE_POOL, begins = captures && !d->capturing;
    d->capturing = captures;
    if (begins && !d->facts.syncs && !caching_has_spare(a))
        *ARENA_ADD(d->flushes) = (struct whatif_moment){life->alloc_ns, 0};
}

int64_t whatif_pending_until(const struct whatif *w, uint32_t process, size_t *next, const struct run_lifetime *life)
{
    while (*next < w->pending_n) {
        const struct run_pending *p = &w->pending[*next];
        const bool passed = p->process < process || (p->process == process && p->free_ns < life->free_ns);
        if (!passed && (p->process != process || p->free_ns > life->free_ns)) break;
        if (!passed && p->address != life->address) break;
        if (!passed) { /* a row for each event that it waits for */
            int64_t done = p->done_ns;
            while (++*next < w->pending_n && w->pending[*next].process == process &&
                   w->pending[*next].free_ns == life->free_ns && w->pending[*next].address == life->address)
                done = w->pending[*next].done_ns > done ? w->pending[*next].done_ns : done;
            return done;
        }
        ++*next;
    }
    return RUN_UNKNOWN;
}

void whatif_release_at(struct whatif_dues *d, struct caching_allocator *a, uint32_t block, int64_t until_ns)
{
    const uint64_t address = caching_block_address(a, block);
    caching_release_later(a, block);
    if (until_ns == RUN_NEVER) return;
    *ARENA_PUSH(d->list, d->n, d->cap) = (struct whatif_due){until_ns, address, block};
}

int64_t whatif_waits_until(const struct whatif *w, uint32_t process, const struct run_lifetime *life)
{
    int64_t until = whatif_begin(w, process);
    const int64_t begin = until;
    for (size_t i = 0; i < w->pending_n && w->pending[i].process <= process; i++) {
        const struct run_pending *p = &w->pending[i];
        if (p->process != process) continue;
        if (p->free_ns >= begin) break;
        if (p->address == life->address && p->device == life->device && p->free_ns == life->free_ns &&
            p->done_ns > until)
            until = p->done_ns;
    }
    return until > begin ? until : 0;
}

void whatif_place(struct whatif_lane *l, struct whatif_dues *dues, const struct whatif_device *d)
{
    whatif_lane_place(l, d->pieces, d->pieces_n);
    EACH_IN (p, d->pieces) {
        const uint32_t block = p->block && p->until_ns ? whatif_lane_take_placed(l, p->address) : CACHING_NO_BLOCK;
        if (block != CACHING_NO_BLOCK) whatif_release_at(dues, l->allocator, block, p->until_ns);
    }
}

void whatif_release_all_due(struct whatif_dues *d, struct caching_allocator *a, int64_t ns)
{
    for (size_t i = 0; i < d->n;) {
        const struct whatif_due due = d->list[i];
        if (due.ns > ns) {
            i++;
            continue;
        }
        d->list[i] = d->list[--d->n];
        if (caching_block_address(a, due.block) == due.address) caching_finish_pending(a, due.block);
    }
}

/* Did the program only wait in the pauses between steps? Then a step ends where the next one begins. An evaluation
 * allocates by call paths that no step has. What a slow first step allocates only once is its own. */
static bool are_pauses_idle(struct whatif *w)
{
    bool idle = true;
    for (size_t i = 0; i <= w->owners_n; i++)
        idle = idle && (w->spread[i] != 2 || whatif_is_of_step(w, i < w->owners_n ? (uint32_t)i : RUN_NONE));
    EACH_IN (d, w->devices) {
        const struct step_list *steps = whatif_steps_of(w, d->process);
        for (size_t k = 0; k < d->flushes_n && steps; k++) idle = idle && !is_in_pause(steps, d->flushes[k].ns);
    }
    return idle;
}

/* Several backward passes without an optimizer, in a loop with few turns: perhaps one step of the loop around it. */
static bool may_be_parts(const struct whatif *w, const struct whatif_device *d)
{
    enum { FEW = 4 };
    const struct step_list *steps = whatif_steps_of(w, d->process);
    return steps && steps->source == STEP_SOURCE_BACKWARD && d->loops > 1 && steps->n < FEW * d->loops;
}

bool whatif_ends_are_sure(struct whatif *w)
{
    bool sure = !w->imported && are_pauses_idle(w);
    EACH_IN (d, w->devices) sure = sure && !d->captures && d->recorded.fits && !may_be_parts(w, d);
    for (size_t i = 0; i < w->steps_n; i++) {
        const struct step_list *s = w->steps[i];
        sure = sure && s->source != STEP_SOURCE_MARK && s->source != STEP_SOURCE_PERIOD && s->stride == 1;
    }
    return sure;
}

bool whatif_is_same_outcome(const struct whatif_outcome *a, const struct whatif_outcome *b)
{
    return a->fits == b->fits && a->request_fits == b->request_fits &&
           a->peak_allocated_bytes == b->peak_allocated_bytes && a->peak_reserved_bytes == b->peak_reserved_bytes &&
           a->segments == b->segments && a->retries == b->retries && a->oom.event == b->oom.event &&
           a->oom.device == b->oom.device && a->oom.process == b->oom.process;
}
