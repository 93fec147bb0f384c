/* The values that a Python statement assigns, stores and mentions; python_code.h has the form of a statement. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "analyzer/base/arena.h"
#include "analyzer/site/python_code.h"

enum { SITE_NAMES = 48 };
struct site_names { /* "loss", "self.features" */
    const char *list[SITE_NAMES];
    size_t n;
};
void site_names_add(struct arena *arena, struct site_names *names, const char *name, size_t length);
bool site_names_has(const struct site_names *names, const char *name);

/* How many characters a name with its attributes takes at p, 0 none. */
size_t site_name_length(const char *p);
/* "self.values" of "self.values[k]" and of "self.values.setdefault(k, [])"; "" none. */
const char *site_base_name(struct arena *arena, const char *expression);

/* `targets = value`, `targets += value`. False: another statement. */
struct site_assignment {
    const char *targets, *value;
    bool augmented;
};
bool site_assignment_of(struct arena *arena, const char *code, struct site_assignment *to);
/* The same, and the names that `for x in loader` and `with open(f) as g` bind. */
bool site_binding_of(struct arena *arena, const struct site_statement *st, struct site_assignment *to);
/* The names that targets bind, with their attributes; those with an index (`cache[key]`) go to `indexed` instead, as
 * their base, unless the index is a constant. `indexed` may be NULL. */
void site_targets_of(struct arena *arena, const char *targets, struct site_names *names, struct site_names *indexed);

/* The bracket that closes the one at p; the end of the text if none does. */
const char *site_closing(const char *p);
/* Is the bracket that closes the one at `open` the last character? */
bool site_closes_at_end(const char *open);
/* The value at an index of comma-separated values; "" none. */
const char *site_part_of(struct arena *arena, const char *values, size_t index);

/* Which parameter of `def f(self, x):` has the name, self and cls not counted; -1: none. */
int site_parameter_of(struct arena *arena, const char *def, const char *name);
/* What the call that begins at p, f(net, x) or f(model=net), passes for a parameter; "" unknown. */
const char *site_argument_at(struct arena *arena, const char *p, int index, const char *parameter);

/* `into.append(value)` and the like, as a whole statement. `weak`: update(), which may keep nothing. */
struct site_store {
    const char *into, *value;
    bool weak;
};
bool site_store_of(struct arena *arena, const char *code, struct site_store *to);

/* Does the expression hold GPU memory to which one of the names refers? Its shape does not, nor a copy on the host.
 * `graph`: it must hold an autograd graph, which a detached tensor does not. */
bool site_holds(const char *expression, const struct site_names *names, bool graph);
/* The same, but a copy such as torch.cat(names) or name.clone() holds only their graph. */
bool site_holds_itself(const char *expression, const struct site_names *names, bool graph);
/* It is a number or a copy on the host. */
bool site_is_host_value(const char *expression, bool graph);
/* `lambda x: into.append(x)` in a statement: the object that stores its arguments; NULL none. */
const char *site_lambda_store(struct arena *arena, const char *code, bool graph);
/* Is the name inside the parentheses of a call, as y in y + step * f(y)? */
bool site_is_passed_to_call(const char *value, const char *name);
/* best = sorted(best + [x])[-5:] is bounded; best = best + found[-5:] is not. */
bool site_is_cut(const char *value);
/* torch.cat(…), torch.stack(…) */
bool site_is_concatenation(const char *value);
/* {…}, dict(…), defaultdict(…) */
bool site_is_dictionary(const char *value);
/* (x, y) */
bool site_is_tuple(const char *value);
/* The innermost bracket of the statement that is open before p; NULL none. */
const char *site_bracket_around(const char *code, const char *p);
/* [f(x) for x in y], {…}, list(f(x) for x in y): keeps each call's result until the last call has returned. `inner`:
 * the function that the statement was calling, whose arguments are complete; NULL unknown. */
bool site_collects(const char *code, const char *inner, bool graph);
