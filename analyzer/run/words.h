/* The enum values of a recording as the words that queries use: schema/event.h has both. "unknown" for a number without
 * a word, which a damaged or newer recording may have. */
#pragma once

const char *run_layer_word(unsigned layer);             /* enum gs_layer: "tensor" */
const char *run_space_word(unsigned space);             /* enum gs_space: "pinned" */
const char *run_direction_word(unsigned direction);     /* enum gs_direction: "h2d" */
const char *run_host_memory_word(unsigned host_memory); /* enum gs_host_memory: "pageable" */
const char *run_sync_word(unsigned kind);               /* enum gs_sync_kind: "stream" */
const char *run_frame_word(unsigned kind);              /* enum gs_frame_kind: "python" */
const char *run_mark_word(unsigned kind);               /* enum gs_mark_kind: "push" */
