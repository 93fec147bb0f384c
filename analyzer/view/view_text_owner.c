/* Owners of memory: what frameworks preallocated, next to a device's parts. */
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/view/view_text_parts.h"

void view_text_preallocations(const struct draw_text *v, uint32_t process, int device, bool only_in_advance)
{
    const struct result_report *r = v->report;

    EACH_IN (p, r->preallocations) {
        char line[512];
        if (p->process != process || p->device != device || (only_in_advance && !p->in_advance)) continue;
        terminal_clean(line, sizeof line, p->sentence, v->term.utf8);
        draw_wrap(v, INDENT, "", "%s", line);
    }
}
