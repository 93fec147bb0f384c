/* PyTorch's settings, from its environment variable and from what was observed. */
#include "analyzer/run/settings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/run/run_internal.h"
#include "analyzer/base/words.h"

WORDS_FUNCTION(run_backend_word, enum run_backend, RUN_BACKENDS, WORDS_FIRST, "unknown")

/* The end of an entry of "key:value,key:[256:1,512:2,>:8]": a comma outside of brackets. */
static const char *entry_end(const char *p)
{
    int depth = 0;
    for (; *p && (depth || *p != ','); p++) depth += (*p == '[') - (*p == ']' && depth);
    return p;
}

static void trim_setting(const char **from, const char **to)
{
    while (*from < *to && strchr(" \t'\"", **from)) (*from)++;
    while (*to > *from && strchr(" \t'\"", (*to)[-1])) (*to)--;
}

/* The last entry of a key counts, as in PyTorch, which applies them one after the other. */
bool run_conf_value(const char *conf, const char *key, const char **value, size_t *length)
{
    bool found = false;
    const char *end;
    for (const char *p = conf; *p; p = *end ? end + 1 : end) {
        end = entry_end(p);
        const char *colon = memchr(p, ':', (size_t)(end - p));
        if (!colon) continue;
        const char *from = p, *to = colon;
        trim_setting(&from, &to);
        if ((size_t)(to - from) != strlen(key) || strncmp(from, key, (size_t)(to - from)) != 0) continue;
        from = colon + 1, to = end;
        trim_setting(&from, &to);
        *value = from;
        *length = (size_t)(to - from);
        found = true;
    }
    return found;
}

/* PyTorch reads PYTORCH_ALLOC_CONF since 2.9, and since 2.10 only if PYTORCH_CUDA_ALLOC_CONF is not set. Of 2.9, and if
 * the version is unknown, it is not known which one takes precedence. Measured with libc10 and libc10_cuda of 2.6 to
 * 2.15. */
int run_confs(struct run *run, uint32_t process, struct run_conf confs[2])
{
    static const char *const names[] = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};
    size_t processes;
    const struct run_process *list = run_processes(run, &processes);
    const char *version = process < processes ? list[process].torch_version : NULL;
    unsigned major = 0, minor = 0;
    const bool known = version && sscanf(version, "%3u.%3u", &major, &minor) == 2;
    const unsigned release = major * 1000 + minor;
    int n = 0;
    for (int i = 0; i < 2; i++) {
        const char *text = run_setting_value(run, process, names[i]);
        if (!text || (i && known && (release < 2009 || (n && release > 2009)))) continue;
        confs[n++] = (struct run_conf){names[i], text};
    }
    return n;
}

enum asked { NOT_ASKED, ASKED, CONTRADICTED };
struct conf {
    struct run_conf list[2];
    int n;
};

static enum asked ask_setting(const struct conf *c, struct run *run, const char *key, const char **value)
{
    const char *at[2];
    size_t length[2];
    int found = 0;
    for (int i = 0; i < c->n; i++) found += run_conf_value(c->list[i].text, key, &at[found], &length[found]);
    if (!found) return NOT_ASKED;
    if (found < c->n || (found == 2 && (length[0] != length[1] || memcmp(at[0], at[1], length[0]))))
        return CONTRADICTED;
    *value = run_text(run, at[0], length[0]);
    return ASKED;
}

enum run_known run_is_called_by(const struct run *run, uint32_t stack, const char *module)
{
    const struct run_frame *f = stack == RUN_NONE ? NULL : run_stack_frame(run, stack);
    if (!f || f->kind != GS_FRAME_NATIVE || !f->module) return RUN_UNSURE;
    return strncmp(basename(f->module), module, strlen(module)) == 0 ? RUN_YES : RUN_NO;
}

/* A mapping by PyTorch's allocator is an expandable segment. Without native frames it may be another library's. */
static enum run_known has_mapped_segments(const struct run *run, uint32_t process)
{
    enum run_known seen = RUN_NO;
    RUN_EACH (m, run_mappers, run) {
        if (m->process == process) {
            enum run_known by = run_is_called_by(run, m->stack, "libc10_cuda");
            if (by == RUN_YES) return RUN_YES;
            seen = by == RUN_UNSURE ? RUN_UNSURE : seen;
        }
    }
    return seen;
}

static bool parse_truth(const char *value)
{
    return strcasecmp(value, "true") == 0 || strcmp(value, "1") == 0;
}

static void read_expandable(struct run_torch_settings *s, const struct conf *c, struct run *run, uint32_t process)
{
    const char *value = NULL;
    enum asked asked = ask_setting(c, run, "expandable_segments", &value);
    enum run_known seen = has_mapped_segments(run, process);
    if (seen == RUN_YES || (seen == RUN_UNSURE && asked == ASKED && parse_truth(value)))
        s->expandable = RUN_YES;
    else if (seen == RUN_NO && s->known && asked != CONTRADICTED)
        s->expandable = asked == ASKED && parse_truth(value) ? RUN_YES : RUN_NO;
}

static void read_backend(struct run_torch_settings *s, const struct conf *c, struct run *run, uint32_t process)
{
    const char *value = NULL;
    enum asked asked = ask_setting(c, run, "backend", &value);
    const char *none = run_setting_value(run, process, "PYTORCH_NO_CUDA_MEMORY_CACHING");
    if (none) /* that it is set at all is enough */
        s->backend = RUN_BACKEND_NONE;
    else if (asked == ASKED)
        s->backend = strcasecmp(value, "cudaMallocAsync") == 0 ? RUN_BACKEND_ASYNC : RUN_BACKEND_NATIVE;
    else if (asked == NOT_ASKED && s->known)
        s->backend = RUN_BACKEND_NATIVE;
}

static void read_split_settings(struct run_torch_settings *s, const struct conf *c, struct run *run)
{
    const char *value = NULL;
    enum asked asked = ask_setting(c, run, "max_split_size_mb", &value);
    s->max_split_bytes = asked == CONTRADICTED || !s->known ? RUN_UNKNOWN : 0;
    if (asked == ASKED) {
        double mib = strtod(value, NULL);
        s->max_split_bytes = mib > 0 && mib < 1e12 ? (int64_t)(mib * (1 << 20)) : RUN_UNKNOWN;
    }
    asked = ask_setting(c, run, "garbage_collection_threshold", &value);
    s->gc_threshold = asked == CONTRADICTED || !s->known ? NAN : 0;
    if (asked == ASKED) {
        double share = strtod(value, NULL);
        s->gc_threshold = share > 0 && share < 1 ? share : NAN;
    }
}

struct run_torch_settings run_torch_settings(struct run *run, uint32_t process)
{
    struct run_torch_settings s = {.known = run_settings_are_known(run, process)};
    struct conf c;
    c.n = run_confs(run, process, c.list);
    if (c.n) s.variable = c.list[0].variable, s.text = c.list[0].text;
    read_expandable(&s, &c, run, process);
    read_backend(&s, &c, run, process);
    read_split_settings(&s, &c, run);
    return s;
}
