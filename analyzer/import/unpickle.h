/* Pickles of plain data, protocols 0 to 5: dicts, lists, tuples, texts, bytes, numbers, None and booleans. What would
 * import or call anything is refused. */
#ifndef GPUSPY_IMPORT_UNPICKLE_H
#define GPUSPY_IMPORT_UNPICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum import_type {
    IMPORT_NONE,
    IMPORT_BOOL,
    IMPORT_INT,
    IMPORT_BIG, /* an integer of more than 64 bits, which nothing here needs */
    IMPORT_FLOAT,
    IMPORT_TEXT, /* and bytes; ends with a zero beyond its length */
    IMPORT_LIST, /* and tuples and sets */
    IMPORT_DICT, /* keys and values in turn */
};

struct import_list;

struct import_value {
    uint8_t type;    /* enum import_type */
    uint32_t length; /* of a text, in bytes */
    union {
        int64_t integer; /* and BOOL; an unsigned one above INT64_MAX wraps */
        double number;
        const char *text;
        struct import_list *list;
    };
};

struct import_list {
    struct import_value *items; /* equal lists of dicts share theirs */
    size_t n;
    size_t cap; /* 0: the items belong to the pickle; of a dict that was taken, what the taker made of it */
};

/* Called with bytes read, now and then. */
typedef void (*import_progress_fn)(void *self, uint64_t bytes);

/* Called with each dict of at most IMPORT_TAKEN_KEYS keys as soon as it is complete: keys and values in turn. What is
 * inside it stays. Not 0: the dict is no longer needed, and import_taken returns this number. */
enum { IMPORT_TAKEN_KEYS = 32 };
typedef size_t (*import_take_fn)(void *taker, const struct import_value *pairs, size_t n);

struct import_reading {
    import_progress_fn progress; /* NULL: none */
    void *self;
    import_take_fn take; /* NULL: nothing is taken */
    void *taker;
};

struct import_pickle; /* owns all values */
/* Reads a file, also one that gzip packed. NULL and a line in `error`, which says what is wrong and at which byte. */
struct import_pickle *import_unpickle(const char *path, const struct import_reading *reading, char *error,
                                      size_t error_size);
void import_unpickle_free(struct import_pickle *p);
const struct import_value *import_unpickled(const struct import_pickle *p);
/* Another pickle follows in the file. */
bool import_unpickled_more(const struct import_pickle *p);

/* Of a dict: NULL where it has no such key, or is none. The last of equal keys. */
const struct import_value *import_member(const struct import_value *dict, const char *key);
/* 0 items of what is no list. */
size_t import_count(const struct import_value *list);
const struct import_value *import_item(const struct import_value *list, size_t i);
/* `otherwise` of what is no number. */
int64_t import_integer(const struct import_value *v, int64_t otherwise);
/* What import_take_fn returned for a dict; 0: it was not taken. */
size_t import_taken(const struct import_value *dict);
/* NULL of what is no text. Equal texts of at most 255 bytes are the same pointer. */
const char *import_text(const struct import_value *v);

#endif
