/* Finds the interpreter, and verifies its layout before using it. */
#include "interpose/stack_python.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include "interpose/resolve.h"
#include "interpose/stack.h"
#include "interpose/stack_memory.h"

/* Every thread may request this, only one at a time searches. */
enum state { NOT_FOUND, LOOKING, UNVERIFIED, SETTLED };
static _Atomic unsigned state;
static _Atomic unsigned long long seen_loads;
static struct gs_python python;  /* the one that was found; a process has at most one */
static unsigned startup_objects; /* this many objects, from the first, are never unloaded */

static int count_objects(struct dl_phdr_info *info, size_t size, void *to)
{
    (*(unsigned *)to)++;
    return 0;
}

__attribute__((constructor)) static void note_startup_objects(void)
{
    gs_elf_each(count_objects, &startup_objects);
}

/* --- symbols ---------------------------------------------------------------------------------- */

struct search {
    unsigned index, found_index;
    const char *(*version)(void);
};

static void take_symbol(const struct dl_phdr_info *info, const char *name, void *to)
{
    void *at = gs_elf_symbol(info, name);
    void *now;
    memcpy(&now, to, sizeof now);
    if (at && !now) memcpy(to, &at, sizeof at); /* the first definition in load order, as the linker binds it */
}

/* An executable may contain copies of data (copy relocations), never of functions: the functions determine which module
 * the interpreter is. */
static int find_python_in_object(struct dl_phdr_info *info, size_t size, void *to)
{
    struct search *s = to;
    unsigned index = s->index++;
    take_symbol(info, "PyCode_Type", &python.code_type);
    take_symbol(info, "PyUnicode_Type", &python.str_type);
    take_symbol(info, "PyBytes_Type", &python.bytes_type);
    take_symbol(info, "_PyRuntime", &python.runtime);
    if (s->version || !gs_elf_symbol(info, "Py_GetVersion")) return 0;
    take_symbol(info, "Py_GetVersion", &s->version);
    take_symbol(info, "Py_IsInitialized", &python.is_initialized);
    take_symbol(info, "PyGILState_GetThisThreadState", &python.this_thread);
    python.module = gs_elf_range(info);
    s->found_index = index;
    return 0;
}

static int first_object(struct dl_phdr_info *info, size_t size, void *to)
{
    *(unsigned long long *)to = info->dlpi_adds;
    return 1;
}

/* An interpreter that a plugin loaded could be unloaded with it: pin it. */
static void pin_python(const struct search *s)
{
    if (s->found_index && s->found_index >= startup_objects) gs_pin_later((const void *)python.module.lo);
}

/* 3.13 and later describe their own layout: it must agree with the table. */
static bool words_agree(void)
{
    const struct gs_python_layout *at = &python.at;
    if (at->words < 0) return true;
    if (!python.runtime || memcmp(python.runtime, "xdebugpy", 8)) return false;
    const uint64_t *words = (const uint64_t *)python.runtime;
    const uint64_t *thread = words + at->words;
    const uint64_t *frame = thread + (at->minor < 15 ? 9 : 17);
    const uint64_t *code = frame + (at->minor == 13 ? 6 : 8);
    const struct {
        uint64_t recorded;
        int expected;
    } pairs[] = {
        {words[1] >> 16, 3 << 8 | at->minor},
        {words[2], at->free_threaded},
        {thread[4], at->thread_frame},
        {frame[1], at->previous},
        {frame[2], at->code},
        {frame[3], at->ip},
        {frame[5], at->owner},
        {code[1], at->filename},
        {code[2], at->name},
        {code[3], at->qualname},
        {code[4], at->line_table},
        {code[5], at->first_line},
        {code[9], at->bytecode},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].recorded != (uint64_t)pairs[i].expected) return false;
    return true;
}

static bool is_code_type(void)
{
    const char *name = *(const char *const *)(python.code_type + python.at.type_name);
    void *dealloc = *(void *const *)(python.code_type + python.at.type_dealloc);
    const struct gs_elf_range *m = &python.module;
    uintptr_t n = (uintptr_t)name, d = (uintptr_t)dealloc;
    return n >= m->lo && n < m->hi && !strcmp(name, "code") && d >= m->lo && d < m->hi;
}

