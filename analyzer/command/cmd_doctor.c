/* gpuspy doctor: runs and prints the checks of doctor_*.c. */
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/command/commands.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/words.h"

struct settings {
    bool json, deep;
};

const struct command_text command_text_doctor = {
    .options = OPTION_ROWS(
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print the findings as JSON"),
        OPTION_ROW(FLAG, "deep", 0, deep, NULL,
                   "also import PyTorch and ask it for its GPUs (takes seconds and some GPU memory); then import it on "
                   "the simulated GPU, as gpuspy does in any case on a machine without a GPU")),
    .about = "Checks what a recording needs and what it will contain: the recorder, the folder of the recording, "
             "gpuspy's settings, NVIDIA's driver and its GPUs, Python, PyTorch's build and other frameworks, and tools "
             "that conflict. Without a GPU it imports PyTorch on the simulated GPU and names the functions that the "
             "simulator lacks. Finally it records an allocation of 1 MiB, on the GPU or else on the simulated one, and "
             "reads it back.\n\nEach line is ok, a warning (something will not be recorded) or a problem (it prevents "
             "recording), with what to do. The exit status is 1 if there is a problem. Name the Python or the program "
             "that you want to record; for a script, gpuspy checks its interpreter.",
    .examples = COMMAND_EXAMPLES({"gpuspy doctor", "check this machine, and the python in PATH"},
                                 {"gpuspy doctor ~/venv/bin/python", "the same for another Python"},
                                 {"gpuspy doctor ./solver", "the same for a program"}),
};

static size_t count_findings(const struct doctor *d, enum doctor_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < d->n; i++) n += d->list[i].state == state;
    return n;
}

static const char *const sections[] = {DOCTOR_SECTIONS(WORDS_FIRST)};
static const char *const states[] = {"ok", "warning", "problem"};

static void print_doctor_text(const struct doctor *d)
{
    static const enum terminal_style styles[] = {TERMINAL_GREEN, TERMINAL_YELLOW, TERMINAL_RED};
    struct terminal term = terminal_of(stdout);
    size_t problems = count_findings(d, DOCTOR_PROBLEM), warnings = count_findings(d, DOCTOR_WARNING);
    enum { TEXT_AT = 21 };

    for (int s = 0; s < DOCTOR_SECTIONS_N; s++) {
        const char *head = sections[s];
        EACH (f, d->list, d->n) {
            if ((int)f->section != s) continue;
            printf("%s%-10s%s  %s%-7s%s  ", terminal_style(&term, TERMINAL_BOLD), head,
                   terminal_style(&term, TERMINAL_PLAIN), terminal_style(&term, styles[f->state]), states[f->state],
                   terminal_style(&term, TERMINAL_PLAIN));
            head = "";
            text_wrap(stdout, &term, TEXT_AT, TEXT_AT, true, f->text ? f->text : "");
            if (f->fix) {
                printf("%*s%s ", TEXT_AT - 3, "", term.utf8 ? "\u2192 " : "->");
                text_wrap(stdout, &term, TEXT_AT, TEXT_AT, true, f->fix);
            }
        }
    }
    putchar('\n');
    if (problems)
        printf("%zu problem%s: solve %s before you record.\n", problems, problems == 1 ? "" : "s",
               problems == 1 ? "it" : "them");
    else if (warnings)
        printf("Recording works, with %zu warning%s.\n", warnings, warnings == 1 ? "" : "s");
    else
        printf("Recording works. Next: gpuspy run -- PROGRAM\n");
    if (problems) return;
    text_wrap(stdout, &term, 0, 0, true,
              "If a run records nothing, no process called CUDA, one printed \"not recording\", or the processes ran "
              "without gpuspy's LD_PRELOAD: under sudo, in a container, or from a script that sets it.");
}

static bool print_doctor_json(const struct doctor *d)
{
    json_t *checks = json_array();

    EACH (f, d->list, d->n) {
        json_array_append_new(checks, json_pack("{s:s, s:s, s:s, s:o, s:o}", "section", sections[f->section], "id",
                                                f->id, "state", states[f->state], "text", json_out_string(f->text),
                                                "fix", json_out_string(f->fix)));
    }
    json_t *o = json_pack("{s:b, s:I, s:I, s:o}", "ok", count_findings(d, DOCTOR_PROBLEM) == 0, "problems",
                          (json_int_t)count_findings(d, DOCTOR_PROBLEM), "warnings",
                          (json_int_t)count_findings(d, DOCTOR_WARNING), "checks", checks);
    return json_out_tree(stdout, o, JSON_INDENT(2));
}

static int run_doctor_child(const char *what)
{
    int rc = strcmp(what, "driver") == 0     ? doctor_ask_driver()
             : strcmp(what, "nvml") == 0     ? doctor_ask_nvml()
             : strcmp(what, "allocate") == 0 ? doctor_allocate()
                                             : EXIT_USAGE;

    fflush(stdout);
    return rc;
}

int command_doctor(const struct command *self, int argc, char **argv)
{
    const char *child = getenv(DOCTOR_CHILD);
    struct settings s = {0};

    if (child && *child && argc == 0) return run_doctor_child(child);
    int operands = options_parse(self, argc, argv, &s);
    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 1)
        return complain_with(EXIT_USAGE,
                             "doctor: give one Python or program, without arguments; type: gpuspy doctor %s", argv[0]);
    struct doctor *d = arena_zeroed(1, sizeof *d);
    d->operand = operands ? argv[0] : NULL;
    d->deep = s.deep;
    if (!doctor_target(d)) {
        free(d);
        return EXIT_INPUT;
    }
    static void (*const checks[])(struct doctor *) = {doctor_recorder, doctor_folder, doctor_settings, doctor_driver,
                                                      doctor_python,   doctor_others, doctor_test};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) checks[i](d);
    int code = count_findings(d, DOCTOR_PROBLEM) ? EXIT_NO : EXIT_YES;
    if (!s.json)
        print_doctor_text(d);
    else if (!print_doctor_json(d))
        code = EXIT_INPUT;
    for (size_t i = 0; i < d->n; i++) ARENA_RELEASE(d->list[i].text, d->list[i].fix);
    ARENA_RELEASE(d->list, d);
    return code;
}
