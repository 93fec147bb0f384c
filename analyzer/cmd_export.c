/* gpuspy export: chooses a process and a moment of a recording and hands them to a format. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/arena.h"
#include "analyzer/command.h"
#include "analyzer/export_choice.h"
#include "analyzer/input.h"
#include "analyzer/output.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/term.h"

struct settings {
    struct export_wish wish;
    const char *format, *output, *stacks;
    int last; /* -1: not given */
    bool no_categories;
};

static const struct format {
    const char *word, *suffix, *summary;
    gs_export_fn *write;
} formats[] = {
#define EXPORT(word, function, suffix, summary) {word, suffix, summary, function},
#include "analyzer/exports.def"
#undef EXPORT
};

#define EXPORT(word, function, suffix, summary) word "|"
static const char format_words[] =
#include "analyzer/exports.def"
    ;
#undef EXPORT

enum { LAST_USUAL = 1000000 };

static const struct option_row options[] = {
    {"format", 'f', OPTION_CHOICE, offsetof(struct settings, format), "FORMAT", format_words, 0, 0,
     "what to write; torch-snapshot if not given"},
    {"output", 'o', OPTION_FILE, offsetof(struct settings, output), "FILE", NULL, 0, 0,
     "write to FILE, - is standard output; the default is the recording's name with the format's "
     "suffix, in the working directory"},
    {"at", 0, OPTION_TEXT, offsetof(struct settings, wish.at), "WHEN", "peak|oom|end", 0, 0,
     "the moment to show, at which the trace ends. The default is the last out of memory that was not "
     "recovered from, else the peak. Seconds since the recording began, or a word"},
    {"device", 'd', OPTION_NUMBER, offsetof(struct settings, wish.device), "N", NULL, 0, 126,
     "only GPU N, as the program numbers it"},
    {"process", 'p', OPTION_NUMBER, offsetof(struct settings, wish.pid), "PID", NULL, 1, INT_MAX,
     "the run's process with this number"},
    {"rank", 'r', OPTION_NUMBER, offsetof(struct settings, wish.rank), "N", NULL, 0, INT_MAX,
     "the run's process with this rank"},
    {"last", 'n', OPTION_NUMBER, offsetof(struct settings, last), "N", NULL, 0, INT_MAX,
     "at most so many events of each GPU, the last ones before the moment; the default is 1000000"},
    {"stacks", 0, OPTION_CHOICE, offsetof(struct settings, stacks), "WHICH", "python|native|both", 0,
     0,
     "which frames of call stacks to write; the default is Python's, and native ones where a call has "
     "none of Python"},
    {"no-categories", 0, OPTION_FLAG, offsetof(struct settings, no_categories), NULL, NULL, 0, 0,
     "leave the categories out: memory_viz then gives each tensor a colour of its own"},
    {0},
};

static const struct example examples[] = {
    {"gpuspy export run.db", "write run.pickle, to be dropped on pytorch.org/memory_viz"},
    {"gpuspy export --at end --stacks both run.db", "the whole run, with C++ frames too"},
    {"gpuspy export --at 12.5 --rank 3 -o r3.pickle runs/", "one process of many, after 12.5 s"},
    {"python -m torch.cuda._memory_viz trace_plot run.pickle -o run.html",
     "the plot as a page, made by PyTorch from what was written"},
    {0},
};

const struct command_text text_export = {
    .options = options,
    .about =
        "Writes a recording in a form that other tools read. torch-snapshot is what PyTorch's "
        "torch.cuda.memory._dump_snapshot() writes, and opens in pytorch.org/memory_viz (in the "
        "browser, nothing is uploaded): the segments and blocks of one moment, and what was allocated "
        "and freed before it, with the calls that did so. Where PyTorch ran, blocks are its tensors' "
        "and segments what its allocator took from CUDA; else each CUDA allocation is a segment with "
        "one block. Blocks carry gpuspy's category (parameters, activations and so on), by which "
        "memory_viz colours them. What a tensor asked for before it was rounded up is not recorded: "
        "requested sizes are the blocks' sizes.",
    .examples = examples,
};

/* ---------------------------------------------------------------- writing */

