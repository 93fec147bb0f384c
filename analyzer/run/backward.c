#include "analyzer/run/run_internal.h"
#include "analyzer/base/text.h"

#include <stdlib.h>
#include <string.h>

enum mark { PYTHON = 1, INSIDE = 2, OPENS = 4 };
enum { THREADS_MAX = 1 << 20, OPEN_MAX = 64 };
static const char thread_prefix[] = "pt_autograd_", engine[] = "torch::autograd::Engine::";

static bool is_frame_called(const struct run_frame *f, const char *name)
{
    return strcmp(text_last_part(f->function), name) == 0;
}

static uint8_t backward_mark_of(const struct run_frame *f)
{
    if (f->kind != GS_FRAME_PYTHON) return 0;
    if (text_ends_with(f->file, "/torch/autograd/__init__.py")) {
        return is_frame_called(f, "_make_grads")                              ? PYTHON | INSIDE | OPENS
               : is_frame_called(f, "backward") || is_frame_called(f, "grad") ? PYTHON | INSIDE
                                                                              : PYTHON;
    }
    return text_ends_with(f->file, "/torch/_tensor.py") && is_frame_called(f, "backward") ? PYTHON | INSIDE : PYTHON;
}

/* A stack's callers come before it. */
static void mark_stacks(struct run *run)
{
    struct run_backwards *b = &run->backward;
    uint8_t *of_frame = arena_realloc(NULL, run->frames_n + 1, 1);
    for (size_t i = 0; i < run->frames_n; i++) {
        of_frame[i] = backward_mark_of(&run->frames[i]);
        b->any = b->any || (of_frame[i] & OPENS);
    }
    b->marks_n = run->stacks_n;
    b->marks = arena_realloc(NULL, run->stacks_n + 1, 1);
    for (size_t i = 0; i < run->stacks_n; i++) {
        uint32_t parent = run->stacks[i].parent;
        b->marks[i] = of_frame[run->stacks[i].frame] | (parent == RUN_NONE ? 0 : b->marks[parent]);
    }
    free(of_frame);
}

static inline uint8_t mark_backward(const struct run_backwards *b, uint32_t stack)
{
    return stack < b->marks_n ? b->marks[stack] : 0;
}

/* The stack that called _make_grads. */
static uint32_t backward_base_of(const struct run *run, uint32_t stack)
{
    while (stack != RUN_NONE && (mark_backward(&run->backward, stack) & OPENS)) stack = run->stacks[stack].parent;
    return stack;
}

/* The innermost frames that both stacks have: their number, of at most `most`. */
static size_t count_common_frames(const struct run *run, uint32_t a, uint32_t b, size_t most)
{
    size_t n = 0;
    while (n < most && a != RUN_NONE && b != RUN_NONE && run->stacks[a].frame == run->stacks[b].frame) {
        n++;
        a = run->stacks[a].parent;
        b = run->stacks[b].parent;
    }
    return n;
}

/* The innermost frames of the stack as a stack of their own, if one of them is not PyTorch's. */
static uint32_t innermost_frames(struct run *run, uint32_t stack, size_t n)
{
    bool programs = false;
    uint32_t at = RUN_NONE, *path = arena_realloc(NULL, n + 1, sizeof *path);
    for (size_t i = 0; i < n; i++, stack = run->stacks[stack].parent) {
        path[i] = run->stacks[stack].frame;
        const char *file = run->frames[path[i]].file;
        programs = programs || (file && !strstr(file, "/torch/"));
    }
    for (size_t i = n; i-- > 0 && programs;) at = run_stack_add(run, at, path[i]);
    free(path);
    return at;
}

static uint32_t only_base(struct run *run)
{
    uint32_t first = RUN_NONE;
    size_t common = SIZE_MAX;
    bool several = false;
    for (uint32_t i = 0; run->backward.any && i < run->backward.marks_n; i++) {
        if (!(mark_backward(&run->backward, i) & OPENS)) continue;
        const uint32_t base = backward_base_of(run, i);
        first = first == RUN_NONE ? base : first;
        several = several || base != first;
        common = base != first ? count_common_frames(run, first, base, common) : common;
    }
    return several ? innermost_frames(run, first, common) : first;
}

