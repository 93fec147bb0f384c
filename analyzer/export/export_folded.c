/* Folded stacks: one line per call path, with its frames joined by semicolons, and its weight. */
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/export/export.h"
#include "analyzer/profile/frame_label.h"

struct path { /* the text of a path, and where it ends at each depth */
    char *text;
    size_t text_cap;
    size_t *ends;
};

static void path_put(struct path *p, const struct profile_call_node *n, const char *cwd)
{
    char label[PROFILE_LABEL];
    size_t from = p->ends[n->depth - 1], length;
    profile_frame_label(n->frame, cwd, label);
    for (char *c = label; *c; c++) *c = *c == ';' ? ':' : *c;
    length = strlen(label);
    while (from + length + 2 > p->text_cap) {
        p->text_cap = p->text_cap ? p->text_cap * 2 : 4096;
        p->text = arena_realloc(p->text, p->text_cap, 1);
    }
    if (from) p->text[from++] = ';';
    memcpy(p->text + from, label, length);
    p->ends[n->depth] = from + length;
}

bool export_folded(struct export_run *e, char *error, size_t error_size)
{
    enum profile_what what = e->what == PROFILE_KINDS_N ? PROFILE_PEAK : e->what;
    struct profile *p = export_profile(e, what, false, error, error_size);
    if (!p) return false;
    struct profile_call_tree *t = profile_call_tree_build(e->run, p, e->native, NULL, NULL);
    struct path path = {.ends = arena_realloc(NULL, t->depth + 1, sizeof *path.ends)};
    const char *cwd = profile_run_cwd(e->run);
    path.ends[0] = 0;
    for (const struct profile_call_node *n = t->root; n; n = profile_call_next(n)) {
        if (n->depth) path_put(&path, n, cwd);
        if (n->self > 0) fprintf(e->out, "%.*s %lld\n", (int)path.ends[n->depth], path.text, (long long)n->self);
    }
    snprintf(e->note, sizeof e->note,
             p->n ? "%s, in %s; such as: flamegraph.pl --countname=%s --title='%s' FILE > flame.svg" : "nothing was %s",
             p->title, p->unit, p->unit, p->title);
    e->nothing = p->n == 0;
    ARENA_RELEASE(path.text, path.ends);
    profile_call_tree_free(t);
    profile_free(p);
    return true;
}
