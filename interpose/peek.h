/* Reads memory of this process that may not be mapped: the kernel copies it, so that a stale pointer does no harm. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how many bytes could be read. */
size_t gs_peek(uintptr_t address, void *to, size_t bytes);
/* Calls `is` with each word on the stack above this function (its caller's registers included) that may be a pointer to
 * something else, until it returns true. `place`: where that was, and where the next call of the same caller begins; 0
 * at first; or NULL. Changes errno. */
bool gs_peek_stack(bool (*is)(void *self, uintptr_t word), void *self, _Atomic size_t *place);
