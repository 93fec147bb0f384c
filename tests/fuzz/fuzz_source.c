/* Source code as a recording may contain it: masked, split into statements, and what each of them assigns, stores and
 * mentions. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include "analyzer/site/python_code.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_pairs.h"
#include "schema/mask.h"

enum { LINES = 512 };

static void masked(const char *text, size_t size)
{
    const size_t room = 2 * size + 16;
    char *out = malloc(room);
    const size_t n = gs_mask_source(out, room, text, size);
    size_t before = 0, after = 0;
    for (size_t i = 0; i < size; i++) before += text[i] == '\n';
    for (size_t i = 0; i < n; i++) after += out[i] == '\n';
    FUZZ_CHECK(n < room && before == after, "%zu lines became %zu", before, after);
    free(out);
}

static void statement(struct arena *arena, const char *code)
{
    struct site_names names = {.n = 0}, indexed = {.n = 0};
    struct site_assignment a;
    struct site_store store;
    if (site_assignment_of(arena, code, &a)) {
        site_targets_of(arena, a.targets, &names, &indexed);
        (void)site_part_of(arena, a.value, 1);
        (void)site_holds(a.value, &names, true);
    }
    if (site_store_of(arena, code, &store)) {
        (void)site_base_name(arena, store.into);
        (void)site_holds(store.value, &names, false);
    }
}

static void as_code(char *text, size_t size)
{
    const char *lines[LINES];
    size_t n = 0;
    struct arena arena = {0};
    for (char *p = text; n < LINES && p <= text + size; p += strlen(p) + 1) {
        lines[n++] = p;
        p[strcspn(p, "\n")] = 0;
    }
    const struct site_code c = site_code_of(&arena, lines, n);
    for (size_t i = 0; i < c.n; i++) {
        const struct site_statement *s = &c.list[i];
        FUZZ_CHECK(s->line > 0 && s->line <= s->last && s->last <= (int)n && *s->code, "statement %zu", i);
        FUZZ_CHECK(site_code_at(&c, s->line) < c.n, "line %d has a statement", s->line);
        FUZZ_CHECK(site_code_end(&c, i) > i && site_code_parent(&c, i) != i, "the block of statement %zu", i);
        statement(&arena, s->code);
        (void)site_statement_makes_pairs(s, lines, n);
    }
    arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = 0;
    masked(text, size);
    as_code(text, size);
    free(text);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    static const char *const texts[] = {
        "for x, y in loader:\n    losses.append(criterion(model(x), y))  # kept\n",
        "d = (a[:, None] - b[None]).pow(2); e = einsum('i,j->ij', a, b)\nf = max(x[1], y.unsqueeze(-1))\n",
        "total += loss; cache[key] = out\nif a: b = c = d[1:2]\n",
        "def f(self, *, x: int = 3) -> None:\n\t'''doc\n\ttoken: X\n\t'''\n\treturn [g(y) for y in x]\n",
        "api_key = (\n  \"X\"\n  'Y'\n)\npasswords = ['a', {'b': 'c'}]\n-----BEGIN PRIVATE KEY-----\nX\n",
        "h = f\"{x!r:>{w}}\" \\\n  rb'\\''\nlambda m, i, o: acts.append(o.detach())\n",
        "with a as b, c as d:\n    x = torch.cat([x, y])\nexcept E as e: kept.setdefault(k, []).append(e)\n",
        "((((([[[{{{'\"\"\"",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) put(texts[i], strlen(texts[i]));
}
