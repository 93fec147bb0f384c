#include "analyzer/site/site.h"
#include "analyzer/site/native_source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/text.h"
#include "analyzer/symbol/symbol.h"
#include "schema/source_file.h"

/* Libraries below other libraries: their lines are of no interest to the user. */
static const char *const plumbing[] = {
    "/torch/", "/torchgen/", "/functorch/", "/triton/", "/numpy/", "/einops/", "/tqdm/", "/typing_extensions.py",
};

/* A model's, a trainer's or a metric's package: a line in it is more informative than the user's line that called it.
 * */
bool site_is_third_party(const struct run_frame *frame)
{
    const char *package = frame->file ? strstr(frame->file, "-packages/") : NULL;
    if (!package && !frame->installed) return false;
    return !ANY_OF(p, plumbing, COUNT_OF(plumbing),
                   package ? strncmp(package + strlen("-packages"), *p, strlen(*p)) == 0
                           : strstr(frame->file, *p) != NULL);
}

bool site_is_library_file(const char *file)
{
    return gs_source_is_library(file);
}

bool site_is_library(const struct run_frame *frame)
{
    return frame->installed || gs_source_is_library(frame->file);
}

bool site_is_beyond_torch(const struct run_frame *frame)
{
    return frame->file && !run_path_has(frame->file, "/torch/");
}

const struct run_frame *site_frame_named(struct run *run, uint32_t stack)
{
    const struct run_frame *f = run_stack_frame(run, stack);
    return f && f->rank < RUN_RANK_PLUMBING ? run_frame_named(run, stack) : f;
}

/* Python itself: the executable if it is linked statically, else its library. */
static bool is_interpreter_module(const char *module)
{
    const char *base = module ? basename(module) : NULL;
    return base && (strncmp(base, "python", 6) == 0 || strncmp(base, "libpython", 9) == 0);
}

static const char exit_function[] = "Py_FinalizeEx";
enum { HELPER_CALLERS = 3 };

/* A function of C++ is "make" where it was inlined, and "make(unsigned long)" where it was not. */
static uint64_t site_function_key(const char *function, const char *file)
{
    char name[512];
    const bool python = function[0] == '<' || strstr(function, ".<"); /* "f.<locals>.<lambda>" */
    if (!python && strpbrk(function, "(<"))
        function = text_function(name, sizeof name, function, sizeof name - 1, true);
    return map_hash_text((uintptr_t)file, function);
}

struct found {
    uint32_t user, user_caller, helper, inner, python, python_caller;
    uint32_t native[3]; /* by rank */
};

/* Methods of a data class have no file, but the user did not write them either. */
static bool is_generated(const struct run_frame *frame)
{
    return frame->function && strncmp(frame->function, "__create_fn__", 13) == 0;
}

/* `python -c`, which is also how multiprocessing starts its workers: as a caller it is uninformative. */
static bool is_command_line(const struct run_frame *frame)
{
    return frame->file && strcmp(frame->file, "<string>") == 0;
}

/* A cell of a notebook, outside of functions: what runs the cell is not a caller in the program. */
static bool is_cell_itself(const struct run_frame *frame)
{
    return frame->file && frame->function && gs_source_is_cell(frame->file) &&
           (strcmp(frame->function, "<module>") == 0 || strncmp(frame->function, "<cell line", 10) == 0);
}

/* The command line by which multiprocessing started a worker. */
static bool starts_worker(const struct run *run, uint32_t stack, uint32_t called)
{
    const struct run_frame *f = run_stack_frame(run, called);
    return is_command_line(run_stack_frame(run, stack)) && f && f->file && strstr(f->file, "/multiprocessing/");
}

/* Code that an installed package compiled: it names that "<string>", too, and calls it. It also calls the functions of
 * a program that is itself a command line. */
static bool is_compiled_by_package(const struct run *run, uint32_t stack)
{
    const struct run_frame *caller = run_stack_frame(run, run_stack_python(run, run_stack_parent(run, stack)));
    return is_command_line(run_stack_frame(run, stack)) && caller && site_is_third_party(caller) &&
           !RUN_ANY_FRAME(f, run, stack, is_command_line(f) && f->function && strcmp(f->function, "<module>") == 0);
}

void site_add_helper(struct map *helpers, const char *function, const char *file)
{
    *map_at(helpers, site_function_key(function, file)) = 1;
}

