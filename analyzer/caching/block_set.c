#include "analyzer/caching/block_set.h"

/* Whether a block comes before the key; `equal`: or is the key. */
static inline bool is_below(const struct caching_set *set, const struct caching_block *b, struct caching_key key,
                            bool equal)
{
    if (b->stream != key.stream) return b->stream < key.stream;
    if (!set->by_address && b->bytes != key.bytes) return b->bytes < key.bytes;
    if (!set->by_address && b->rank != key.rank) return b->rank < key.rank;
    return equal ? b->address <= key.address : b->address < key.address;
}

/* Blocks below the new block become its left subtree, all others its right one. */
static void split_tree(struct caching_block *blocks, const struct caching_set *set, uint32_t tree,
                       struct caching_key key, uint32_t block)
{
    uint32_t *low = &blocks[block].left, *high = &blocks[block].right, below = block, above = block;
    while (tree != CACHING_NONE) {
        struct caching_block *b = &blocks[tree];
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
    *low = *high = CACHING_NONE;
}

void caching_set_insert(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    const struct caching_key key = caching_key_of(b);
    uint32_t *at = &set->root, up = CACHING_NONE;
    while (*at != CACHING_NONE && blocks[*at].priority >= b->priority) {
        up = *at;
        at = is_below(set, &blocks[up], key, false) ? &blocks[up].right : &blocks[up].left;
    }
    split_tree(blocks, set, *at, key, block);
    b->up = up;
    *at = block;
}

void caching_set_erase(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    uint32_t up = b->up, low = b->left, high = b->right;
    uint32_t *at = up == CACHING_NONE ? &set->root : blocks[up].left == block ? &blocks[up].left : &blocks[up].right;
    if (*at != block) return; /* it is not in the set */
    while (low != CACHING_NONE && high != CACHING_NONE) {
        const bool lower = blocks[low].priority >= blocks[high].priority;
        const uint32_t first = lower ? low : high;
        *at = first;
        blocks[first].up = up;
        up = first;
        at = lower ? &blocks[first].right : &blocks[first].left;
        if (lower)
            low = *at;
        else
            high = *at;
    }
    *at = low != CACHING_NONE ? low : high;
    if (*at != CACHING_NONE) blocks[*at].up = up;
    b->left = b->right = b->up = CACHING_NONE;
}

uint32_t caching_set_find(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key,
                          bool above)
{
    uint32_t found = CACHING_NONE;
    for (uint32_t at = set->root; at != CACHING_NONE;) {
        if (is_below(set, &blocks[at], key, above)) {
            at = blocks[at].right;
        } else {
            found = at;
            at = blocks[at].left;
        }
    }
    return found;
}

uint32_t caching_set_before(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key)
{
    uint32_t found = CACHING_NONE;
    for (uint32_t at = set->root; at != CACHING_NONE;) {
        if (is_below(set, &blocks[at], key, false)) {
            found = at;
            at = blocks[at].right;
        } else {
            at = blocks[at].left;
        }
    }
    return found;
}
