/* See owner.h. */
#include "analyzer/site/owner.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/site/builder.h"
#include "analyzer/base/sort.h"

enum where { NAME, PACKAGE, PATH, FUNCTION };
enum role { OWNS, PASSES, BINDS };

static const struct row {
    uint8_t role, kind, where;
    const char *word, *part;
} rows[] = {
#define OWNER(k, w, where, p) {OWNS, RESULT_OWNER_##k, where, w, p},
#define PASS(where, p) {PASSES, RESULT_OWNER_UNKNOWN, where, NULL, p},
#define BINDING(where, p) {BINDS, RESULT_OWNER_LIBRARY, where, p, p},
#include "analyzer/site/owner.def"
#undef OWNER
#undef PASS
#undef BINDING
};
enum { ROWS = sizeof rows / sizeof *rows };

struct owner {
    const char *word, *by;
    enum result_owner_kind kind;
};

struct made { /* a location of the device layer */
    uint32_t owner;
    uint8_t space;
    bool seen, blind; /* blind: no native frame in its stack */
};
enum { BLIND = 1u << 31 }; /* a flag in addition to a stack's owner */

enum { DEVICES = 128, PENDING = 4096 };
struct taken {
    uint32_t location;
    int64_t bytes;
};
struct pending { /* allocated since PyTorch last reported its total, by stacks that do not show the owner */
    int64_t reserved;
    struct taken *taken;
    size_t n, cap;
};

struct site_owners {
    struct owner *list;
    size_t n, cap;
    struct map of_stack, of_word; /* of_word: by the interned word's address */
    struct made *made;
    size_t made_cap;
    struct pending pending[DEVICES];
    bool only_torch; /* a PyTorch snapshot: whatever its frames are, only PyTorch's allocator is in it */
};

static const char *path_base_of(const char *path)
{
    return path ? basename(path) : NULL;
}

/* "…/site-packages/torch/lib/x.so" → "torch/lib/x.so"; NULL: not installed as a package. */
static const char *installed_package_path(const char *path)
{
    static const char *const folders[] = {"/site-packages/", "/dist-packages/"};
    const char *found = NULL;
    for (size_t i = 0; path && i < sizeof folders / sizeof *folders; i++) {
        for (const char *p = path; (p = strstr(p, folders[i])) != NULL;) {
            p += strlen(folders[i]);
            found = p > found ? p : found;
        }
    }
    return found && *found != '.' && *found != '/' ? found : NULL;
}

/* A package's name ends at its folder, at the suffix of a single file, or at the suffix of the folder in which a wheel
 * bundles other libraries ("numpy.libs"). */
static size_t package_length(const char *package)
{
    return strcspn(package, "/.");
}

static bool has_function(const char *function, const char *part)
{
    size_t length = strlen(part);
    for (const char *p = function; p && (p = strstr(p, part)) != NULL; p += length)
        if (p == function || !text_is_name_character(p[-1])) return true;
    return false;
}

static bool owner_row_fits(const struct row *row, const struct run_frame *f, const char *path, const char *package)
{
    bool native = f->kind == GS_FRAME_NATIVE;
    switch ((enum where)row->where) {
    case NAME: return native && strncmp(path_base_of(path), row->part, strlen(row->part)) == 0;
    case PACKAGE:
        return package && package_length(package) == strlen(row->part) &&
               strncmp(package, row->part, strlen(row->part)) == 0;
    case PATH: return run_path_has(path, row->part);
    case FUNCTION: return false; /* see function_row */
    }
    return false;
}

/* By its path; NULL: no row matches. */
static const struct row *file_row(const struct run_frame *f)
{
    const char *path = f->kind == GS_FRAME_NATIVE ? f->module : f->file;
    const char *package = installed_package_path(path);
    for (size_t i = 0; path && i < ROWS; i++)
        if (owner_row_fits(&rows[i], f, path, package)) return &rows[i];
    return NULL;
}

