/* Facts about a call path from the program's source: the blocks that contain its statements, and words of its files. */
#pragma once

#include "analyzer/site/builder.h"
#include "analyzer/site/python_code.h"

/* The statements of a file, which is parsed once: many call paths lead through it. They belong to the builder. */
struct site_code site_code_of_text(struct site_builder *b, const struct run_source_text *text);
/* The statement of a frame. False: the source is not known. */
bool site_open_source(struct site_builder *b, const struct run_frame *frame, struct site_code *code, size_t *at);
/* The same of the innermost line of the program on a call path; NULL: none, or its source is not known. */
const struct run_frame *site_open_innermost(struct site_builder *b, uint32_t stack, struct site_code *code, size_t *at);
/* A line of the program or of a library other than PyTorch calls below `with torch.no_grad():` or the like, or the
 * program's file turns gradients off. */
bool site_is_without_gradients(struct site_builder *b, uint32_t stack);
/* Does backward() follow a line of the program's calls: later in its function, or in the innermost loop around it? */
bool site_is_before_backward(struct site_builder *b, uint32_t stack);
/* Does it follow the innermost of these lines: later in the innermost loop around it, or else in its function? */
bool site_backward_follows(struct site_builder *b, uint32_t stack);
/* Or does a function on the call path pass on to backward() what its line returns: `loss = evaluate(batch)`? */
bool site_backward_uses(struct site_builder *b, uint32_t stack);
/* Does the statement of the innermost line of the program on the call path have the words? */
bool site_statement_has(struct site_builder *b, uint32_t stack, const char *words);
/* Copied to the device, or created there, by PyTorch's operators (native_functions.yaml); without native frames, by the
 * statement. */
bool site_enters_device(struct site_builder *b, uint32_t stack);
/* Does its line assign an attribute of self of which the file uses parts, as in self.states[at]? */
bool site_takes_parts(struct site_builder *b, uint32_t stack);
/* Does the statement at a line have the words? False also if the source is not known. */
bool site_line_has(struct site_builder *b, const char *file, int line, const char *words);
/* Does the statement at a line store under a key of a collection that a loop around it goes through? `for name, shape
 * in shapes.items(): weights[name] = …`; not in a `while` loop. */
bool site_fills_keys(struct site_builder *b, const char *file, int line);
/* Does the statement of the innermost line of the program, or another one of its function? At the top level of a file
 * only the line itself counts. */
bool site_function_has(struct site_builder *b, uint32_t stack, const char *words);
/* Does the statement call a model that its function switches to evaluation, net(x) after net.eval(), without a backward
 * pass in the function? */
bool site_calls_evaluated(struct site_builder *b, uint32_t stack);
/* Does any statement of the file have the words? False also if the source is not known. */
bool site_file_has(struct site_builder *b, const char *file, int line, const char *words);
/* Does the file cut what the name refers to, as in bank = bank[-n:], or ask for its size in a condition? */
bool site_file_bounds(struct site_builder *b, const char *file, int line, const char *name);
/* The same of what the innermost statement of the program assigns to. */
bool site_statement_bounds(struct site_builder *b, uint32_t stack);
/* Does the program concatenate what the statements of the call path return? That fails of losses, which have no
 * dimension: a loss is computed from all results. */
bool site_concatenates_results(struct site_builder *b, uint32_t stack);
/* Does another statement of the loop around the holder, or of its function if there is none, use what it stores into?
 */
bool site_is_read_beside(struct site_builder *b, const struct result_holder *holder);
/* Each file of the program on the call path is known, and none of its statements has any of these words. */
bool site_source_lacks(struct site_builder *b, uint32_t stack, const char *const *words, size_t n);
/* Likewise, and none calls backward(), or grad() without create_graph. */
bool site_source_ends_no_graph(struct site_builder *b, uint32_t stack);
/* Does the loss compare the samples of a batch with each other, as far as the names in the program's files of the call
 * path show it, or labels that are row numbers? */
bool site_compares_samples(struct site_builder *b, uint32_t stack);
/* Does a line of the program run below `with torch.cuda.graph(g):`? */
bool site_is_captured(struct site_builder *b, uint32_t stack);
/* `from lib.replay import Memory`, `import replay`: the program's own module, beside the file or its package; NULL. */
const char *site_imported_file(struct arena *arena, const char *file, const char *code);
/* What a statement of the program does with a number that it reads from the GPU. */
enum site_use { SITE_USE_UNKNOWN, SITE_USE_BRANCH, SITE_USE_SIZE, SITE_USE_ACTION, SITE_USE_OPERAND, SITE_USE_EXTREME };
/* Of x.item(), float(x) or int(x) in the statement at a line, or of the name to which the statement assigns it;
 * extreme: best = max(best, x), which reads which of them is larger. */
enum site_use site_number_use(struct site_builder *b, const char *file, int line);
