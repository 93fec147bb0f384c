/* Writes Python pickles (protocol 4) of dicts, lists, tuples, texts and numbers, and no classes, so that a reader need
 * not allow any. It streams: only the memo of texts is kept in memory.
 *
 * Values are written in reading order: export_pickle_list, an item, …, export_pickle_end. In a dict each value follows
 * its export_pickle_key. An object that is needed again is written once, named with export_pickle_memo, and later
 * referenced with export_pickle_again: the reader then gets one and the same object. Texts are shared automatically.
 * Write errors stay in the stream: see ferror. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/texts.h"

enum { PICKLE_DEPTH = 16, PICKLE_NEAR = 256 };

struct export_pickle {
    FILE *out;
    uint32_t memo_n;
    struct {
        bool list;
        unsigned in_batch; /* items since the last MARK */
    } open[PICKLE_DEPTH];
    unsigned depth;
    /* texts by content, and before that by address */
    struct texts texts;
    ARENA_LIST(uint32_t, memos); /* of `texts` */
    struct export_pickle_text {
        const char *text;
        uint32_t memo;
    } near[PICKLE_NEAR];
};

void export_pickle_start(struct export_pickle *p, FILE *out);
void export_pickle_finish(struct export_pickle *p); /* the object is complete; frees the memo */

void export_pickle_list(struct export_pickle *p);
void export_pickle_dict(struct export_pickle *p);
void export_pickle_end(struct export_pickle *p); /* ends the innermost list or dict */
void export_pickle_key(struct export_pickle *p, const char *key);
/* Combines the two preceding values into a tuple. Not in a list, which would count them as two items. */
void export_pickle_pair(struct export_pickle *p);

void export_pickle_int(struct export_pickle *p, int64_t value);
void export_pickle_address(struct export_pickle *p, uint64_t value);
void export_pickle_bool(struct export_pickle *p, bool value);
/* NULL is written as "". The text must stay unchanged until export_pickle_finish. Invalid UTF-8 becomes '?'. */
void export_pickle_text(struct export_pickle *p, const char *text);

/* Names the object that was just begun or written. */
uint32_t export_pickle_memo(struct export_pickle *p);
void export_pickle_again(struct export_pickle *p, uint32_t memo);
