#include "analyzer/view/branch.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/symbol/symbol.h"
#include "analyzer/site/site.h"
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/base/sort.h"

#define WHOLE 400 /* columns: nothing is cut */

/* Frames that only pass a call on: a row for them would be useless. */
static const struct {
    const char *file, *function; /* the end of the path; a part of the name, NULL any */
} plumbing[] = {
    {"/torch/nn/modules/module.py", "_call_impl"},
    {"/torch/nn/modules/module.py", "_apply"},
    {"/torch/nn/modules/container.py", "forward"},
    {"/torch/nn/parallel/distributed.py", "_run_ddp_forward"},
    {"/torch/utils/_contextlib.py", NULL},
    {"/torch/optim/optimizer.py", NULL},
    {"/torch/optim/lr_scheduler.py", "wrapper"},
    {"/torch/autograd/graph.py", NULL},
    {"/torch/_dynamo/eval_frame.py", NULL},
    {"/torch/_compile.py", NULL},
    {"/contextlib.py", NULL},
    {"/runpy.py", NULL},
    {"/threading.py", NULL},
    {"/concurrent/futures/thread.py", NULL},
    {"/multiprocessing/process.py", NULL},
    {"/multiprocessing/spawn.py", NULL},
    {"/multiprocessing/popen_fork.py", NULL},
    {"<frozen runpy>", NULL},
    {"<frozen importlib._bootstrap>", NULL},
    {"<frozen importlib._bootstrap_external>", NULL},
};

/* What a decorator puts around a function: a function inside it, or one of the names that all decorators use. */
static bool is_wrapper(const char *function)
{
    static const char *const names[] = {
        "wrapper",      "wrapped",          "_wrapper",          "_wrapped",     "inner",        "wrapped_func",
        "wrapper_func", "decorate_context", "decorate_autocast", "decorate_fwd", "decorate_bwd", "__call__"};
    return TEXT_IS_ONE_OF(text_last_part(function), names) || strstr(function, ".<locals>.");
}

bool view_branch_plumbing(const struct run_frame *f)
{
    size_t length = f->file ? strlen(f->file) : 0;

    if (f->kind != GS_FRAME_PYTHON || !f->function) return false;
    if (length && site_is_library(f) && is_wrapper(f->function)) return true;
    for (size_t i = 0; i < COUNT_OF(plumbing); i++) {
        size_t n = strlen(plumbing[i].file);
        if (length >= n && strcmp(f->file + length - n, plumbing[i].file) == 0 &&
            (!plumbing[i].function || strstr(f->function, plumbing[i].function)))
            return true;
    }
    return false;
}

struct building {
    struct arena *arena;
    bool full;
};

/* Not for the last call of a path: what allocates is always shown. */
static bool is_node_left_out(const struct building *g, const struct profile_call_node *n)
{
    return !g->full && n->children_n && !n->self && !n->self_count && view_branch_plumbing(n->frame);
}

/* The calls of one line that differ only in frames that were left out above them: they are one branch. */
struct group {
    const struct profile_call_node **nodes;
    size_t n, cap;
};

static void collect_group(const struct building *g, const struct profile_call_node *n, struct group *out)
{
    for (size_t i = 0; i < n->children_n; i++)
        if (is_node_left_out(g, n->children[i]))
            collect_group(g, n->children[i], out);
        else
            *ARENA_PUSH(out->nodes, out->n, out->cap) = n->children[i];
}

SORT_ORDER_OF_POINTERS(by_frame, struct profile_call_node, SORT_UP(x->frame, y->frame) ?: SORT_DOWN(x->total, y->total))

/* Equal weights are ordered by text, because addresses differ from run to run. */
static int compare_branches(const void *a, const void *b)
{
    const struct view_branch *x = *(struct view_branch *const *)a, *y = *(struct view_branch *const *)b;
    const struct run_frame *f = x->first->frame, *g = y->first->frame;

    return SORT_DOWN(x->total, y->total)
               ?: strcmp(f->file ? f->file : "", g->file ? g->file : "")
               ?: SORT_UP(f->line, g->line)
               ?: strcmp(f->function ? f->function : "", g->function ? g->function : "");
}

