#include "schema/ranges.h"

#include <stdlib.h>
#include <string.h>

/* Nodes are in one array and refer to each other by index (0: none), so that the whole map is one allocation and a node
 * has half the size of one with pointers. */
struct gs_range_node {
    struct gs_range range;
    uint32_t left, right; /* right links the unused ones */
    uint32_t priority;    /* no child has a higher one: random priorities keep the tree shallow */
};

static uint64_t range_end_of(const struct gs_range *range)
{
    return range->bytes > UINT64_MAX - range->start ? UINT64_MAX : range->start + range->bytes;
}

static uint32_t next_random(struct gs_ranges *r)
{
    uint32_t x = r->random ? r->random : 2463534242u;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return r->random = x;
}

static uint32_t new_node(struct gs_ranges *r)
{
    if (!r->unused) {
        uint32_t capacity = r->capacity ? r->capacity * 2 : 64;
        struct gs_range_node *nodes = realloc(r->nodes, (size_t)capacity * sizeof *nodes);
        if (!nodes) return 0;
        for (uint32_t i = capacity - 1; i >= (r->capacity ? r->capacity : 1); i--) {
            nodes[i].right = r->unused;
            r->unused = i;
        }
        r->nodes = nodes;
        r->capacity = capacity;
    }
    uint32_t n = r->unused;
    r->unused = r->nodes[n].right;
    return n;
}

/* Splits the tree at `root` into the nodes that start before `start` and the others. */
static void split_ranges(struct gs_range_node *nodes, uint32_t root, uint64_t start, uint32_t *before, uint32_t *others)
{
    while (root) {
        if (nodes[root].range.start < start) {
            *before = root;
            before = &nodes[root].right;
            root = nodes[root].right;
        } else {
            *others = root;
            others = &nodes[root].left;
            root = nodes[root].left;
        }
    }
    *before = *others = 0;
}

static uint32_t join_ranges(struct gs_range_node *nodes, uint32_t left, uint32_t right)
{
    uint32_t root = 0, *at = &root;
    while (left && right) {
        if (nodes[left].priority >= nodes[right].priority) {
            *at = left;
            at = &nodes[left].right;
            left = nodes[left].right;
        } else {
            *at = right;
            at = &nodes[right].left;
            right = nodes[right].left;
        }
    }
    *at = left ? left : right;
    return root;
}

static uint32_t *link_of(struct gs_ranges *r, uint64_t start)
{
    uint32_t *at = &r->root;
    while (*at && r->nodes[*at].range.start != start)
        at = start < r->nodes[*at].range.start ? &r->nodes[*at].left : &r->nodes[*at].right;
    return at;
}

bool gs_ranges_remove(struct gs_ranges *r, uint64_t start)
{
    uint32_t *at = link_of(r, start), n = *at;
    if (!n) return false;
    *at = join_ranges(r->nodes, r->nodes[n].left, r->nodes[n].right);
    r->nodes[n].right = r->unused;
    r->unused = n;
    r->count--;
    return true;
}

bool gs_ranges_add(struct gs_ranges *r, const struct gs_range *range)
{
    if (!range->bytes) return true;
    const struct gs_range *old;
    while ((old = gs_ranges_from(r, range->start)) && old->start < range_end_of(range)) gs_ranges_remove(r, old->start);
    uint32_t n = new_node(r);
    if (!n) return false;
    struct gs_range_node *nodes = r->nodes;
    nodes[n].range = *range;
    nodes[n].priority = next_random(r);
    uint32_t *at = &r->root;
    while (*at && nodes[*at].priority >= nodes[n].priority)
        at = range->start < nodes[*at].range.start ? &nodes[*at].left : &nodes[*at].right;
    split_ranges(nodes, *at, range->start, &nodes[n].left, &nodes[n].right);
    *at = n;
    r->count++;
    return true;
}

const struct gs_range *gs_ranges_from(const struct gs_ranges *r, uint64_t from)
{
    /* Ranges don't overlap, so their ends are in the order of their starts. */
    const struct gs_range *found = NULL;
    for (uint32_t n = r->root; n;) {
        const struct gs_range_node *node = &r->nodes[n];
        if (range_end_of(&node->range) > from) {
            found = &node->range;
            n = node->left;
        } else {
            n = node->right;
        }
    }
    return found;
}

const struct gs_range *gs_ranges_find(const struct gs_ranges *r, uint64_t address)
{
    const struct gs_range *range = gs_ranges_from(r, address);
    return range && range->start <= address ? range : NULL;
}

void gs_ranges_free(struct gs_ranges *r)
{
    free(r->nodes);
    memset(r, 0, sizeof *r);
}
