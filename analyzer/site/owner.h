/* The owner of an allocation: PyTorch's allocator, NCCL, cuBLAS, a framework's pool, the program's own library. An
 * inference from the frames that made it, by the table in owner.def; if the frames do not decide, the owner is unknown.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "analyzer/result/result.h"

struct site_builder;
struct result_by_owner;
struct run_observer;

/* A small number; 0 is the unknown owner. Each stack is examined once. Looks symbols up. */
uint32_t site_owner_of(struct site_builder *b, uint32_t stack);
/* The same of a CUDA allocation: in a PyTorch snapshot, PyTorch's allocator makes all of them. */
uint32_t site_owner_of_segment(struct site_builder *b, uint32_t stack);
/* The same for a location of the device layer: if stacks are too short to decide, PyTorch's own totals identify its
 * segments. Only after the location's first allocation in the replay. */
uint32_t site_owner_of_location(struct site_builder *b, uint32_t location);
/* "NCCL", "solver.so"; "unknown" for 0. */
const char *site_owner_word(const struct site_builder *b, uint32_t owner);
enum result_owner_kind site_owner_kind(const struct site_builder *b, uint32_t owner);

/* A sum by owner over locations of the device layer. */
struct site_owned;
struct site_owned *site_owned_new(struct site_builder *b);
void site_owned_add(struct site_owned *o, uint32_t location, int64_t bytes, uint64_t count);
/* Largest first, in the report's arena; frees `o`. */
struct result_by_owner *site_owned_list(struct site_owned *o, size_t *n);
/* The live memory of a series of the device layer, by owner, at this moment of the replay; empty for RUN_NONE. */
struct result_by_owner *site_owned_now(struct site_builder *b, uint32_t series, size_t *n);

struct site_owners;
/* Before the others of the replay; b->owners from here to site_owners_free. */
void site_owners_start(struct site_builder *b, struct run_observer *observer);
void site_owners_free(struct site_builder *b);