static void build_branch(const struct building *g, struct view_branch *b, const struct profile_call_node **nodes,
                         size_t n);

static void build_children(const struct building *g, struct view_branch *b, struct group *below)
{
    b->children = arena_alloc(g->arena, below->n * sizeof(struct view_branch *));
    SORT(below->nodes, below->n, by_frame);
    for (size_t i = 0, k; i < below->n; i = k) {
        for (k = i + 1; k < below->n && below->nodes[k]->frame == below->nodes[i]->frame && !g->full;) k++;
        struct view_branch *child = arena_alloc(g->arena, sizeof *child);
        build_branch(g, child, below->nodes + i, k - i);
        b->children[b->n++] = child;
    }
    SORT(b->children, b->n, compare_branches);
}

/* No deeper than the tree, which has a limit. */
static void build_branch(const struct building *g, struct view_branch *b, const struct profile_call_node **nodes,
                         size_t n)
{
    struct group below = {0};

    *b = (struct view_branch){.first = nodes[0], .end = nodes[0]};
    for (size_t i = 0; i < n; i++) {
        b->total += nodes[i]->total;
        b->self += nodes[i]->self;
        collect_group(g, nodes[i], &below);
    }
    if (below.n) build_children(g, b, &below);
    free(below.nodes);
    if (!g->full && b->first->frame && b->n == 1 && !b->self && b->children[0]->total == b->total) {
        *b = *b->children[0];
        b->first = nodes[0];
    }
}

static enum view_branch_kind branch_kind_of(const struct run_frame *f)
{
    if (!f || (!f->file && !f->module)) return BRANCH_OTHER;
    if (f->kind == GS_FRAME_NATIVE) return BRANCH_NATIVE;
    return site_is_library(f) ? BRANCH_LIBRARY : BRANCH_OWN;
}

/* Frames that all allocations and calls of PyTorch's operations have in common. */
static bool is_internal_frame(const struct run_frame *f)
{
    static const char *const parts[] = {
        "torch::unwind::", /* the first three: how PyTorch records a snapshot's stacks */
        "torch::CapturedTraceback::",
        "gather_with_cpp",
        "CUDACachingAllocator",
        "c10::cuda::",
        "c10::Storage",
        "c10::impl::",
        "c10::Dispatcher",
        "c10::OperatorHandle",
        "c10::BoxedKernel",
        "c10::KernelFunction",
        "at::detail::empty",
        "create_out",
        "set_output_raw_strided",
        "set_output_strided",
        "TensorIteratorBase",
        "autograd::VariableType",
        "ADInplaceOrView",
        "wrapper_CUDA_",
        "at::_ops::",
        "at::native::empty",
        "at::empty",
        "_PyEval_",
        "PyObject_",
        "_PyObject_",
        "libcuda",
        "cudaMalloc",
        "cuMem",
    };
    const char *name = f && f->function ? f->function : "";

    if (!f || f->kind != GS_FRAME_NATIVE) return false;
    return ANY_OF(p, parts, COUNT_OF(parts), strstr(name, *p)) || !f->function;
}

/* The innermost of the user's own calls, else of a model's or a trainer's package, else of all. */
static const struct profile_call_node *telling_node(const struct profile_call_node *first,
                                                    const struct profile_call_node *end)
{
    const struct profile_call_node *package = NULL, *operation = NULL;

    for (const struct profile_call_node *n = end;; n = n->parent) {
        if (branch_kind_of(n->frame) == BRANCH_OWN) return n;
        if (!package && n->frame && n->frame->kind == GS_FRAME_PYTHON && site_is_third_party(n->frame) &&
            !view_branch_plumbing(n->frame))
            package = n;
        if (!operation && n->frame && n->frame->kind == GS_FRAME_NATIVE && !is_internal_frame(n->frame)) operation = n;
        if (n == first || !n->parent || n->depth <= first->depth)
            return package ? package : operation && is_internal_frame(end->frame) ? operation : end;
    }
}

enum view_branch_kind view_branch_kind_of(const struct view_branch *b)
{
    return branch_kind_of(telling_node(b->first, b->end)->frame);
}

