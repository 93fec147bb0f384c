/* Inside of the holder's search: the statements of one function, and how they use memory. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/python_names.h"

enum { SITE_FOUND_MAX = 8 };
#define SITE_ANY_PART UINT64_MAX

struct site_candidate {
    const struct run_frame *frame;
    struct site_code code;
    size_t at;
    const char *into; /* the container; NULL unknown */
    const char *why;
    const char *instead; /* as in result_holder */
    bool weak;           /* update(), of another loop than the call, or into what the file empties somewhere */
    bool keyed, cached;  /* as in result_holder */
    bool reset;          /* the container is made anew by a loop around the one that fills it */
    bool carried;        /* as in result_holder */
    bool view;           /* it stores a slice */
    bool own;            /* a method of the program's own, which shows whether it stores what it is given */
    bool passed;         /* into a local variable that the function returns: a caller's statement is more likely */
};
struct site_candidates {
    struct site_candidate list[SITE_FOUND_MAX];
    size_t n; /* those beyond the room are also counted */
};

struct site_search {
    struct site_builder *b;
    uint32_t stack; /* of the allocation */
    struct arena *scratch;
    long budget;         /* statements that may still be examined */
    bool graph, pending; /* pending: no backward pass has freed the graph yet */
    bool emptied;        /* a container that its loop makes anew counts, too */
    /* of the function of this frame */
    const struct run_frame *frame;
    struct site_code code;
    size_t at, from, to;              /* the statement that called; the bounds of its function */
    bool module;                      /* not in a function but at the top level of the file */
    struct site_names names, objects; /* that refer to the memory; objects whose method allocated it */
    struct site_names views;          /* those of the names that refer to a slice, which keeps the whole tensor */
    struct site_names owners;       /* objects with an attribute that refers to it: what is stored must be the object */
    bool constructs;                /* the function runs in the construction of its object */
    const char *class;              /* of self; NULL unknown */
    uint64_t returns_parts;         /* as returned_parts, of this function; 0: no statement yet */
    bool given;                     /* a function of the program returned the memory to a library that called it */
    bool submitted;                 /* the statement passed the function to a library, which calls it */
    const struct run_frame *lambda; /* that called the function; NULL none */
    /* of the frame that it called */
    const char *callee;      /* its name; NULL none */
    const char *inner;       /* the function that the statement called, also of a library; NULL unknown */
    bool returned;           /* the value is returned */
    bool returned_view;      /* as a slice */
    uint64_t returned_parts; /* `return model, loss.item()`: a bit for each value that holds it; or SITE_ANY_PART */
    bool constructed;        /* it is a constructor, and the value is the object */
    bool hook;               /* the function is a hook: the modules that it is given outlive its call */
    bool last_error;         /* an exception that a later one replaces counts, too */
    bool raises;             /* it, or what it called, contains a raise statement */
    struct site_names attributes; /* "self.features" of the object */
    struct site_names kept;       /* all of them on the way */
    struct site_candidates found, kept_errors;
    struct site_candidates given_away; /* statements that pass the memory to an object of a library */
};

enum { SITE_FILES = 32 };
struct site_files {
    struct site_file {
        const struct run_frame *frame;
        struct site_code code;
    } list[SITE_FILES];
    size_t n;
};
/* The program's files of the call path; replaces them by those that they import. */
void site_find_files(struct site_search *s, uint32_t stack, struct site_files *files);
void site_find_imported(struct site_search *s, struct site_files *files);

extern const char site_cache_advice[], site_hook_advice[];
/* Does an assignment of the file give the name such a value? */
bool site_is_given(struct site_search *s, const char *name, bool (*is)(const char *value));
bool site_is_function(const struct site_statement *s);
bool site_is_loop(const struct site_statement *s);
void site_find_function(struct site_search *s);
/* Is the name assigned anew in these statements, other than from itself? */
bool site_is_made_in(struct site_search *s, const char *name, size_t from, size_t to);
/* A method of the class, or of its first bases, if they are in the same file. */
/* Do the files call the class or the function that contains statement i of s? */
bool site_is_used(struct site_search *s, size_t i, const struct site_files *files);
bool site_find_method(struct site_search *in, const char *class, const char *method, size_t *def);
/* The same of a class in any file of the call path, or in one that those import. */
bool site_find_own_method(struct site_search *in, const char *class, const char *method, size_t *def);
/* The class of an object that the file makes by `name = Class(…)`; "" none. */
const char *site_find_class_of(struct site_search *s, const char *name);
/* Do the comma-separated parameters include the name, of n characters? */
bool site_has_parameter(struct site_search *s, const char *parameters, const char *name, size_t n);
/* Is it an argument of the function? */
bool site_is_parameter(struct site_search *s, const char *name);
/* The innermost loop around both; code.n if there is none. */
size_t site_common_loop(const struct site_search *s, size_t a, size_t b);
void site_add_candidate(struct site_candidates *to, struct site_candidate c);
bool site_has_strong(const struct site_candidates *found);
/* Statement i stores the memory in `into`: does that outlive the step? */
void site_consider_store(struct site_search *s, size_t i, const char *into, bool weak);
/* __init__() and the like: what it allocates belongs to the object that the call makes. */
bool site_is_constructor(const char *function);
/* Any of the values of a tuple. */
bool site_value_holds(struct site_search *s, size_t i, const char *value);
/* The values of a tuple, list or dictionary; otherwise the text itself. */
const char *site_values_of(struct site_search *s, const char *text);
/* Is the value, at statement i, a part of the memory: h[:, 0], a row that a loop reads, or what a function returned so?
 */
bool site_is_view(struct site_search *s, size_t i, const char *value);
/* x + f(y): is the name no more than one term of a sum? */
bool site_only_adds(const char *value, const char *name);
/* Does an earlier statement of the function make the value by a concatenation with what the name refers to? */
bool site_is_enlarged(struct site_search *s, size_t i, const char *value, const char *name);
void site_read_statement(struct site_search *s, size_t i);
/* log.debug("", x), stack.callback(f, x): does a function of a library keep what statement i passes to it? */
void site_read_library(struct site_search *s, size_t i);
/* The list in `for m in members`, `for i, m in enumerate(members)`, `for m in members.values()`; its length 0: none. */
size_t site_iterated_length(const char **in);
/* The name in a statement, whole; NULL if it is not in it. */
const char *site_find_name(const char *code, const char *name);
/* The frame of a lambda or of a comprehension? */
bool site_is_nameless(const char *function);
bool site_open_frame(struct site_search *s, const struct run_frame *frame);
/* Finds in kept_errors what stores it: except ValueError as error: its traceback keeps the frames of the functions that
 * the try statement called. */
void site_read_handlers(struct site_search *s);
/* If no other statement is found: hooks of the modules on the call path that store what they are given; functions that
 * a library calls; statements that store an attribute that the call path has set. */
void site_find_hooks(struct site_search *s, uint32_t stack);
void site_find_callbacks(struct site_search *s, uint32_t stack);
/* Removes statements that store in a list which the file empties later (self.rewards = []), if others remain. */
void site_drop_renewed(struct site_search *s);
void site_find_attribute_stores(struct site_search *s, uint32_t stack);
/* keep(x), self.log(x): finds which of its arguments a function of the program stores. */
void site_read_calls(struct site_search *s, size_t i, unsigned depth);
/* The function of the program that a value calls, f(x) or self.f(x); none of its statements is read yet. */
bool site_open_callee(struct site_search *s, const char *call, struct site_search *in);
