/* Names of a trace, each stored once, and their frames. */
#pragma once

#include "analyzer/base/texts.h"
#include "analyzer/import/feed.h"

struct import_name {
    struct import_frame frame;
    bool parsed;
};

struct import_names {
    struct texts texts;
    struct import_name *list; /* of `texts`; [0] is the empty name */
    size_t n, cap;
};

uint32_t import_name_of(struct import_names *names, const char *text);
const char *import_name_text(const struct import_names *names, uint32_t name);
/* "train.py(42): step" is a Python frame; any other name is a native frame without a file. */
struct import_frame import_name_frame(struct import_names *names, uint32_t name);
void import_names_free(struct import_names *names);
