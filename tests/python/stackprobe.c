/* The stack capture of interpose/stack*.c behind a few functions that ctypes can call. The writer
 * is a buffer in memory; what is written into it is read back by the rules of event.h, so that a
 * stack seen here went through its definitions.
 *
 *   probe_open()                one writer and one set of caches for the calling thread
 *   probe_stack(what, text, n)  capture now: one line "kind\tfunction\tfile\tline" a frame
 *   probe_counts(counts)        definitions so far: python, native, stacks, resets
 *   probe_bench(what, n)        ns a capture
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "interpose/resolve.h"
#include "interpose/stack.h"
#include "interpose/stack_python.h"

#define EXPORT __attribute__((visibility("default")))

struct gs_spool;

/* Unloading of libraries is not observed in this test. */
void gs_pin_later(const void *address_in_library)
{
    Dl_info info;
    if (dladdr(address_in_library, &info)) dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* --- the writer ------------------------------------------------------------------------------- */

struct probe {
    struct gs_writer writer;
    struct gs_stacks *stacks;
    char *frames[65536];
    uint32_t *stack[65536]; /* depth, frames */
    unsigned long counts[4];
    bool full; /* reservations fail */
};

static __thread struct probe *mine;
static __thread uint64_t buffer[GS_CHUNK_BYTES / 16];

void *gs_writer_reserve(struct gs_writer *w, uint32_t bytes)
{
    memset(buffer, 0xa5, bytes);
    return mine->full || bytes % 8 || bytes > sizeof buffer ? NULL : buffer;
}

static void define_frame(uint32_t frame, char *text)
{
    if (frame == 0 || frame >= 65536 || mine->frames[frame]) {
        fprintf(stderr, "stackprobe: frame %u defined twice or out of range\n", frame);
        abort();
    }
    mine->frames[frame] = text;
}

static void forget(void)
{
    for (int i = 0; i < 65536; i++) {
        free(mine->frames[i]);
        mine->frames[i] = NULL;
        free(mine->stack[i]);
        mine->stack[i] = NULL;
    }
}

void gs_writer_commit(struct gs_writer *w, uint32_t bytes)
{
    const struct gs_rec *r = (const struct gs_rec *)buffer;
    char *text = NULL;
    if (bytes != r->size) abort();
    if (r->type == GS_REC_FRAME_PYTHON) {
        const struct gs_rec_frame_python *f = (const void *)r;
        const char *s = (const char *)(f + 1);
        if (asprintf(&text, "python\t%.*s\t%.*s\t%d\n", f->function_len, s, f->file_len, s + f->function_len, f->line) <
            0)
            abort();
        define_frame(f->frame, text);
        mine->counts[0]++;
    } else if (r->type == GS_REC_FRAME_NATIVE) {
        const struct gs_rec_frame_native *f = (const void *)r;
        if (asprintf(&text, "native\t%.*s\t%u\t%lu\n", f->path_len, (const char *)(f + 1), f->build_id_len,
                     (unsigned long)f->offset) < 0)
            abort();
        define_frame(f->frame, text);
        mine->counts[1]++;
    } else if (r->type == GS_REC_STACK) {
        const struct gs_rec_stack *k = (const void *)r;
        uint32_t **to = &mine->stack[r->stack];
        *to = realloc(*to, (k->depth + 1) * sizeof **to);
        (*to)[0] = k->depth;
        memcpy(*to + 1, k->frames, k->depth * sizeof **to);
        mine->counts[2]++;
    } else if (r->type == GS_REC_RESET) {
        forget();
        mine->counts[3]++;
    } else {
        abort();
    }
}

/* --- for ctypes ------------------------------------------------------------------------------- */

EXPORT int probe_open(unsigned what, unsigned native_depth)
{
    gs_stack_init(what, native_depth);
    return gs_stack_python_version() != NULL;
}

EXPORT const char *probe_missing(void)
{
    return gs_stack_missing();
}

EXPORT const char *probe_version(void)
{
    return gs_stack_python_version();
}

static struct probe *probe(void)
{
    if (!mine) {
        mine = calloc(1, sizeof *mine);
        mine->stacks = gs_stacks_open(&mine->writer);
        gs_stack_find_python();
    }
    return mine;
}

/* Frees the memory of this thread's probe. */
EXPORT void probe_close(void)
{
    if (!mine) return;
    forget();
    gs_stacks_close(mine->stacks);
    free(mine);
    mine = NULL;
}

static const char *text_of(uint32_t number, char *to, size_t n)
{
    const uint32_t *k = number ? mine->stack[number] : NULL;
    size_t used = 0;
    to[0] = '\0';
    for (uint32_t i = 0; k && i < k[0]; i++) {
        const char *frame = mine->frames[k[i + 1]];
        used += (size_t)snprintf(to + used, n - used, "%s", frame ? frame : "undefined\t\t\t\n");
        if (used >= n) break;
    }
    return to;
}

static __attribute__((noinline)) uint32_t capture(unsigned what, const void *caller)
{
    return gs_stack_capture(probe()->stacks, what, caller);
}

EXPORT uint32_t probe_number(unsigned what)
{
    return capture(what, __builtin_return_address(0));
}

EXPORT uint32_t probe_stack(unsigned what, char *text, size_t n)
{
    uint32_t number = capture(what, __builtin_return_address(0));
    text_of(number, text, n);
    return number;
}

EXPORT void probe_full(int full)
{
    probe()->full = full;
}

EXPORT void probe_counts(unsigned long *counts)
{
    memcpy(counts, probe()->counts, sizeof mine->counts);
}

/* The line of any code object, by the address that id() gives. */
EXPORT int probe_line(const char *code, long offset)
{
    return gs_python_line(atomic_load(&gs_python_now), code, offset);
}

EXPORT unsigned probe_epoch(void)
{
    return atomic_load(&gs_stack_epoch);
}

/* ns per capture: the median of batches. */
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

EXPORT double probe_bench(unsigned what, unsigned batches)
{
    double *each = malloc(batches * sizeof *each);
    enum { BATCH = 200 };
    for (unsigned i = 0; i < batches; i++) {
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        for (int k = 0; k < BATCH; k++) capture(what, __builtin_return_address(0));
        clock_gettime(CLOCK_MONOTONIC, &b);
        each[i] = ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / BATCH;
    }
    qsort(each, batches, sizeof *each, by_value);
    double median = each[batches / 2];
    free(each);
    return median;
}

/* --- threads of C that call into Python or not at all ------------------------------------------
 */

#include <pthread.h>

struct errand {
    unsigned what;
    char *text;
    size_t n;
    void (*call)(void);
};

static __attribute__((noinline)) void *run_errand(void *arg)
{
    struct errand *e = arg;
    if (e->call)
        e->call();
    else
        probe_stack(e->what, e->text, e->n);
    probe_close();
    return NULL;
}

/* In a thread that Python does not know: the stack, or a call of a Python function. */
EXPORT int probe_in_thread(unsigned what, char *text, size_t n, void (*call)(void))
{
    pthread_t t;
    struct errand e = {what, text, n, call};
    return pthread_create(&t, NULL, run_errand, &e) || pthread_join(t, NULL);
}

EXPORT void probe_callback(void (*call)(void))
{
    call();
    __asm__ volatile("");
}