/* Only starts the program: a notebook's kernel, multiprocessing (`python -c`). */
static bool is_start_branch(const struct view_branch *b)
{
    const struct run_frame *f = telling_node(b->first, b->end)->frame;

    if (b->self || !(branch_kind_of(f) == BRANCH_LIBRARY || (f && f->file && strcmp(f->file, "<string>") == 0)))
        return false;
    for (size_t i = 0; i < b->n; i++)
        if (view_branch_kind_of(b->children[i]) == BRANCH_OWN) return true;
    return false;
}

/* The user's own code is more informative than what starts it. */
static void replace_starts(const struct building *g, struct view_branch *root)
{
    size_t n = 0;
    for (size_t i = 0; i < root->n; i++) n += is_start_branch(root->children[i]) ? root->children[i]->n : 1;
    struct view_branch **children = arena_alloc(g->arena, n * sizeof(struct view_branch *));
    n = 0;
    for (size_t i = 0; i < root->n; i++) {
        struct view_branch *b = root->children[i];
        const bool start = is_start_branch(b);
        for (size_t k = 0; k < (start ? b->n : 1); k++) children[n++] = start ? b->children[k] : b;
    }
    root->children = children;
    root->n = n;
    SORT(root->children, n, compare_branches);
}

struct view_branch *view_branch_build(struct arena *arena, const struct profile_call_tree *tree, bool full)
{
    struct building g = {arena, full};
    struct view_branch *root = arena_alloc(arena, sizeof *root);

    const struct profile_call_node *top = tree->root;
    build_branch(&g, root, &top, 1);
    if (!full) replace_starts(&g, root);
    return root;
}

/* "model/train.py:25 Model.forward"; only the line if it is in the file of `before`. `file`: without folders. */
static char *frame_label(const struct draw_text *v, const struct run_frame *f, const struct run_frame *before,
                         bool file, char *out, size_t size)
{
    char text[1024], function[512] = "";

    if (!f || branch_kind_of(f) == BRANCH_OTHER)
        return text_function(out, size, f && f->function ? f->function : "?", WHOLE, v->term.utf8);
    if (f->function) text_function(function, sizeof function, f->function, WHOLE, v->term.utf8);
    if (before && before->file && f->file && f->line > 0 && strcmp(before->file, f->file) == 0) {
        text_put(out, size, ":%d%s%s", f->line, *function ? " " : "", function);
        return out;
    }
    if (f->kind == GS_FRAME_NATIVE && f->line <= 0 && f->function) {
        terminal_clean(text, sizeof text, f->module ? basename(f->module) : "", v->term.utf8);
        text_put(out, size, "%s%s%s", function, *text ? "  " : "", text);
        return out;
    }
    struct run_frame place = *f;
    if (f->function) place.function = NULL;
    draw_frame(v, text, sizeof text, &place, WHOLE);
    text_put(out, size, "%s%s%s", file ? basename(text) : text, *function ? " " : "", function);
    return out;
}

/* Source with debugging information is nearly always the user's own in a program of C or C++. */
static bool native_line(const struct run_frame *f)
{
    return f && f->kind == GS_FRAME_NATIVE && f->file && f->line > 0 && !is_internal_frame(f) &&
           !symbolizer_is_system_file(f->file) && !symbolizer_is_package_file(f->file);
}

/* Is the frame named in a chain? Of a framework's own calls, which are equally uninformative, only the first. */
static bool is_node_named(const struct profile_call_node *n, const struct profile_call_node *tells,
                          const struct view_branch *b)
{
    enum view_branch_kind kind = branch_kind_of(n->frame);

    if (n == b->end && tells != n && is_internal_frame(n->frame)) return false; /* the allocator itself */
    if (n != b->end && profile_is_start(n->frame)) return false;
    if (native_line(n->frame))
        return n->frame != (n->parent ? n->parent->frame : NULL) || n == b->end; /* not each level of a recursion */
    return n == b->end || n == tells || kind == BRANCH_OWN || kind == BRANCH_OTHER ||
           (n == b->first && tells == b->end && !view_branch_plumbing(n->frame));
}

