/* What the source states about lines of one loop: which of them run only under a condition, such as
 * `if step % 100 == 0:`. Reads Python and languages with braces by their indentation. For step_choice.c. */
#pragma once

#include "analyzer/run/run.h"

struct step_gate {
    bool guarded;   /* a condition, or `if …: continue` before it, decides whether the line runs */
    bool enclosed;  /* … the first of these */
    bool modulo;    /* the condition has a `%` */
    uint64_t every; /* 100 of `step % 100`, 0 unknown */
};

/* The line of the header of the innermost loop around the frame's line, or around the loop `inner` if it is not 0. 0:
 * there is none in the function, or its source is unknown. */
int step_gate_loop(struct run *run, const struct run_frame *f, int inner);
/* What guards the line within that loop, or within its function if `loop` is 0. False: the loop does not contain the
 * line. */
bool step_gate_read(struct run *run, const struct run_frame *f, int loop, struct step_gate *gate);
/* Does a loop of a function that a call path went through below `outer`, or a comprehension, contain it? */
bool step_gate_repeats(struct run *run, uint32_t stack, uint32_t outer);
