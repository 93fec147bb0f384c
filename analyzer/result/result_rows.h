/* What many sections of the report list: call sites and excerpts of source, rows by call path and by line, categories
 * and owners of memory. Units and order are those of result.h. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/base/arena.h"
#include "analyzer/run/run.h"

/* Rows that are cut to options.top; `name_total`: how many there were. */
#define RESULT_CUT(type, name) \
    ARENA_ROWS(type, name);    \
    size_t name##_total

/* What a block is for: see category.h. */
/* clang-format off */
#define RESULT_CATEGORIES(X)                                                                           \
    X(PARAMETERS, "parameters")                                                                    \
    X(GRADIENTS, "gradients")                                                                      \
    X(OPTIMIZER_STATE, "optimizer_state")                                                          \
    X(ACTIVATIONS, "activations")                                                                  \
    X(INPUTS, "inputs")                                                                            \
    X(TEMPORARIES, "temporaries")                                                                  \
    X(WORKSPACES, "workspaces") X(KV_CACHE, "kv_cache") X(UNKNOWN, "unknown")
/* clang-format on */
#define RESULT_ENUM_CATEGORY(s, w) RESULT_CATEGORY_##s,
enum result_category { RESULT_CATEGORIES(RESULT_ENUM_CATEGORY) RESULT_CATEGORIES_N };

/* Whose memory it is: see owner.h. */
/* clang-format off */
#define RESULT_OWNER_KINDS(X)                                                                          \
    X(UNKNOWN, "unknown")                                                                          \
    X(TORCH, "torch")                 /* segments of PyTorch's caching allocator */                \
    X(POOL, "pool")                   /* another allocator's pool, from which it allocates */         \
    X(FRAMEWORK, "framework")                                                                      \
    X(COMMUNICATION, "communication") X(LIBRARY, "library") /* handles, workspaces */              \
    X(PACKAGE, "package")             /* an installed Python package that the table does not know */ \
    X(USER, "user")                   /* the program's own binary, extension or Python file */
/* clang-format on */
#define RESULT_ENUM_OWNER(s, w) RESULT_OWNER_##s,
enum result_owner_kind { RESULT_OWNER_KINDS(RESULT_ENUM_OWNER) RESULT_OWNER_KINDS_N };

/* The call site that an answer names: the innermost frame of the user's own code, see site.h. */
struct result_site {
    uint8_t kind;                   /* enum gs_frame_kind */
    bool known;                     /* false: no stack was recorded; the rest is empty */
    bool library;                   /* no frame is the user's own: this one is in a library */
    const char *function;           /* NULL: unknown */
    const char *file;               /* of a native frame without lines: its module; NULL: unknown */
    int line;                       /* 0: unknown */
    uint64_t offset;                /* of a native frame without lines: its offset in the module */
    bool exit;                      /* it has no line because Python was shutting down */
    bool helper;                    /* `via` is a helper of the user's own code, which this line called */
    const char *operation;          /* "AddmmBackward0": the gradient that was computed; the line is that of
                                       backward(). "Engine": between two operations. NULL: none */
    const struct run_frame *via;    /* the innermost Python frame of the library or helper below the site; NULL: none */
    const struct run_frame *inner;  /* the innermost line of an installed library other than PyTorch and the like, for
                                       example of a model, a trainer or a metric; NULL: none */
    const struct run_frame *caller; /* the user's line that called the site's function, which distinguishes its
                                       callers; NULL: none. Lists by site have a row per (site, inner, caller) or, for
                                       a helper, per (site, via) */
    uint32_t paths; /* in a list of lines: number of call paths that this struct distinguishes; 0: one */
};

/* A line of the program's source, with the lines around it. */
struct result_excerpt {
    const char *file, *function; /* of the line; function NULL: unknown */
    int line;
    int first_line;           /* of `lines` */
    const char *const *lines; /* without line ends; not yet cleaned for display */
    size_t n;
    const char *role;   /* what the line did: "growing", "failing", "holder", … as in result_oom_verdict.blame_role */
    bool from_disk;     /* read from the file, which is older than the recording; the recording does not have it */
    const char *cell;   /* of a notebook: "code cell 3 of train.ipynb"; NULL: none, or unknown */
    const char *amount; /* "16.00 MiB per step", "requests 32.00 MiB"; NULL: unknown */
};

/* The statement that seems to keep growing memory alive: a guess from the source. */
struct result_holder {
    const char *file, *function; /* function NULL: outside of functions */
    int line;
    const char *into;       /* the container, "self.features"; NULL unknown */
    const char *text, *why; /* "features.append(model.features)", cleaned; the reason for the guess */
    bool keyed;             /* it stores by a key, as a cache does */
    bool cached;            /* … and only if the key is missing */
    bool carried;           /* the next pass reads what it stores, with the graph of this one */
    bool weak;              /* the program also empties the container, or makes it anew, or limits it */
    const char *instead;    /* what to do instead of dropping the reference; NULL nothing in particular */
};
enum { RESULT_HOLDERS = 2 }; /* a guess names at most two */

/* Lists by line have one row per line of code. Its call paths, the largest first: */
struct result_line_path {
    int64_t bytes;
    uint64_t count;
    double blocked_s; /* in waits and copies */
    struct result_site site;
};
struct result_paths {
    struct result_line_path *list;
    size_t listed, n; /* n: before the list was cut; 1: the only path is the line itself, and the list is empty */
};

struct result_trace { /* a call path; run_frame_places names its frames when they are shown */
    uint32_t number;  /* of the stack; RUN_NONE */
    struct result_site site;
};

struct result_by_stack {
    int64_t bytes;
    uint64_t count;
    enum result_category category; /* of most of the bytes, with the rule that matched */
    const char *category_evidence;
    struct result_trace stack;
};

struct result_by_site {
    int64_t bytes;
    uint64_t count;  /* allocations */
    uint32_t stacks; /* call paths that lead there */
    struct result_site site;
    struct result_paths paths; /* in a list of lines */
};

/* What the live blocks are for, see category.h. */
struct result_category_share {
    enum result_category category;
    const char *evidence; /* the rule's */
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct result_category_line {
    uint32_t stack; /* RUN_NONE */
    enum result_category category;
    const char *evidence;
    int64_t bytes;
    uint64_t count;
    unsigned rule;
};
struct result_by_category {
    int64_t bytes[RESULT_CATEGORIES_N];               /* their sum is the live bytes; all 0: not classified */
    ARENA_ROWS(struct result_category_share, shares); /* by rule */
    ARENA_ROWS(struct result_category_line, lines); /* of peaks if options.watch is set: by stack and rule, unordered */
};

/* Device memory by the library that allocated it, see owner.h. */
struct result_by_owner {
    const char *owner;           /* "NCCL" */
    enum result_owner_kind kind; /* word: result_owner_kind_word() */
    const char *by;              /* the file of the frame that identifies it; NULL: unknown */
    int64_t bytes;
    uint64_t count;
    int64_t by_space[8];     /* enum gs_space */
    struct result_site site; /* where it allocated most of it */
};
