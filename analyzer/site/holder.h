/* The statement that keeps growing memory alive: a guess from the program's source. */
#pragma once

#include "analyzer/site/builder.h"

/* Follows the memory that the stack allocated from its line outwards: the names it is assigned to, the functions that
 * return it, and the statement that stores it in an object that outlives the step. At most RESULT_HOLDERS; 0 if no
 * statement is found, or too many. `graph`: an autograd graph is kept, by references to it only. */
size_t site_find_holders(struct site_builder *b, uint32_t stack, bool graph, struct result_holder **holders);
/* Of a graph: also containers that the loop which fills them empties, as it may do at the end of a window. */
size_t site_find_emptied(struct site_builder *b, uint32_t stack, struct result_holder **holders);
/* Of passes that wait for a backward pass: the statement by which each takes over a result of the one before. */
size_t site_find_carried(struct site_builder *b, uint32_t stack, struct result_holder **holders);
/* The statements of except blocks around the call path that store the exception. */
size_t site_find_kept_errors(struct site_builder *b, uint32_t stack, struct result_holder **holders);
/* "train.py:43 `features.append(model.features)`", two joined by "or". */
const char *site_holders_text(struct arena *arena, const struct result_holder *holders, size_t n);
/* "kept by train.py:43 `features.append(loss)` (guess)". `named`: the line that the text before it names, which is not
 * repeated; "": none. Returns NULL if `holders` is empty. */
const char *site_kept_text(struct arena *arena, const char *named, const struct result_holder *holders, size_t n);
/* Does the statement add to a list of models that the file calls one after the other? */
bool site_is_ensemble(struct site_builder *b, const struct result_holder *holder);
/* Is the statement in a class that has a forward(), which makes what it stores part of the module? */
bool site_is_in_module(struct site_builder *b, const struct result_holder *holder);