static struct run_backward *process_at(struct run *run, uint32_t process)
{
    struct run_backwards *b = &run->backward;
    if (process >= b->n) {
        b->process = arena_realloc(b->process, run->processes_n, sizeof *b->process);
        memset(b->process + b->n, 0, (run->processes_n - b->n) * sizeof *b->process);
        b->n = run->processes_n;
    }
    return &b->process[process];
}

void run_backward_add_thread(struct run *run, uint32_t process, int64_t thread, const char *name)
{
    if (process >= run->processes_n || thread < 0 || thread >= THREADS_MAX || !name ||
        strncmp(name, thread_prefix, sizeof thread_prefix - 1) != 0)
        return;
    struct run_backward *b = process_at(run, process);
    if ((size_t)thread >= b->threads_n) {
        b->threads = arena_realloc(b->threads, (size_t)thread + 1, 1);
        memset(b->threads + b->threads_n, 0, (size_t)thread + 1 - b->threads_n);
        b->threads_n = (size_t)thread + 1;
    }
    b->threads[thread] = 1;
}

void run_backward_forget(struct run *run, size_t processes)
{
    struct run_backwards *b = &run->backward;
    while (b->n > processes) {
        struct run_backward *p = &b->process[--b->n];
        ARENA_RELEASE(p->threads, p->list, p->open);
    }
}

void run_backward_free(struct run *run)
{
    struct run_backwards *b = &run->backward;
    run_backward_forget(run, 0);
    ARENA_RELEASE(b->process, b->marks);
    MAP_RELEASE(&b->grafts, &b->autograd);
}

static bool autograds_by_name(const struct run_backward *b, uint32_t thread)
{
    return thread < b->threads_n && b->threads[thread];
}

/* Removes windows that have ended by now. */
static void drop_closed(struct run_backward *b, int64_t now)
{
    size_t kept = 0;
    for (size_t i = 0; i < b->open_n; i++)
        if (b->list[b->open[i]].close_ns > now) b->open[kept++] = b->open[i];
    b->open_n = kept;
}

/* One call of backward() can make several gradients: for several outputs, and for those that a mode or a subclass
 * makes. The window lasts as long as the longest of them. */
static bool close_others(struct run_backward *b, uint32_t thread, uint32_t base, int64_t now, int64_t until)
{
    bool same = false;
    for (size_t i = 0; i < b->open_n; i++) {
        struct run_window *w = &b->list[b->open[i]];
        if (w->thread == thread && w->close_ns > now) {
            bool again = w->base == base;
            w->close_ns = !again ? now : w->close_ns > until ? w->close_ns : until;
            same = same || again;
        }
    }
    return same;
}

static void open_window(struct run_backward *b, uint32_t thread, uint32_t base, int64_t now, int64_t until)
{
    int64_t mixed = b->open_n >= OPEN_MAX ? RUN_NEVER : INT64_MIN;
    for (size_t i = 0; i < b->open_n; i++) {
        int64_t other = b->list[b->open[i]].close_ns;
        mixed = other > mixed ? other : mixed;
    }
    if (b->open_n < OPEN_MAX) *ARENA_ADD(b->open) = (uint32_t)b->n;
    ARENA_APPEND_TO(b->list, b->n, b->cap, .open_ns = now, .close_ns = until, .mixed_ns = mixed, .base = base,
                    .thread = thread);
}

void run_backward_add_row(struct run *run, uint32_t process, uint32_t thread, uint32_t stack, int64_t alloc_ns,
                          int64_t free_ns)
{
    struct run_backward *b = process_at(run, process);
    uint8_t m = mark_backward(&run->backward, stack);
    if (b->complete || (!b->open_n && !(m & OPENS)) || autograds_by_name(b, thread))
        return; /* on autograd's thread: a backward() within backward(); the outer call shows the line */
    uint32_t base = m & OPENS ? backward_base_of(run, stack) : RUN_NONE;
    bool same = ((m & OPENS) || !(m & INSIDE)) && close_others(b, thread, base, alloc_ns, free_ns);
    drop_closed(b, alloc_ns);
    if (base != RUN_NONE && !same && b->n < RUN_NONE) open_window(b, thread, base, alloc_ns, free_ns);
}

void run_backward_finish(struct run *run, uint32_t process)
{
    process_at(run, process)->complete = true;
}

