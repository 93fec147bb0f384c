#include "analyzer/import/snapshot_stack.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/text.h"
#include "schema/source_file.h"

static bool is_python_file(const char *file)
{
    size_t n = file ? strlen(file) : 0;
    return n && (file[0] == '<' || gs_source_is_cell(file) || (n > 3 && strcmp(file + n - 3, ".py") == 0) ||
                 (n > 4 && (strcmp(file + n - 4, ".pyx") == 0 || strcmp(file + n - 4, ".pyc") == 0)));
}

/* "libtorch_cpu.so", "python3.11": a frame without debugging information names its module, and has an offset instead of
 * a line (PyTorch 2.12 and later). */
static bool is_module_file(const char *file)
{
    static const char *const endings[] = {".dll", ".pyd", ".exe", ".dylib"};
    const char *slash = file ? strrchr(file, '/') : NULL, *name = slash ? slash + 1 : file, *dot;
    if (!name || !*name) return false;
    dot = strrchr(name, '.');
    if (!dot) return strncmp(name, "python", 6) == 0; /* a script may have no ending, too */
    bool is = isdigit((unsigned char)dot[1]) || strcmp(dot, ".so") == 0;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) is = is || strcasecmp(dot, endings[i]) == 0;
    return is;
}

struct listed_frames {
    struct import_frame list[IMPORT_DEPTH];
    size_t n;
    struct arena arena; /* texts that were cut out of others */
    bool in_backward;   /* the frames include the Python call of autograd's engine */
};

static void keep_snapshot_frame(struct listed_frames *l, const struct import_frame *frame)
{
    if (l->n < IMPORT_DEPTH) l->list[l->n++] = *frame;
}

static const char engine_file[] = "/torch/autograd/graph.py", engine_function[] = "_engine_run_backward";

static void add_snapshot_frames(struct listed_frames *l, const struct import_value *frames)
{
    for (size_t i = 0; i < import_count(frames); i++) {
        const struct import_value *frame = import_item(frames, i);
        const char *file = import_text(import_member(frame, "filename"));
        int64_t line = import_integer(import_member(frame, "line"), 0);
        const char *function = import_text(import_member(frame, "name"));
        file = file && strcmp(file, "??") != 0 ? file : NULL;
        const bool python = is_python_file(file), module = !python && is_module_file(file);
        l->in_backward = l->in_backward || (function && strcmp(function, engine_function) == 0);
        keep_snapshot_frame(l,
                            &(struct import_frame){.file = module ? NULL : file,
                                                   .module = module ? file : NULL,
                                                   .function = module && function && *function == '?' ? NULL : function,
                                                   .line = !module && line > 0 && line <= INT32_MAX ? (int)line : 0,
                                                   .python = python});
    }
}

/* Before Python 3.12 a comprehension is a function of its own, and the function that contains it calls it: it gets the
 * qualified name that gpuspy's recordings have. */
static void qualify_comprehensions(struct listed_frames *l)
{
    static const char *const kinds[] = {"<listcomp>", "<dictcomp>", "<setcomp>"};
    const struct import_frame *outer = NULL; /* Python's frames may have others between them */
    for (size_t i = l->n; i-- > 0;) {
        struct import_frame *f = &l->list[i];
        if (!f->python || !f->function) continue;
        if (outer && TEXT_IS_ONE_OF(f->function, kinds) && *outer->function != '<' && strcmp(f->file, outer->file) == 0)
            f->function = arena_printf(&l->arena, "%s.<locals>.%s", outer->function, f->function);
        outer = f;
    }
}

/* `  File "/home/a/train.py", line 15, in forward`, and the line's source. */
static void keep_formatted_frame(struct listed_frames *l, const char *text)
{
    static const char file[] = "File \"", line[] = "\", line ", in[] = ", in ";
    const char *from = text ? strstr(text, file) : NULL, *end = from ? strstr(from, line) : NULL;
    if (!end) return;
    char *after;
    const long number = strtol(end + strlen(line), &after, 10);
    if (number <= 0 || number > INT32_MAX || strncmp(after, in, strlen(in)) != 0) return;
    from += strlen(file);
    after += strlen(in);
    keep_snapshot_frame(l, &(struct import_frame){
                               .file = arena_printf(&l->arena, "%.*s", (int)(end - from), from),
                               .function = arena_printf(&l->arena, "%.*s", (int)strcspn(after, "\n"), after),
                               .line = (int)number,
                               .python = true,
                           });
}

/* What backward() allocates belongs to the line of the forward pass whose gradient it computes. Autograd's thread has
 * no frame of its caller; the engine, which is certain, stands between the two. */
static void add_forward(struct listed_frames *l, const struct import_value *forward)
{
    if (l->in_backward) return; /* backward()'s line is known */
    const size_t before = l->n;
    keep_snapshot_frame(l, &(struct import_frame){.file = engine_file, .function = engine_function, .python = true});
    for (size_t i = import_count(forward); i-- > 0;) keep_formatted_frame(l, import_text(import_item(forward, i)));
    if (l->n == before + 1) l->n = before; /* none could be read */
}

uint32_t import_snapshot_stack(struct import_feed *feed, struct map *known, const struct import_list *frames)
{
    if (!frames || !frames->n) return 0;
    const bool both = frames->n == 2 && frames->items[0].type != IMPORT_DICT;
    const struct import_value *own = &frames->items[0], *forward = &frames->items[1];
    const struct import_value all = {.type = IMPORT_LIST, .list = (struct import_list *)frames};
    uint64_t key = (uintptr_t)frames->items;
    if (both && import_count(forward))
        key = map_hash((uintptr_t)forward->list->items) ^ (import_count(own) ? (uintptr_t)own->list->items : 0);
    uint32_t *stack = map_at(known, key);
    if (*stack != MAP_NEW) return *stack;
    struct listed_frames l;
    l.n = 0;
    l.arena = (struct arena){0};
    l.in_backward = false;
    add_snapshot_frames(&l, both ? own : &all);
    qualify_comprehensions(&l);
    if (both) add_forward(&l, forward);
    *stack = import_feed_stack(feed, l.list, l.n);
    arena_free(&l.arena);
    return *stack;
}
