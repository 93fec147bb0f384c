#include "interpose/python_failure.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "interpose/session.h"
#include "interpose/stack_elf.h"
#include "schema/mask.h"

typedef struct _object PyObject;
typedef int (*audit_hook)(const char *event, PyObject *arguments, void *self);

enum { ENTRIES = 2000, WORDS = 8 }; /* of a traceback: twice Python's limit of recursion; of an exception's arguments */

/* Python's own functions, all from its stable interface. */
static struct {
    int (*add_hook)(audit_hook hook, void *self);
    int (*is_initialized)(void);
    PyObject *(*occurred)(void);
    void (*clear)(void);
    PyObject *(*get)(PyObject *o, const char *name);
    PyObject *(*item)(PyObject *tuple, intptr_t i);
    intptr_t (*length)(PyObject *tuple);
    PyObject *(*type)(PyObject *o);
    PyObject *(*text)(PyObject *o);
    const char *(*utf8)(PyObject *o);
    long (*number)(PyObject *o);
    void (*release)(PyObject *o);
    int (*collects)(void); /* NULL before 3.10 */
} py;

static const struct {
    const char *name;
    void *slot;
} names[] = {
    {"PySys_AddAuditHook", &py.add_hook}, {"Py_IsInitialized", &py.is_initialized},
    {"PyErr_Occurred", &py.occurred},     {"PyErr_Clear", &py.clear},
    {"PyObject_GetAttrString", &py.get},  {"PyTuple_GetItem", &py.item},
    {"PyTuple_Size", &py.length},         {"PyObject_Type", &py.type},
    {"PyObject_Str", &py.text},           {"PyUnicode_AsUTF8", &py.utf8},
    {"PyLong_AsLong", &py.number},        {"Py_DecRef", &py.release},
    {"PyGC_IsEnabled", &py.collects}, /* the last row: may be missing */
};

static void release_value(PyObject *o)
{
    if (o) py.release(o);
}

static PyObject *attribute_value(PyObject *o, const char *name)
{
    PyObject *value = o ? py.get(o, name) : NULL;
    if (o && !value) py.clear();
    return value;
}

/* Copies an attribute if it is text; otherwise "". */
static void copy_text(char *out, size_t size, PyObject *of, const char *name)
{
    PyObject *value = attribute_value(of, name);
    const char *text = value ? py.utf8(value) : NULL;
    if (value && !text) py.clear();
    snprintf(out, size, "%s", text ? text : "");
    release_value(value);
}

static bool type_is(PyObject *o, const char *const *allowed)
{
    char name[32];
    PyObject *type = o ? py.type(o) : NULL;
    copy_text(name, sizeof name, type, "__name__");
    release_value(type);
    while (*allowed && strcmp(*allowed, name) != 0) allowed++;
    return *allowed != NULL;
}

/* Python itself makes the text from plain values: no code of the program runs for it. */
static bool is_plain_exception(PyObject *exception, PyObject *type)
{
    static const char *const of_c[] = {"wrapper_descriptor", NULL};
    static const char *const values[] = {"str", "int", "float", "bool", "NoneType", NULL};
    PyObject *method = attribute_value(type, "__str__");
    bool is = type_is(method, of_c);
    release_value(method);
    PyObject *arguments = is ? attribute_value(exception, "args") : NULL;
    const intptr_t n = arguments ? py.length(arguments) : -1;
    is = n >= 0 && n <= WORDS;
    for (intptr_t i = 0; is && i < n; i++) is = type_is(py.item(arguments, i), values); /* borrowed */
    release_value(arguments);
    return is;
}

/* The text of an exception whose class a C++ library made (nanobind, as JAX's errors): its first argument, so that no
 * code of the library runs. NULL: it is another kind of exception. */
static PyObject *first_argument(PyObject *exception, PyObject *type)
{
    static const char *const of_library[] = {"nb_method", NULL}, *const is_text[] = {"str", NULL};
    PyObject *method = attribute_value(type, "__str__");
    PyObject *arguments = type_is(method, of_library) ? attribute_value(exception, "args") : NULL;
    PyObject *first = arguments && py.length(arguments) > 0 ? py.item(arguments, 0) : NULL; /* borrowed */
    PyObject *text = type_is(first, is_text) ? py.text(first) : NULL;
    release_value(arguments);
    release_value(method);
    return text;
}

/* The text of TensorFlow's errors, whose __str__ is Python code: the attribute that it stores. NULL: another exception.
 */
static PyObject *stored_message(PyObject *exception, const char *module)
{
    static const char *const is_text[] = {"str", NULL};
    PyObject *stored =
        strcmp(module, "tensorflow.python.framework.errors_impl") == 0 ? attribute_value(exception, "_message") : NULL;
    PyObject *text = type_is(stored, is_text) ? py.text(stored) : NULL;
    release_value(stored);
    return text;
}