static const struct row *function_row(const struct run_frame *f)
{
    const struct run_frame *places = f->inlined_n ? f->inlined : f;
    for (size_t k = 0; k < (f->inlined_n ? f->inlined_n : 1); k++) {
        for (size_t i = 0; places[k].function && i < ROWS; i++)
            if (rows[i].where == FUNCTION && has_function(places[k].function, rows[i].part)) return &rows[i];
    }
    return NULL;
}

static uint32_t owner_index_of(struct site_builder *b, const char *word, size_t length, enum result_owner_kind kind,
                               const char *by)
{
    struct site_owners *o = b->owners;
    char *copy = arena_printf(b->arena, "%.*s", (int)(length < 200 ? length : 200), word);
    return MAP_INDEX(&o->of_word, map_hash_text((uint64_t)kind, copy), o->list, o->n, o->cap,
                     (struct owner){copy, path_base_of(by), kind});
}

static uint32_t row_owner(struct site_builder *b, const struct row *row, const char *by)
{
    return owner_index_of(b, row->word, strlen(row->word), (enum result_owner_kind)row->kind, by);
}

/* A file that no row matches. */
static uint32_t file_owner(struct site_builder *b, const char *path)
{
    const char *package = installed_package_path(path), *base = path_base_of(path);
    if (package && strncmp(package, "nvidia/", 7) != 0) /* one folder of many libraries */
        return owner_index_of(b, package, package_length(package), RESULT_OWNER_PACKAGE, path);
    return owner_index_of(b, base, strlen(base), RESULT_OWNER_USER, path);
}

/* The owner by the frames of one module, from `*stack` on; `*stack` moves past them. 0: unknown. */
static uint32_t module_owner(struct site_builder *b, uint32_t *stack, uint32_t *binding)
{
    const struct run_frame *f = run_stack_frame(b->run, *stack);
    const char *module = f->module;
    const struct row *row = file_row(f);
    bool asks = !row || (row->role == OWNS && row->kind == RESULT_OWNER_FRAMEWORK);
    bool own = false; /* a frame that is not of CUDA's statically linked runtime */
    uint32_t owner_id = 0;
    for (; f && f->kind == GS_FRAME_NATIVE && f->module == module; f = run_stack_frame(b->run, *stack)) {
        const struct row *by = asks && !owner_id ? function_row(run_frame_named(b->run, *stack)) : NULL;
        own = own || !by || by->role != PASSES;
        owner_id = by && by->role == OWNS ? row_owner(b, by, module) : owner_id;
        *stack = run_stack_parent(b->run, *stack);
    }
    if (owner_id || (row && row->role == PASSES) || !module || !own) return owner_id;
    if (row && row->role == BINDS) {
        *binding = *binding ? *binding : row_owner(b, row, module);
        return 0;
    }
    return row ? row_owner(b, row, module) : file_owner(b, module);
}

/* `native`: native frames were recorded, so no library can be hidden between CUDA and this line. */
static uint32_t python_owner(struct site_builder *b, const struct run_frame *f, bool native, uint32_t *binding)
{
    const struct row *row = file_row(f);
    if (row && row->role == BINDS) {
        *binding = *binding ? *binding : row_owner(b, row, f->file);
        return 0;
    }
    if (row && row->role == OWNS) return row_owner(b, row, f->file);
    if (row || !f->file || !native || (!installed_package_path(f->file) && site_is_library_file(f->file))) return 0;
    return file_owner(b, f->file);
}

static uint32_t find_owner(struct site_builder *b, uint32_t stack)
{
    const struct run_frame *f;
    uint32_t owner = 0, binding = 0;
    bool native = false;
    while (!owner && (f = run_stack_frame(b->run, stack)) != NULL) {
        if (f->kind == GS_FRAME_NATIVE) {
            native = true;
            owner = module_owner(b, &stack, &binding);
        } else {
            owner = python_owner(b, f, native, &binding);
            stack = run_stack_parent(b->run, stack);
        }
    }
    return (owner ? owner : binding) | (native ? 0 : BLIND);
}

