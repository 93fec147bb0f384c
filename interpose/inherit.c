#include "interpose/inherit.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct text {
    char at[3 * PATH_MAX];
    size_t used;
    bool cut;
};

static void add_inherited_text(struct text *t, const char *from, size_t len)
{
    if (len >= sizeof t->at - t->used) {
        t->cut = true;
        return;
    }
    memcpy(t->at + t->used, from, len);
    t->used += len;
    t->at[t->used] = 0;
}

/* A % in a folder's name is not a placeholder. */
static void add_preload_folder(struct text *t, const char *folder)
{
    for (const char *c = folder; *c; c++) add_inherited_text(t, "%%", *c == '%'), add_inherited_text(t, c, 1);
    add_inherited_text(t, "/", 1);
}

static void inherit_database(const struct gs_config *config)
{
    struct text t = {.used = 0};
    if (config->db[0] == '/' || config->cwd[0] != '/') return;
    add_preload_folder(&t, config->cwd);
    add_inherited_text(&t, config->db, strlen(config->db));
    if (!t.cut) setenv("GPUSPY_DB", t.at, 1);
}

/* The loader splits entries at colons and spaces, and searches for a name without a slash. */
static void inherit_preload(const struct gs_config *config)
{
    struct text t = {.used = 0};
    Dl_info own;
    const char *preload = getenv("LD_PRELOAD");
    if (!preload || config->cwd[0] != '/' || strpbrk(config->cwd, ": ")) return;
    if (!dladdr((void *)inherit_preload, &own) || !own.dli_fname || own.dli_fname[0] == '/') return;
    bool found = false;
    while (*preload) {
        const size_t len = strcspn(preload, ": ");
        if (strlen(own.dli_fname) == len && !strncmp(preload, own.dli_fname, len) && memchr(preload, '/', len)) {
            add_inherited_text(&t, config->cwd, strlen(config->cwd));
            add_inherited_text(&t, "/", 1);
            found = true;
        }
        add_inherited_text(&t, preload, len + (preload[len] != 0));
        preload += len + (preload[len] != 0);
    }
    if (found && !t.cut) setenv("LD_PRELOAD", t.at, 1);
}

void gs_inherit(const struct gs_config *config)
{
    inherit_database(config);
    inherit_preload(config);
}
