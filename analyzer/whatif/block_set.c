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

/* The subtree below the key, and the rest. */
static void split(struct whatif_block *blocks, const struct whatif_set *set, uint32_t tree, struct whatif_key key,
                  uint32_t *low, uint32_t *high)
{
    while (tree != WHATIF_NONE) {
        struct whatif_block *b = &blocks[tree];
        if (is_below(set, b, key, false)) {
            *low = tree;
            low = &b->right;
            tree = b->right;
        } else {
            *high = tree;
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
    uint32_t *at = &set->root;
    while (*at != WHATIF_NONE && blocks[*at].priority >= b->priority) {
        at = is_below(set, &blocks[*at], key, false) ? &blocks[*at].right : &blocks[*at].left;
    }
    split(blocks, set, *at, key, &b->left, &b->right);
    *at = block;
}

void whatif_set_erase(struct whatif_block *blocks, struct whatif_set *set, uint32_t block)
{
    const struct whatif_key key = whatif_key_of(&blocks[block]);
    uint32_t *at = &set->root, low = blocks[block].left, high = blocks[block].right;
    while (*at != block && *at != WHATIF_NONE) {
        at = is_below(set, &blocks[*at], key, false) ? &blocks[*at].right : &blocks[*at].left;
    }
    if (*at == WHATIF_NONE) return;
    while (low != WHATIF_NONE && high != WHATIF_NONE) {
        if (blocks[low].priority >= blocks[high].priority) {
            *at = low;
            at = &blocks[low].right;
            low = *at;
        } else {
            *at = high;
            at = &blocks[high].left;
            high = *at;
        }
    }
    *at = low != WHATIF_NONE ? low : high;
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