static uint32_t cached_owner(struct site_builder *b, uint32_t stack)
{
    if (stack == RUN_NONE || !b->owners) return BLIND;
    uint32_t known = map_get(&b->owners->of_stack, stack);
    if (known == MAP_NEW) {
        known = find_owner(b, stack);
        *map_at(&b->owners->of_stack, stack) = known;
    }
    return known;
}

uint32_t site_owner_of(struct site_builder *b, uint32_t stack)
{
    return cached_owner(b, stack) & ~(uint32_t)BLIND;
}

const char *site_owner_word(const struct site_builder *b, uint32_t owner)
{
    return b->owners && owner < b->owners->n ? b->owners->list[owner].word : "unknown";
}

enum result_owner_kind site_owner_kind(const struct site_builder *b, uint32_t owner)
{
    return b->owners && owner < b->owners->n ? b->owners->list[owner].kind : RESULT_OWNER_UNKNOWN;
}

/* The file of the frame that first determined the owner; NULL unknown. */
static const char *site_owner_file(const struct site_builder *b, uint32_t owner)
{
    return b->owners && owner < b->owners->n ? b->owners->list[owner].by : NULL;
}

/* PyTorch tells its new total just after it took a segment. Where the stack does not say who took it
 * (Python frames alone, or none), a total that rose by just what was taken since says it. */
static struct pending *pending_of(struct site_owners *o, int device)
{
    return device >= 0 && device < DEVICES ? &o->pending[device] : NULL;
}

static uint32_t torch_owner(struct site_builder *b)
{
    static const char word[] = "PyTorch's allocator";
    return owner_index_of(b, word, sizeof word - 1, RESULT_OWNER_TORCH, NULL);
}

uint32_t site_owner_of_segment(struct site_builder *b, uint32_t stack)
{
    return b->owners && b->owners->only_torch ? torch_owner(b) : site_owner_of(b, stack);
}

static void owners_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct site_builder *b = self;
    struct site_owners *o = b->owners;
    struct pending *p;
    if (series->layer != RUN_SERIES_DEVICE) return;
    struct made *made = SITE_REACH(o->made, life->location, o->made_cap);
    if (!made->seen) {
        uint32_t owner = o->only_torch ? torch_owner(b) : cached_owner(b, life->stack);
        *made = (struct made){owner & ~(uint32_t)BLIND, life->space, true, (owner & BLIND) != 0};
    }
    if (made->blind && (p = pending_of(o, life->device)) != NULL) {
        if (p->n == PENDING) {
            p->n /= 2;
            memmove(p->taken, p->taken + p->n, p->n * sizeof *p->taken);
        }
        *ARENA_PUSH(p->taken, p->n, p->cap) = (struct taken){life->location, life->bytes};
    }
}

/* PyTorch reports nothing when it frees a segment. */
static void owners_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct site_builder *b = self;
    struct pending *p;
    if (series->layer == RUN_SERIES_DEVICE && life->location < b->owners->made_cap &&
        site_owner_kind(b, b->owners->made[life->location].owner) == RESULT_OWNER_TORCH &&
        (p = pending_of(b->owners, life->device)) != NULL)
        p->reserved = arena_add_capped(p->reserved, -life->bytes);
}

static void owners_on_reserved(void *self, const struct run_reserved *reserved)
{
    struct site_builder *b = self;
    struct pending *p = pending_of(b->owners, reserved->device);
    if (!p) return;
    int64_t rose = arena_add_capped(reserved->bytes, -p->reserved), taken = 0;
    size_t first = p->n;
    while (first > 0 && taken < rose) taken = arena_add_capped(taken, p->taken[--first].bytes);
    for (size_t i = first; rose > 0 && taken == rose && i < p->n; i++)
        b->owners->made[p->taken[i].location].owner = torch_owner(b);
    p->n = 0;
    p->reserved = reserved->bytes;
}

