#include "analyzer/site/source_context.h"

#include <string.h>

/* Parses each file once: many call paths lead through it. */
static struct site_code code_of_file(struct site_builder *b, const struct run_source_text *text)
{
    for (size_t i = 0; i < b->codes_n; i++)
        if (b->codes[i].lines == text->lines) return b->codes[i].code;
    const struct site_code code = site_code_of(b->arena, text->lines, text->n);
    *ARENA_PUSH(b->codes, b->codes_n, b->codes_cap) = (struct site_file_code){text->lines, code};
    return code;
}

bool site_open_source(struct site_builder *b, const struct run_frame *frame, struct site_code *code, size_t *at)
{
    const struct run_source_text *text = frame->line ? run_source_text(b->run, frame->file) : NULL;
    if (!text) return false;
    *code = code_of_file(b, text);
    *at = site_code_at(code, frame->line);
    return *at < code->n;
}

static bool source_has_any(const char *code, const char *const *words, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n && !has; i++) has = strstr(code, words[i]);
    return has;
}

bool site_is_without_gradients(struct site_builder *b, uint32_t stack)
{
    static const char *const blocks[] = {"no_grad(", "inference_mode(", "set_grad_enabled(False)"};
    const struct run_frame *frame;
    for (; (frame = run_stack_frame(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack)) {
        struct site_code code;
        size_t at;
        if (frame->kind != GS_FRAME_PYTHON || site_is_library_file(frame->file) ||
            !site_open_source(b, frame, &code, &at))
            continue;
        for (size_t k = site_code_parent(&code, at); k < code.n; k = site_code_parent(&code, k)) {
            const char *header = code.list[k].code;
            if (site_code_begins(&code.list[k], "with") && source_has_any(header, blocks, 3) && !strstr(header, " if "))
                return true;
            if (!site_code_begins(&code.list[k], "def")) continue;
            for (size_t d = k; d-- > 0 && code.list[d].code[0] == '@';)
                if (source_has_any(code.list[d].code, blocks, 2)) return true;
            break; /* the block around it was left when the function was defined */
        }
        for (size_t k = 0; k < code.n; k++)
            if (strstr(code.list[k].code, "torch.set_grad_enabled(False)") == code.list[k].code) return true;
    }
    return false;
}

bool site_statement_has(struct site_builder *b, uint32_t stack, const char *words)
{
    const struct run_frame *frame;
    struct site_code code;
    size_t at;
    while ((frame = run_stack_frame(b->run, stack)) != NULL &&
           (frame->kind != GS_FRAME_PYTHON || site_is_library_file(frame->file)))
        stack = run_stack_parent(b->run, stack);
    return frame && site_open_source(b, frame, &code, &at) && strstr(code.list[at].code, words);
}

bool site_source_lacks(struct site_builder *b, uint32_t stack, const char *const *words, size_t n)
{
    const struct run_frame *frame;
    bool known = false;
    for (; (frame = run_stack_frame(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack)) {
        struct site_code code;
        size_t at;
        if (frame->kind != GS_FRAME_PYTHON || site_is_library_file(frame->file)) continue;
        if (!site_open_source(b, frame, &code, &at)) return false;
        known = true;
        for (size_t k = 0; k < code.n; k++)
            if (source_has_any(code.list[k].code, words, n)) return false;
    }
    return known;
}
