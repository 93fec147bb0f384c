/* PYTORCH_CUDA_ALLOC_CONF → the rules that the replay follows. */
#pragma once

#include "analyzer/run/run.h"
#include "analyzer/caching/caching.h"

/* Applies "key:value,key:value" to `rules`, later ones over earlier ones. False and a line in `error` if PyTorch would
 * refuse it or if it chooses an allocator that gpuspy does not replay. Keys that change no device memory
 * (pinned_use_cuda_host_register, …) are accepted. Settings beside one that is refused apply, too. rules->device_bytes
 * must be set. */
bool whatif_rules_parse(struct caching_rules *rules, const char *conf, char *error, size_t error_size);
/* The rules of a recorded process, with that version of PyTorch (NULL: unknown). False: a line in `error` names the
 * setting that is not replayed, and `rules` has the others. */
bool whatif_rules_recorded(struct caching_rules *rules, struct run *run, uint32_t process, const char *version,
                           int64_t device_bytes, char *error, size_t error_size);

/* The bytes that PyTorch may reserve on the device of these rules if it may reserve `cap` bytes of a device of
 * `device_bytes`; 0: any. */
int64_t whatif_rules_cap_on(const struct caching_rules *rules, int64_t cap, int64_t device_bytes);