/* Returns the next state. */
static enum state find_layout(void)
{
    struct search s = {0};
    memset(&python, 0, sizeof python);
    gs_elf_each(find_python_in_object, &s);
    if (!s.version || !python.code_type) return NOT_FOUND;
    const char *version = s.version();
    snprintf(python.version, sizeof python.version, "%.*s", (int)strcspn(version, " "), version);
    if (!python.str_type || !python.bytes_type || !python.is_initialized || !python.this_thread) {
        gs_stack_lacks("no Python stacks: Python %s does not export what is needed", python.version);
        return SETTLED;
    }
    if (!gs_python_layout_of(version, &python.at)) {
        gs_stack_lacks("no Python stacks: this version of gpuspy does not know Python %s", python.version);
        return SETTLED;
    }
    if (!words_agree() || !is_code_type()) {
        gs_stack_lacks("no Python stacks: this build of Python %s is laid out differently", python.version);
        return SETTLED;
    }
    pin_python(&s);
    return UNVERIFIED;
}

/* --- verifying -------------------------------------------------------------------------------- */

/* Reads memory that may not be mapped. False: it is not. */
static bool peek_memory(const char *from, void *to, size_t bytes)
{
    const uintptr_t at = (uintptr_t)from;
    if (at > UINTPTR_MAX - bytes || !gs_memory_readable(at, at + bytes)) return false;
    memcpy(to, from, bytes);
    return true;
}

static const char *peek_pointer(const char *base, int offset)
{
    const char *value;
    return base && peek_memory(base + offset, &value, sizeof value) ? value : NULL;
}

static bool is_a(const char *object, const char *type)
{
    return peek_pointer(object, python.at.type) == type;
}

static bool plausible_code(const char *code)
{
    const struct gs_python_layout *at = &python.at;
    int name = at->qualname >= 0 ? at->qualname : at->name;
    return is_a(code, python.code_type) && is_a(peek_pointer(code, at->name), python.str_type) &&
           is_a(peek_pointer(code, name), python.str_type) && is_a(peek_pointer(code, at->filename), python.str_type) &&
           is_a(peek_pointer(code, at->line_table), python.bytes_type);
}

/* 1 plausible, 0 not, -1 there is no frame to check. */
static int verify_thread(void)
{
    const struct gs_python_layout *at = &python.at;
    const char *thread = python.is_initialized() ? python.this_thread() : NULL;
    if (!thread) return -1;
    const char *f = peek_pointer(thread, at->thread_frame);
    if (f && at->cframe_frame >= 0) f = peek_pointer(f, at->cframe_frame);
    int shown = 0;
    for (int steps = 0; f && steps < 64; steps++, f = peek_pointer(f, at->previous)) {
        uint8_t owner = 0;
        if (at->owner >= 0 && !peek_memory(f + at->owner, &owner, 1)) return 0;
        if (owner >= 3) continue;
        uintptr_t code = (uintptr_t)peek_pointer(f, at->code) & ~(uintptr_t)3;
        if (!plausible_code((const char *)code)) return 0;
        shown++;
    }
    return shown ? 1 : -1;
}

static enum state verify_layout(void)
{
    int seen = verify_thread();
    if (seen < 0) return UNVERIFIED;
    if (!seen) {
        gs_stack_lacks("no Python stacks: the frames of Python %s were not found where expected", python.version);
        return SETTLED;
    }
    gs_code_watch((void (**)(void *))(python.code_type + python.at.type_dealloc));
    atomic_store_explicit(&gs_python_now, &python, memory_order_release);
    return SETTLED;
}

static void find_interpreter(unsigned now)
{
    unsigned long long loads = 0;
    if (now == NOT_FOUND) {
        gs_elf_each(first_object, &loads);
        if (loads == atomic_load_explicit(&seen_loads, memory_order_relaxed)) return;
    }
    if (!atomic_compare_exchange_strong(&state, &now, LOOKING)) return;
    int saved = errno;
    unsigned next = now == NOT_FOUND ? find_layout() : now;
    if (next == UNVERIFIED) next = verify_layout();
    if (loads) atomic_store_explicit(&seen_loads, loads, memory_order_relaxed);
    atomic_store_explicit(&state, next, memory_order_release);
    errno = saved;
}

/* With signals blocked: a handler that leaves by longjmp would leave the state at LOOKING forever. */
void gs_python_find(void)
{
    const unsigned now = atomic_load_explicit(&state, memory_order_relaxed);
    sigset_t all, before;
    if (now == SETTLED || now == LOOKING) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    find_interpreter(now);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void gs_python_forked(void)
{
    unsigned looking = LOOKING;
    atomic_compare_exchange_strong(&state, &looking, NOT_FOUND);
}

const char *gs_stack_python_version(void)
{
    const struct gs_python *p = atomic_load_explicit(&gs_python_now, memory_order_acquire);
    return p ? p->version : NULL;
}
