#include "analyzer/caching/block_set.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"

enum { SHARE_BITS = 4, SHARES = 1 << SHARE_BITS, BINS = (64 - 9 - SHARE_BITS + 1) * SHARES, WORDS = (BINS + 63) / 64 };

struct caching_bins {
    uint64_t filled[WORDS]; /* a bit for each bin that has a block */
    uint32_t roots[BINS];   /* the treap of each */
};

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

/* Sizes are binned: each power of two has SHARES bins. In units of 512 bytes, because all blocks are multiples of it.
 */
static unsigned bin_of(const struct caching_set *set, int64_t bytes)
{
    const uint64_t size = (uint64_t)bytes >> 9;
    if (set->by_address) return 0;
    if (size < SHARES) return (unsigned)size;
    const unsigned power = 63 - (unsigned)__builtin_clzll(size);
    return (power - SHARE_BITS + 1) * SHARES + (unsigned)(size >> (power - SHARE_BITS) & (SHARES - 1));
}

/* The first bin from `from` on that has a block; BINS: none. */
static unsigned next_bin(const struct caching_bins *bins, unsigned from)
{
    for (unsigned word = from / 64; word < WORDS; word++) {
        const uint64_t left = bins->filled[word] & (word == from / 64 ? ~(uint64_t)0 << from % 64 : ~(uint64_t)0);
        if (left) return word * 64 + (unsigned)__builtin_ctzll(left);
    }
    return BINS;
}

/* The last bin before `until` that has a block; BINS: none. */
static unsigned previous_bin(const struct caching_bins *bins, unsigned until)
{
    while (until-- > 0)
        if (bins->roots[until] != CACHING_NONE) return until;
    return BINS;
}

static struct caching_bins *set_bins_of(struct caching_set *set)
{
    if (!set->bins) {
        set->bins = arena_zeroed(1, sizeof *set->bins);
        memset(set->bins->roots, 0xff, sizeof set->bins->roots);
    }
    return set->bins;
}

static __attribute__((noinline)) void insert_in_tree(struct caching_block *blocks, const struct caching_set *set,
                                                     uint32_t *at, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    const struct caching_key key = caching_key_of(b);
    uint32_t up = CACHING_NONE;
    while (*at != CACHING_NONE && blocks[*at].priority >= b->priority) {
        up = *at;
        at = is_below(set, &blocks[up], key, false) ? &blocks[up].right : &blocks[up].left;
    }
    split_tree(blocks, set, *at, key, block);
    b->up = up;
    *at = block;
}

/* Most bins have one block. */
void caching_set_insert(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    const unsigned bin = bin_of(set, b->bytes);
    struct caching_bins *bins = set_bins_of(set);
    if (bins->roots[bin] != CACHING_NONE) {
        insert_in_tree(blocks, set, &bins->roots[bin], block);
        return;
    }
    b->left = b->right = b->up = CACHING_NONE;
    bins->roots[bin] = block;
    bins->filled[bin / 64] |= (uint64_t)1 << bin % 64;
}

static __attribute__((noinline)) void erase_from_tree(struct caching_block *blocks, uint32_t *root, uint32_t block)
{
    struct caching_block *b = &blocks[block];
    uint32_t up = b->up, low = b->left, high = b->right;
    uint32_t *at = up == CACHING_NONE ? root : blocks[up].left == block ? &blocks[up].left : &blocks[up].right;
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

void caching_set_erase(struct caching_block *blocks, struct caching_set *set, uint32_t block)
{
    const struct caching_block *b = &blocks[block];
    struct caching_bins *bins = set->bins;
    if (!bins) return;
    const unsigned bin = bin_of(set, b->bytes);
    if (b->left != CACHING_NONE || b->right != CACHING_NONE || b->up != CACHING_NONE) {
        erase_from_tree(blocks, &bins->roots[bin], block);
    } else if (bins->roots[bin] == block) {
        bins->roots[bin] = CACHING_NONE;
        bins->filled[bin / 64] &= ~((uint64_t)1 << bin % 64);
    }
}

static uint32_t find_in_bin(const struct caching_block *blocks, const struct caching_set *set, unsigned bin,
                            struct caching_key key, bool above)
{
    uint32_t found = CACHING_NONE;
    for (uint32_t at = set->bins->roots[bin]; at != CACHING_NONE;) {
        if (is_below(set, &blocks[at], key, above)) {
            at = blocks[at].right;
        } else {
            found = at;
            at = blocks[at].left;
        }
    }
    return found;
}

/* The first block of the streams above a stream. */
static uint32_t find_next_stream(const struct caching_block *blocks, const struct caching_set *set, uint64_t stream)
{
    const struct caching_key key = {.stream = stream + 1};
    uint32_t found = CACHING_NONE;
    if (stream == UINT64_MAX) return found;
    for (unsigned bin = next_bin(set->bins, 0); bin < BINS; bin = next_bin(set->bins, bin + 1)) {
        const uint32_t at = find_in_bin(blocks, set, bin, key, false);
        if (at != CACHING_NONE && (found == CACHING_NONE || blocks[at].stream < blocks[found].stream)) found = at;
    }
    return found;
}

uint32_t caching_set_find(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key,
                          bool above)
{
    if (!set->bins) return CACHING_NONE;
    for (unsigned bin = next_bin(set->bins, bin_of(set, key.bytes)); bin < BINS; bin = next_bin(set->bins, bin + 1)) {
        const uint32_t found = find_in_bin(blocks, set, bin, key, above);
        if (found != CACHING_NONE && blocks[found].stream == key.stream) return found;
    }
    return find_next_stream(blocks, set, key.stream);
}

uint32_t caching_set_before(const struct caching_block *blocks, const struct caching_set *set, struct caching_key key)
{
    unsigned bin = set->bins ? bin_of(set, key.bytes) + 1 : 0;
    while (bin && (bin = previous_bin(set->bins, bin)) < BINS) {
        uint32_t found = CACHING_NONE;
        for (uint32_t at = set->bins->roots[bin]; at != CACHING_NONE;) {
            if (is_below(set, &blocks[at], key, false)) {
                found = at;
                at = blocks[at].right;
            } else {
                at = blocks[at].left;
            }
        }
        if (found != CACHING_NONE && blocks[found].stream == key.stream) return found;
    }
    return CACHING_NONE;
}

void caching_set_free(struct caching_set *set)
{
    free(set->bins);
    set->bins = NULL;
}