static const struct profile_call_node *named_before(const struct profile_call_node *n, const struct view_branch *b)
{
    const struct profile_call_node *tells = telling_node(b->first, b->end);

    while (n != b->first && n->parent && n->depth > b->first->depth) {
        n = n->parent;
        if (n->frame && is_node_named(n, tells, b)) return n;
    }
    return NULL;
}

static const struct profile_call_node *last_named(const struct view_branch *b)
{
    const struct profile_call_node *tells = telling_node(b->first, b->end);

    return is_node_named(b->end, tells, b) ? b->end : tells;
}

/* Of each call: file and function; without the folders; only the last call's function; none. */
enum detail { PATHS, FILES, LINES, PLACES };

static bool on_one_line(const struct run_frame *a, const struct run_frame *b)
{
    return a->line > 0 && a->line == b->line && a->file == b->file;
}

/* All calls of the branch, if they fit. Consecutive calls in one file name the file once. */
static bool whole_label(const struct draw_text *v, const struct view_branch *b, enum detail detail, char *out,
                        size_t size, int columns)
{
    const char *arrow = v->term.utf8 ? " → " : " -> ";
    char joined[2048], part[1024];

    out[0] = 0;
    for (const struct profile_call_node *n = last_named(b), *before; n; n = before) {
        struct run_frame frame = *n->frame;
        before = named_before(n, b);
        while (detail >= LINES && before && on_one_line(&frame, before->frame)) before = named_before(before, b);
        if ((detail == PLACES || (detail == LINES && *out)) && frame.line > 0) frame.function = NULL;
        frame_label(v, &frame, before ? before->frame : NULL, detail != PATHS, part, sizeof part);
        text_put(joined, sizeof joined, "%s%s%s", part, *out ? arrow : "", out);
        text_put(out, size, "%s", joined);
        if (terminal_columns(out) > columns) return false;
    }
    return true;
}

enum { FUNCTION_LEAST = 8 };         /* columns of a function's name that is cut */
enum { PLACE_MOST = NAME_MAX + 16 }; /* columns of a file's name and line: only those of no file can have more */

/* "train.py:25 …forward": the function is cut, never the file and line before it. A native call is named by its
 * function. */
static void cut_label(const struct draw_text *v, const struct run_frame *f, char *out, size_t size, int columns)
{
    char label[2048];

    frame_label(v, f, NULL, true, label, sizeof label);
    if (terminal_columns(label) <= columns) {
        text_put(out, size, "%s", label);
    } else if (f && f->kind == GS_FRAME_NATIVE && f->line <= 0) {
        text_name(out, size, label, columns, v->term.utf8);
    } else {
        char line[16], whole[1024], function[512] = "";
        snprintf(line, sizeof line, ":%d", f ? f->line : 0);
        const char *at = strstr(label, line); /* names of files can have spaces */
        const size_t place = at ? (size_t)(at - label) + strlen(line) : strcspn(label, " ");
        text_put(whole, sizeof whole, "%.*s", (int)place, label);
        const int room = columns - terminal_columns(whole) - 1;
        if (label[place] == ' ' && room > FUNCTION_LEAST)
            text_name(function, sizeof function, label + place + 1, room, v->term.utf8);
        if (terminal_columns(whole) > PLACE_MOST)
            text_elide(out, size, whole, PLACE_MOST, v->term.utf8);
        else
            text_put(out, size, "%s%s%s", whole, *function ? " " : "", function);
    }
}

/* The places of all calls, and as much of the last one's function as fits. */
static bool places_label(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns)
{
    const char *name = last_named(b)->frame->function;
    char whole[512], function[512];
    if (!whole_label(v, b, PLACES, out, size, columns)) return false;
    const int room = columns - terminal_columns(out) - 1;
    if (!name || room <= FUNCTION_LEAST) return true;
    text_function(whole, sizeof whole, name, WHOLE, v->term.utf8);
    const size_t n = strlen(out);
    text_put(out + n, size - n, " %s", text_name(function, sizeof function, whole, room, v->term.utf8));
    return true;
}

