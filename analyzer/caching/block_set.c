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

/* The subtree below the key, and the rest. */
static void split(struct caching_block *blocks, const struct caching_set *set, uint32_t tree, struct caching_key key,
                  uint32_t *low, uint32_t *high)
{
    while (tree != CACHING_NONE) {
        struct caching_block *b = &blocks[tree];
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
    *low = *high = CACHING_NONE;
}

void caching_set_insert(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    const struct caching_key key = caching_key_of(b);
    uint32_t *at = &set->root;
    while (*at != CACHING_NONE && blocks[*at].priority >= b->priority) {
        at = is_below(set, &blocks[*at], key, false) ? &blocks[*at].right : &blocks[*at].left;
    }
    split(blocks, set, *at, key, &b->left, &b->right);
    *at = block;
}

void caching_set_erase(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    const struct caching_key key = caching_key_of(&blocks[block]);
    uint32_t *at = &set->root, low = blocks[block].left, high = blocks[block].right;
    while (*at != block && *at != CACHING_NONE) {
        at = is_below(set, &blocks[*at], key, false) ? &blocks[*at].right : &blocks[*at].left;
    }
    if (*at == CACHING_NONE) return;
    while (low != CACHING_NONE && high != CACHING_NONE) {
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
    *at = low != CACHING_NONE ? low : high;
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
