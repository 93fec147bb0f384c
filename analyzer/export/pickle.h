/* A writer of Python pickles (protocol 4) of dicts, lists, tuples, texts, numbers: no classes, so that
 * a reader needs to allow none. It streams: nothing but the memo of texts is kept.
 *
 * Values are written in the order in which they are read: pickle_list, an item, …, pickle_end. In a
 * dict each value comes behind its pickle_key. An object that is needed again is written once, named
 * with pickle_memo, and later only pointed at with pickle_again: it is then one and the same object
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

struct pickle {
    FILE *out;
    uint32_t memo_n;
    struct {
        bool list;
        unsigned in_batch; /* items since the last mark */
    } open[PICKLE_DEPTH];
    unsigned depth;
    /* texts by what they say, and, before that, by where they lie */
    struct gs_map by_text;
    struct pickle_text {
        const char *text;
        uint32_t memo;
    } * texts, near[PICKLE_NEAR];
    size_t texts_n, texts_cap;
};

void pickle_start(struct pickle *p, FILE *out);
void pickle_finish(struct pickle *p); /* the object is complete; frees the memo */

void pickle_list(struct pickle *p);
void pickle_dict(struct pickle *p);
void pickle_end(struct pickle *p); /* of the innermost list or dict */
void pickle_key(struct pickle *p, const char *key);
/* The two values before it become one. Not in a list: they would be counted as its items. */
void pickle_pair(struct pickle *p);

void pickle_int(struct pickle *p, int64_t value);
void pickle_address(struct pickle *p, uint64_t value);
void pickle_bool(struct pickle *p, bool value);
/* NULL reads as "". The text stays where it is, unchanged, until pickle_finish. What is not UTF-8
 * becomes '?'. */
void pickle_text(struct pickle *p, const char *text);

/* Names what was just begun or written. */
uint32_t pickle_memo(struct pickle *p);
void pickle_again(struct pickle *p, uint32_t memo);

#endif