/* The first call in the user's own code: it distinguishes branches that end in the same helper. NULL: none. */
static const struct profile_call_node *first_own(const struct view_branch *b)
{
    const struct profile_call_node *found = NULL;

    for (const struct profile_call_node *n = last_named(b); n; n = named_before(n, b))
        if (branch_kind_of(n->frame) == BRANCH_OWN || native_line(n->frame)) found = n;
    return found;
}

/* "train.py:90 → :40 step": the branch's first own call, which distinguishes it from its neighbours, then the most
 * informative call, then the chain's end, each if there is room. */
static void telling_label(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns)
{
    enum { END_LEAST = 12 };
    const struct profile_call_node *first = first_own(b), *tells = telling_node(b->first, b->end),
                                   *last = last_named(b);
    const char *arrow = v->term.utf8 ? " → " : " -> ", *mark = v->term.utf8 ? "…" : "...";
    char label[1024], more[1024], end[1024] = "";

    if (first && tells != first) {
        struct run_frame place = *first->frame;
        place.function = NULL;
        frame_label(v, &place, NULL, true, label, sizeof label);
        frame_label(v, tells->frame, first->frame, true, more, sizeof more);
        const int room = columns - terminal_columns(label) - terminal_columns(arrow), least = (int)strcspn(more, " ");
        if (room >= least) {
            const bool whole = terminal_columns(more) <= room, cut = !whole && room - least > FUNCTION_LEAST;
            text_put(out, size, "%s%s%.*s%s", label, arrow,
                     whole ? INT_MAX : (int)terminal_fit(more, cut ? room - terminal_columns(mark) : least), more,
                     cut ? mark : "");
            return;
        }
    }
    cut_label(v, (first ? first : tells)->frame, label, sizeof label, columns);
    int room = columns - terminal_columns(label) - terminal_columns(arrow);
    if ((first ? first : tells) != last && room >= END_LEAST) {
        cut_label(v, last->frame, end, sizeof end, room);
        if (terminal_columns(end) > room) *end = 0;
    }
    text_put(out, size, "%s%s%s", label, *end ? arrow : "", end);
}

char *view_branch_label(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns)
{
    char label[2048];

    if (!whole_label(v, b, PATHS, label, sizeof label, columns) &&
        !whole_label(v, b, FILES, label, sizeof label, columns) &&
        !whole_label(v, b, LINES, label, sizeof label, columns) && !places_label(v, b, label, sizeof label, columns))
        telling_label(v, b, label, sizeof label, columns);
    text_put(out, size, "%s", label);
    return out;
}

char *view_branch_name(const struct draw_text *v, const struct view_branch *b, char *out, size_t size, int columns)
{
    const struct run_frame *f = telling_node(b->first, b->end)->frame;
    char function[512] = "", place[1024] = "", both[1600];

    if (whole_label(v, b, PATHS, both, sizeof both, columns) || whole_label(v, b, FILES, both, sizeof both, columns)) {
        text_put(out, size, "%s", both);
        return out;
    }
    if (!f || branch_kind_of(f) == BRANCH_OTHER) {
        frame_label(v, f, NULL, true, both, sizeof both);
    } else {
        struct run_frame where = *f;
        where.function = NULL;
        if (f->function) text_function(function, sizeof function, f->function, WHOLE, v->term.utf8);
        draw_frame(v, place, sizeof place, &where, WHOLE);
        const char *slash = strrchr(place, '/');
        text_put(both, sizeof both, "%s%s%s", function, *function ? " " : "", place);
        if (terminal_columns(both) > columns && slash)
            text_put(both, sizeof both, "%s%s%s", function, *function ? " " : "", slash + 1);
        if (terminal_columns(both) > columns && *function) text_put(both, sizeof both, "%s", function);
    }
    text_put(out, size, "%.*s", (int)terminal_fit(both, columns), both);
    return out;
}

size_t view_branch_shown(const struct view_branch *b, const struct view_branch_limits *l, int64_t *rest)
{
    size_t n = 0;

    *rest = 0;
    while (n < b->n && n < l->top && b->children[n]->total >= l->least) n++;
    if (b->n == n + 1) n++; /* a line "one more" takes as much room as that row itself */
    for (size_t i = n; i < b->n; i++) *rest += b->children[i]->total;
    return n;
}
