#include "analyzer/page/save.h"

#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/exit_code.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/page/card.h"

static bool is_read(const char *input, const struct stat *out)
{
    struct stat in;
    return stat(input, &in) == 0 && in.st_dev == out->st_dev && in.st_ino == out->st_ino;
}

/* Standard output and devices get SVG. */
static bool is_picture(const char *path)
{
    const char *dot = strrchr(path, '.');
    return strcmp(path, "-") == 0 || strncmp(path, "/dev/", 5) == 0 ||
           (dot && (strcmp(dot, ".svg") == 0 || strcmp(dot, ".png") == 0));
}

static int not_picture(const struct page_target *t)
{
    return complain_with(EXIT_USAGE, "%s: --%s: '%s' ends neither in .svg nor in .png; give a name such as out.svg",
                         t->who, t->option, t->path);
}

int page_save_check(const struct page_target *t, bool card)
{
    struct stat out;
    const char *which = NULL;

    if (!card && strcmp(t->path, "-") == 0 && isatty(STDOUT_FILENO)) {
        return complain_with(EXIT_USAGE, "%s: a page is not for a terminal; give a file, such as: --%s run.html",
                             t->who, t->option);
    }
    if (stat(t->path, &out) != 0) return card && !is_picture(t->path) ? not_picture(t) : EXIT_YES;
    for (size_t i = 0; i < t->inputs_n && !which; i++)
        if (is_read(t->inputs[i], &out)) which = "the recording itself";
    if (!which && input_is_recording(t->path)) {
        if (t->inputs_n == 1 && access(t->inputs[0], F_OK) != 0)
            return complain_with(EXIT_USAGE, "%s: '%s' is a recording; type: gpuspy %s --%s %s %s", t->who, t->path,
                                 t->who, t->option, t->inputs[0], t->path);
        which = "another recording";
    }
    if (!which) return card && !is_picture(t->path) ? not_picture(t) : EXIT_YES;
    return complain_with(EXIT_INPUT, "%s: '%s' is %s; give another name with --%s", t->who, t->path, which, t->option);
}

int page_save(const struct page_target *t, struct page *page, const struct result_report *report)
{
    char error[1024] = "", size[UNITS_TEXT] = "";
    struct output out;
    struct stat st;

    if (!output_open(&out, t->who, t->path)) return EXIT_INPUT;
    if (!page_write(page, report, t->inputs[0], out.file, error, sizeof error)) {
        output_drop(&out);
        return complain_with(EXIT_INPUT, "%s: %s", t->who, error);
    }
    if (!output_keep(&out, t->who)) return EXIT_INPUT;
    if (!out.standard && stat(t->path, &st) == 0)
        complain("%s: wrote %s, %s: open it in a browser; it needs no network", t->who, t->path,
                 units_format_bytes(size, (uint64_t)st.st_size));
    return EXIT_YES;
}

/* A program reads SVG from `in` and writes PNG to `out`, both from their beginnings. */
static bool run_converter(char **command, int in, int out)
{
    posix_spawn_file_actions_t files;
    pid_t child;
    int status = 1;

    if (lseek(in, 0, SEEK_SET) != 0 || lseek(out, 0, SEEK_SET) != 0 || ftruncate(out, 0) != 0) return false;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    const bool ok = posix_spawnp(&child, command[0], &files, NULL, command, environ) == 0 &&
                    waitpid(child, &status, 0) == child && status == 0;
    posix_spawn_file_actions_destroy(&files);
    return ok;
}

/* The first of these programs that is installed and succeeds. */
static bool convert_to_png(int in, int out)
{
    static char *const commands[][6] = {{"rsvg-convert", "--format=png"}, {"cairosvg", "-f", "png", "-o", "-", "-"}};

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char *command[sizeof commands[i] / sizeof *commands[i] + 1] = {NULL};
        memcpy(command, commands[i], sizeof commands[i]);
        if (run_converter(command, in, out)) return true;
    }
    return false;
}

/* Writes the picture as PNG to `out`, whose position is then at its end. */
static bool write_png(const struct result_report *report, FILE *out)
{
    char block[4096];
    FILE *svg = tmpfile(), *png = tmpfile();
    bool ok = svg && png;

    if (ok) page_card(report, svg);
    ok = ok && fflush(svg) == 0 && convert_to_png(fileno(svg), fileno(png));
    if (ok) rewind(png);
    for (size_t n; ok && (n = fread(block, 1, sizeof block, png)) > 0;) fwrite(block, 1, n, out);
    if (svg) fclose(svg);
    if (png) fclose(png);
    return ok;
}

int page_save_card(const struct page_target *t, const struct result_report *report)
{
    const char *dot = strrchr(t->path, '.');
    struct output out;

    if (!output_open(&out, t->who, t->path)) return EXIT_INPUT;
    if (!dot || strcmp(dot, ".png") != 0) {
        page_card(report, out.file);
    } else if (!write_png(report, out.file)) {
        output_drop(&out);
        return complain_with(
            EXIT_INPUT,
            "%s: PNG needs rsvg-convert (Debian: apt install librsvg2-bin) or cairosvg (pip install cairosvg); without "
            "them: --%s %.*s.svg",
            t->who, t->option, (int)(dot - t->path), t->path);
    }
    if (!output_keep(&out, t->who)) return EXIT_INPUT;
    if (!out.standard) complain("%s: wrote %s", t->who, t->path);
    return EXIT_YES;
}
