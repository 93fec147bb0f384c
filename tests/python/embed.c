/* embed LIBSTACKPROBE LIBPYTHON PYTHONHOME: a C program that loads CPython late, with RTLD_LOCAL, as a plugin would,
 * and unloads it again. Prints its stack before, from inside (twice, from two interpreters one after the other) and
 * after; test_matrix.py has the expected ones. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct object object;
struct method {
    const char *name;
    object *(*function)(object *, object *);
    int flags;
    const char *doc;
};
enum { NO_ARGUMENTS = 4 };

static unsigned (*probe_stack)(unsigned what, char *text, size_t n);
static object *(*none)(const char *);
static char text[1 << 18];

static void show(const char *title)
{
    probe_stack(3, text, sizeof text);
    printf("[%s]\n%s", title, text);
    fflush(stdout);
}

static object *show_from_python(object *self, object *arguments)
{
    show("inside");
    return none("");
}

static struct method method = {"show", show_from_python, NO_ARGUMENTS, NULL};

static void *need(void *lib, const char *name)
{
    void *at = lib ? dlsym(lib, name) : NULL;
    if (!at) {
        fprintf(stderr, "embed: no %s: %s\n", name, dlerror());
        exit(2);
    }
    return at;
}

static const char source[] = "def inner():\n"
                             "    show()\n"
                             "class A:\n"
                             "    def method(self):\n"
                             "        inner()\n"
                             "A().method()\n";

static void live(void *python)
{
    void (*initialize)(int) = need(python, "Py_InitializeEx");
    int (*finalize)(void) = need(python, "Py_FinalizeEx");
    int (*run)(const char *) = need(python, "PyRun_SimpleString");
    object *(*module)(const char *) = need(python, "PyImport_AddModule");
    object *(*wrap)(struct method *, object *, object *) = need(python, "PyCFunction_NewEx");
    int (*set)(object *, const char *, object *) = need(python, "PyObject_SetAttrString");
    none = need(python, "PyUnicode_FromString");
    initialize(0);
    set(module("__main__"), "show", wrap(&method, NULL, NULL));
    if (run(source)) exit(3);
    finalize();
}

int main(int argc, char **argv)
{
    if (argc != 4) return 2;
    setenv("PYTHONHOME", argv[3], 1);
    void *lib = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    int (*probe_open)(unsigned, unsigned) = need(lib, "probe_open");
    probe_stack = need(lib, "probe_stack");
    probe_open(3, 0);
    show("before");
    void *python = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    live(python);
    live(python);
    show("after");
    dlclose(python);
    show("closed");
    return 0;
}