/* "ValueError: its first line", as at the end of Python's traceback; only the type if the text is not plain. */
static void describe_raised(char *out, size_t size, PyObject *exception)
{
    char module[128], name[128], text[512] = "", line[sizeof module + sizeof name + sizeof text + 8];
    PyObject *type = py.type(exception);
    copy_text(module, sizeof module, type, "__module__");
    copy_text(name, sizeof name, type, "__qualname__");
    PyObject *message = type && is_plain_exception(exception, type) ? py.text(exception) : NULL;
    if (type && !message) message = first_argument(exception, type);
    if (!message) message = stored_message(exception, module);
    const char *utf8 = message ? py.utf8(message) : NULL;
    if (!utf8) py.clear();
    if (utf8) {
        const char *node = strncmp(utf8, "{{function_node ", 16) == 0 ? strstr(utf8, "}} ") : NULL; /* of TensorFlow */
        utf8 = node ? node + 3 : utf8;
        utf8 += strspn(utf8, " \t\r\n");
        snprintf(text, sizeof text, "%.*s", (int)strcspn(utf8, "\r\n"), utf8);
    }
    release_value(message);
    release_value(type);
    const bool own = !strcmp(module, "builtins") || !strcmp(module, "__main__");
    snprintf(line, sizeof line, "%s%s%s%s%s", own ? "" : module, own || !*module ? "" : ".", name, *text ? ": " : "",
             text);
    gs_mask_arguments(out, size, line);
}

static bool is_a_librarys(const char *file)
{
    static const char *const parts[] = {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(file, parts[i])) return true;
    return false;
}

/* The program's innermost line, "train.py:31"; the innermost of all frames if none is the program's. */
static void locate_traceback(char *out, size_t size, PyObject *traceback)
{
    bool own = false;
    PyObject *entry = traceback;
    *out = 0;
    for (int i = 0; i < ENTRIES && entry; i++) {
        char file[GS_PLACE_BYTES - 24];
        PyObject *frame = attribute_value(entry, "tb_frame"), *code = attribute_value(frame, "f_code");
        PyObject *line = attribute_value(entry, "tb_lineno"), *next = attribute_value(entry, "tb_next");
        copy_text(file, sizeof file, code, "co_filename");
        const bool librarys = is_a_librarys(file);
        if (line && *file && (!librarys || !own)) snprintf(out, size, "%s:%ld", file, py.number(line));
        own = own || !librarys;
        release_value(line);
        release_value(code);
        release_value(frame);
        if (entry != traceback) release_value(entry);
        entry = next; /* the last one's is None, which has no such attributes */
    }
    if (entry && entry != traceback) release_value(entry);
}

/* Python calls it for every event that it audits, with its lock held. Returns 0: the event proceeds. */
static int on_event(const char *event, PyObject *arguments, void *self)
{
    char exception[GS_EXCEPTION_BYTES], place[GS_PLACE_BYTES];
    (void)self;
    if (event[0] != 's' || strcmp(event, "sys.excepthook") != 0 || py.occurred()) return 0;
    PyObject *value = py.item(arguments, 2), *traceback = py.item(arguments, 3);
    if (value) {
        describe_raised(exception, sizeof exception, value);
        locate_traceback(place, sizeof place, traceback);
        gs_session_exception(exception, place, py.collects && !py.collects());
    }
    py.clear();
    return 0;
}

static int find_python(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *at, *now;
        memcpy(&now, names[i].slot, sizeof now);
        if (!now && (at = gs_elf_symbol(info, names[i].name))) memcpy(names[i].slot, &at, sizeof at);
    }
    return 0;
}

/* Python's own options, before the script, -c or -m. */
static bool has_development_option(char *const *arguments)
{
    while (*arguments && *++arguments && **arguments == '-') {
        const char *option = strpbrk(*arguments + 1, "cmWX-");
        if (!option) continue;
        if (*option == 'c' || *option == 'm') return false;
        if (*option == '-' && strcmp(*arguments, "--check-hash-based-pycs") != 0) continue;
        const char *value = *option != '-' && option[1] ? option + 1 : *++arguments;
        if (!value) return false;
        if (*option == 'X' && strncmp(value, "dev", 3) == 0) return true;
    }
    return false;
}

/* Python then checks each free of its memory, from after its start on: it would abort when it frees a hook that was
 * added before. */
static bool will_check_memory(char *const *arguments)
{
    const char *allocator = getenv("PYTHONMALLOC"), *development = getenv("PYTHONDEVMODE");
    return (allocator && strstr(allocator, "debug")) || (development && *development) ||
           (arguments && has_development_option(arguments));
}

void gs_python_failure_load(char *const *arguments)
{
    gs_elf_each(find_python, NULL);
    for (size_t i = 0; i + 1 < sizeof names / sizeof *names; i++) {
        void *at;
        memcpy(&at, names[i].slot, sizeof at);
        if (!at) return;
    }
    if (!py.is_initialized() && !will_check_memory(arguments)) (void)py.add_hook(on_event, NULL);
}
