/* The recorder itself: is it there, does it load, may it be loaded into the program? */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "analyzer/base/input.h"
#include "analyzer/attach/process.h"
#include "analyzer/launch/child.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/launch/launch.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

enum { TIMEOUT_MS = 10000 };

static bool is_python_path(const char *path)
{
    const char *base = basename(path);

    return strncmp(base, "python", 6) == 0 || strncmp(base, "pypy", 4) == 0;
}

/* "#!/venv/bin/python3 -s" and "#!/usr/bin/env python": what runs a script; "" none. */
static void interpreter_of(const char *path, char *out, size_t size)
{
    char head[256], *save = NULL;

    out[0] = 0;
    if (input_read_start(path, head, sizeof head) < 3 || head[0] != '#' || head[1] != '!') return;
    head[strcspn(head, "\n")] = 0;
    char *word = strtok_r(head + 2, " \t", &save);
    const char *slash = word ? strrchr(word, '/') : NULL;
    if (slash && strcmp(slash, "/env") == 0) do
            word = strtok_r(NULL, " \t", &save);
        while (word && (word[0] == '-' || strchr(word, '=')));
    if (word) program_find(word, out, size);
}

bool doctor_target(struct doctor *d)
{
    char path[PATH_MAX];

    if (!d->operand) {
        if (!program_find("python", d->python, sizeof d->python)) program_find("python3", d->python, sizeof d->python);
        return true;
    }
    if (!program_find(d->operand, path, sizeof path)) {
        char why[PATH_MAX + 64];
        if (text_ends_with(d->operand, ".py") && access(d->operand, F_OK) == 0)
            snprintf(why, sizeof why, "is a script; give the Python that runs it, such as python3");
        else if (!program_explain(d->operand, why, sizeof why))
            snprintf(why, sizeof why, "does not exist; check its name and PATH");
        return complain_with(false, "doctor: cannot check '%s': it %s", d->operand, why);
    }
    if (is_python_path(path)) {
        snprintf(d->python, sizeof d->python, "%s", path);
        return true;
    }
    interpreter_of(path, d->python, sizeof d->python);
    if (d->python[0] && !is_python_path(d->python)) {
        snprintf(d->program, sizeof d->program, "%s", d->python);
        d->python[0] = 0;
    } else if (!d->python[0]) {
        snprintf(d->program, sizeof d->program, "%s", path);
    }
    return true;
}

/* The loader then ignores LD_PRELOAD. For root nothing is gained by such a file. */
static const char *anothers_rights(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0) return NULL;
    if (((st.st_mode & S_ISUID) && st.st_uid != getuid()) || ((st.st_mode & S_ISGID) && st.st_gid != getgid()))
        return "set-user-id or set-group-id";
    return getuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0 ? "file capabilities" : NULL;
}

bool doctor_preloadable(struct doctor *d, const char *path)
{
    const char *rights = anothers_rights(path);
    struct program ours, its;

    program_read(d->library, &ours);
    program_read(path, &its);
    if (its.elf && ours.elf && (its.machine != ours.machine || its.class != ours.class))
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "architecture", "build gpuspy for that architecture",
                           "%s and libgpuspy.so have different architectures, so the recorder cannot be loaded", path);
    else if (its.elf && !its.loader[0] && its.class == ELFCLASS64)
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "static",
                           "link it dynamically; the loader preloads no libraries into static programs",
                           "%s is statically linked", path);
    else if (its.elf && program_is_musl(&its))
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "musl", "use a build for glibc of this program",
                           "%s is linked to musl, and the recorder needs glibc", path);
    else if (its.elf && rights)
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "secure_execution",
                           "record a copy of the file; cp drops these privileges",
                           "%s runs with other privileges (%s): the loader ignores LD_PRELOAD", path, rights);
    else
        return true;
    return false;
}

static void check_program(struct doctor *d)
{
    struct program p;

    if (!doctor_preloadable(d, d->program) || !doctor_sanitizer(d, d->program)) return;
    program_read(d->program, &p);
    if (p.elf)
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_OK, "program", NULL, "the recorder can be loaded into %s",
                           d->program);
    else
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_WARNING, "program", NULL,
                           "%s is neither an ELF program nor a script with an interpreter", d->program);
}

static void check_attach(struct doctor *d)
{
    char why[ATTACH_WHY];

    if (attach_process_allowed(why))
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_OK, "attach", NULL,
                           "gpuspy attach can record running processes of this user");
    else
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_OK, "attach",
                           "run gpuspy attach with sudo, or in a container with --cap-add SYS_PTRACE; gpuspy run needs "
                           "neither",
                           "gpuspy attach does not work for this user: %s", why);
}

/* What the loader says of it in a small program (Python, where there is one: it may bring its own). */
static void check_loads(struct doctor *d)
{
    const char *const small[] = {"/bin/true", NULL}, *const python[] = {d->python, "-S", "-c", "import os", NULL};
    const char *const *programs[] = {small, python};
    char line[512];

    for (size_t i = 0; i < (d->python[0] ? 2 : 1); i++) {
        struct launch_child c = {.argv = programs[i], .timeout_ms = TIMEOUT_MS};
        launch_child_set(&c, "LD_PRELOAD", d->library);
        launch_child_set(&c, "GPUSPY_DISABLE", "1");
        launch_child_set(&c, "LD_AUDIT", NULL);
        bool ended = launch_child_run(&c);
        const char *loader_error = strstr(c.err, "ERROR: ld.so");
        const char *why = loader_error ? loader_error : strstr(c.err, d->library);
        if (c.started && (!ended || why)) {
            why = why ? why : c.timed_out ? "it did not exit" : "it failed";
            snprintf(line, sizeof line, "%.*s", (int)strcspn(why, "\n"), why);
            doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "loads",
                               strstr(line, "GLIBC")  ? "build gpuspy on the oldest system on which you use it"
                               : strstr(line, "rror") ? "build gpuspy with the C library that this program uses"
                                                      : NULL,
                               "libgpuspy.so does not load into %s: %s", programs[i][0], line);
            return;
        }
    }
    doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_OK, "loads", NULL,
                       "libgpuspy.so %s loads (%s); it needs neither root nor ptrace", GPUSPY_VERSION, d->library);
}

void doctor_recorder(struct doctor *d)
{
    struct launch l = {0};
    char why[PATH_MAX + 256] = "";

    if (!launch_preload(l.library, why, sizeof why)) {
        doctor_add_finding(d, DOCTOR_RECORDER, DOCTOR_PROBLEM, "library", NULL, "%s", why);
        return;
    }
    snprintf(d->library, sizeof d->library, "%s", l.library);
    check_loads(d);
    check_attach(d);
    if (d->program[0]) check_program(d);
}
