#include "analyzer/symbol/demangle.h"

#include <libiberty/demangle.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/each.h"

/* The demangler refuses names whose parts might not fit on the stack: from 1024 characters on, which real templates
 * exceed. Those are demangled on a large stack; names beyond `LONGEST` are not demangled. */
enum { SHORT = 1000, LONGEST = 1 << 14, STACK = 64 << 20, OUTPUT_MAX = 1 << 20 };

struct job {
    const char *name;
    int options;
    char *text;
    size_t n, cap;
    bool failed;
    jmp_buf out; /* a name of a few bytes can expand to gigabytes: demangling is aborted */
};

static void append_demangled(const char *text, size_t length, void *data)
{
    struct job *j = data;

    if (j->n + length >= OUTPUT_MAX) longjmp(j->out, 1);
    if (j->n + length + 1 > j->cap) {
        size_t cap = 2 * (j->n + length + 64);
        j->text = arena_realloc(j->text, cap, 1);
        j->cap = cap;
    }
    memcpy(j->text + j->n, text, length);
    j->n += length;
    j->text[j->n] = 0;
}

/* Rust's legacy names look like C++'s and end in a hash: the Rust demangler runs first and recognises its own. */
static void *run_demangler(void *data)
{
    struct job *j = data;

    if (setjmp(j->out)) {
        j->failed = true;
    } else if (!rust_demangle_callback(j->name, j->options, append_demangled, j)) {
        j->n = 0;
        j->failed = !cplus_demangle_v3_callback(j->name, j->options | DMGL_PARAMS | DMGL_TYPES, append_demangled, j);
    }
    return NULL;
}

static bool work_deep(struct job *j)
{
    pthread_attr_t attributes;
    pthread_t thread;

    if (pthread_attr_init(&attributes) != 0) return false;
    j->options = DMGL_NO_RECURSE_LIMIT;
    bool made = pthread_attr_setstacksize(&attributes, STACK) == 0 &&
                pthread_create(&thread, &attributes, run_demangler, j) == 0;
    pthread_attr_destroy(&attributes);
    return made && pthread_join(thread, NULL) == 0;
}

/* Without the suffixes of the linker and LLVM. */
static char *plain_name_of(const char *name)
{
    size_t n = strcspn(name, "@");
    const char *llvm = strstr(name, ".llvm.");

    if (n && llvm && llvm > name && (size_t)(llvm - name) < n) n = (size_t)(llvm - name);
    return strndup(name, n ? n : strlen(name));
}

/* "__solver_MOD_advance" and "_QMsolverPadvance" → "solver::advance". Intel's "solver_mp_advance_" could be a name in
 * C. */
static void demangle_fortran(char *name)
{
    static const struct {
        const char *start, *between; /* GNU's, LLVM's: names have no capital letters of their own */
    } styles[] = {{"__", "_MOD_"}, {"_QM", "P"}};
    EACH (s, styles, COUNT_OF(styles)) {
        const size_t start = strlen(s->start), between = strlen(s->between);
        char *at = strncmp(name, s->start, start) == 0 ? strstr(name + start, s->between) : NULL;
        const size_t n = at ? strlen(at + between) : 0;
        if (!n || at == name + start) continue;
        const size_t module = (size_t)(at - name) - start;
        memmove(name, name + start, module);
        memcpy(name + module, "::", 2);
        memmove(name + module + 2, at + between, n + 1);
        return;
    }
}

char *symbol_demangle(const char *name)
{
    char *plain = plain_name_of(name);
    struct job j = {.name = plain};

    if (plain) demangle_fortran(plain);
    const size_t length = plain ? strlen(plain) : 0;
    if (!plain || length > LONGEST || plain[0] != '_' || (plain[1] != 'Z' && plain[1] != 'R')) return plain;
    if (length < SHORT)
        run_demangler(&j);
    else
        j.failed = !work_deep(&j) || j.failed;
    if (j.failed || !j.n) {
        free(j.text);
        return plain;
    }
    free(plain);
    return j.text;
}
