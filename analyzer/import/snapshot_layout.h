/* The sizes of the blocks of a snapshot's history. Events state what the program requested; the block is larger if the
 * allocator used a whole free block, because it splits one only if more than 1 MiB remains. */
#pragma once

#include "analyzer/import/snapshot_read.h"

struct import_layout_piece {
    struct import_snapshot_piece *piece;
    bool block; /* else a segment */
};

/* Raises the sizes of `list`, which is the memory before event `first`, and of the events from `first` to `end`.
 * Devices keep their sizes if they have expandable segments, which are always split, or if the allocator cannot have
 * done this.
 */
void import_layout_sizes(struct import_snapshot *from, size_t first, size_t end, struct import_layout_piece *list,
                         size_t n);
