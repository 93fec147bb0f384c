/* Models by path: which reader is asked. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "analyzer/base/term.h"
#include "analyzer/command/command.h"
#include "analyzer/model/model.h"

bool model_is_path(const char *text)
{
    static const char *const endings[] = {".json", ".safetensors", ".gguf", ".bin", ".pt", ".pth", ".ckpt"};
    const size_t n = strlen(text);
    struct stat st;

    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (n > strlen(endings[i]) && strcmp(text + n - strlen(endings[i]), endings[i]) == 0)
            return true;
    return strchr(text, '/') || (*text && stat(text, &st) == 0);
}

bool model_from_path(const char *command, const char *path, struct model *m, int *exit_code)
{
    struct stat st;

    *m = (struct model){.source = "file"};
    *exit_code = EXIT_INPUT;
    if (stat(path, &st) != 0)
        complain("%s: --model: cannot read '%s': %s", command, path, strerror(errno));
    else
        complain("%s: --model: '%s': files of models are not read yet", command, path);
    return false;
}
