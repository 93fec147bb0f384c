/* The requests that failed, replayed with other settings of PyTorch's allocator (whatif.h): advice that a replay
 * refutes is not given. */
#pragma once

#include "analyzer/oom/oom.h"
#include "analyzer/whatif/whatif.h"

enum oom_replay_setting { OOM_REPLAY_EXPANDABLE, OOM_REPLAY_SPLIT, OOM_REPLAY_ROUNDED, OOM_REPLAY_SETTINGS };

struct oom_replays;
/* NULL: there is no fatal request of PyTorch's allocator, or the replay of the recorded settings differs from the
 * recording. One replay for all settings; the caller frees it. */
struct oom_replays *oom_replay_start(struct site_builder *b);
const char *oom_replay_conf(enum oom_replay_setting setting); /* "key:value" */
/* Does the request of this verdict then succeed, and how much of the GPU is left? NULL: unknown. */
const struct whatif_request *oom_replay_of(const struct oom_replays *r, const struct result_oom_verdict *v,
                                           enum oom_replay_setting setting);
bool oom_replay_unsure(const struct oom_replays *r); /* some requests are known to 1 MiB only */
void oom_replay_free(struct oom_replays *r);
