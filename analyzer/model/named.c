/* Models by path: chooses the reader by the first bytes of a file, not by its name. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/options.h"
#include "analyzer/model/files.h"

bool model_is_path(const char *text)
{
    static const char *const endings[] = {".json", ".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt"};
    struct stat st;

    return ANY_OF(e, endings, COUNT_OF(endings), strlen(text) > strlen(*e) && text_ends_with(text, *e)) ||
           strchr(text, '/') || (*text && stat(text, &st) == 0);
}

/* Whether a path with the form of a repository's name, such as meta-llama/Llama-2-7b, does not exist. */
static bool is_file_missing(const struct model_file *f, int error)
{
    const char *slash = strrchr(f->path, '/');
    char last[128], near[64];

    if (error != ENOENT || !slash || text_ends_with(slash, ".json") || text_ends_with(slash, ".safetensors") ||
        text_ends_with(slash, ".gguf"))
        return model_file_reject(f, "cannot be read: %s", strerror(error));
    snprintf(last, sizeof last, "%s", slash + 1);
    for (char *c = last; *c; c++)
        if (*c >= 'A' && *c <= 'Z') *c += 'a' - 'A';
    if (options_nearest(last, model_names, near, sizeof near))
        return model_file_reject(f, "no such file or folder; for a model that gpuspy knows by name, type: --model %s",
                                 near);
    return model_file_reject(f, "no such file or folder, and gpuspy fetches nothing; give the path of its config.json");
}

static bool read_config(struct model_file *f, struct model *m)
{
    size_t n;
    char *bytes = model_file_all(f, CONFIG_BYTES_MAX, &n);
    bool ok = bytes && model_from_config(f->command, f->path, bytes, n, m, f->exit_code);

    free(bytes);
    return ok;
}

static bool read_model_file(const char *command, const char *path, struct model *m, int *exit_code)
{
    struct model_file f;
    unsigned char head[9] = {0};
    bool ok = false;

    if (!model_file_open(&f, command, path, exit_code)) return false;
    if (f.size == 0)
        model_file_reject(&f, "is empty");
    else if (model_file_read(&f, 0, head, f.size < sizeof head ? (size_t)f.size : sizeof head)) {
        if (memcmp(head, "GGUF", 4) == 0 || text_ends_with(path, ".gguf"))
            ok = model_from_gguf(command, path, m, exit_code);
        else if (text_ends_with(path, ".safetensors") || text_ends_with(path, ".index.json") ||
                 (head[8] == '{' && head[7] == 0))
            ok = model_from_safetensors(command, path, m, exit_code);
        else if (memcmp(head, "PK\3\4", 4) == 0 || (head[0] == 0x80 && head[1] >= 2 && head[1] <= 5))
            model_file_reject(&f, "is a pickle of torch.save, which gpuspy does not execute; "
                                  "save the model as .safetensors, or give its config.json");
        else if (memcmp(head, "\x89HDF", 4) == 0)
            model_file_reject(&f, "is HDF5; give the model's .safetensors or its config.json");
        else if (memcmp(head, "version https", 9) == 0)
            model_file_reject(&f, "is a Git LFS pointer, not the file; type: git lfs pull");
        else if (text_ends_with(path, ".json") || head[0] == '{')
            ok = read_config(&f, m);
        else
            model_file_reject(&f, "is not a model; give a config.json, .safetensors or .gguf");
    }
    model_file_close(&f);
    return ok;
}

bool model_from_path(const char *command, const char *path, struct model *m, int *exit_code)
{
    struct model_file f = {command, path, exit_code, -1, 0};
    struct stat st;

    *m = (struct model){.source = "file"};
    *exit_code = EXIT_INPUT;
    if (stat(path, &st) != 0) return is_file_missing(&f, errno);
    return S_ISDIR(st.st_mode) ? model_from_folder(&f, model_from_path, m)
                               : read_model_file(command, path, m, exit_code);
}
