/* What the commands that show one view of a recording share: options, opening, the choice of a process, the profile,
 * and the line above a view. */
#pragma once

#include <jansson.h>
#include "analyzer/base/command.h"
#include "analyzer/base/input.h"
#include "analyzer/view/choice.h"
#include "analyzer/view/display.h"
#include "analyzer/profile/profile.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/view/view_text.h"

struct viewing_settings {
    struct view_display_settings display;
    struct view_choice choice;
    int top; /* 0: the default */
    bool json;
};

/* clang-format off */
#define VIEWING_DEFAULT {.choice = CHOICE_ANY}
#define VIEWING_OPTIONS(type, member)                                                              \
    {"json", 0, OPTION_FLAG, offsetof(type, member.json), NULL, NULL, 0, 0,                        \
     "print JSON: sizes in bytes, times in seconds"},                                              \
    CHOICE_OPTIONS(type, member.choice), DISPLAY_OPTIONS(type, member.display)
#define VIEWING_TOP(type, member, what)                                                            \
    {"top", 'n', OPTION_NUMBER, offsetof(type, member.top), "N", NULL, 1, 1000000, what}
/* clang-format on */

struct viewing {
    const struct viewing_settings *settings;
    const char *who;         /* the command */
    const char *database;    /* as the user typed it */
    char newest[INPUT_NAME]; /* of the recording, if none was given */
    struct symbolizer *symbols;
    struct run_options options;
    struct run *run;
    struct result_report head; /* only processes, which the parts of text views need, and the peaks of ranges */
    struct arena arena;        /* of these peaks */
};

/* Are the options consistent? Else false, after a line on stderr. */
typedef bool viewing_sensible_fn(const char *who, const void *settings);

/* Parses, opens, and keeps only the chosen process. EXIT_YES, or the exit status; v->run is then NULL (after --help
 * that is also EXIT_YES). Close `v` in any case. sensible: NULL none; memory_map: as in run_options. */
int viewing_open(struct viewing *v, const struct command *command, int argc, char **argv, void *settings,
                 const struct viewing_settings *viewing, viewing_sensible_fn *sensible, bool memory_map);
void viewing_close(struct viewing *v);
/* A line on stderr for an error while reading. Returns EXIT_INPUT. */
int viewing_failed(const struct viewing *v, const char *error);

/* For printing: starts the pager. Prints warnings first (lost events, a process that died), as the report does.
 * `report` NULL: only the processes are known. */
struct draw_text viewing_text(struct viewing *v, const struct result_report *report, size_t top);
/* Prints and frees it. Returns an exit code. */
int viewing_json(struct viewing *v, json_t *o);
/* {schema, view, command, processes: as the report's, …}: the beginning of every view's JSON. */
json_t *viewing_json_head(const struct viewing *v);

struct view_profile_settings {
    const char *what, *at, *layer;
    bool native;
};

#define PROFILE_WHATS "peak|oom|leaks|end|allocated|waits|copies"
#define PROFILE_LAYERS "tensor|device|pinned|host|all"
/* clang-format off */
#define PROFILE_OPTIONS(type, member)                                                              \
    {"what", 'w', OPTION_CHOICE, offsetof(type, member.what), "WHAT", PROFILE_WHATS, 0, 0,         \
     "memory live at the peak (the default), at the last out-of-memory error or at the end; "      \
     "memory that was never freed; all allocations; waits; or copies"},                            \
    {"at", 0, OPTION_TEXT, offsetof(type, member.at), "WHEN", NULL, 0, 0,                          \
     "what was live N seconds after the recording began, or, with scope:NAME, when memory peaked " \
     "within the NVTX ranges of that name"},                                         \
    {"layer", 'l', OPTION_CHOICE, offsetof(type, member.layer), "LAYER", PROFILE_LAYERS, 0, 0,     \
     "count PyTorch's tensors, CUDA allocations, pinned host memory, CPU tensors, or "             \
     "all; default: tensors if the GPU has any, else CUDA allocations"},                           \
    {"native", 0, OPTION_FLAG, offsetof(type, member.native), NULL, NULL, 0, 0,                    \
     "show C and C++ frames"}
/* clang-format on */

/* NULL after a line on stderr; *code is then the exit status: EXIT_NO if there is nothing to show. */
struct profile *viewing_profile(struct viewing *v, const struct view_profile_settings *s, bool categories, int *code);
/* Are these options consistent? Else a line on stderr. */
bool view_profile_sensible(const char *who, const struct view_profile_settings *s);
/* "Live at the peak: 5.92 GiB in 453 blocks, tensors on GPU 0, at 12.3 s" */
void view_profile_heading(const struct draw_text *t, const struct profile *p);
/* The peaks of NVTX ranges, below a view of memory. */
void view_profile_scopes(struct viewing *v, const struct draw_text *t, const struct profile *p);
/* {…, title, unit, total, count, moments_s, scopes}: bytes, or seconds. */
void view_profile_json(struct viewing *v, json_t *o, const struct profile *p);
/* A weight as text: "5.92 GiB", "1.50 s". */
char *view_profile_weight(const struct profile *p, int64_t weight, char *out);
json_t *view_profile_weight_json(const struct profile *p, int64_t weight);
/* "blocks", "allocations", "waits", "copies". */
const char *view_profile_noun(const struct profile *p);
