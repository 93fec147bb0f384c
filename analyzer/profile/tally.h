/* A profile as a flat list: by line, function, file, module, category or owner. */
#pragma once

#include "analyzer/profile/profile.h"

/* clang-format off */
#define TALLY_BYS(X)                                                                              \
    X(LINE, "line") X(FUNCTION, "function") X(FILE, "file") X(MODULE, "module")                   \
    X(CATEGORY, "category") X(OWNER, "owner")
/* clang-format on */
#define TALLY_ENUM(s, w) TALLY_##s,
enum profile_tally_by { TALLY_BYS(TALLY_ENUM) TALLY_BYS_N };
#undef TALLY_ENUM

#define TALLY_SORTS(X) X(OWN, "own") X(TOTAL, "total") X(COUNT, "count") X(EACH, "each") X(NAME, "name")
#define TALLY_ENUM(s, w) TALLY_BY_##s,
enum profile_tally_sort { TALLY_SORTS(TALLY_ENUM) };
#undef TALLY_ENUM

/* The row of a line, function or file has what was allocated there, as in the report's lists by line (the innermost
 * line of the user's own code), and `total` what was allocated anywhere below it. A module ("torch.nn.functional",
 * "libfoo.so") has what its own code allocated. For categories and owners both are the same. */
struct profile_tally_row {
    const struct run_frame *frame; /* by line, function, file; NULL: no stack */
    const char *name;              /* by module, category, owner; else NULL */
    int64_t own, total;
    uint64_t own_count, total_count;
};

struct profile_tally {
    struct profile_tally_row *rows;
    size_t n;
    struct tally_private *private;
};

/* The profile must have categories if they are listed. Looks names up. `inner`: also include rows without own bytes. */
struct profile_tally *profile_tally_build(struct run *run, const struct profile *profile, enum profile_tally_by by,
                                          bool native, bool inner);
/* Rows without own bytes come last, unless sorted by total. */
void profile_tally_sort(struct profile_tally *t, enum profile_tally_sort sort);
void profile_tally_free(struct profile_tally *t);
/* "/usr/lib/python3/site-packages/torch/nn/functional.py" → "torch.nn.functional". */
void profile_tally_module(const struct run_frame *frame, const char *cwd, char *out, size_t size);
