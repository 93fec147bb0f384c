/* Whose memory it is: what frameworks took in advance, beside a device's parts. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/text/view_text_parts.h"

void view_text_preallocations(const struct view_text *v, uint32_t process, int device)
{
    const struct gs_report *r = v->report;

    for (size_t i = 0; i < r->preallocations_n; i++) {
        const struct gs_preallocation *p = &r->preallocations[i];
        char line[512];
        if (p->process != process || p->device != device) continue;
        term_clean(line, sizeof line, p->said, v->term.utf8);
        view_wrap(v, INDENT, "", line);
    }
}
