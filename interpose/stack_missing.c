/* What stacks lack, and why: one line for the end. */
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "interpose/stack.h"
#include "interpose/stack_python.h"

static char lacks[512];
static atomic_flag adding = ATOMIC_FLAG_INIT;
static const char *_Atomic missing;

void gs_stack_lacks(const char *format, ...)
{
    char line[256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (atomic_flag_test_and_set(&adding)) return; /* two threads at once: reporting one of the two is enough */
    size_t n = strlen(lacks);
    if (strstr(lacks, line) || n + 2 + sizeof line > sizeof lacks) {
        atomic_flag_clear(&adding);
        return;
    }
    /* Readers may already hold the text: append the new part first, then the separator. */
    strcpy(lacks + (n ? n + 2 : 0), line);
    if (n) {
        lacks[n + 1] = ' ';
        lacks[n] = ';';
    }
    atomic_store_explicit(&missing, lacks, memory_order_release);
    atomic_flag_clear(&adding);
}

const char *gs_stack_missing(void)
{
    return atomic_load_explicit(&missing, memory_order_acquire);
}

void gs_stack_missing_forked(void)
{
    atomic_flag_clear(&adding);
}