void gs_export_step(struct gs_export *e)
{
    struct gs_export_progress *p = &e->progress;
    struct timespec now;

    if (++p->done < p->next || !p->shown)
        return;
    p->next = p->done + (1 << 16);
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = now.tv_sec * 1000000000LL + now.tv_nsec;
    if (ns - p->said_ns < 500000000)
        return;
    p->said_ns = ns;
    fprintf(stderr, "\rgpuspy: export: %llu events\033[K", (unsigned long long)p->done);
}

static void end_progress(const struct gs_export_progress *p)
{
    if (p->shown && p->said_ns)
        fputs("\r\033[K", stderr);
}

/* "runs/run.db" → "run.pickle". */
static void usual_name(const char *database, const char *suffix, char *out, size_t size)
{
    const char *slash = strrchr(database, '/'), *name = slash ? slash + 1 : database;
    const char *dot = strrchr(name, '.');

    snprintf(out, size, "%.*s%s", dot && dot != name ? (int)(dot - name) : (int)strlen(name), name,
             suffix);
}

/* Writing over what is being read would be the end of it. */
static bool is_input(const struct gs_export *e, const char *path)
{
    size_t n;
    struct stat in, out;
    const char *database = gs_run_processes(e->run, &n)[e->process].path;

    if (stat(path, &out) != 0 || stat(database, &in) != 0 || in.st_dev != out.st_dev ||
        in.st_ino != out.st_ino)
        return false;
    complain("export: '%s' is the recording itself; give another name with -o", path);
    return true;
}

static int write_out(const struct settings *s, struct gs_export *e, const struct format *f)
{
    char usual[PATH_MAX], error[1024] = "";
    size_t n;
    struct output out;
    const char *path = s->output;

    if (!path) {
        usual_name(gs_run_processes(e->run, &n)[e->process].path, f->suffix, usual, sizeof usual);
        path = usual;
    }
    if (is_input(e, path) || !output_open(&out, "export", path))
        return EXIT_INPUT;
    e->out = out.file;
    bool ok = f->write(e, error, sizeof error);
    end_progress(&e->progress);
    if (!ok) {
        output_drop(&out);
        complain("export: %s", error);
        return EXIT_INPUT;
    }
    if (!output_keep(&out, "export"))
        return EXIT_INPUT;
    if (e->left_out)
        complain("export: %llu earlier events are left out; --last takes more",
                 (unsigned long long)e->left_out);
    if (!out.standard)
        complain("export: wrote %s", path);
    return EXIT_YES;
}

static bool sensible(const struct settings *s, int operands)
{
    int64_t ns;

    if (operands != 1)
        complain(operands ? "export: one recording at a time"
                          : "export: which recording? give a file, such as: gpuspy export run.db");
    else if (s->wish.at && !options_is_word(s->wish.at, "peak|oom|end") &&
             !export_seconds(s->wish.at, &ns))
        complain("export: --at: '%s' is neither seconds nor one of peak, oom, end",
                 s->wish.at);
    else if (s->output && strcmp(s->output, "-") == 0 && isatty(STDOUT_FILENO))
        complain("export: this is no text for a terminal; give a file with -o, or send it to a pipe");
    else
        return true;
    return false;
}

static const struct format *format_of(const char *word)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (word && strcmp(formats[i].word, word) == 0)
            return &formats[i];
    return &formats[0];
}

int cmd_export(int argc, char **argv)
{
    struct settings s = {.wish = {.device = -1, .pid = -1, .rank = -1}, .last = -1};
    int operands = options_parse(&command_export, argc, argv, &s);

    if (operands < 0)
        return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (!sensible(&s, operands))
        return EXIT_USAGE;
    if (!input_openable("export", argv, 1))
        return EXIT_INPUT;
    struct symbolizer *symbols = symbolizer_new();
    struct gs_export *e = gs_realloc(NULL, 1, sizeof *e);
    memset(e, 0, sizeof *e);
    e->last = s.last >= 0 ? (uint64_t)s.last : LAST_USUAL;
    e->python = !s.stacks || strcmp(s.stacks, "native") != 0;
    e->native = s.stacks && strcmp(s.stacks, "python") != 0;
    e->categories = !s.no_categories;
    e->progress.shown = isatty(STDERR_FILENO);
    e->progress.next = 1 << 16;
    int code = export_choose(&s.wish, argv[0], symbols, e);
    if (code == EXIT_YES)
        code = write_out(&s, e, format_of(s.format));
    if (e->run)
        gs_run_close(e->run);
    free(e);
    symbolizer_free(symbols);
    return code;
}
