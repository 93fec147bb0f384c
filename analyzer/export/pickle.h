/* A writer of Python pickles (protocol 4) of dicts, lists, tuples, texts, numbers: no classes, so that
 * a reader needs to allow none. It streams: nothing but the memo of texts is kept.
 *
 * Values are written in the order in which they are read: export_pickle_list, an item, …, export_pickle_end. In a
 * dict each value comes behind its export_pickle_key. An object that is needed again is written once, named
 * with export_pickle_memo, and later only pointed at with export_pickle_again: it is then one and the same object
 * for the reader, too. Texts are so without asking. Write errors stay in the stream: see ferror.
 */
#ifndef GPUSPY_PICKLE_H
#define GPUSPY_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/arena.h"

enum { PICKLE_DEPTH = 16, PICKLE_NEAR = 256 };

struct export_pickle {
    FILE *out;
    uint32_t memo_n;
    struct {
        bool list;
        unsigned in_batch; /* items since the last mark */
    } open[PICKLE_DEPTH];
    unsigned depth;
    /* texts by what they say, and, before that, by where they lie */
    struct map by_text;
    struct export_pickle_text {
        const char *text;
        uint32_t memo;
    } * texts, near[PICKLE_NEAR];
    size_t texts_n, texts_cap;
};

void export_pickle_start(struct export_pickle *p, FILE *out);
void export_pickle_finish(struct export_pickle *p); /* the object is complete; frees the memo */

void export_pickle_list(struct export_pickle *p);
void export_pickle_dict(struct export_pickle *p);
void export_pickle_end(struct export_pickle *p); /* of the innermost list or dict */
void export_pickle_key(struct export_pickle *p, const char *key);
/* The two values before it become one. Not in a list: they would be counted as its items. */
void export_pickle_pair(struct export_pickle *p);

void export_pickle_int(struct export_pickle *p, int64_t value);
void export_pickle_address(struct export_pickle *p, uint64_t value);
void export_pickle_bool(struct export_pickle *p, bool value);
/* NULL reads as "". The text stays where it is, unchanged, until export_pickle_finish. What is not UTF-8
 * becomes '?'. */
void export_pickle_text(struct export_pickle *p, const char *text);

/* Names what was just begun or written. */
uint32_t export_pickle_memo(struct export_pickle *p);
void export_pickle_again(struct export_pickle *p, uint32_t memo);

#endif
