/* What-ifs compared with the recording, for a terminal and as JSON. */
#pragma once

#include <jansson.h>
#include "analyzer/view/view_text.h"
#include "analyzer/whatif/whatif.h"

struct view_whatif {
    struct run *run;
    const struct whatif_proof *proof;
    const struct whatif_scenario *scenarios;
    size_t n;
    bool search; /* settings, best first, then GPUs: also prints commands to type next */
};

void view_whatif(const struct draw_text *t, const struct view_whatif *w);
/* Members of `o`: recorded, whatif, replay. */
void view_whatif_json(json_t *o, const struct view_whatif *w);
