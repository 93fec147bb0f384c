/* How results are shown on stdout: colour, width, the pager. Options of every command that prints views. */
#pragma once

#include "analyzer/base/options.h"
#include "analyzer/base/term.h"

struct view_display_settings {
    const char *colour; /* NULL: auto */
    bool no_pager;
    int lines; /* of the output, at most; 0 unknown */
};

/* clang-format off */
#define DISPLAY_OPTIONS(type, member)                                                              \
    {"color", 0, OPTION_CHOICE, offsetof(type, member.colour), "WHEN", "auto|always|never", 0, 0,  \
     "default: on a terminal"},                                                                   \
    {"no-pager", 0, OPTION_FLAG, offsetof(type, member.no_pager), NULL, NULL, 0, 0,                \
     "print without GPUSPY_PAGER, PAGER or less"}
/* clang-format on */

/* Call when the result is ready to be printed: returns what stdout can show, after starting a pager if wanted. */
struct terminal view_display_start(const struct view_display_settings *settings);
