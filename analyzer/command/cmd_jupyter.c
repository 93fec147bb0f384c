/* gpuspy jupyter install: a kernel for Jupyter that runs with the recorder. The kernel's file preloads the library and
 * starts Python itself, so that signals and the process are as in any other kernel. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/text.h"
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/output.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/command/commands.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/launch/child.h"
#include "analyzer/launch/launch.h"

enum { SECONDS = 60 }; /* Python may take this long to start from a slow disk */

struct settings {
    const char *prefix, *name, *python, *title;
    bool user, sys_prefix;
};

const struct command_text command_text_jupyter = {
    .options = OPTION_ROWS(
        OPTION_ROW(FLAG, "user", 0, user, NULL,
                   "install for this user (the default): in JUPYTER_DATA_DIR, or ~/.local/share/jupyter"),
        OPTION_ROW(FLAG, "sys-prefix", 0, sys_prefix, NULL,
                   "install into the environment of the kernel's Python (sys.prefix)"),
        OPTION_ROW(FILE, "prefix", 0, prefix, "FOLDER", "install into FOLDER/share/jupyter/kernels"),
        OPTION_ROW(TEXT, "name", 0, name, "NAME",
                   "the kernel's name; default gpuspy. A kernel of that name is replaced"),
        OPTION_ROW(TEXT, "display-name", 0, title, "TEXT", "what Jupyter shows; default \"Python 3 (NAME)\""),
        OPTION_ROW(FILE, "python", 0, python, "PYTHON",
                   "the kernel's Python, which needs ipykernel; default: that of the environment in which "
                   "gpuspy is installed, else python3 in PATH")),
    .about =
        "Adds a kernel to Jupyter that runs Python with the recorder. A notebook with this kernel records to run.db in "
        "its folder from its first CUDA call on. In the notebook, '%gpuspy report' explains what was recorded so far. "
        "'%%gpuspy NAME' in the first line of a cell names it, and the report then states its peak.\n\nThe last line "
        "printed is the command that removes the kernel.\n\nA kernel that is already running needs no installation: "
        "after '%load_ext gpuspy', '%gpuspy attach' records it from then on, as gpuspy attach does.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy jupyter install", "add the kernel \"Python 3 (gpuspy)\" for this user"},
        {"gpuspy jupyter install --sys-prefix --name recorded", "into the environment of the Python in PATH"}),
};

/* False: the text is too long. */
static bool put_formatted(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool put_formatted(char *out, size_t size, const char *format, ...)
{
    int n = TEXT_FORMAT(out, size, format);
    return n >= 0 && (size_t)n < size;
}

struct python {
    char executable[PATH_MAX], prefix[PATH_MAX];
    bool has_package; /* `import gpuspy` works */
};

/* In a virtual environment, Python is beside gpuspy. */
static bool find_beside_command(char *out, size_t size)
{
    char own[PATH_MAX], path[PATH_MAX + 32];

    if (!launch_own_folder(own)) return false;
    snprintf(path, sizeof path, "%s/../pyvenv.cfg", own);
    return put_formatted(out, size, "%s/python3", own) && access(path, R_OK) == 0 && access(out, X_OK) == 0;
}

/* Takes the next line of Python's output. */
static bool next_path_line(char **text, char *out, size_t size)
{
    char *line = strsep(text, "\n");

    return line && *text && *line && put_formatted(out, size, "%s", line);
}

static void explain_no_answer(const struct launch_child *c, const char *program)
{
    char why[PATH_MAX + 64];

    if (!c->started && program_explain(program, why, sizeof why))
        complain("jupyter: cannot start '%s': it %s", program, why);
    else
        complain("jupyter: cannot ask '%s' for its environment: %s; name a Python with --python", program,
                 !c->started    ? "the program does not exist"
                 : c->timed_out ? "it does not respond"
                                : "it is not a Python, or fails");
}

static bool ask_python(const char *program, struct python *p)
{
    static const char question[] = "import sys\nsys.path[:1] = []\nimport importlib.util as u\n"
                                   "print(sys.executable, sys.prefix, sep='\\n')\n"
                                   "print(*(u.find_spec(m) is not None for m in ('ipykernel', 'gpuspy')))";
    const char *argv[] = {program, "-c", question, NULL};
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    char found[32];

    *c = (struct launch_child){.argv = argv, .timeout_ms = SECONDS * 1000};
    char *text = c->out;
    bool ok = launch_child_run(c) && next_path_line(&text, p->executable, sizeof p->executable) &&
              next_path_line(&text, p->prefix, sizeof p->prefix) && next_path_line(&text, found, sizeof found);
    if (!ok) {
        explain_no_answer(c, program);
    } else if (strncmp(found, "True", 4) != 0) {
        complain("jupyter: '%s' has no ipykernel; type: %s -m pip install ipykernel", p->executable, p->executable);
        ok = false;
    }
    p->has_package = ok && strstr(found, " True");
    free(c);
    return ok;
}

/* Finds the Python package that belongs to the library, of `make install` or of a checkout. */
static bool package_folder(const char *library, const char *name, char *out)
{
    static const char *const places[] = {"gpuspy/python", "../../python", "../python", "../pytest-gpuspy"};
    char path[2 * PATH_MAX];
    int folder = (int)(strrchr(library, '/') - library);

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(path, sizeof path, "%.*s/%s/%s/__init__.py", folder, library, places[i], name);
        if (access(path, R_OK) != 0 || !realpath(path, out)) continue;
        for (int up = 0; up < 2; up++) *strrchr(out, '/') = 0;
        return true;
    }
    return false;
}

