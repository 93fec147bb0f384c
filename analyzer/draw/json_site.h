/* Members, lists, frames and call sites in JSON, for every view that writes it. Unknown is null. */
#pragma once

#include <jansson.h>
#include <math.h>
#include "analyzer/base/each_argument.h"
#include "analyzer/result/result.h"

static inline json_t *json_add_object(json_t *list)
{
    json_t *o = json_object();
    json_array_append_new(list, o);
    return o;
}

static inline void set_json(json_t *o, const char *key, json_t *value)
{
    json_object_set_new(o, key, value ? value : json_null());
}

static inline void set_text(json_t *o, const char *key, const char *text)
{
    set_json(o, key, text ? json_string(text) : NULL);
}

static inline void set_bytes(json_t *o, const char *key, int64_t bytes)
{
    set_json(o, key, bytes == RUN_UNKNOWN ? NULL : json_integer(bytes));
}

static inline void set_count(json_t *o, const char *key, uint64_t n)
{
    set_json(o, key, json_integer((json_int_t)n));
}

static inline void set_int(json_t *o, const char *key, int n)
{
    set_json(o, key, json_integer(n));
}

static inline void set_real(json_t *o, const char *key, double value)
{
    set_json(o, key, isfinite(value) ? json_real(value) : NULL);
}

static inline void set_bool(json_t *o, const char *key, bool value)
{
    set_json(o, key, json_boolean(value));
}

/* Sets members of `o` that have the names and values of members of *s: SET_MEMBERS(o, line, bytes, count) */
#define SET_MEMBER(o, s, m) \
    _Generic((s)->m,                  \
        int: set_int,                 \
        int64_t: set_bytes,           \
        uint64_t: set_count,          \
        uint32_t: set_count,          \
        double: set_real,             \
        bool: set_bool,               \
        char *: set_text,             \
        const char *: set_text)(o, #m, (s)->m);
#define SET_MEMBERS(o, s, ...) EACH_ARGUMENT(SET_MEMBER, o, s, __VA_ARGS__)

/* [value of i = 0, of 1, … n - 1] */
#define LIST_OF(n, i, value)                                                  \
    ({                                                                        \
        json_t *list_ = json_array();                                         \
        for (size_t i = 0; i < (n); i++) json_array_append_new(list_, value); \
        list_;                                                                \
    })
/* A list of objects, of which set(o, &list[i]) sets the members */
#define LIST(list, n, set)                                                            \
    ({                                                                                \
        json_t *list_ = json_array();                                                 \
        for (size_t i_ = 0; i_ < (n); i_++) set(json_add_object(list_), &(list)[i_]); \
        list_;                                                                        \
    })

void draw_json_where(json_t *o, const struct result_report *r, uint32_t process, int device); /* device, pid, rank */
json_t *draw_json_frame(const struct run_frame *f);
json_t *draw_json_frames(struct run *run, uint32_t stack); /* of its innermost call, inlined ones first */
void draw_json_process(json_t *o, const struct run_process *p);
void draw_json_holders(json_t *o, const struct result_holder *list, size_t n); /* holder (the first), holders */
json_t *draw_json_source(const struct result_excerpt *list, size_t n);         /* a row a line */
json_t *draw_json_site(const struct result_site *s);
