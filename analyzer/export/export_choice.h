/* Chooses what of a recording is exported: a process at a moment, or the whole run. */
#pragma once

#include "analyzer/export/export.h"
#include "analyzer/symbol/symbol.h"

struct export_request {
    const char *at;        /* "peak", "oom", "end" or seconds; NULL: the default */
    int device, pid, rank; /* -1: any */
    const char *what;      /* of the whole run: a word of PROFILE_KINDS; NULL: the format's default */
};

/* Opens `path`, fills in e->run, process, devices and moment_ns, and prints on stderr what it chose. Returns an exit
 * code, after a line on stderr if it is not 0. The caller closes e->run if it is not NULL. */
int export_choose(const struct export_request *w, const char *path, struct symbolizer *symbols, struct export *e);

/* The same for a format of the whole run: fills in e->run, what, at_ns and device. */
int export_choose_run(const struct export_request *w, char **paths, size_t n, struct symbolizer *symbols,
                      struct export_run *e);
