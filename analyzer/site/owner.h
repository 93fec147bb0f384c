/* Whose memory an allocation is: PyTorch's allocator, NCCL, cuBLAS, a framework's pool, the program's own
 * library. An inference from the frames that made it, by the table in owner.def; where the frames do not
 * tell, the owner is unknown. */
#ifndef GPUSPY_OWNER_H
#define GPUSPY_OWNER_H

#include <stddef.h>
#include <stdint.h>
#include "analyzer/result/result.h"

struct gs_builder;
struct gs_by_owner;
struct gs_observer;

/* A small number; 0 is the unknown owner. Stacks are looked at once. Looks symbols up. */
uint32_t gs_owner_of(struct gs_builder *b, uint32_t stack);
/* The same of a location of the device layer: where stacks are too short to tell, PyTorch's own totals
 * tell its segments. Only after the location's first allocation in the replay. */
uint32_t gs_owner_of_location(struct gs_builder *b, uint32_t location);
/* "NCCL", "solver.so"; of 0 "unknown". */
const char *gs_owner_word(const struct gs_builder *b, uint32_t owner);
enum gs_owner_kind gs_owner_kind(const struct gs_builder *b, uint32_t owner);
/* The file of the frame that decided, where it was first seen; NULL unknown. */
const char *gs_owner_by(const struct gs_builder *b, uint32_t owner);

/* A sum by owner over locations of the device layer. */
struct gs_owned;
struct gs_owned *gs_owned_new(struct gs_builder *b);
void gs_owned_add(struct gs_owned *o, uint32_t location, int64_t bytes, uint64_t count);
/* Heaviest first, in the report's arena; frees `o`. */
struct gs_by_owner *gs_owned_list(struct gs_owned *o, size_t *n);
/* What is live in a series of the device layer at this moment of the replay; of GS_NONE nothing. */
struct gs_by_owner *gs_owned_now(struct gs_builder *b, uint32_t series, size_t *n);

struct gs_owners;
/* Before the others of the replay; b->owners from here to gs_owners_free. */
void gs_owners_start(struct gs_builder *b, struct gs_observer *observer);
void gs_owners_free(struct gs_builder *b);

#endif
