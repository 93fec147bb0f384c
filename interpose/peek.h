/* Memory of this process that may not be there: copied by the kernel, so that a stale pointer does no harm. */
#ifndef GPUSPY_PEEK_H
#define GPUSPY_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes that could be read. */
size_t gs_peek(uintptr_t address, void *to, size_t bytes);
/* Calls `is` with each word above this function on the stack, its caller's registers among them, that may be a pointer
 * to something else; until it returns true. `place`: where that was; the next call of the same caller begins there. 0
 * at first; NULL. Changes errno. */
bool gs_peek_stack(bool (*is)(void *self, uintptr_t word), void *self, _Atomic size_t *place);

#endif
