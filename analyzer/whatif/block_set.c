#include "analyzer/whatif/block_set.h"

/* Whether a block comes before the key; `equal`: or is the key. */
static inline bool is_below(const struct whatif_set *set, const struct whatif_block *b, struct whatif_key key,
                            bool equal)
{
    if (b->stream != key.stream) return b->stream < key.stream;
    if (!set->by_address && b->bytes != key.bytes) return b->bytes < key.bytes;
    if (!set->by_address && b->rank != key.rank) return b->rank < key.rank;
    return equal ? b->address <= key.address : b->address < key.address;
}

/* What is below the new block becomes its left subtree, and the rest its right one. */
static void split(struct whatif_block *blocks, const struct whatif_set *set, uint32_t tree, struct whatif_key key,
                  uint32_t block)
{
    uint32_t *low = &blocks[block].left, *high = &blocks[block].right, below = block, above = block;
    while (tree != WHATIF_NONE) {
        struct whatif_block *b = &blocks[tree];
        if (is_below(set, b, key, false)) {
            *low = tree;
            b->up = below;
            below = tree;
            low = &b->right;
            tree = b->right;
        } else {
            *high = tree;
            b->up = above;
            above = tree;
            high = &b->left;
            tree = b->left;
        }
    }
    *low = *high = WHATIF_NONE;
}

void whatif_set_insert(struct whatif_block *blocks, struct whatif_set *set, uint32_t block)
{
    struct whatif_block *b = &blocks[block];
    const struct whatif_key key = whatif_key_of(b);
    uint32_t *at = &set->root, up = WHATIF_NONE;
    while (*at != WHATIF_NONE && blocks[*at].priority >= b->priority) {
        up = *at;
        at = is_below(set, &blocks[up], key, false) ? &blocks[up].right : &blocks[up].left;
    }
    split(blocks, set, *at, key, block);
    b->up = up;
    *at = block;
}

void whatif_set_erase(struct whatif_block *blocks, struct whatif_set *set, uint32_t block)
{
    struct whatif_block *b = &blocks[block];
    uint32_t up = b->up, low = b->left, high = b->right;
    uint32_t *at = up == WHATIF_NONE ? &set->root : blocks[up].left == block ? &blocks[up].left : &blocks[up].right;
    if (*at != block) return; /* it is not there */
    while (low != WHATIF_NONE && high != WHATIF_NONE) {
        const bool lower = blocks[low].priority >= blocks[high].priority;
        const uint32_t first = lower ? low : high;
        *at = first;
        blocks[first].up = up;
        up = first;
        at = lower ? &blocks[first].right : &blocks[first].left;
        if (lower) {
            low = *at;
        } else {
            high = *at;
        }
    }
    *at = low != WHATIF_NONE ? low : high;
    if (*at != WHATIF_NONE) blocks[*at].up = up;
    b->left = b->right = b->up = WHATIF_NONE;
}

uint32_t whatif_set_find(const struct whatif_block *blocks, const struct whatif_set *set, struct whatif_key key,
                         bool above)
{
    uint32_t found = WHATIF_NONE;
    for (uint32_t at = set->root; at != WHATIF_NONE;) {
        if (is_below(set, &blocks[at], key, above)) {
            at = blocks[at].right;
        } else {
            found = at;
            at = blocks[at].left;
        }
    }
    return found;
}

uint32_t whatif_set_before(const struct whatif_block *blocks, const struct whatif_set *set, struct whatif_key key)
{
    uint32_t found = WHATIF_NONE;
    for (uint32_t at = set->root; at != WHATIF_NONE;) {
        if (is_below(set, &blocks[at], key, false)) {
            found = at;
            at = blocks[at].right;
        } else {
            at = blocks[at].left;
        }
    }
    return found;
}
