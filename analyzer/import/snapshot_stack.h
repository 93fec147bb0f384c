/* The call stacks of a snapshot. */
#pragma once

#include "analyzer/import/feed.h"
#include "analyzer/import/snapshot_read.h"

/* The stack of an event's or a block's frames, 0: none; `known` has those of earlier calls. */
uint32_t import_snapshot_stack(struct import_feed *feed, struct map *known, const struct import_list *frames);