/* Adds the folder to sys.path instead of setting PYTHONPATH, which keeps the value of the Jupyter server. */
static void add_package(json_t *argv, const char *library, const char *name)
{
    char folder[PATH_MAX], line[PATH_MAX + 128];

    if (!package_folder(library, name, folder) || strpbrk(folder, "'\\")) return;
    snprintf(line, sizeof line, "--IPKernelApp.exec_lines=__import__('sys').path.append('%s')", folder);
    json_array_append_new(argv, json_string(line));
}

static json_t *kernel_json(const struct settings *s, const struct python *p, const char *library)
{
    json_t *o = json_object(), *argv = json_array(), *env = json_object(), *metadata = json_object();
    const char *const words[] = {p->executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"};
    char title[256], *preload = launch_preloaded(library);

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) json_array_append_new(argv, json_string(words[i]));
    if (!p->has_package) {
        add_package(argv, library, "gpuspy");
        add_package(argv, library, "pytest_gpuspy");
    }
    json_array_append_new(
        argv, json_string("--IPKernelApp.exec_lines=get_ipython().extension_manager.load_extension('gpuspy')"));
    snprintf(title, sizeof title, "Python 3 (%s)", s->name);
    set_text(env, "LD_PRELOAD", preload ? preload : library);
    free(preload);
    set_text(env, "GPUSPY_QUIET", "1");
    set_bool(metadata, "debugger", true);
    set_json(o, "argv", argv);
    set_text(o, "display_name", s->title ? s->title : title);
    set_text(o, "language", "python");
    set_json(o, "env", env);
    set_json(o, "metadata", metadata);
    return o;
}

/* Creates the folder and all folders above it. */
static bool make_kernel_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        *slash = '/';
        if (!made) return false;
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* The folder in which Jupyter searches this kernel. */
static bool kernel_folder(const struct settings *s, const struct python *p, char *out, size_t size)
{
    const char *data = getenv("JUPYTER_DATA_DIR"), *xdg = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const char *prefix = s->sys_prefix ? p->prefix : s->prefix;

    if (prefix) return put_formatted(out, size, "%s/share/jupyter/kernels/%s", prefix, s->name);
    if (data && *data) return put_formatted(out, size, "%s/kernels/%s", data, s->name);
    if (xdg && *xdg) return put_formatted(out, size, "%s/jupyter/kernels/%s", xdg, s->name);
    if (home && *home) return put_formatted(out, size, "%s/.local/share/jupyter/kernels/%s", home, s->name);
    return false;
}

static bool write_kernel(const struct settings *s, const struct python *p, const char *library, const char *folder)
{
    char path[2 * PATH_MAX];
    struct output o;

    if (!put_formatted(path, sizeof path, "%s/kernel.json", folder) || !output_open(&o, "jupyter", path)) return false;
    bool ok = json_out_tree(o.file, kernel_json(s, p, library), JSON_INDENT(1));
    if (!ok) complain("jupyter: cannot write '%s'", path);
    if (ok) return output_keep(&o, "jupyter");
    output_drop(&o);
    return false;
}

/* The names that Jupyter accepts. */
static bool is_kernel_name(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return strspn(name, letters) == strlen(name) && strlen(name) < 64 && name[0] != '.';
}

static int install_kernel(const struct settings *s)
{
    static struct python p;
    char library[PATH_MAX], why[PATH_MAX + 256], folder[2 * PATH_MAX], own[PATH_MAX + 16];
    const char *program = s->python ? s->python : find_beside_command(own, sizeof own) ? own : "python3";

    if (!launch_library(library, why, sizeof why)) return complain_with(EXIT_INPUT, "jupyter: %s", why);
    if (strpbrk(library, LAUNCH_SEPARATORS)) /* a kernel outlives links in /tmp */
        return complain_with(EXIT_INPUT,
                             "jupyter: cannot preload '%s': the loader accepts no path with a space, colon or '$'; "
                             "install gpuspy elsewhere, or point GPUSPY_LIB to a copy",
                             library);
    if (!ask_python(program, &p)) return EXIT_INPUT;
    if (!kernel_folder(s, &p, folder, sizeof folder))
        return complain_with(EXIT_INPUT, "jupyter: neither JUPYTER_DATA_DIR nor HOME is set; give --prefix FOLDER");
    if (!make_kernel_folders(folder)) {
        return complain_with(EXIT_INPUT, "jupyter: cannot create the folder '%s': %s; give --user, or another --prefix",
                             folder, strerror(errno));
    }
    if (!write_kernel(s, &p, library, folder)) return EXIT_INPUT;
    printf("kernel '%s' of %s: %s\nremove it with: rm -r '%s'\n", s->name, p.executable, folder, folder);
    return EXIT_YES;
}

int command_jupyter(const struct command *self, int argc, char **argv)
{
    struct settings s = {.name = "gpuspy"};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands < 1) return complain_with(EXIT_USAGE, "jupyter: no action given; type: gpuspy jupyter install");
    if (operands > 1 || strcmp(argv[0], "install") != 0) {
        return complain_with(EXIT_USAGE, "jupyter: '%s' is unexpected; type: gpuspy jupyter install",
                             argv[strcmp(argv[0], "install") == 0]);
    }
    if (s.user + s.sys_prefix + (s.prefix != NULL) > 1)
        return complain_with(EXIT_USAGE, "jupyter: give one of --user, --sys-prefix and --prefix");
    if (!is_kernel_name(s.name)) {
        return complain_with(EXIT_USAGE,
                             "jupyter: --name: '%s' is not a name for a kernel; use letters, digits, '.', '_' and '-'",
                             s.name);
    }
    return install_kernel(&s);
}
