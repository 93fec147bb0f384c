#include "analyzer/profile/frame_label.h"

#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

const char *profile_frame_function(const struct run_frame *f, char out[PROFILE_LABEL])
{
    char module[PROFILE_LABEL];
    if (f->function && *f->function) return terminal_clean(out, PROFILE_LABEL, f->function, true);
    if (f->kind != GS_FRAME_NATIVE) return strcpy(out, "??");
    terminal_clean(module, sizeof module, f->module ? basename(f->module) : NULL, true);
    text_put(out, PROFILE_LABEL, *module ? "%s+0x%llx" : "%s0x%llx", module, (unsigned long long)f->offset);
    return out;
}

const char *profile_frame_label(const struct run_frame *f, const char *cwd, char out[PROFILE_LABEL])
{
    char function[PROFILE_LABEL], place[PROFILE_LABEL / 4] = "", line[16] = "";
    const char *file = f->file ? f->file : f->function && f->module ? basename(f->module) : NULL;
    profile_frame_function(f, function);
    if (!file) return strcpy(out, function);
    text_path(place, sizeof place, file, cwd, (int)sizeof place / 4, true);
    if (f->file && f->line) snprintf(line, sizeof line, ":%d", f->line);
    function[terminal_fit(function, PROFILE_LABEL / 2)] = 0;
    text_put(out, PROFILE_LABEL, "%s (%s%s)", function, place, line);
    return out;
}

const char *profile_run_cwd(const struct run *run)
{
    size_t n;
    const struct run_process *p = run_processes(run, &n);
    for (size_t i = 1; i < n; i++)
        if (!p[i].cwd || !p[0].cwd || strcmp(p[i].cwd, p[0].cwd) != 0) return NULL;
    return n ? p[0].cwd : NULL;
}
