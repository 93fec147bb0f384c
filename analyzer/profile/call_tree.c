#include "analyzer/profile/call_tree.h"

#include <stdlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

const struct run_frame profile_call_unknown = {.kind = GS_FRAME_NATIVE, .function = "(no stack recorded)"};

struct node { /* the public one first, so that a pointer to it is also one to this */
    struct profile_call_node public;
    struct node *first, *next; /* children while it is built */
    uint32_t place;            /* index among its parent's children */
};

struct tree {
    struct profile_call_tree public;
    struct arena arena;
    struct map names;     /* hash of a name → the frame that represents it */
    struct map frame_ids; /* frame → its number */
    const struct run_frame **frames;
    uint32_t *frame_next; /* chain of those with one hash */
    size_t frames_n, frames_cap;
    struct map children; /* parent's number, frame's number → node */
    ARENA_LIST(struct node *, nodes);
};

static uint64_t hash_frame(const struct run_frame *f)
{
    bool named = f->function != NULL;
    uint64_t parts[] = {(uintptr_t)f->function, (uintptr_t)f->file, (uint64_t)f->line << 8 | f->kind,
                        (uintptr_t)f->module, named ? 0 : f->offset};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = map_hash(hash) + parts[i];
    return hash;
}

/* Equal texts of a run are the same pointer. */
static bool are_frames_same(const struct run_frame *a, const struct run_frame *b)
{
    return a->function == b->function && a->file == b->file && a->line == b->line && a->kind == b->kind &&
           a->module == b->module && (a->function || a->offset == b->offset);
}

static uint32_t frame_id(struct tree *t, const struct run_frame *f)
{
    uint32_t *known = map_at(&t->frame_ids, (uintptr_t)f);
    if (*known != MAP_NEW) return *known;
    uint32_t *head = map_at(&t->names, hash_frame(f));
    for (uint32_t i = *head; i != MAP_NEW; i = t->frame_next[i])
        if (are_frames_same(t->frames[i], f)) return *known = i;
    size_t cap = t->frames_cap;
    t->frame_next = arena_grow(t->frame_next, t->frames_n, &cap, sizeof *t->frame_next);
    t->frame_next[t->frames_n] = *head;
    *ARENA_ADD(t->frames) = f;
    return *known = *head = (uint32_t)(t->frames_n - 1);
}

static uint32_t node_new(struct tree *t, uint32_t parent, const struct run_frame *frame)
{
    struct node *n = arena_alloc(&t->arena, sizeof *n);
    uint32_t number = (uint32_t)t->nodes_n;
    *n = (struct node){.public.frame = frame};
    if (parent != RUN_NONE) {
        struct node *p = t->nodes[parent];
        n->public.parent = &p->public;
        n->public.depth = p->public.depth + 1;
        n->next = p->first;
        p->first = n;
        p->public.children_n++;
        t->public.depth = n->public.depth > t->public.depth ? n->public.depth : t->public.depth;
    }
    *ARENA_ADD(t->nodes) = n;
    return number;
}

static uint32_t tree_child_of(struct tree *t, uint32_t parent, const struct run_frame *frame)
{
    uint32_t id = frame_id(t, frame);
    uint32_t *at = map_at(&t->children, (uint64_t)parent << 32 | id);
    return *at != MAP_NEW ? *at : (*at = node_new(t, parent, t->frames[id]));
}

static uint32_t tree_node_of(struct tree *t, struct run *run, uint32_t stack, bool native)
{
    const struct run_frame *frames[RUN_DEPTH_MAX];
    size_t n = profile_frames(run, stack, native, frames, RUN_DEPTH_MAX);
    uint32_t node = 0;
    if (n == 0) return tree_child_of(t, 0, &profile_call_unknown);
    for (size_t i = 0; i < n; i++) node = tree_child_of(t, node, frames[i]);
    return node;
}

/* Equal weights are ordered by text, so that the result is the same each time. */
SORT_ORDER_OF_POINTERS(compare_nodes, struct profile_call_node,
                       SORT_DOWN(x->total, y->total) ?: sort_compare_texts(x->frame->file, y->frame->file)
                           ?: SORT_UP(x->frame->line, y->frame->line)
                           ?: sort_compare_texts(x->frame->function, y->frame->function)
                           ?: sort_compare_texts(x->frame->module, y->frame->module)
                           ?: SORT_UP(x->frame->offset, y->frame->offset))

/* Children have higher numbers than their parents. */
static void sum_up_tree(struct tree *t)
{
    for (size_t i = t->nodes_n; i-- > 0;) {
        struct profile_call_node *n = &t->nodes[i]->public;
        n->total = arena_add_capped(n->total, n->self);
        n->total_count += n->self_count;
        if (n->parent) {
            n->parent->total = arena_add_capped(n->parent->total, n->total);
            n->parent->total_count += n->total_count;
        }
    }
    for (size_t i = 0; i < t->nodes_n; i++) {
        struct profile_call_node *n = &t->nodes[i]->public;
        size_t k = 0;
        n->children = arena_alloc(&t->arena, n->children_n * sizeof(struct profile_call_node *));
        for (struct node *c = t->nodes[i]->first; c; c = c->next) n->children[k++] = &c->public;
        SORT(n->children, k, compare_nodes);
        for (size_t c = 0; c < k; c++) ((struct node *)n->children[c])->place = (uint32_t)c;
    }
}

struct profile_call_tree *profile_call_tree_build(struct run *run, const struct profile *profile, bool native,
                                                  profile_call_keep_fn keep, void *self)
{
    struct tree *t = arena_realloc(NULL, 1, sizeof *t);
    struct map node_of_stack = {0};
    *t = (struct tree){0};
    node_new(t, RUN_NONE, NULL);
    EACH (e, profile->entries, profile->n) {
        if (keep && !keep(self, e)) continue;
        uint32_t *at = map_at(&node_of_stack, e->stack);
        if (*at == MAP_NEW) *at = tree_node_of(t, run, e->stack, native);
        t->nodes[*at]->public.self = arena_add_capped(t->nodes[*at]->public.self, e->weight);
        t->nodes[*at]->public.self_count += e->count;
    }
    sum_up_tree(t);
    t->public.root = &t->nodes[0]->public;
    t->public.nodes = t->nodes_n;
    MAP_RELEASE(&node_of_stack, &t->names, &t->frame_ids, &t->children);
    ARENA_RELEASE(t->frames, t->frame_next, t->nodes);
    return &t->public;
}

void profile_call_tree_free(struct profile_call_tree *tree)
{
    if (tree) {
        struct tree *t = (struct tree *)tree;
        arena_free(&t->arena);
        free(t);
    }
}

const struct profile_call_node *profile_call_next(const struct profile_call_node *node)
{
    if (node->children_n) return node->children[0];
    for (; node->parent; node = node->parent) {
        uint32_t next = ((const struct node *)node)->place + 1;
        if (next < node->parent->children_n) return node->parent->children[next];
    }
    return NULL;
}
