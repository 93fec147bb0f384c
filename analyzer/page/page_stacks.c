#include "analyzer/page/page_stacks.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"

enum {
    NATIVE_STACKS = 60000, /* nodes of the tree; beyond it native frames are left out … */
    STACKS = 120000,       /* … and beyond it all frames but the innermost one */
    COLUMNS = 2 << 20,     /* bytes of frames and stacks, … */
    TEXTS = 4 << 20,       /* … and of names: the same beyond them */
    AFTERWARDS = 16 << 10, /* what is written after the texts */
    TEXT_LEAST = 4,
};

void page_stacks_start(struct page_stacks *s, struct run *run)
{
    *s = (struct page_stacks){.run = run};
    site_helpers(run, &s->helpers);
}

void page_stacks_free(struct page_stacks *s)
{
    struct page_column *columns[] = {&s->native, &s->function, &s->file, &s->line, &s->module, &s->parent, &s->frame};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) page_column_free(columns[i]);
    MAP_RELEASE(&s->helpers, &s->frame_of, &s->stack_of, &s->site_of);
    texts_free(&s->strings);
    free(s->sited);
}

uint32_t page_string(struct page_stacks *s, const char *text)
{
    if (!text) return 0;
    const size_t known = s->strings.n;
    const uint32_t number = texts_number(&s->strings, text, strlen(text));
    if (s->strings.n > known) s->texts += strnlen(text, PAGE_TEXT_LESS);
    return number + 1;
}

static uint32_t page_frame_index(struct page_stacks *s, const struct run_frame *f)
{
    uint32_t *at = map_at(&s->frame_of, (uintptr_t)f);
    if (*at != MAP_NEW) return *at;
    *at = s->frames_n;
    page_column_add(&s->native, f->kind == GS_FRAME_NATIVE);
    page_column_add(&s->function, page_string(s, f->function));
    page_column_add(&s->file, page_string(s, f->file));
    page_column_add(&s->line, f->line);
    page_column_add(&s->module, page_string(s, f->module));
    return s->frames_n++;
}

static bool are_stacks_full(const struct page_stacks *s)
{
    size_t columns = s->native.n + s->function.n + s->file.n + s->line.n + s->module.n + s->parent.n + s->frame.n;
    return s->stacks_n >= STACKS || columns >= COLUMNS || s->texts >= TEXTS;
}

/* Adds the callers that have no number yet, root first. */
static uint32_t stack_index(struct page_stacks *s, uint32_t stack)
{
    uint32_t way[RUN_DEPTH_MAX], parent = RUN_NONE;
    size_t n = 0, most = are_stacks_full(s) ? 1 : RUN_DEPTH_MAX;
    for (; stack != RUN_NONE && n < most; stack = run_stack_parent(s->run, stack)) {
        uint32_t known = map_get(&s->stack_of, stack);
        if (known != MAP_NEW) {
            parent = known;
            break;
        }
        way[n++] = stack;
    }
    s->innermost += stack != RUN_NONE && n == 1 && most == 1;
    while (n) {
        size_t places;
        const struct run_frame *f = run_frame_places(s->run, way[--n], &places);
        while (places--) { /* what was inlined there, outermost first */
            uint32_t frame = page_frame_index(s, &f[places]);
            page_column_add(&s->parent, parent == RUN_NONE ? 0 : (int64_t)s->stacks_n - parent);
            page_column_add(&s->frame, frame);
            parent = s->stacks_n++;
        }
        *map_at(&s->stack_of, way[n]) = parent;
    }
    return parent;
}

static const char *site_label(const struct page_stacks *s, uint32_t stack, char *text, size_t size)
{
    struct result_site site = site_of(s->run, stack, &s->helpers);
    return site_text(&site, text, size);
}

uint64_t page_site_key(const struct page_stacks *s, uint32_t stack)
{
    char text[1024];
    return map_hash_text(0, site_label(s, stack, text, sizeof text));
}

uint32_t page_site(struct page_stacks *s, uint32_t stack)
{
    uint32_t *at = map_at(&s->site_of, stack);
    if (*at == MAP_NEW) {
        char text[1024];
        uint32_t number = page_string(s, site_label(s, stack, text, sizeof text));
        *(at = map_at(&s->site_of, stack)) = number;
    }
    return *at;
}

int64_t page_stack(struct page_stacks *s, uint32_t stack)
{
    if (stack == RUN_NONE) return -1;
    uint32_t whole = stack;
    if (s->stacks_n >= NATIVE_STACKS && map_get(&s->stack_of, stack) == MAP_NEW) {
        uint32_t python = run_stack_python(s->run, stack);
        s->shortened += python != RUN_NONE && python != stack;
        stack = python != RUN_NONE ? python : stack;
    }
    uint32_t number = stack_index(s, stack), site = page_site(s, whole);
    size_t before = s->sited_cap;
    if (number >= s->sited_cap) {
        s->sited_cap = number * 2 + 64;
        s->sited = arena_realloc(s->sited, s->sited_cap, sizeof *s->sited);
        memset(s->sited + before, 0, (s->sited_cap - before) * sizeof *s->sited);
    }
    s->sited[number] = site;
    return number;
}

/* The longest texts for which the page has room. */
static void fit_texts(const struct page_stacks *s, struct page_writer *w)
{
    enum { AROUND = 6 }; /* quotes, a comma, an ellipsis */
    size_t left = w->bytes + AFTERWARDS < PAGE_BYTES ? PAGE_BYTES - AFTERWARDS - w->bytes : 0;
    size_t most = page_text_most(w), all = left + 1;
    size_t *bytes = arena_realloc(NULL, s->strings.n + 1, sizeof *bytes);
    for (size_t i = 0; i < s->strings.n; i++) bytes[i] = page_text_bytes(s->strings.list[i]);
    for (; all > left && most >= TEXT_LEAST; most /= 2) {
        all = 0;
        for (size_t i = 0; i < s->strings.n; i++) all += (bytes[i] < most ? bytes[i] : most) + AROUND;
        w->text_most = most;
    }
    free(bytes);
}

void page_stacks_put(struct page_stacks *s, struct page_writer *w)
{
    struct page_column sited = {0}, site = {0};
    for (size_t i = 0; i < s->sited_cap; i++) {
        if (s->sited[i]) {
            page_column_step(&sited, (int64_t)i);
            page_column_add(&site, s->sited[i]);
        }
    }
    page_put_open(w, "frames", '{');
    PAGE_PUT_COLUMNS_OF(w, s, native, function, file, line, module);
    page_put_close(w, '}');
    page_put_open(w, "stacks", '{');
    PAGE_PUT_COLUMNS_OF(w, s, parent, frame);
    PAGE_PUT_COLUMNS(w, sited, site);
    page_put_close(w, '}');
    fit_texts(s, w);
    page_put_open(w, "strings", '[');
    for (size_t i = 0; i < s->strings.n; i++) page_put_text(w, NULL, s->strings.list[i]);
    page_put_close(w, ']');
}
