/* The CPython interpreter in the process: private to interpose/stack*.c and its tests. */
#ifndef GPUSPY_STACK_PYTHON_H
#define GPUSPY_STACK_PYTHON_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/stack_elf.h"

enum gs_python_lines { GS_LINES_LNOTAB, GS_LINES_LINETABLE, GS_LINES_LOCATIONS };

/* One row of stack_python_layout.def; -1 where the version has no such field. */
struct gs_python_layout {
    int minor;
    bool free_threaded;
    enum gs_python_lines lines;
    int thread_frame, cframe_frame, previous, code, ip, owner, tlbc_index;
    int filename, name, qualname, first_line, line_table, bytecode, first_traceable, code_tlbc;
    int text_state_shift, text_ascii, text_compact;
    int words;
    /* the same for all objects of a build: the header is 16 bytes, 32 free-threaded */
    int type, size, type_name, type_dealloc;
};

/* An interpreter that was found and, once it is in gs_python_now, whose layout was verified. */
struct gs_python {
    struct gs_python_layout at;
    char version[16];
    struct gs_elf_range module; /* where its code lies: libpython or the python executable */
    const char *code_type, *str_type, *bytes_type;
    const char *runtime; /* _PyRuntime */
    int (*is_initialized)(void);
    const char *(*this_thread)(void);
};

extern struct gs_python *_Atomic gs_python_now;

/* The layout of a version ("3.13.0 …"), or false. Fills `at`. */
bool gs_python_layout_of(const char *version, struct gs_python_layout *at);

/* The calling thread's frames, innermost first, at most `max`; *cut where there are more. *hash
 * takes in everything that the stack's text depends on. */
uint32_t gs_python_walk(const struct gs_python *p, const char **frames, uint32_t max, bool *cut, uint64_t *hash);
/* The code object that the frame runs and the byte offset of its instruction; NULL where it is no
 * frame to be shown (not yet begun), or not a code object. */
const char *gs_python_frame(const struct gs_python *p, const char *frame, int64_t *offset);
/* Function and file as UTF-8 of at most `max` bytes, never cut inside a character. */
uint32_t gs_python_function(const struct gs_python *p, const char *code, char *to, uint32_t max);
uint32_t gs_python_file(const struct gs_python *p, const char *code, char *to, uint32_t max);
/* The line of the instruction at the byte offset, 0 where it has none. */
int gs_python_line(const struct gs_python *p, const char *code, int64_t offset);

/* Looks for an interpreter that nobody has looked at yet and, where the calling thread has frames,
 * verifies it. Takes no loader lock. */
void gs_python_find(void);
/* In a forked child: who was looking is not there any more. */
void gs_python_forked(void);

/* stack_python_line.c: a line table alone. */
int gs_python_line_at(enum gs_python_lines format, const uint8_t *table, int64_t bytes, int first_line, int64_t offset);
/* stack_python_text.c: the contents of a str. kind 1, 2, 4 bytes a character. */
uint32_t gs_python_utf8(const void *data, int64_t length, int kind, char *to, uint32_t max);

/* stack_code.c: the identity of a code object for as long as it lives, a number of GS_CODE_BITS. A new
 * code object at an old address has a new one. */
#define GS_CODE_BITS 36
extern _Atomic uint32_t gs_stack_epoch; /* grows when what a raw address means may have changed */
uint64_t gs_code_identity(const void *code);
void gs_code_watch(void (**dealloc)(void *));

/* One line for gs_stack_missing. */
void gs_stack_lacks(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gs_stack_missing_forked(void);

static inline uint64_t gs_stack_mix(uint64_t hash, uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(hash ^ a ^ 0x9e3779b97f4a7c15u) * (b ^ 0xd6e8feb86659fd93u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

#endif
