#include "analyzer/symbol/symbol.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include "analyzer/base/arena.h"
#include "analyzer/symbol/module.h"
#include "analyzer/base/term.h"

static const char servers_variable[] = "DEBUGINFOD_URLS";

struct answer {
    uint64_t offset;                 /* key */
    struct run_symbol_place *places; /* the innermost first */
    size_t n, shown;                 /* shown: the one that represents all */
    UT_hash_handle hh;
};

struct loaded {
    char *key; /* build id, newline, path */
    const char *path;
    struct symbol_module *module; /* NULL: `problem` */
    const char *problem;
    struct answer *answers;
    UT_hash_handle hh;
};

struct symbolizer {
    struct loaded *modules;
    struct symbol_module_search search;
    char *folders; /* `search` points into it */
    char *servers; /* the environment's value, until it is used; NULL none */
};

/* Appended to the others, as an absolute path: libdw interprets relative ones as beside each module. */
static void add_symbol_folder(struct symbolizer *s, const char *folder)
{
    char *list, *absolute = realpath(folder, NULL);

    if (absolute && asprintf(&list, "%s%s%s", s->folders ? s->folders : "", s->folders ? ":" : "", absolute) >= 0) {
        free(s->folders);
        s->search.folders = s->folders = list;
    }
    free(absolute);
}

static void add_folders(struct symbolizer *s, const char *folders)
{
    char *copy = arena_copy(folders ? folders : ""), *save = NULL;

    for (char *f = strtok_r(copy, ":", &save); f; f = strtok_r(NULL, ":", &save)) add_symbol_folder(s, f);
    free(copy);
}

void symbolizer_use_debug_dir(struct symbolizer *s, const char *folders)
{
    char *others = s->folders;

    s->folders = NULL;
    add_folders(s, folders);
    add_folders(s, others);
    free(others);
}

struct symbolizer *symbolizer_new(void)
{
    struct symbolizer *s = arena_zeroed(1, sizeof *s);
    const char *folders = getenv("GPUSPY_DEBUG_PATH"), *servers = getenv(servers_variable);

    symbolizer_use_debug_dir(s, folders);
    s->servers = servers && *servers ? arena_copy(servers) : NULL;
    /* libdw would query the servers that distributions name in the environment: a report must not wait for a network,
     * or disclose what runs here. */
    unsetenv(servers_variable);
    return s;
}

bool symbolizer_use_servers(struct symbolizer *s, const char **servers, const char **problem)
{
    *servers = s->servers;
    if (!s->servers)
        *problem = "DEBUGINFOD_URLS contains no server";
    else if (!dlopen(MODULE_SERVER_LIBRARY, RTLD_NOW | RTLD_LOCAL))
        *problem = MODULE_SERVER_LIBRARY " is not installed; install libdebuginfod1";
    else
        s->search.servers = setenv(servers_variable, s->servers, 1) == 0;
    return s->search.servers;
}

static void set_recorded_time(void *symbolizer, int64_t real_ns)
{
    ((struct symbolizer *)symbolizer)->search.recorded_ns = real_ns;
}

static void free_answer(struct answer *a)
{
    for (size_t i = 0; i < a->n; i++)
        ARENA_RELEASE((char *)(uintptr_t)a->places[i].function, (char *)(uintptr_t)a->places[i].file);
    ARENA_RELEASE(a->places, a);
}

void symbolizer_free(struct symbolizer *s)
{
    struct loaded *m, *next_module;
    struct answer *a, *next_answer;

    if (!s) return;
    HASH_ITER(hh, s->modules, m, next_module)
    {
        HASH_ITER(hh, m->answers, a, next_answer)
        {
            HASH_DEL(m->answers, a);
            free_answer(a);
        }
        HASH_DEL(s->modules, m);
        if (m->module) symbol_module_close(m->module);
        ARENA_RELEASE(m->key, m);
    }
    ARENA_RELEASE(s->folders, s->servers, s);
}

static struct loaded *load_symbols(struct symbolizer *s, const char *path, const char *build_id)
{
    struct loaded *m;
    char *key;

    if (asprintf(&key, "%s\n%s", build_id ? build_id : "", path) < 0) return NULL;
    HASH_FIND_STR(s->modules, key, m);
    if (m) {
        free(key);
        return m;
    }
    m = arena_zeroed(1, sizeof *m);
    m->key = key;
    m->path = strchr(key, '\n') + 1;
    m->module = symbol_module_open(path, build_id, &s->search, &m->problem);
    HASH_ADD_KEYPTR(hh, s->modules, m->key, strlen(m->key), m);
    return m;
}

/* In "/usr/local/go/src/runtime/", or, if built with -trimpath, in "./runtime/". */
/* In "/usr/lib/go-1.22/src/runtime/" and its like: a program can have a folder src/runtime, too. */
static bool is_gos_runtime(const char *file)
{
    static const char *const roots[] = {"go", "toolchain@", "libexec"};
    const char *suffix = strrchr(file, '.'), *folder = strstr(file, "/src/runtime/"), *root = folder;
    if (!suffix || (strcmp(suffix, ".go") && strcmp(suffix, ".s"))) return false;
    while (root > file && root[-1] != '/') root--;
    return !strncmp(file, "./runtime/", 10) ||
           (folder && ANY_OF(r, roots, COUNT_OF(roots), strncmp(root, *r, strlen(*r)) == 0));
}

