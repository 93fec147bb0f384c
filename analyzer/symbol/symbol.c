#include "analyzer/symbol/symbol.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "analyzer/symbol/module.h"

/* The C++ runtime's demangler (Itanium ABI, cxxabi.h, which is no C header). */
extern char *__cxa_demangle(const char *mangled, char *buffer, size_t *length, int *status);

struct answer {
    uint64_t offset; /* key */
    bool known;
    char *function, *file;
    int line;
    UT_hash_handle hh;
};

struct loaded {
    char *key; /* build id, newline, path */
    const char *path;
    struct module *module; /* NULL: `problem` */
    const char *problem;
    struct answer *answers;
    UT_hash_handle hh;
};

struct symbolizer {
    struct loaded *modules;
};

struct symbolizer *symbolizer_new(void)
{
    /* libdw would ask debuginfod servers, which distributions name in the environment: a report is
     * not the moment to wait for a network, or to tell it what runs here. */
    unsetenv("DEBUGINFOD_URLS");
    return calloc(1, sizeof(struct symbolizer));
}

static void answer_free(struct answer *a)
{
    free(a->function);
    free(a->file);
    free(a);
}

void symbolizer_free(struct symbolizer *s)
{
    struct loaded *m, *next_module;
    struct answer *a, *next_answer;

    if (!s)
        return;
    HASH_ITER(hh, s->modules, m, next_module)
    {
        HASH_ITER(hh, m->answers, a, next_answer)
        {
            HASH_DEL(m->answers, a);
            answer_free(a);
        }
        HASH_DEL(s->modules, m);
        if (m->module)
            module_close(m->module);
        free(m->key);
        free(m);
    }
    free(s);
}

static struct loaded *load(struct symbolizer *s, const char *path, const char *build_id)
{
    struct loaded *m;
    char *key;

    if (asprintf(&key, "%s\n%s", build_id ? build_id : "", path) < 0)
        return NULL;
    HASH_FIND_STR(s->modules, key, m);
    if (m || !(m = calloc(1, sizeof *m))) {
        free(key);
        return m;
    }
    m->key = key;
    m->path = strchr(key, '\n') + 1;
    m->module = module_open(path, build_id, &m->problem);
    HASH_ADD_KEYPTR(hh, s->modules, m->key, strlen(m->key), m);
    return m;
}

static char *demangle(const char *name)
{
    int status;
    char *plain = strncmp(name, "_Z", 2) == 0 ? __cxa_demangle(name, NULL, NULL, &status) : NULL;

    return plain ? plain : strdup(name);
}

static char *join(const char *folder, const char *file)
{
    char *path;

    if (file[0] == '/' || !folder)
        return strdup(file);
    return asprintf(&path, "%s/%s", folder, file) < 0 ? NULL : path;
}

static struct answer *answer(struct loaded *m, uint64_t offset)
{
    struct answer *a;
    struct module_place place;

    HASH_FIND(hh, m->answers, &offset, sizeof offset, a);
    if (a || !(a = calloc(1, sizeof *a)))
        return a;
    a->offset = offset;
    a->known = module_find(m->module, offset, &place);
    if (place.function)
        a->function = demangle(place.function);
    if (place.file) {
        a->file = join(place.folder, place.file);
        a->line = place.line;
    }
    HASH_ADD(hh, m->answers, offset, sizeof a->offset, a);
    return a;
}

bool symbolizer_name(void *symbolizer, const char *module_path, const char *build_id,
                     uint64_t offset, const char **function, const char **file, int *line)
{
    struct loaded *m = module_path ? load(symbolizer, module_path, build_id) : NULL;
    struct answer *a = m && m->module ? answer(m, offset) : NULL;

    *function = a ? a->function : NULL;
    *file = a ? a->file : NULL;
    *line = a ? a->line : 0;
    return a && a->known;
}

const char *symbolizer_problem(const struct symbolizer *s, size_t i, const char **module_path)
{
    for (const struct loaded *m = s->modules; m; m = m->hh.next) {
        if (m->module || i--)
            continue;
        *module_path = m->path;
        return m->problem;
    }
    return NULL;
}