/* The last window that was open by then, NULL none. */
static const struct run_window *last_opened(struct run_backward *b, int64_t time_ns)
{
    size_t low = 0, high = b->n;
    if (b->hint < b->n && b->list[b->hint].open_ns <= time_ns) {
        low = b->hint; /* time mostly advances */
        for (unsigned i = 0; i < 4; i++) {
            if (low + 1 == b->n || b->list[low + 1].open_ns > time_ns) {
                b->hint = low;
                return &b->list[low];
            }
            low++;
        }
    }
    while (low < high) { /* the first that opens later */
        size_t middle = low + (high - low) / 2;
        bool later = b->list[middle].open_ns > time_ns;
        low = later ? low : middle + 1;
        high = later ? middle : high;
    }
    b->hint = low ? low - 1 : 0;
    return low ? &b->list[low - 1] : NULL;
}

/* If the thread has no telling name: do its native frames show that it is autograd's? */
static bool autograds_by_stack(struct run *run, uint32_t stack)
{
    uint32_t *known = map_at(&run->backward.autograd, stack);
    if (*known != MAP_NEW) return *known != 0;
    bool found = false;
    for (uint32_t s = stack; s != RUN_NONE && !found; s = run->stacks[s].parent) {
        const struct run_frame *f = run_stack_frame(run, s);
        const char *slash = f->module ? strrchr(f->module, '/') : NULL;
        if (slash && strncmp(slash, "/libtorch", 9) == 0) {
            f = run_frame_named(run, s);
            found = run_frame_calling(f, engine, "") != NULL;
        }
    }
    *known = found;
    return found;
}

/* The frames of `stack` on top of those of `base`. */
static uint32_t graft_stack(struct run *run, uint32_t stack, uint32_t base)
{
    uint32_t *known = map_at(&run->backward.grafts, (uint64_t)stack << 32 | base);
    if (*known != MAP_NEW) return *known;
    uint32_t *path = NULL, at = base;
    size_t n = 0, cap = 0;
    for (uint32_t s = stack; s != RUN_NONE; s = run->stacks[s].parent) *ARENA_PUSH(path, n, cap) = run->stacks[s].frame;
    while (n--) at = run_stack_add(run, at, path[n]);
    free(path);
    return *known = at;
}

/* What to graft onto; RUN_NONE: nothing. */
static uint32_t base_at(const struct run *run, struct run_backward *b, uint32_t process, uint32_t thread,
                        int64_t time_ns)
{
    const struct run_window *w = b->n ? last_opened(b, time_ns) : NULL;
    if (w && time_ns < w->close_ns) return time_ns < w->mixed_ns || w->thread == thread ? RUN_NONE : w->base;
    return time_ns < run->processes[process].kept_from_ns ? run->backward.only : RUN_NONE;
}

uint32_t run_backward_stack(struct run *run, uint32_t process, uint32_t thread, uint32_t stack, int64_t time_ns)
{
    if (!run->backward.any) return stack;
    struct run_backward *b = process_at(run, process);
    const uint32_t base = base_at(run, b, process, thread, time_ns);
    if (base == RUN_NONE) return stack;
    bool theirs =
        autograds_by_name(b, thread) ||
        (stack != RUN_NONE && !(mark_backward(&run->backward, stack) & PYTHON) && autograds_by_stack(run, stack));
    return theirs ? graft_stack(run, stack, base) : stack;
}

uint32_t run_backward_stack_of_line(struct run *run, uint32_t stack)
{
    const struct run_backwards *b = &run->backward;
    const bool theirs = b->only != RUN_NONE && b->any && stack != RUN_NONE && !(mark_backward(b, stack) & PYTHON) &&
                        autograds_by_stack(run, stack);
    return theirs ? graft_stack(run, stack, b->only) : stack;
}

void run_backward_prepare(struct run *run)
{
    mark_stacks(run);
    run->backward.only = only_base(run);
    EACH_IN (r, run->removed) r->stack = run_backward_stack_of_line(run, r->stack);
    EACH_IN (r, run->removed_lows) r->stack = run_backward_stack_of_line(run, r->stack);
}

uint32_t run_backward_caller(const struct run *run, uint32_t stack)
{
    uint32_t base = RUN_NONE;
    for (uint32_t s = stack; s != RUN_NONE; s = run->stacks[s].parent)
        if (backward_mark_of(&run->frames[run->stacks[s].frame]) & OPENS) base = run->stacks[s].parent;
    return base;
}
