/* The CPython interpreter in the process. Private to interpose/stack*.c and its tests. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "interpose/stack_elf.h"

enum gs_python_lines { GS_LINES_LNOTAB, GS_LINES_LINETABLE, GS_LINES_LOCATIONS };

/* One row of stack_python_layout.def; -1 if the version has no such field. */
struct gs_python_layout {
    int minor;
    bool free_threaded;
    enum gs_python_lines lines;
    int thread_frame, cframe_frame, previous, code, ip, owner, tlbc_index;
    int filename, name, qualname, first_line, line_table, bytecode, first_traceable, code_tlbc;
    int text_state_shift, text_ascii, text_compact;
    int words;
    /* the same for all objects of a build: the header has 16 bytes, 32 in free-threaded builds */
    int type, size, type_name, type_dealloc;
};

/* An interpreter that was found and, once it is in gs_python_now, has a verified layout. */
struct gs_python {
    struct gs_python_layout at;
    char version[16];
    struct gs_elf_range module; /* where its code is: libpython or the python executable */
    const char *code_type, *str_type, *bytes_type;
    const char *runtime; /* _PyRuntime */
    int (*is_initialized)(void);
    const char *(*this_thread)(void);
};

extern struct gs_python *_Atomic gs_python_now;

/* The layout of a version ("3.13.0 …"), or false. Fills `at`. */
bool gs_python_layout_of(const char *version, struct gs_python_layout *at);

/* The calling thread's frames, innermost first, at most `max`; *cut if there are more. *hash includes everything that
 * the stack's text depends on. */
uint32_t gs_python_walk(const struct gs_python *p, const char **frames, uint32_t max, bool *cut, uint64_t *hash);
/* The code object that the frame executes and the byte offset of its instruction; NULL if the frame has not begun, or
 * has no code object. */
const char *gs_python_frame(const struct gs_python *p, const char *frame, int64_t *offset);
/* Function and file as UTF-8 of at most `max` bytes, never cut inside a character. */
uint32_t gs_python_function(const struct gs_python *p, const char *code, char *to, uint32_t max);
uint32_t gs_python_file(const struct gs_python *p, const char *code, char *to, uint32_t max);
/* The line of the instruction at the byte offset, 0 if it has none. */
int gs_python_line(const struct gs_python *p, const char *code, int64_t offset);

/* Looks for an interpreter that has not been examined yet and, if the calling thread has frames, verifies it. Takes no
 * loader lock. */
void gs_python_find(void);
/* In a forked child: the thread that was looking does not exist there. */
void gs_python_forked(void);

/* stack_python_line.c: only a line table. */
int gs_python_line_at(enum gs_python_lines format, const uint8_t *table, int64_t bytes, int first_line, int64_t offset);
/* stack_python_text.c: the contents of a str. kind: 1, 2 or 4 bytes per character. */
uint32_t gs_python_utf8(const void *data, int64_t length, int kind, char *to, uint32_t max);

/* stack_code.c: identifies a code object for as long as it lives, by a number of GS_CODE_BITS. A new code object at an
 * old address has a new one. */
#define GS_CODE_BITS 36
extern _Atomic uint32_t gs_stack_epoch; /* grows when a raw address may have changed its meaning */
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
