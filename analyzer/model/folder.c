/* Finds the model in a folder. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/text.h"
#include "analyzer/model/files.h"
#include "analyzer/base/sort.h"

enum { ENTRIES_MAX = 100000 };

struct entries {
    char **names;
    size_t n, cap;
    model_read_fn *read; /* reads one of its files */
};

static bool list_entries(const struct model_file *f, struct entries *e)
{
    DIR *dir = opendir(f->path);

    if (!dir) return model_file_reject(f, "cannot be read: %s", strerror(errno));
    for (struct dirent *d; (d = readdir(dir)) && e->n <= ENTRIES_MAX;)
        if (d->d_name[0] != '.')
            *ARENA_PUSH(e->names, e->n, e->cap) = strcpy(arena_realloc(NULL, strlen(d->d_name) + 1, 1), d->d_name);
    closedir(dir);
    if (e->n > ENTRIES_MAX) /* the index or a part may be among the others */
        return model_file_reject(f, "has more than %d files; give the model's own files", ENTRIES_MAX);
    SORT(e->names, e->n, sort_texts);
    return true;
}

static const char *find_entry(const struct entries *e, const char *name)
{
    for (size_t i = 0; i < e->n; i++)
        if (strcmp(e->names[i], name) == 0) return e->names[i];
    return NULL;
}

/* The first entry with this ending; *n: how many have it. */
static const char *find_entry_ending(const struct entries *e, const char *with, size_t *n)
{
    const char *first = NULL;

    *n = 0;
    for (size_t i = 0; i < e->n; i++)
        if (text_ends_with(e->names[i], with)) {
            first = first ? first : e->names[i];
            ++*n;
        }
    return first;
}

static char *path_in_folder(const struct model_file *f, const char *name)
{
    const size_t n = strlen(f->path);
    char *inside = arena_realloc(NULL, n + strlen(name) + 2, 1);

    sprintf(inside, "%s%s%s", f->path, n && f->path[n - 1] == '/' ? "" : "/", name);
    return inside;
}

static bool read_one_entry(const struct model_file *f, const struct entries *e, const char *name, struct model *m)
{
    char *path = path_in_folder(f, name);
    bool ok = e->read(f->command, path, m, f->exit_code);

    free(path);
    return ok;
}

/* Reads all files of a folder without an index. */
static bool all_files(const struct model_file *f, const struct entries *e, struct model *m)
{
    struct model_stored *s = model_stored_new();
    char *path = path_in_folder(f, "model.safetensors");
    const struct model_file inside = {f->command, path, f->exit_code, -1, 0};
    bool ok = true;

    for (size_t i = 0; ok && i < e->n; i++) {
        if (!text_ends_with(e->names[i], ".safetensors")) continue;
        char *file = path_in_folder(f, e->names[i]);
        ok = model_safetensors_read(f->command, file, f->exit_code, s);
        free(file);
    }
    ok = ok && model_build_safetensors(s, &inside, m);
    free(path);
    model_stored_free(s);
    return ok;
}

/* A folder of Hugging Face's cache, models--…: refs/main contains the name of the folder in snapshots/. */
static bool in_cache(const struct model_file *f, const struct entries *e, struct model *m)
{
    enum { HASH = 40 };
    struct model_file refs;
    char *path = path_in_folder(f, "refs/main"), hash[HASH + 1] = "", inside[HASH + 16];
    struct stat st;
    bool named_there = false;

    if (stat(path, &st) == 0) {
        if (!model_file_open(&refs, f->command, path, f->exit_code)) {
            free(path);
            return false;
        }
        named_there =
            refs.size >= HASH && model_file_read(&refs, 0, hash, HASH) && strspn(hash, "0123456789abcdef") == HASH;
        model_file_close(&refs);
    }
    free(path);
    snprintf(inside, sizeof inside, "snapshots/%s", hash);
    return named_there ? read_one_entry(f, e, inside, m)
                       : model_file_reject(f, "has snapshots; name one of the folders in '%s/snapshots'", f->path);
}

/* Whether the folder has a denoiser of diffusers. Its configuration describes more than its weights: also the
 * operations. */
static bool is_denoiser(const struct model_file *f)
{
    char *path = path_in_folder(f, "config.json"), *bytes = NULL;
    int ignored;
    struct model_file config;
    size_t n;
    bool is = false;

    if (model_file_open(&config, f->command, path, &ignored)) {
        bytes = model_file_all(&config, CONFIG_BYTES_MAX, &n);
        is = bytes && model_config_names_denoiser(bytes);
        model_file_close(&config);
    }
    ARENA_RELEASE(bytes, path);
    return is;
}

/* Reads the denoiser of a diffusers pipeline. */
static bool of_pipeline(const struct model_file *f, const struct entries *e, struct model *m)
{
    const char *denoiser = find_entry(e, "transformer") ? "transformer" : "unet";

    if (!find_entry(e, denoiser))
        return model_file_reject(f, "is a pipeline without a unet or transformer; name one of the folders in it");
    char *path = path_in_folder(f, denoiser);
    char *config = arena_realloc(NULL, strlen(path) + sizeof "/config.json", 1);
    sprintf(config, "%s/config.json", path);
    bool ok = e->read(f->command, config, m, f->exit_code);
    if (ok) model_name_of(f->path, m->name, sizeof m->name);
    ARENA_RELEASE(config, path);
    return ok;
}

static bool choose_entry(const struct model_file *f, const struct entries *e, struct model *m)
{
    static const char *const first[] = {"model.safetensors.index.json", "model.safetensors",
                                        "adapter_model.safetensors", "diffusion_pytorch_model.safetensors"};
    size_t n;
    const char *name;

    if (find_entry(e, "model_index.json")) return of_pipeline(f, e, m);
    if (find_entry(e, "config.json") && is_denoiser(f)) return read_one_entry(f, e, "config.json", m);
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (find_entry(e, first[i])) return read_one_entry(f, e, first[i], m);
    name = find_entry_ending(e, ".safetensors.index.json", &n);
    if (n == 1) return read_one_entry(f, e, name, m);
    for (size_t i = 0; i < e->n; i++)
        if (model_parts(e->names[i], ".safetensors")) return read_one_entry(f, e, e->names[i], m);
    if (find_entry_ending(e, ".safetensors", &n)) return all_files(f, e, m);
    name = find_entry_ending(e, ".gguf", &n);
    if (n == 1 || (n > 1 && strstr(name, "-00001-of-"))) return read_one_entry(f, e, name, m);
    if (n > 1) return model_file_reject(f, "has %zu .gguf files; name one of them, such as '%s'", n, name);
    if (find_entry(e, "config.json")) return read_one_entry(f, e, "config.json", m);
    if (find_entry(e, "snapshots") && find_entry(e, "refs")) return in_cache(f, e, m);
    if ((name = find_entry_ending(e, ".bin", &n)) || (name = find_entry_ending(e, ".pt", &n)) ||
        (name = find_entry_ending(e, ".pth", &n)))
        return read_one_entry(f, e, name, m);
    return model_file_reject(f, "has no config.json, no .safetensors and no .gguf");
}

bool model_from_folder(const struct model_file *f, model_read_fn *read, struct model *m)
{
    struct entries e = {.read = read};
    bool ok = list_entries(f, &e) && choose_entry(f, &e, m);

    for (size_t i = 0; i < e.n; i++) free(e.names[i]);
    free(e.names);
    return ok;
}
