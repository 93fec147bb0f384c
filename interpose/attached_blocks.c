/* The program itself could make the same calls at the same place (memory_snapshot takes the allocator's lock with
 * the GIL held, as each allocation from Python does), so they cannot cause a deadlock. Nothing is imported, no CUDA
 * function is called, and the list is not requested if it would contain the allocator's history, which takes long.
 *
 * The records have the time before the list was made. A block that is freed after that time is in the list, and its
 * free has a later time; one that is freed earlier is not in it. One that is allocated in between is in the list and
 * is also recorded: the store counts it once. */
#include "interpose/attached_blocks.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "interpose/recorder.h"
#include "interpose/resolve.h"
#include "interpose/setting.h"
#include "interpose/state.h"
#include "schema/event.h"

typedef struct _object PyObject;

/* Python's own functions, all from its stable interface. */
static struct {
    int (*is_initialized)(void);
    int (*call_soon)(int (*function)(void *), void *argument);
    PyObject *(*of_sys)(const char *name);               /* borrowed */
    PyObject *(*item)(PyObject *dict, const char *name); /* borrowed */
    PyObject *(*get)(PyObject *o, const char *name);
    PyObject *(*call)(PyObject *function, PyObject *arguments);
    int (*is_true)(PyObject *o);
    intptr_t (*length)(PyObject *list);
    PyObject *(*at)(PyObject *list, intptr_t i); /* borrowed */
    long long (*number)(PyObject *o);
    const char *(*utf8)(PyObject *o);
    void (*clear)(void);
    int (*raised_is)(PyObject *type);
    void (*fetch)(PyObject **type, PyObject **value, PyObject **traceback); /* owned */
    void (*restore)(PyObject *type, PyObject *value, PyObject *traceback);
    void (*release)(PyObject *o);
    PyObject *const *exceptions[5]; /* exceptions that PyTorch's functions raise themselves */
} py;

static const struct {
    const char *name;
    void *slot;
} names[] = {
    {"Py_IsInitialized", &py.is_initialized},
    {"Py_AddPendingCall", &py.call_soon},
    {"PySys_GetObject", &py.of_sys},
    {"PyDict_GetItemString", &py.item},
    {"PyObject_GetAttrString", &py.get},
    {"PyObject_CallObject", &py.call},
    {"PyObject_IsTrue", &py.is_true},
    {"PyList_Size", &py.length},
    {"PyList_GetItem", &py.at},
    {"PyLong_AsLongLong", &py.number},
    {"PyUnicode_AsUTF8", &py.utf8},
    {"PyErr_Clear", &py.clear},
    {"PyErr_ExceptionMatches", &py.raised_is},
    {"PyErr_Fetch", &py.fetch},
    {"PyErr_Restore", &py.restore},
    {"Py_DecRef", &py.release},
    {"PyExc_AssertionError", &py.exceptions[0]},
    {"PyExc_AttributeError", &py.exceptions[1]},
    {"PyExc_MemoryError", &py.exceptions[2]},
    {"PyExc_RuntimeError", &py.exceptions[3]},
    {"PyExc_TypeError", &py.exceptions[4]},
};

static _Atomic uint32_t asked; /* the session that requested the blocks; 0: none */
static pid_t asked_in;
/* Exceptions raised by a signal handler of the program, which Python runs inside the functions that are called here:
 * Ctrl-C, a timeout. They belong to the program and are passed on to it. */
static struct {
    PyObject *type, *value, *traceback;
} programs;

/* ---------------------------------------------------------------- Python's values */

static void release_object(PyObject *o)
{
    if (o) py.release(o);
}

static PyObject *attribute_of(PyObject *o, const char *name)
{
    PyObject *value = o ? py.get(o, name) : NULL;
    if (o && !value) py.clear();
    return value;
}

static void take_exception(void)
{
    for (size_t i = 0; i < sizeof py.exceptions / sizeof *py.exceptions; i++) {
        if (!py.raised_is(*py.exceptions[i])) continue;
        py.clear();
        return;
    }
    py.fetch(&programs.type, &programs.value, &programs.traceback);
}

/* What a function without arguments returns; NULL: it is missing or raised an exception. */
static PyObject *call_result_of(PyObject *o, const char *name)
{
    PyObject *function = programs.type ? NULL : attribute_of(o, name);
    PyObject *value = function ? py.call(function, NULL) : NULL;
    if (function && !value) take_exception();
    release_object(function);
    return value;
}

/* What a pending call returns. */
static int give_back_exception(void)
{
    if (!programs.type) return 0;
    py.restore(programs.type, programs.value, programs.traceback);
    programs.type = NULL;
    return -1;
}

static bool does_call_return(PyObject *o, const char *name, int expected)
{
    PyObject *value = call_result_of(o, name);
    const int is = value ? py.is_true(value) : -1;
    release_object(value);
    return is == expected;
}

static long long dict_number_of(PyObject *dict, const char *name, long long otherwise)
{
    PyObject *value = py.item(dict, name);
    const long long n = value ? py.number(value) : otherwise;
    if (n == -1) py.clear();
    return n;
}

static bool is_live(PyObject *block)
{
    PyObject *state = py.item(block, "state");
    const char *text = state ? py.utf8(state) : NULL;
    if (state && !text) py.clear();
    return text && strcmp(text, "active_allocated") == 0;
}

