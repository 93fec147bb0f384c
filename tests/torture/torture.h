/* What the behaviours of tests/torture share: counted CUDA calls, a log that needs no descriptor, random numbers. A new
 * behaviour is one row in behaviours.def and one function of that name in the file of its family. The function gets a
 * random number, which must determine everything that varies, so that a case can be repeated. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* --- shared with the driver: a file that every process of a case maps (torture.py knows this layout) --- */

enum t_kind { T_ALLOC, T_FREE, T_COPY, T_SYNC, T_KINDS };

enum t_flag {
    T_MAY_LOSE = 1,       /* the recording may be incomplete, but never have more rows than calls */
    T_UNRECORDED = 2,     /* the process may have no recording */
    T_COUNTED = 8,        /* a handler's calls may be lost if it interrupts the recorder, but must be counted as lost */
    T_CHILDREN_FREE = 16, /* its children may have no recording */
    T_STOPPED = 4,        /* calls after `floor` was stored need not be recorded: the process was ending */
};

struct t_slot { /* one process */
    int32_t pid;
    _Atomic uint32_t flags;
    _Atomic uint64_t begun[T_KINDS], returned[T_KINDS];
    uint64_t floor[T_KINDS]; /* with T_STOPPED: calls that had returned when the process began to end */
};

enum { T_MAGIC = 0x72747274, T_SLOTS = 16384, T_LOG_BYTES = 1 << 20, T_MEETING_BYTES = 64 };

struct t_shared {
    uint32_t magic;
    _Atomic uint32_t slots, log_used;
    _Atomic uint32_t request, reply; /* a meeting: the program requests an act of the driver and waits for it */
    uint32_t child;                  /* the process that the act concerns */
    char meeting[T_MEETING_BYTES];   /* the act */
    struct t_slot slot[T_SLOTS];
    char log[T_LOG_BYTES];
};

extern struct t_shared *t_shared;

struct t_slot *t_slot(void);
void t_flag(unsigned flags); /* adds to this process's flags */

/* --- CUDA calls: counted before and after ----------------------------------------------------------- */

typedef struct t_stream *t_stream;
int cudaMalloc(void **pointer, size_t bytes);
int cudaFree(void *pointer);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaStreamSynchronize(t_stream stream);

static inline void t_begin(struct t_slot *slot, enum t_kind kind)
{
    __atomic_fetch_add((uint64_t *)&slot->begun[kind], 1, __ATOMIC_SEQ_CST);
}

/* Takes back a call that failed. */
static inline void t_undo(struct t_slot *slot, enum t_kind kind)
{
    __atomic_fetch_sub((uint64_t *)&slot->begun[kind], 1, __ATOMIC_SEQ_CST);
}

static inline void t_end(struct t_slot *slot, enum t_kind kind)
{
    __atomic_fetch_add((uint64_t *)&slot->returned[kind], 1, __ATOMIC_SEQ_CST);
}

static inline void *t_malloc(size_t bytes)
{
    void *pointer = NULL;
    struct t_slot *slot = t_slot();
    t_begin(slot, T_ALLOC);
    if (cudaMalloc(&pointer, bytes) != 0)
        t_undo(slot, T_ALLOC);
    else
        t_end(slot, T_ALLOC);
    return pointer;
}

static inline void t_free(void *pointer)
{
    struct t_slot *slot = t_slot();
    if (!pointer) return;
    t_begin(slot, T_FREE);
    cudaFree(pointer);
    t_end(slot, T_FREE);
}

static inline void t_copy(void *to, const void *from, size_t bytes)
{
    struct t_slot *slot = t_slot();
    if (!to) return;
    t_begin(slot, T_COPY);
    cudaMemcpy(to, from, bytes, 1 /* host to device */);
    t_end(slot, T_COPY);
}

static inline void t_sync(void)
{
    struct t_slot *slot = t_slot();
    t_begin(slot, T_SYNC);
    if (cudaStreamSynchronize(NULL) != 0)
        t_undo(slot, T_SYNC);
    else
        t_end(slot, T_SYNC);
}

/* Makes calls of every kind. Keeps errno, and logs if a CUDA call changed it. */
void t_work(unsigned pairs);
/* The same from `depth` calls down. */
void t_deep_work(unsigned depth, unsigned pairs);

/* --- compared between the bare and the recorded run ----------------------------------------------------- */

/* Appends a line to the log. Lines are compared as a set: threads and children may log. */
void t_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Logs "WRONG: TEXT errno" if the condition is false. */
#define T_CHECK(holds) ((holds) ? (void)0 : t_wrong(#holds, __FILE__, __LINE__))
void t_wrong(const char *text, const char *file, int line);
/* Logs the open descriptors below 500, what they refer to, and the number that the next open gets. */
void t_log_descriptors(const char *when);
/* Logs the children that were not reaped. */
void t_log_children(const char *when);
/* Waits for the child and logs how it ended. */
void t_log_end_of(const char *who, pid_t child);

/* --- tools ---------------------------------------------------------------------------------------------- */

uint32_t t_next(uint32_t *random);                             /* from a behaviour's number: the next random number */
unsigned t_pick(uint32_t *random, unsigned from, unsigned to); /* both included */
void t_sleep_us(unsigned us);
pthread_t t_start(void *(*run)(void *), void *argument, size_t stack); /* stack 0: the usual size */
/* Threads that work until t_crew_stop. At most one crew at a time. */
void t_crew_start(unsigned threads);
void t_crew_stop(void);
/* Makes the driver do `act` (a row of MEETINGS in outside.py) and waits until it is done. */
void t_meet(const char *act, pid_t child);
/* Path of one of the plugins, at most 0 … T_PLUGINS - 1. */
enum { T_PLUGINS = 4 };
const char *t_plugin(unsigned number);
/* Executes this program again, with these behaviours. */
void t_become(char **behaviours);
/* The arguments of a child that only works: "leaf". */
char **t_leaf(unsigned pairs);
extern char **t_rest; /* the behaviours after the current one */
/* Stores `floor`: the process ends now, while other threads may still call. */
void t_ending(void);

/* --- what a plugin does in its constructor and destructor: bits of t_plugin_mode --------------------------- */

enum {
    T_CTOR_WORK = 1,   /* CUDA calls in its constructor */
    T_CTOR_HELPER = 2, /* in a thread that the constructor waits for */
    T_CTOR_ATFORK = 4, /* fork handlers that call CUDA */
    T_CTOR_EXIT = 8,   /* exit(17) in the constructor */
    T_DTOR_WORK = 16,  /* CUDA calls in its destructor */
};
extern _Atomic unsigned t_plugin_mode;

/* --- the table --------------------------------------------------------------------------------------------- */

#define BEHAVIOUR(name, family, place, needs, weight, what) void name(uint32_t n);
#include "tests/torture/behaviours.def"
#undef BEHAVIOUR
