/* gpuspy estimate --models: the models that gpuspy knows by name. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/model/model.h"

/* Abbreviates 671,026,404,352 to "671B" for comparisons. */
static const char *in_short(char out[16], uint64_t params)
{
    const double n = (double)params;

    if (n >= 1e12)
        snprintf(out, 16, "%.2fT", n / 1e12);
    else if (n >= 1e9)
        snprintf(out, 16, n >= 1e11 ? "%.0fB" : n >= 1e10 ? "%.1fB" : "%.2fB", n / 1e9);
    else
        snprintf(out, 16, n >= 1e8 ? "%.0fM" : n >= 1e7 ? "%.1fM" : "%.2fM", n / 1e6);
    return out;
}

static void print_model_row(FILE *out, const char *name, const struct model *m, bool wide)
{
    char active[16] = "", brief[16], size[40] = "", heads[48] = "", context[UNITS_TEXT] = "";
    char line[256];
    const struct model_shape *s = &m->shape;
    int n;

    if (s->experts) in_short(active, model_active_params(m));
    if (s->hidden)
        snprintf(size, sizeof size, "%ju x %ju", (uintmax_t)s->layers, (uintmax_t)s->hidden);
    else
        snprintf(size, sizeof size, "%ju", (uintmax_t)s->layers);
    if (s->heads && !s->kv_rank && s->kv_heads != s->heads)
        snprintf(heads, sizeof heads, "%ju/%ju", (uintmax_t)s->heads, (uintmax_t)s->kv_heads);
    else if (s->heads)
        snprintf(heads, sizeof heads, "%ju", (uintmax_t)s->heads);
    if (s->context) snprintf(context, sizeof context, "%ju", (uintmax_t)s->context);
    n = snprintf(line, sizeof line, "%-29s %6s %6s  %11s %7s %9s", name, in_short(brief, m->params), active, size,
                 heads, context);
    if (wide)
        snprintf(line + n, sizeof line - (size_t)n, "  %17s  %s", UNITS_COUNT(m->params), model_family_word(s->family));
    for (n = (int)strlen(line); n && line[n - 1] == ' '; n--) line[n - 1] = 0;
    fprintf(out, "%s\n", line);
}

void model_list_text(FILE *out, const struct terminal *term, bool explain)
{
    bool wide = term->width >= 110 || explain;
    char name[64];

    fprintf(out, "%s%-29s %6s %6s  %11s %7s %9s", terminal_style(term, TERMINAL_BOLD), "model", "params", "active",
            "layers", "heads", "context");
    fprintf(out, wide ? "  %17s  family%s\n" : "%s%s\n", wide ? "exactly" : "", terminal_style(term, TERMINAL_PLAIN));
    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        struct model m;
        int exit_code;

        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        if (!model_from_name("estimate", name, &m, &exit_code)) continue;
        if (strcmp(m.name, name) == 0)
            print_model_row(out, name, &m, wide);
        else
            fprintf(out, "%-29s as %s\n", name, m.name);
        model_free(&m);
    }
    fputs("\ngpuspy also accepts published names, such as meta-llama/Llama-3.1-8B-Instruct.\n"
          "active: parameters that a token uses, if there are experts. layers: number of\n"
          "layers x hidden size, or the blocks of a convolutional network. heads: number\n"
          "of query heads/key heads.\n",
          out);
}

static json_t *listed_model_json(const char *name, const struct model *m)
{
    const struct model_shape *s = &m->shape;
    bool own = strcmp(m->name, name) == 0;
    json_t *o = json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "name", name,
                          "parameters", (json_int_t)m->params, "active_parameters", (json_int_t)model_active_params(m),
                          "family", model_family_word(s->family), "layers", (json_int_t)s->layers, "hidden",
                          (json_int_t)s->hidden, "heads", (json_int_t)s->heads, "kv_heads", (json_int_t)s->kv_heads,
                          "head_dim", (json_int_t)s->head_dim, "ffn", (json_int_t)s->ffn, "vocab", (json_int_t)s->vocab,
                          "context", (json_int_t)s->context, "experts", (json_int_t)s->experts, "experts_used",
                          (json_int_t)s->experts_used);

    if (o && !own) json_object_set_new(o, "same_as", json_string(m->name));
    return o;
}

struct json_t *model_list_json(void)
{
    json_t *list = json_array();
    char name[64];

    for (const char *p = model_names; *p; p += strcspn(p, "|") + 1) {
        struct model m;
        int exit_code;

        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, "|"), p);
        if (!model_from_name("estimate", name, &m, &exit_code)) continue;
        json_array_append_new(list, listed_model_json(name, &m));
        model_free(&m);
    }
    return json_pack("{s:i, s:o}", "schema", 1, "models", list);
}
