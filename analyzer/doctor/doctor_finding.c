#include "analyzer/doctor/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include "analyzer/base/arena.h"

void doctor_add_finding(struct doctor *d, enum doctor_section section, enum doctor_state state, const char *id,
                        const char *fix, const char *format, ...)
{
    struct doctor_finding f = {.section = section, .state = state, .id = id, .fix = arena_copy(fix)};
    va_list args;

    va_start(args, format);
    if (vasprintf(&f.text, format, args) < 0) f.text = NULL;
    va_end(args);
    *ARENA_PUSH(d->list, d->n, d->cap) = f;
}
