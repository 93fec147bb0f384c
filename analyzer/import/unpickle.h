/* Reads pickles of plain data, protocols 0 to 5: dicts, lists, tuples, texts, bytes, numbers, None and booleans.
 * Refuses everything that would import or call something. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum import_type {
    IMPORT_NONE,
    IMPORT_BOOL,
    IMPORT_INT,
    IMPORT_BIG, /* an integer of more than 64 bits, which no caller needs */
    IMPORT_FLOAT,
    IMPORT_TEXT, /* also bytes; a zero byte follows its length */
    IMPORT_LIST, /* also tuples and sets */
    IMPORT_DICT, /* keys and values alternate */
};

struct import_list;

struct import_value {
    uint8_t type;    /* enum import_type */
    uint32_t length; /* of a text, in bytes */
    union {
        int64_t integer; /* also of BOOL; an unsigned one above INT64_MAX wraps */
        double number;
        const char *text;
        struct import_list *list;
    };
};

struct import_list {
    struct import_value *items; /* equal lists of dicts share their items */
    size_t n;
    size_t cap; /* 0: the items belong to the pickle. Of a dict that was taken: what the taker returned */
};

/* Called now and then with the number of bytes read. */
typedef void (*import_progress_fn)(void *self, uint64_t bytes);

/* Called with each dict of at most IMPORT_TAKEN_KEYS keys as soon as it is complete: keys and values alternate. The
 * values stay valid. Not 0: the dict is not needed any more, and import_taken returns this number. */
enum { IMPORT_TAKEN_KEYS = 32 };
typedef size_t (*import_take_fn)(void *taker, const struct import_value *pairs, size_t n);

struct import_reading {
    import_progress_fn progress; /* NULL: none */
    void *self;
    import_take_fn take; /* NULL: nothing is offered */
    void *taker;
};

struct import_pickle; /* owns all values */
/* Reads a file, also one that gzip packed. NULL and a line in `error`, which states what is wrong and at which byte. */
struct import_pickle *import_unpickle(const char *path, const struct import_reading *reading, char *error,
                                      size_t error_size);
void import_unpickle_free(struct import_pickle *p);
const struct import_value *import_unpickled(const struct import_pickle *p);
/* Whether another pickle follows in the file. */
bool import_unpickled_more(const struct import_pickle *p);

/* The value of a key; NULL: the dict does not have it, or the value is not a dict. The last of equal keys counts. */
const struct import_value *import_member(const struct import_value *dict, const char *key);
/* The number of items; 0 for a value that is not a list. */
size_t import_count(const struct import_value *list);
const struct import_value *import_item(const struct import_value *list, size_t i);
/* Returns `otherwise` for a value that is not a number. */
int64_t import_integer(const struct import_value *v, int64_t otherwise);
/* What import_take_fn returned for a dict; 0: it was not taken. */
size_t import_taken(const struct import_value *dict);
/* NULL for a value that is not a text. Equal texts of at most 255 bytes are the same pointer. */
const char *import_text(const struct import_value *v);
