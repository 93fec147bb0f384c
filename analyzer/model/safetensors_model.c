/* Makes a model of safetensors files: one file or an index of several, and the config.json beside them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/texts.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/files.h"
#include "analyzer/model/json_scan.h"

enum { INDEX_MAX = 200000000, SHARDS_MAX = 10000 };

struct index {
    struct model_scan scan;
    struct {
        const char *text;
        size_t n;
    } * names; /* names of tensors */
    size_t names_n, names_cap;
    struct texts shards;
};

static void add_shard(struct index *x, const char *text, size_t n)
{
    if (n == 0 || n > 255 || memchr(text, '/', n) || memchr(text, 0, n) || text[0] == '.')
        x->scan.problem = "names a shard that is not a regular file in its folder";
    else if (n > 4 && memcmp(text + n - 4, ".bin", 4) == 0)
        x->scan.problem = "is the index of pickles of torch.save, which gpuspy does not execute; "
                          "save the model as .safetensors, or give its config.json";
    else if (texts_number(&x->shards, text, n) == SHARDS_MAX)
        x->scan.problem = "names more than 10000 shards";
}

static void read_map(struct index *x)
{
    const char *name, *shard;
    size_t n, shard_n;
    bool first = true;

    if (!model_scan_expect(&x->scan, '{')) return;
    while (model_scan_key(&x->scan, &first, &name, &n) && model_scan_string(&x->scan, &shard, &shard_n)) {
        (*ARENA_ADD(x->names)).text = name;
        x->names[x->names_n - 1].n = n;
        add_shard(x, shard, shard_n);
    }
}

static bool read_index(struct index *x, char *bytes, size_t n)
{
    const char *key;
    size_t length;
    bool first = true;

    x->scan = (struct model_scan){bytes, bytes + n, model_scan_utf8(bytes, n) ? NULL : "is not UTF-8"};
    const bool is_object = !x->scan.problem && model_scan_expect(&x->scan, '{');
    while (is_object && model_scan_key(&x->scan, &first, &key, &length))
        if (length == 10 && memcmp(key, "weight_map", 10) == 0)
            read_map(x);
        else
            model_scan_skip(&x->scan);
    if (!x->scan.problem) model_scan_is_done(&x->scan);
    if (!x->scan.problem && !x->shards.n)
        x->scan.problem = "has no weight_map: it is not an index of safetensors files";
    return !x->scan.problem;
}

static void index_free(struct index *x)
{
    texts_free(&x->shards);
    free(x->names);
}

static bool has_all(const struct index *x, const struct model_file *f, const struct model_stored *s)
{
    char name[128], clean[128];

    for (size_t i = 0; i < x->names_n; i++) {
        if (model_stored_has(s, x->names[i].text, x->names[i].n)) continue;
        snprintf(name, sizeof name, "%.*s", (int)(x->names[i].n > 100 ? 100 : x->names[i].n), x->names[i].text);
        return model_file_reject(f, "names the tensor '%s', which none of its files has",
                                 terminal_clean(clean, sizeof clean, name, true));
    }
    return true;
}

static bool read_shards(const struct model_file *f, struct model_stored *s)
{
    struct index x = {0};
    struct model_file file;
    char *bytes = NULL;
    size_t n = 0;
    bool ok;

    if (!model_file_open(&file, f->command, f->path, f->exit_code)) return false;
    ok = (bytes = model_file_all(&file, INDEX_MAX, &n)) &&
         (read_index(&x, bytes, n) || model_file_reject(f, "%s", x.scan.problem));
    model_file_close(&file);
    for (size_t i = 0; ok && i < x.shards.n; i++) {
        char *path = model_beside(f->path, x.shards.list[i]);
        ok = model_safetensors_read(f->command, path, f->exit_code, s);
        free(path);
    }
    ok = ok && has_all(&x, f, s);
    index_free(&x);
    free(bytes);
    return ok;
}

static bool is_adapter(const struct model *m)
{
    size_t n = 0;

    for (size_t i = 0; i < m->tensors_n; i++) n += strstr(m->tensors[i].name, "lora_") != NULL;
    return n > 0 && n >= m->tensors_n / 2;
}

static void compare_with_config(const struct model_config_beside *c, struct model *m)
{
    if (is_adapter(m))
        snprintf(m->note, sizeof m->note, "these are the tensors of an adapter, without its base model");
    else if (!c->found && *c->problem)
        snprintf(m->note, sizeof m->note, "config.json: %.150s", c->problem);
    else if (c->inside)
        snprintf(m->note, sizeof m->note,
                 "weights are those of the whole model; activations and KV cache are those of its language model");
    else if (c->assumed)
        snprintf(m->note, sizeof m->note, "%s", c->model.note);
    else if (c->found && c->model.params != m->params && !*m->note)
        snprintf(m->note, sizeof m->note, "the files have %ju parameters, but the shape in config.json has %ju",
                 (uintmax_t)m->params, (uintmax_t)c->model.params);
}

/* If no tensor has the hidden size, the config.json belongs to another model. */
static bool belongs_to_model(const struct model_config_beside *c, const struct model_file *f, const struct model *m)
{
    for (size_t i = 0; i < m->tensors_n; i++)
        if (m->tensors[i].rows == c->model.shape.hidden || m->tensors[i].cols == c->model.shape.hidden ||
            m->tensors[i].dims == 0)
            return true;
    return model_file_reject(
        f, "no tensor has the hidden_size %ju of the config.json in its folder, which belongs to another model",
        (uintmax_t)c->model.shape.hidden);
}

bool model_build_safetensors(const struct model_stored *s, const struct model_file *f, struct model *m)
{
    struct model_config_beside c;
    bool ok = false;

    *m = (struct model){.source = "safetensors"};
    *f->exit_code = EXIT_INPUT;
    if (model_config_read_beside(f, &c)) {
        const struct model_stored_hints hints = {c.found ? &c.model.shape : NULL, c.bits};
        ok = model_build_stored(s, f, &hints, m) && (!c.found || belongs_to_model(&c, f, m));
    }
    if (ok) {
        model_name_of(f->path, m->name, sizeof m->name);
        compare_with_config(&c, m);
    }
    model_free(&c.model);
    return ok;
}

/* Reads all parts of a model without an index, one of which was given. */
static bool read_parts(const struct model_file *f, uint64_t count, struct model_stored *s)
{
    bool ok = true;

    for (uint64_t i = 1; ok && i <= count; i++) {
        char *path = model_part(f->path, ".safetensors", i);
        ok = model_safetensors_read(f->command, path, f->exit_code, s);
        free(path);
    }
    return ok;
}

bool model_from_safetensors(const char *command, const char *path, struct model *m, int *exit_code)
{
    const struct model_file f = {command, path, exit_code, -1, 0};
    struct model_stored *s = model_stored_new();
    const uint64_t parts = model_parts(path, ".safetensors");
    size_t n = strlen(path);
    bool ok;

    *m = (struct model){.source = "safetensors"};
    if (n > 5 && strcmp(path + n - 5, ".json") == 0)
        ok = read_shards(&f, s);
    else
        ok = parts ? read_parts(&f, parts, s) : model_safetensors_read(command, path, exit_code, s);
    ok = ok && model_build_safetensors(s, &f, m);
    model_stored_free(s);
    return ok;
}