bool site_is_helper(const struct map *helpers, const char *function, const char *file)
{
    return map_get(helpers, site_function_key(function, file)) != MAP_NEW;
}

/* The frame, or that of the function around it if it is a comprehension's or a lambda's. */
static const struct run_frame *frame_of_function(const struct run *run, uint32_t stack)
{
    const struct run_frame *frame = run_stack_frame(run, stack), *f = frame;
    for (size_t n; f && f->kind == GS_FRAME_PYTHON && f->function && (n = strlen(f->function)) > 0;
         f = run_stack_frame(run, stack = run_stack_python(run, run_stack_parent(run, stack))))
        if (f->function[n - 1] != '>' || strcmp(f->function, "<module>") == 0)
            return f->file == frame->file ? f : frame;
    return frame;
}

static bool is_helper(const struct run *run, uint32_t stack, const struct map *helpers)
{
    const struct run_frame *frame = helpers ? frame_of_function(run, stack) : NULL;
    return frame && frame->function && site_is_helper(helpers, frame->function, frame->file);
}

/* PyTorch's snapshots contain the frames that recorded their stacks. */
static bool is_snapshot_taker(const struct run_frame *frame)
{
    static const char *const names[] = {
        "torch::unwind::", "torch::CapturedTraceback::", "torch::cuda::(anonymous namespace)::gather",
        "c10::cuda::CUDACachingAllocator::"};
    for (size_t i = 0; !frame->module && frame->function && i < COUNT_OF(names); i++)
        if (strncmp(frame->function, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* Java's, R's, …: what calls it is the program that started the interpreter, not the code that it executes. */
static bool is_other_interpreter(const struct run_frame *frame)
{
    return frame->rank == RUN_RANK_LIBRARY && frame->module && run_module_language(frame->module);
}

/* What pip writes for a package's command, X/bin/tool beside X/lib, what pex writes, X/pex, and the start of a zipped
 * application. */
static bool is_launcher(const struct run_frame *frame, const char *package)
{
    const char *slash = frame->file ? strrchr(frame->file, '/') : NULL;
    const size_t n = slash ? (size_t)(slash - frame->file) : 0;
    const bool pex = slash && strcmp(slash, "/pex") == 0;
    const size_t above = pex ? n + 1 : n >= 4 && strncmp(slash - 4, "/bin", 4) == 0 ? n - 3 : 0;
    const bool script = above && !strchr(slash, '.') && frame->function &&
                        (pex || strcmp(frame->function, "<module>") == 0) && package &&
                        strncmp(package, frame->file, above) == 0 && strncmp(package + above, "lib", 3) == 0;
    return script || (slash && (strstr(frame->file, "/_bootstrap/") || strstr(frame->file, "/.bootstrap/")));
}

/* The package that a launcher calls at `below` is the program: its innermost line on the call path, and the one that
 * calls it. */
static void find_launched(const struct run *run, uint32_t stack, uint32_t below, struct found *f)
{
    static const char folder[] = "/site-packages/";
    const struct run_frame *frame = run_stack_frame(run, below);
    const char *at = frame && frame->file ? strstr(frame->file, folder) : NULL;
    const size_t n = at ? (size_t)(at - frame->file) + sizeof folder - 1 : 0,
                 name = at ? strcspn(frame->file + n, "/") : 0;
    if (!at || !frame->file[n + name]) return;
    const char *package = frame->file;
    for (f->user = RUN_NONE; (frame = run_stack_frame(run, stack)) != NULL; stack = run_stack_parent(run, stack)) {
        const bool is =
            frame->kind == GS_FRAME_PYTHON && frame->file && strncmp(frame->file, package, n + name + 1) == 0;
        if (is && f->user != RUN_NONE && f->user_caller == RUN_NONE) f->user_caller = stack;
        if (is && f->user == RUN_NONE) f->user = stack;
        if (stack == below) break;
    }
    if (f->inner == f->user) f->inner = RUN_NONE;
}

static void find_frames(struct run *run, uint32_t stack, const struct map *helpers, struct found *f)
{
    const uint32_t innermost = stack;
    uint32_t below = RUN_NONE;
    const struct run_frame *frame;
    bool interpreted = false;
    uint32_t called = RUN_NONE; /* the frame of Python before this one */
    for (unsigned hops = 0; hops <= RUN_DEPTH_MAX && (frame = run_stack_frame(run, stack)) != NULL; hops++) {
        if (frame->kind == GS_FRAME_NATIVE) {
            int rank = is_snapshot_taker(frame) ? RUN_RANK_PLUMBING : frame->rank;
            interpreted = interpreted || is_other_interpreter(frame);
            if (f->native[rank] == RUN_NONE && (rank != RUN_RANK_OWN || !interpreted)) f->native[rank] = stack;
        } else if (run_frame_is_cut(frame)) {
            break;
        } else if (f->user != RUN_NONE) {
            if (is_cell_itself(run_stack_frame(run, f->user))) return;
            if (!site_is_library(frame) && !is_generated(frame) && !is_command_line(frame)) {
                f->user_caller = stack;
                return;
            }
        } else {
            if (f->python == RUN_NONE)
                f->python = stack;
            else if (f->python_caller == RUN_NONE)
                f->python_caller = stack;
            if (site_is_library(frame) || is_generated(frame) || is_compiled_by_package(run, stack) ||
                starts_worker(run, stack, called)) /* its caller */
                f->inner = f->inner == RUN_NONE && site_is_third_party(frame) ? stack : f->inner;
            else if (is_helper(run, stack, helpers))
                f->helper = f->helper == RUN_NONE ? stack : f->helper;
            else
                f->user = stack;
            if (f->user != RUN_NONE && below != RUN_NONE && is_launcher(frame, run_stack_frame(run, below)->file)) {
                find_launched(run, innermost, below, f);
                if (f->user != stack) return;
            }
            below = stack;
        }
        called = frame->kind == GS_FRAME_NATIVE ? called : stack;
        stack = run_stack_parent(run, stack);
    }
    if (f->user == RUN_NONE) { /* only helpers */
        f->user = f->helper;
        f->helper = RUN_NONE;
    }
}

/* Memory that Python's tear-down frees has no Python line: the stack is the interpreter's own. Returns the
 * interpreter's tear-down frame, RUN_NONE if there is none. */
static uint32_t at_exit(struct run *run, uint32_t stack)
{
    const struct run_frame *frame;
    for (unsigned hops = 0; hops <= RUN_DEPTH_MAX && (frame = run_stack_frame(run, stack)) != NULL; hops++) {
        if (frame->kind == GS_FRAME_NATIVE && is_interpreter_module(frame->module)) {
            frame = run_frame_named(run, stack);
            const struct run_frame *by = run_frame_calling(frame, exit_function, "");
            if (by && !by->function[strlen(exit_function)]) return stack;
        }
        stack = run_stack_parent(run, stack);
    }
    return RUN_NONE;
}

/* Of PyTorch's own functions, the innermost whose name begins with `prefix` and contains `part`. */
static uint32_t in_torch(struct run *run, uint32_t stack, const char *prefix, const char *part)
{
    const struct run_frame *frame;
    for (unsigned hops = 0; hops <= RUN_DEPTH_MAX && (frame = run_stack_frame(run, stack)) != NULL; hops++) {
        const char *slash = frame->module ? strrchr(frame->module, '/') : NULL;
        const bool imported = !frame->module && frame->function && frame->kind == GS_FRAME_NATIVE;
        if (imported || (slash && strncmp(slash, "/libtorch", 9) == 0)) {
            frame = run_frame_named(run, stack);
            if (run_frame_calling(frame, prefix, part)) return stack;
        }
        stack = run_stack_parent(run, stack);
    }
    return RUN_NONE;
}

static const char autograd[] = "torch::autograd::", apply[] = "::apply(";

/* Autograd computes gradients in threads that run no Python: the operation whose gradient is computed is more
 * informative than the allocator's own functions. RUN_NONE: not such a thread. */
static uint32_t in_autograd(struct run *run, uint32_t stack)
{
    return in_torch(run, stack, autograd, apply);
}

/* Without Python frames: the operation that the program called, not the ones that it consists of, nor the allocator. */
static uint32_t in_operation(struct run *run, uint32_t stack)
{
    uint32_t at = RUN_NONE;
    while ((stack = in_torch(run, stack, "at::_ops::", "")) != RUN_NONE) {
        at = stack;
        stack = run_stack_parent(run, stack);
    }
    return at;
}

/* Autograd's work between operations: sums of gradients, and their reduction to the shape of a broadcast tensor. */
static const char in_between[] = "Engine";

/* "AddmmBackward0" from "torch::autograd::generated::AddmmBackward0::apply(…". */
const char *site_operation(struct run *run, uint32_t stack)
{
    const struct run_frame *frame = run_stack_frame(run, in_autograd(run, stack));
    if (!frame) {
        uint32_t engine = in_torch(run, stack, "torch::autograd::Engine::", "");
        return engine == RUN_NONE ? NULL : in_between;
    }
    const struct run_frame *by = run_frame_calling(frame, autograd, apply);
    const char *function = by ? by->function : "", *end = strstr(function, apply), *from = end;
    if (!end) return NULL;
    for (int depth = 0; from > function; from--) { /* back over a template's arguments */
        depth += (from[-1] == '>') - (from[-1] == '<');
        if (depth == 0 && from[-1] == ':') break;
    }
    return run_text(run, from, (size_t)(end - from));
}

bool site_is_in_backward(struct run *run, uint32_t stack)
{
    return site_operation(run, stack) != NULL;
}

/* Did `python`, the innermost Python frame, call backward()? */
static bool calls_backward(const struct run *run, uint32_t python)
{
    const struct run_frame *frame = run_stack_frame(run, python);
    return frame && frame->file && strstr(frame->file, "/torch/autograd/");
}

/* A finaliser that no Python code called: while a program runs, the last reference is always dropped at some line. The
 * interpreter calls it itself when it tears down. */
static bool is_interpreter_finalised(struct run *run, const struct found *f)
{
    static const char finaliser[] = "__del__";
    if (f->python == RUN_NONE) return false;
    const struct run_frame *frame = run_stack_frame(run, f->python);
    const size_t length = frame->function ? strlen(frame->function) : 0, tail = sizeof finaliser - 1;
    if (length < tail || strcmp(frame->function + length - tail, finaliser) != 0) return false;
    uint32_t caller = run_stack_parent(run, f->python);
    for (unsigned hops = 0; hops <= RUN_DEPTH_MAX && (frame = run_stack_frame(run, caller)) != NULL; hops++) {
        if (frame->kind == GS_FRAME_PYTHON) return false;
        caller = run_stack_parent(run, caller);
    }
    return true;
}

/* All frames of a file have the same string. */
static bool is_file_of_others(struct run *run, const char *file)
{
    uint32_t *others = run_file_note(run, file);
    if (*others == MAP_NEW) *others = symbolizer_is_system_file(file) || symbolizer_is_package_file(file);
    return *others;
}

/* CUDA's runtime, linked into the program (-cudart static) without debugging information, C's side of a call from Go, a
 * function that is compiled from a system header, such as the cudaMalloc(T **, size_t) of cuda_runtime.h, or a
 * downloaded package's. */
static bool is_system_wrapper(struct run *run, const struct run_frame *f)
{
    static const char *const runtime[] = {"libcudart_static_", "cudart::", "_cgo_", "cuda"};
    if (f->function && strcmp(f->function, "_start") == 0) return true;
    if (f->file) return is_file_of_others(run, f->file);
    for (size_t i = 0; f->function && i < COUNT_OF(runtime); i++) {
        const size_t length = strlen(runtime[i]);
        const bool prefix = strncmp(f->function, runtime[i], length) == 0;
        if (prefix && (i + 1 < COUNT_OF(runtime) || isupper((unsigned char)f->function[length]))) return true;
    }
    return false;
}

/* The native frames of the program's own code from a stack on, innermost first, with those that were inlined and
 * without wrappers. */
struct own_frames {
    struct run *run;
    uint32_t stack, next; /* of the last frame; after it */
    const struct run_frame *places;
    size_t n, at;
    unsigned hops;
};

static const struct run_frame *next_own(struct own_frames *o)
{
    for (const struct run_frame *frame;;) {
        for (; o->at < o->n; o->at++)
            if (!is_system_wrapper(o->run, &o->places[o->at])) return &o->places[o->at++];
        do {
            o->stack = o->next;
            frame = run_stack_frame(o->run, o->stack);
            if (!frame || is_other_interpreter(frame) || o->hops++ > RUN_DEPTH_MAX) return NULL;
            o->next = run_stack_parent(o->run, o->stack);
        } while (frame->kind != GS_FRAME_NATIVE || frame->rank != RUN_RANK_OWN);
        o->places = run_frame_places(o->run, o->stack, &o->n);
        o->at = 0;
    }
}

/* "main.load.func1", in which cgo calls C for the line of "main.load". */
static bool is_cgo_closure(const struct run_frame *f, const struct run_frame *by)
{
    static const char suffix[] = ".func";
    const size_t n = f && by && f->function && by->function ? strlen(by->function) : 0;
    return n && f->line && f->line == by->line && f->file == by->file && !strncmp(f->function, by->function, n) &&
           !strncmp(f->function + n, suffix, sizeof suffix - 1);
}

/* The innermost frame of the program's own that is neither a wrapper nor a helper, for a stack without Python. NULL:
 * there are only wrappers. */
static const struct run_frame *own_frame(struct run *run, uint32_t stack, const struct map *helpers,
                                         struct result_site *site)
{
    enum { NESTED = 16 }; /* wrappers of wrappers; more are functions that call each other */
    struct own_frames o = {.run = run, .next = stack};
    const struct run_frame *first = next_own(&o), *second = first ? next_own(&o) : NULL, *f = first, *by = second;
    int passed = 0;
    if (is_cgo_closure(f, by)) {
        first = f = by;
        second = by = next_own(&o);
    }
    for (; f && f->function && helpers && site_is_helper(helpers, f->function, f->file); passed++) {
        f = by;
        by = f ? next_own(&o) : NULL;
    }
    site->helper = f && passed && passed <= NESTED;
    site->via = site->helper ? first : NULL;
    site->caller = site->helper ? NULL : second;
    return site->helper ? f : first;
}

struct result_site site_of(struct run *run, uint32_t stack, const struct map *helpers)
{
    struct found f = {RUN_NONE, RUN_NONE, RUN_NONE, RUN_NONE, RUN_NONE, RUN_NONE, {RUN_NONE, RUN_NONE, RUN_NONE}};
    struct result_site site = {0};
    find_frames(run, stack, helpers, &f);
    uint32_t at = f.user != RUN_NONE ? f.user : f.python;
    uint32_t caller = f.user != RUN_NONE ? f.user_caller : f.python_caller;
    if (at == RUN_NONE && f.native[0] == RUN_NONE) {
        at = at_exit(run, stack);
        site.library = site.exit = at != RUN_NONE;
        if (at == RUN_NONE) {
            at = in_autograd(run, stack);
            at = at == RUN_NONE && f.native[RUN_RANK_OWN] == RUN_NONE ? in_operation(run, stack) : at;
            site.library = at != RUN_NONE;
        }
    }
    const struct run_frame *frame = NULL;
    if (at == RUN_NONE && f.native[RUN_RANK_OWN] != RUN_NONE)
        frame = own_frame(run, f.native[RUN_RANK_OWN], helpers, &site);
    for (size_t rank = 0; !frame && at == RUN_NONE && rank < 3; rank++) {
        at = f.native[rank];
        site.library = rank > 0;
    }
    frame = frame ? frame : run_frame_named(run, at);
    if (!frame) return site;
    site.known = true;
    site.kind = frame->kind;
    site.library = frame->kind == GS_FRAME_PYTHON ? f.user == RUN_NONE : site.library;
    if (is_interpreter_finalised(run, &f)) site.library = site.exit = true;
    site.function = frame->function;
    site.file = frame->file ? frame->file : frame->module;
    site.line = frame->line;
    site.offset = frame->offset;
    if (frame->kind == GS_FRAME_NATIVE) return site;
    site.helper = at == f.user && f.helper != RUN_NONE;
    site.via = site.helper                          ? run_stack_frame(run, f.helper)
               : at == f.user && f.python != f.user ? run_stack_frame(run, f.python)
                                                    : NULL;
    site.operation = at == f.user && calls_backward(run, f.python) ? site_operation(run, stack) : NULL;
    site.inner = at == f.user && !site.operation ? run_stack_frame(run, f.inner) : NULL;
    site.caller = site.helper ? NULL : run_stack_frame(run, caller);
    return site;
}

struct called_function {
    uint64_t key;
    bool python;
    unsigned lines;              /* of its own that reach CUDA */
    unsigned calling_lines;      /* of others that call it */
    uint32_t first_caller;       /* index of the function */
    bool several_callers;        /* functions */
    bool recursive;              /* it calls a function that calls it */
    bool named, returns, helper; /* returns: the memory */
};

struct function_call {
    uint32_t function, caller; /* indices */
};

struct caller_counts {
    struct map callers; /* function, calling line → seen */
    struct map *helpers;
    struct map index, lines, pairs; /* → index; function and its own line, function and caller → seen */
    ARENA_LIST(struct called_function, functions);
    ARENA_LIST(struct function_call, calls);
};

/* "Buffer::Buffer" of C++. */
static bool is_native_constructor(const char *name)
{
    const char *last = strrchr(name, ':');
    if (!last || last == name) return false;
    const size_t n = strlen(last + 1), before = (size_t)(last - 1 - name);
    return n && before >= n && strncmp(last - 1 - n, last + 1, n) == 0 && (before == n || last[-2 - (int)n] == ':');
}

/* A word of "make_device" or "NewBuffer", not of "newton". */
static bool has_first_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    return strncasecmp(name, word, n) == 0 && !islower((unsigned char)name[n]);
}

/* The last word of "array_create" or "tryNew". */
static bool has_last_word(const char *name, const char *word)
{
    const size_t length = strlen(name), n = strlen(word);
    if (length <= n || strcasecmp(name + length - n, word) != 0) return false;
    const char *at = name + length - n;
    return at[-1] == '_' || (isupper((unsigned char)*at) && islower((unsigned char)at[-1]));
}

static bool constructs_object(const char *function)
{
    char name[256];
    text_function(name, sizeof name, function, sizeof name - 1, true);
    return is_native_constructor(name) || strstr(name, "operator new");
}

/* Functions that return new memory, by their names: constructors, "operator new", "gpu_alloc", "make_device". */
static bool is_named_as_allocator(const char *function)
{
    static const char *const words[] = {"new",   "make", "create", "acquire", "zeros",
                                        "empty", "with", "from",   "reserve"};
    char name[256];
    text_function(name, sizeof name, function, sizeof name - 1, true);
    if (constructs_object(function)) return true;
    const char *colon = strrchr(name, ':'), *last = colon ? colon + 1 : name, *dot = strrchr(last, '.');
    last = dot && dot[1] ? dot + 1 : last; /* "main.NewBuffer" of Go */
    return strcasestr(last, "alloc") ||
           ANY_OF(w, words, COUNT_OF(words), has_first_word(last, *w) || has_last_word(last, *w));
}

static bool is_new(struct map *seen, uint64_t key)
{
    uint32_t *at = map_at(seen, key);
    const bool new = *at == MAP_NEW;
    *at = 1;
    return new;
}

static uint32_t function_index(struct caller_counts *c, struct run *run, const struct run_frame *f)
{
    const uint64_t key = site_function_key(f->function, f->file);
    const uint32_t i =
        MAP_INDEX_IN(&c->index, key, c->functions, (struct called_function){.key = key, .first_caller = RUN_NONE});
    struct called_function *called = &c->functions[i];
    const uint64_t line = f->line ? (uint64_t)f->line : f->offset;
    called->python = f->kind == GS_FRAME_PYTHON;
    if (!called->lines && !called->python) {
        called->named = is_named_as_allocator(f->function);
        called->returns = constructs_object(f->function) || site_returns_memory(run, f->file, f->line);
    }
    called->lines += is_new(&c->lines, map_hash(key ^ line));
    return i;
}

static bool is_new_caller(struct caller_counts *c, const struct called_function *f, const struct run_frame *by)
{
    const uint64_t line = by->line ? (uint64_t)by->line : by->offset;
    return is_new(&c->callers, map_hash(f->key ^ line) ^ (uintptr_t)by->file);
}

static void count_python_caller(struct caller_counts *c, struct run *run, uint32_t stack)
{
    const struct run_frame *f = run_stack_frame(run, stack);
    const uint32_t above = run_stack_python(run, run_stack_parent(run, stack)); /* past native frames */
    const struct run_frame *by = run_stack_frame(run, above), *caller = frame_of_function(run, above);
    if (site_is_library(f)) return;
    const uint32_t i = function_index(c, run, f);
    struct called_function *called = &c->functions[i];
    if (!by || site_is_library(by) || (f->function == caller->function && f->file == caller->file)) return;
    called->calling_lines += is_new_caller(c, called, by);
}

static void count_native_caller(struct caller_counts *c, struct run *run, const struct run_frame *f,
                                const struct run_frame *by)
{
    const uint32_t function = function_index(c, run, f), caller = function_index(c, run, by);
    struct called_function *n = &c->functions[function];
    if (!is_new_caller(c, n, by)) return;
    n->calling_lines++;
    n->several_callers = n->several_callers || (n->first_caller != RUN_NONE && n->first_caller != caller);
    n->first_caller = caller;
    if (!is_new(&c->pairs, map_hash((uint64_t)function << 32 | caller))) return;
    *ARENA_ADD(c->calls) = (struct function_call){function, caller};
    if (map_get(&c->pairs, map_hash((uint64_t)caller << 32 | function)) != MAP_NEW)
        n->recursive = c->functions[caller].recursive = true;
}

/* Of the functions at the stack's innermost address, if no Python code called them. */
static void count_native_callers(struct caller_counts *c, struct run *run, uint32_t stack)
{
    if (run_stack_python(run, stack) != RUN_NONE) return;
    struct own_frames o = {.run = run, .next = stack};
    const struct run_frame *f = next_own(&o), *by;
    for (; f && o.stack == stack; f = by) {
        by = next_own(&o);
        if (by && f->function && by->function && (f->function != by->function || f->file != by->file))
            count_native_caller(c, run, f, by);
    }
}

/* A wrapper reaches CUDA at fewer lines than call it; one that is named as an allocator, and returns the memory, may
 * have one line and one caller. A function that does the program's work has several allocations, or is called from one
 * function only and does not return the memory. In Python, three lines must call it: a training
 * function that is called twice is not a wrapper. */
static bool is_wrapping_function(const struct called_function *f)
{
    if (f->python) return f->calling_lines > f->lines && f->calling_lines >= HELPER_CALLERS;
    if (f->named) return f->calling_lines > f->lines || (f->returns && f->lines == 1 && f->calling_lines == 1);
    return f->calling_lines > f->lines && !f->recursive &&
           (f->returns || f->several_callers || (f->lines == 1 && f->calling_lines >= HELPER_CALLERS));
}

/* A function that only wrappers call is a part of them. */
static void find_wrapping_functions(struct caller_counts *c)
{
    enum { NESTED = 16 };
    for (size_t i = 0; i < c->functions_n; i++) c->functions[i].helper = is_wrapping_function(&c->functions[i]);
    bool more = true;
    for (unsigned round = 0; more && round < NESTED; round++) {
        struct map others = {0}; /* functions that others call, too */
        for (size_t i = 0; i < c->calls_n; i++)
            if (!c->functions[c->calls[i].caller].helper) *map_at(&others, c->calls[i].function) = 1;
        more = false;
        for (uint32_t i = 0; i < c->functions_n; i++) {
            struct called_function *f = &c->functions[i];
            if (f->helper || f->python || !f->calling_lines || (!f->named && f->lines > 1) ||
                map_get(&others, i) != MAP_NEW)
                continue;
            f->helper = more = true;
        }
        map_free(&others);
    }
    for (size_t i = 0; i < c->functions_n; i++)
        if (c->functions[i].helper) *map_at(c->helpers, c->functions[i].key) = 1;
}

void site_helpers(struct run *run, struct map *helpers)
{
    struct caller_counts c = {.helpers = helpers};
    for (uint32_t s = 0; s < run_stack_count(run); s++) {
        const struct run_frame *f = run_stack_frame(run, s);
        if (f->kind == GS_FRAME_PYTHON && f->function) count_python_caller(&c, run, s);
        if (f->kind == GS_FRAME_NATIVE && f->rank == RUN_RANK_OWN) count_native_callers(&c, run, s);
    }
    find_wrapping_functions(&c);
    MAP_RELEASE(&c.callers, &c.index, &c.lines, &c.pairs);
    ARENA_RELEASE(c.functions, c.calls);
}

uint64_t site_key(const struct result_site *site)
{
    const struct run_frame *c = site->helper ? site->via : site->caller;
    uint64_t parts[] = {(uintptr_t)site->function,
                        (uintptr_t)site->file,
                        (uint64_t)site->line,
                        site->function ? 0 : site->offset,
                        (uintptr_t)site->operation,
                        site->inner ? (uintptr_t)site->inner->file : 0,
                        site->inner ? (uint64_t)site->inner->line : 0,
                        c ? (uintptr_t)c->function : 0,
                        c ? (uintptr_t)c->file : 0,
                        c ? (uint64_t)c->line : 0};
    uint64_t key = site->known;
    for (size_t i = 0; i < COUNT_OF(parts); i++) key = map_hash(key ^ parts[i]) + i;
    return key;
}

uint64_t site_line_key(const struct result_site *s)
{
    const uint64_t parts[] = {(uintptr_t)s->function, (uintptr_t)s->file, (uint64_t)s->line,
                              s->line || s->function ? 0 : s->offset, (uintptr_t)s->operation};
    uint64_t key = (uint64_t)s->known << 1 | s->exit;
    for (size_t i = 0; s->known && !s->exit && i < COUNT_OF(parts); i++) key = map_hash(key ^ parts[i]) + i;
    return key;
}

static bool same_frame(const struct run_frame *a, const struct run_frame *b)
{
    return a == b || (a && b && a->file == b->file && a->line == b->line && a->function == b->function);
}

void site_keep_common(struct result_site *line, const struct result_site *path)
{
    if (!same_frame(line->caller, path->caller)) line->caller = NULL;
    if (!same_frame(line->inner, path->inner)) line->inner = NULL;
    if (line->helper != path->helper || !same_frame(line->via, path->via)) {
        line->helper = false;
        line->via = NULL;
    }
}

struct result_site site_of_frame(const struct run_frame *f)
{
    return (struct result_site){.kind = f->kind,
                                .known = true,
                                .function = f->function,
                                .file = f->file ? f->file : f->module,
                                .line = f->line,
                                .offset = f->offset};
}

static int frame_order(const struct run_frame *a, const struct run_frame *b)
{
    if (!a || !b) return (a != NULL) - (b != NULL);
    return sort_compare_texts(a->file, b->file) ?: SORT_UP(a->line, b->line) ?: sort_compare_texts(a->function, b->function);
}

int site_compare(const struct result_site *a, const struct result_site *b)
{
    return sort_compare_texts(a->file, b->file)
               ?: SORT_UP(a->line, b->line)
               ?: sort_compare_texts(a->function, b->function)
               ?: SORT_UP(a->offset, b->offset)
               ?: sort_compare_texts(a->operation, b->operation)
               ?: frame_order(a->inner, b->inner)
               ?: frame_order(a->caller, b->caller)
               ?: frame_order(a->via, b->via);
}

static const char *file_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

const char *site_text(const struct result_site *site, char *buffer, size_t size)
{
    enum { MOST = 200 };
    char name[512];
    const char *function = site->function;

    if (function && site->kind == GS_FRAME_PYTHON) {
        text_put(name, sizeof name, "%.*s", (int)text_without_comprehension(function), function);
        function = name;
    }
    if (function && site->kind == GS_FRAME_NATIVE) /* template arguments and parameters fill lines */
        function = text_function(name, sizeof name, function, MOST, true);
    if (!site->known) {
        snprintf(buffer, size, "a call without a stack");
    } else if (site->exit) {
        snprintf(buffer, size, "at interpreter exit");
    } else if (site->line && site->operation) {
        snprintf(buffer, size, "%s:%d backward (%s)", site->file ? file_base_name(site->file) : "?", site->line,
                 site->operation);
    } else if (site->line) {
        snprintf(buffer, size, "%s:%d%s%s", site->file ? file_base_name(site->file) : "?", site->line,
                 function ? " in " : "", function ? function : "");
    } else if (function) {
        snprintf(buffer, size, "%s%s%s%s", function, site->file ? " (" : "",
                 site->file ? file_base_name(site->file) : "", site->file ? ")" : "");
    } else if (site->file) {
        snprintf(buffer, size, "%s+0x%llx", file_base_name(site->file), (unsigned long long)site->offset);
    } else {
        snprintf(buffer, size, "0x%llx (code without a file)", (unsigned long long)site->offset);
    }
    return buffer;
}