static void owners_on_process_start(void *self, uint32_t process)
{
    struct site_builder *b = self;
    for (size_t i = 0; i < DEVICES; i++) {
        b->owners->pending[i].reserved = 0;
        b->owners->pending[i].n = 0;
    }
}

void site_owners_start(struct site_builder *b, struct run_observer *observer)
{
    b->owners = arena_zeroed(1, sizeof *b->owners);
    owner_index_of(b, "unknown", 7, RESULT_OWNER_UNKNOWN, NULL);
    b->owners->only_torch = run_is_imported(b->run) && !run_why_unknown(b->run, RUN_FACT_SEGMENTS) &&
                            !run_why_unknown(b->run, RUN_FACT_TENSORS);
    *observer = (struct run_observer){.self = b,
                                      .process_start = owners_on_process_start,
                                      .alloc = owners_on_alloc,
                                      .free = owners_on_free,
                                      .reserved = owners_on_reserved};
}

void site_owners_free(struct site_builder *b)
{
    if (b->owners) {
        MAP_RELEASE(&b->owners->of_stack, &b->owners->of_word);
        for (size_t i = 0; i < DEVICES; i++) free(b->owners->pending[i].taken);
        ARENA_RELEASE(b->owners->list, b->owners->made, b->owners);
        b->owners = NULL;
    }
}

uint32_t site_owner_of_location(struct site_builder *b, uint32_t location)
{
    return b->owners && location < b->owners->made_cap ? b->owners->made[location].owner : 0;
}

struct sum {
    struct result_by_owner of;
    uint32_t stack;
    int64_t heaviest;
};

struct site_owned {
    struct site_builder *b;
    struct sum *sums; /* by owner */
    size_t cap;
};

struct site_owned *site_owned_new(struct site_builder *b)
{
    struct site_owned *o = arena_realloc(NULL, 1, sizeof *o);
    *o = (struct site_owned){.b = b};
    return o;
}

void site_owned_add(struct site_owned *o, uint32_t location, int64_t bytes, uint64_t count)
{
    const struct site_owners *owners = o->b->owners;
    uint32_t owner = site_owner_of_location(o->b, location);
    struct sum *s = SITE_REACH(o->sums, owner, o->cap);
    unsigned space = owners && location < owners->made_cap ? owners->made[location].space & 7u : 0;
    s->of.bytes = arena_add_capped(s->of.bytes, bytes);
    s->of.by_space[space] = arena_add_capped(s->of.by_space[space], bytes);
    s->of.count += count;
    if (bytes > s->heaviest) {
        s->heaviest = bytes;
        s->stack = run_location(o->b->run, location)->stack;
    }
}

SORT_ORDER(compare_owners, struct result_by_owner, SORT_DOWN(x->bytes, y->bytes) ?: strcmp(x->owner, y->owner))

struct result_by_owner *site_owned_list(struct site_owned *o, size_t *n)
{
    size_t kept = 0;
    struct result_by_owner *list = arena_alloc(o->b->arena, o->cap * sizeof *list);
    for (size_t i = 0; i < o->cap; i++) {
        if (o->sums[i].of.bytes > 0) {
            list[kept] = o->sums[i].of;
            list[kept].owner = site_owner_word(o->b, (uint32_t)i);
            list[kept].kind = site_owner_kind(o->b, (uint32_t)i);
            list[kept].by = site_owner_file(o->b, (uint32_t)i);
            list[kept++].site = site_of_call(o->b, o->sums[i].stack);
        }
    }
    SORT(list, kept, compare_owners);
    ARENA_RELEASE(o->sums, o);
    *n = kept;
    return list;
}

struct result_by_owner *site_owned_now(struct site_builder *b, uint32_t series, size_t *n)
{
    struct site_owned *o = site_owned_new(b);
    for (size_t i = 0; series != RUN_NONE && i < run_location_count(b->run); i++) {
        const struct run_location *l = run_location(b->run, (uint32_t)i);
        if (l->series == series && l->live_count) site_owned_add(o, (uint32_t)i, l->live_bytes, l->live_count);
    }
    return site_owned_list(o, n);
}
