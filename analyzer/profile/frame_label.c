#include "analyzer/profile/frame_label.h"

#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "schema/event.h"

const char *gs_frame_function(const struct gs_frame *f, char out[GS_LABEL])
{
    char module[GS_LABEL];
    const char *slash = f->module ? strrchr(f->module, '/') : NULL;
    if (f->function && *f->function) {
        return term_clean(out, GS_LABEL, f->function, true);
    }
    if (f->kind != GS_FRAME_NATIVE) {
        return strcpy(out, "??");
    }
    term_clean(module, sizeof module, slash ? slash + 1 : f->module, true);
    text_put(out, GS_LABEL, *module ? "%s+0x%llx" : "%s0x%llx", module, (unsigned long long)f->offset);
    return out;
}

const char *gs_frame_label(const struct gs_frame *f, const char *cwd, char out[GS_LABEL])
{
    char function[GS_LABEL], place[GS_LABEL / 4] = "", line[16] = "";
    const char *slash = f->module ? strrchr(f->module, '/') : NULL;
    const char *file = f->file ? f->file : f->function ? (slash ? slash + 1 : f->module) : NULL;
    gs_frame_function(f, function);
    if (!file) {
        return strcpy(out, function);
    }
    text_path(place, sizeof place, file, cwd, (int)sizeof place / 4, true);
    if (f->file && f->line) {
        snprintf(line, sizeof line, ":%d", f->line);
    }
    function[term_fit(function, GS_LABEL / 2)] = 0;
    text_put(out, GS_LABEL, "%s (%s%s)", function, place, line);
    return out;
}

const char *gs_run_cwd(const struct gs_run *run)
{
    size_t n;
    const struct gs_process *p = gs_run_processes(run, &n);
    for (size_t i = 1; i < n; i++) {
        if (!p[i].cwd || !p[0].cwd || strcmp(p[i].cwd, p[0].cwd) != 0) {
            return NULL;
        }
    }
    return n ? p[0].cwd : NULL;
}