bool symbolizer_is_system_file(const char *file)
{
    static const char *const parts[] = {"/include/c++/",
                                        "/usr/include/",
                                        "/usr/lib/gcc/",
                                        "/lib/clang/",
                                        "/targets/x86_64-linux/include/",
                                        "/targets/sbsa-linux/include/",
                                        "/usr/local/cuda/include/",
                                        "/include/thrust/",
                                        "/cuda_runtime.h",
                                        "cgo-gcc-prolog", /* Go's: C's side of a call, and Go's */
                                        "_cgo_gotypes.go",
                                        "<autogenerated>"};

    if (!file || strncmp(file, "/rustc/", 7) == 0 || strstr(file, "/lib/rustlib/src/") || is_gos_runtime(file))
        return true;
    return ANY_OF(p, parts, COUNT_OF(parts), strstr(file, *p));
}

bool symbolizer_is_package_file(const char *file)
{
    static const char *const folders[] = {"/.cargo/registry/src/",
                                          "/.cargo/git/checkouts/", /* Rust's */
                                          "/go/pkg/mod/",           /* Go's */
                                          "/_deps/",
                                          "/vcpkg_installed/",
                                          "/.conan/",
                                          "/.conan2/", /* C++'s */
                                          "/site-packages/",
                                          "/dist-packages/",
                                          "/include/ATen/",
                                          "/include/c10/",
                                          "/include/torch/csrc/"}; /* headers of PyTorch and of others */
    const char *version = strstr(file, "@v"); /* of Go's modules, if built with -trimpath: "pool@v1.4.2/pool.go" */
    size_t digits = version ? strspn(version + 2, "0123456789") : 0;
    return (digits && version[2 + digits] == '.') || ANY_OF(p, folders, COUNT_OF(folders), strstr(file, *p));
}

static void fill_answer(struct answer *a, struct symbol_module *module)
{
    struct symbol_module_place found[MODULE_PLACES];
    size_t n = symbol_module_find(module, a->offset, found);

    a->places = arena_zeroed(n, sizeof *a->places);
    for (; a->n < n; a->n++)
        a->places[a->n] = (struct run_symbol_place){found[a->n].function, found[a->n].file, found[a->n].line};
    while (a->shown + 1 < a->n &&
           (symbolizer_is_system_file(a->places[a->shown].file) || !a->places[a->shown].function))
        a->shown++;
}

static struct answer *answer_at_offset(struct loaded *m, uint64_t offset)
{
    struct answer *a;

    HASH_FIND(hh, m->answers, &offset, sizeof offset, a);
    if (a) return a;
    a = arena_zeroed(1, sizeof *a);
    a->offset = offset;
    fill_answer(a, m->module);
    HASH_ADD(hh, m->answers, offset, sizeof a->offset, a);
    return a;
}

static struct answer *ask_symbol(struct symbolizer *s, const char *module_path, const char *build_id, uint64_t offset)
{
    struct loaded *m = module_path ? load_symbols(s, module_path, build_id) : NULL;

    return m && m->module ? answer_at_offset(m, offset) : NULL;
}

bool symbolizer_find(void *symbolizer, const char *module_path, const char *build_id, uint64_t offset,
                     const char **function, const char **file, int *line)
{
    struct answer *a = ask_symbol(symbolizer, module_path, build_id, offset);
    bool known = a && a->n;

    *function = known ? a->places[a->shown].function : NULL;
    *file = known ? a->places[a->shown].file : NULL;
    *line = known ? a->places[a->shown].line : 0;
    return known;
}

static size_t list_inlined_places(void *symbolizer, const char *module_path, const char *build_id, uint64_t offset,
                                  const struct run_symbol_place **places)
{
    struct answer *a = ask_symbol(symbolizer, module_path, build_id, offset);

    *places = a ? a->places : NULL;
    return a ? a->n : 0;
}

const struct run_symbol_more symbolizer_more = {.inlined = list_inlined_places, .recorded = set_recorded_time};

const char *symbolizer_lack(struct symbolizer *s, const char *module_path, const char *recorded_build_id,
                            const char **build_id)
{
    static const char *const words[] = {[MODULE_NOTHING] = "has no symbols",
                                        [MODULE_EXPORTS] = "names only the functions that it exports",
                                        [MODULE_SYMBOLS] = "has names of functions, but no lines",
                                        [MODULE_LINES] = NULL};
    struct loaded *m = load_symbols(s, module_path, recorded_build_id);

    *build_id = m && m->module ? symbol_module_build_id(m->module) : "";
    return !m ? "cannot be read" : m->module ? words[symbol_module_detail(m->module)] : m->problem;
}

const char *symbolizer_problem(const struct symbolizer *s, size_t i, const char **module_path)
{
    for (const struct loaded *m = s->modules; m; m = m->hh.next) {
        if (m->module || i--) continue;
        *module_path = m->path;
        return m->problem;
    }
    return NULL;
}

void symbolizer_complain(const struct symbolizer *s, bool all)
{
    const char *path, *problem;

    for (size_t i = 0; (problem = symbolizer_problem(s, i, &path)); i++)
        if (all || problem == symbol_module_changed)
            complain("'%s' %s; its functions are shown as addresses%s", path, problem,
                     problem == symbol_module_changed ? " (before the next rebuild: gpuspy symbolize)" : "");
}
