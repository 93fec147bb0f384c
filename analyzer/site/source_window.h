/* Passes that wait in a container for one backward pass, beside which the program empties it: an accumulation window, a
 * trajectory, a bank. From the names in its source. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/result/result_rows.h"

struct site_window {
    const char *into;         /* "bank", "self.values" */
    struct result_site empty; /* the statement that empties it, or calls what does */
    bool before;              /* … which it does before the backward pass */
};
/* `stack`: an allocation of one of the passes. False: another statement keeps it, too, its source is missing, or no
 * backward pass is beside what empties it. */
bool site_find_window(struct site_builder *b, uint32_t stack, struct site_window *window);
