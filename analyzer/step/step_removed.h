/* The steps of a bounded recording whose rows were removed. For step.c. */
#pragma once

#include "analyzer/step/step.h"
#include "analyzer/step/step_tree.h"

struct step_removed_events { /* before the kept part */
    struct step_removed_event {
        uint64_t count, lost; /* lost: without rows */
        int64_t first_ns;
    } * of_stack;
    size_t of_stack_n;
    ARENA_LIST(int64_t, stayed_ns); /* of those that the kept part begins with, ascending */
};
struct step_removed {
    bool known;
    size_t n;
    int64_t first_ns; /* when the first one began */
};

void step_removed_add(struct step_removed_events *e, uint32_t stack, const struct step_removed_event *more);
/* `stayed`: it was not freed before the kept part. A removal that a kill cut short left others. */
void step_removed_add_row(struct step_removed_events *e, uint32_t stack, int64_t ns, bool stayed);
void step_removed_free(struct step_removed_events *e);
/* The removed allocations, or copies and waits, of a process; with `tensors` without PyTorch's segments. */
void step_removed_add_totals(struct step_removed_events *e, const struct run *run, uint32_t process, bool calls,
                             bool tensors);
/* From the paths below a place that was visited that often. */
struct step_removed step_removed_count(const struct step_removed_events *e, const struct step_place_tree *t,
                                       uint32_t place, uint64_t visits);
/* Adds them to the steps of the kept part. */
void step_removed_set(struct arena *arena, struct step_list *s, const struct run *run, const struct step_removed *r,
                      const struct step_removed_events *early);
size_t step_removed_at(const struct step_list *s, int64_t ns);      /* `ns` before the kept steps */
int64_t step_removed_start_ns(const struct step_list *s, size_t i); /* i < s->removed */
