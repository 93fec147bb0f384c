#include "analyzer/import/trace_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* The profiler strips the entries of sys.path from file names. This restores the folder of these packages, without
 * which their lines would seem to be the program's own. */
static const struct {
    const char *folder, *part;
} stripped[] = {
#define PACKAGE(name)               \
    {                               \
        "/site-packages/", name "/" \
    }
    PACKAGE("torch"),
    PACKAGE("torchvision"),
    PACKAGE("torchaudio"),
    PACKAGE("functorch"),
    PACKAGE("triton"),
    PACKAGE("transformers"),
    PACKAGE("accelerate"),
    PACKAGE("datasets"),
    PACKAGE("diffusers"),
    PACKAGE("peft"),
    PACKAGE("timm"),
    PACKAGE("lightning"),
    PACKAGE("pytorch_lightning"),
    PACKAGE("deepspeed"),
    PACKAGE("numpy"),
    PACKAGE("einops"),
    PACKAGE("tqdm"),
#undef PACKAGE
#define STANDARD(name)        \
    {                         \
        "/lib/python3/", name \
    }
    STANDARD("contextlib.py"),
    STANDARD("threading.py"),
    STANDARD("functools.py"),
    STANDARD("runpy.py"),
    STANDARD("typing.py"),
    STANDARD("copy.py"),
    STANDARD("queue.py"),
    STANDARD("warnings.py"),
    STANDARD("abc.py"),
    STANDARD("concurrent/"),
    STANDARD("multiprocessing/"),
    STANDARD("asyncio/"),
    STANDARD("importlib/"),
    STANDARD("collections/"),
    STANDARD("json/"),
    STANDARD("logging/"),
#undef STANDARD
};

uint32_t import_name_of(struct import_names *names, const char *text)
{
    const uint32_t name = texts_number(&names->texts, text, strlen(text));
    if (name == names->n) *ARENA_PUSH(names->list, names->n, names->cap) = (struct import_name){0};
    return name;
}

const char *import_name_text(const struct import_names *names, uint32_t name)
{
    return name < names->n ? names->texts.list[name] : "";
}

static const char *file_folder_of(const char *file)
{
    for (size_t i = 0; i < sizeof stripped / sizeof *stripped; i++)
        if (strncmp(file, stripped[i].part, strlen(stripped[i].part)) == 0) return stripped[i].folder;
    return "";
}

/* Finds the "(" of "file(line): function"; NULL: the text has another form. */
static const char *find_line(const char *text)
{
    for (const char *close = text; (close = strstr(close, "): ")) != NULL; close++) {
        const char *p = close;
        while (p > text && isdigit((unsigned char)p[-1])) p--;
        if (p < close && p > text + 1 && p[-1] == '(') return p - 1;
    }
    return NULL;
}

struct import_frame import_name_frame(struct import_names *names, uint32_t name)
{
    struct import_name *n = &names->list[name < names->n ? name : 0];
    const char *text = import_name_text(names, name);
    if (n->parsed) return n->frame;
    n->parsed = true;
    const char *open = find_line(text);
    if (open) {
        long line = strtol(open + 1, NULL, 10);
        n->frame.file = arena_printf(&names->texts.arena, "%s%.*s", file_folder_of(text), (int)(open - text), text);
        n->frame.function = strstr(open, "): ") + 3;
        n->frame.line = line > 0 && line <= INT32_MAX ? (int)line : 0;
        n->frame.python = true;
    } else {
        n->frame.function = text;
    }
    return n->frame;
}

void import_names_free(struct import_names *names)
{
    texts_free(&names->texts);
    free(names->list);
}
