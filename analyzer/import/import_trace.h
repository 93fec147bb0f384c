/* Traces of torch.profiler, and of torch.autograd.profiler: JSON for Chrome's trace viewer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool import_is_json(const unsigned char *head, size_t n);
bool import_trace(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size);
