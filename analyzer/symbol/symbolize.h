/* Writes the names of native frames into the database itself, so that it shows them on machines without the programs.
 *
 * It fills frame.function, file and line, and module.build_id if it was unknown. Inlined functions are stored in a
 * separate table (see schema/gpuspy.sql), which an older gpuspy does not read. Nothing else changes, and the schema's
 * version stays.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/base/arena.h"
#include "analyzer/symbol/symbol.h"

/* One module over all databases. */
struct symbolize_module {
    char *path, *build_id; /* build_id "" none */
    uint64_t frames, named, lines;
    const char *lack; /* why no more is known (symbolizer_lack); NULL: there are lines */
};

struct symbolize {
    struct symbolizer *symbols;
    void (*progress)(uint64_t done, uint64_t all); /* NULL: no progress is reported */
    /* the result: of native frames */
    uint64_t frames, named, lines, inlined, changed, nowhere; /* nowhere: their address is in no file */
    ARENA_LIST(struct symbolize_module, modules);             /* most frames first, once finished */
};

/* All or nothing, even if the process is killed. False and one line in `error`. */
bool symbolize_database(struct symbolize *s, const char *path, char *error, size_t error_size);
/* A copy of the database in its current state, journal included, to a file that does not exist yet. */
bool symbolize_copy(const char *from, const char *to, char *error, size_t error_size);
void symbolize_finish(struct symbolize *s);
void symbolize_free(struct symbolize *s);
