#include "analyzer/import/trace_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"

/* The profiler strips the entries of sys.path from file names. This restores the folder of these packages and modules,
 * without which their lines would seem to be the program's own. */
static const char *const packages[] = {"torch/",        "torchvision/", "torchaudio/",        "functorch/", "triton/",
                                       "transformers/", "accelerate/",  "datasets/",          "diffusers/", "peft/",
                                       "timm/",         "lightning/",   "pytorch_lightning/", "deepspeed/", "numpy/",
                                       "einops/",       "tqdm/"};
static const char *const standard[] = {
    "contextlib.py", "threading.py", "functools.py", "runpy.py",    "typing.py",        "copy.py",
    "queue.py",      "warnings.py",  "abc.py",       "concurrent/", "multiprocessing/", "asyncio/",
    "importlib/",    "collections/", "json/",        "logging/"};

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

static bool begins_with_one_of(const char *file, const char *const *list, size_t n)
{
    return ANY_OF(part, list, n, strncmp(file, *part, strlen(*part)) == 0);
}

static const char *file_folder_of(const char *file)
{
    if (begins_with_one_of(file, packages, COUNT_OF(packages))) return "/site-packages/";
    return begins_with_one_of(file, standard, COUNT_OF(standard)) ? "/lib/python3/" : "";
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