/* Returns -1 if it is not a list. */
static intptr_t list_length_of(PyObject *list)
{
    const intptr_t n = list ? py.length(list) : -1;
    if (list && n < 0) py.clear();
    return n;
}

/* ---------------------------------------------------------------- records */

struct listing {
    struct gs_writer writer;
    uint64_t time_ns;
    unsigned long blocks;
    bool full; /* the spool has no room for more */
};

static void *begin_listing_record(struct listing *l, size_t bytes, uint8_t type, uint8_t flags)
{
    const uint16_t size = (uint16_t)((bytes + 7) & ~(size_t)7);
    struct gs_rec *r = l->full ? NULL : gs_writer_reserve(&l->writer, size);
    l->full = !r;
    if (!r) return NULL;
    memset(r, 0, size);
    *r = (struct gs_rec){.size = size, .type = type, .flags = flags, .stack = 1, .time_ns = l->time_ns};
    return r;
}

static void define_listing_stack(struct listing *l)
{
    static const char name[] = "(allocated before gpuspy attached)";
    struct gs_rec_frame_python *f = begin_listing_record(l, sizeof *f + sizeof name - 1, GS_REC_FRAME_PYTHON, 0);
    if (!f) return;
    f->frame = 1;
    f->function_len = sizeof name - 1;
    memcpy(f + 1, name, sizeof name - 1);
    gs_writer_commit(&l->writer, f->rec.size);
    struct gs_rec_stack *s = begin_listing_record(l, sizeof *s + sizeof s->frames[0], GS_REC_STACK, 0);
    if (!s) return;
    s->depth = s->frames[0] = 1;
    gs_writer_commit(&l->writer, s->rec.size);
}

static void record_block(struct listing *l, PyObject *segment, uint64_t address, long long bytes, long long requested)
{
    struct gs_rec_tensor *r = begin_listing_record(l, sizeof *r, GS_REC_TENSOR, GS_FLAG_BEFORE);
    if (!r) return;
    r->address = address;
    r->bytes = bytes;
    r->stream = (uint64_t)dict_number_of(segment, "stream", 0);
    r->extra = requested > 0 && requested <= bytes && bytes - requested < GS_EXTRA_UNKNOWN
                   ? (uint32_t)(bytes - requested)
                   : GS_EXTRA_UNKNOWN;
    r->api = GS_API_TORCH_USAGE;
    r->device = (int8_t)dict_number_of(segment, "device", -1);
    r->layer = GS_LAYER_TENSOR;
    gs_writer_commit_more(&l->writer, r->rec.size);
    l->blocks++;
}

static void record_segment(struct listing *l, PyObject *segment)
{
    PyObject *blocks = py.item(segment, "blocks");
    const intptr_t n = list_length_of(blocks);
    long long address = dict_number_of(segment, "address", 0);
    for (intptr_t i = 0; i < n; i++) {
        PyObject *block = py.at(blocks, i);
        const long long bytes = dict_number_of(block, "size", 0);
        address = dict_number_of(block, "address", address);
        if (bytes > 0 && address > 0 && is_live(block))
            record_block(l, segment, (uint64_t)address, bytes, dict_number_of(block, "requested_size", 0));
        address += bytes;
    }
}

static void record_list(PyObject *cuda)
{
    struct listing l = {.full = false};
    char text[24];
    gs_writer_open(&l.writer, gs_session_spool());
    l.writer.impatient = true;
    gs_writer_busy(&l.writer); /* no reader passes this time before the blocks are written */
    l.time_ns = gs_now();
    PyObject *segments = call_result_of(cuda, "memory_snapshot");
    const intptr_t n = list_length_of(segments);
    if (n >= 0) define_listing_stack(&l);
    for (intptr_t i = 0; i < n; i++) record_segment(&l, py.at(segments, i));
    release_object(segments);
    snprintf(text, sizeof text, "%lu", l.blocks);
    if (n >= 0) gs_setting_write(&l.writer, GS_FACT_ATTACHED_BLOCKS, text, GS_FLAG_FACT);
    gs_writer_idle(&l.writer);
    gs_writer_close(&l.writer);
}

/* ---------------------------------------------------------------- */

/* Runs in the main thread, with the GIL. */
static int record_listing(void *unused)
{
    const int saved = errno;
    const uint32_t session = atomic_exchange(&asked, 0);
    (void)unused;
    if (session && session == atomic_load(&gs_session_live) && asked_in == getpid() && py.is_initialized()) {
        PyObject *modules = py.of_sys("modules"), *torch = modules ? py.item(modules, "torch") : NULL;
        PyObject *cuda = attribute_of(torch, "cuda"), *implementation = attribute_of(torch, "_C");
        if (does_call_return(cuda, "is_initialized", 1) &&
            does_call_return(implementation, "_cuda_isHistoryEnabled", 0))
            record_list(cuda);
        release_object(implementation);
        release_object(cuda);
    }
    errno = saved;
    return give_back_exception();
}

static bool find_python_functions(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = gs_real_dlsym(RTLD_DEFAULT, names[i].name);
        if (!found) return false;
        memcpy(names[i].slot, &found, sizeof found);
    }
    return py.is_initialized();
}

void gs_attached_blocks_ask(void)
{
    if (!find_python_functions()) return;
    asked_in = getpid();
    atomic_store(&asked, atomic_load(&gs_session_live));
    if (py.call_soon(record_listing, NULL) != 0) atomic_store(&asked, 0);
}

void gs_attached_blocks_drop(void)
{
    atomic_store(&asked, 0);
}
