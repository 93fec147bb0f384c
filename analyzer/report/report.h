/* Runs the questions over a run, all or some, and collects their answers. questions.def lists them. */
#pragma once

#include "analyzer/result/result.h"

enum report_question {
#define QUESTION(name, start, finish, call, called, build, needs) REPORT_QUESTION_##name,
#include "analyzer/report/questions.def"
#undef QUESTION
    REPORT_QUESTIONS_N
};
/* One bit of run_options.questions. A question also runs those that it needs. */
#define REPORT_ASK(name) ((uint64_t)1 << REPORT_QUESTION_##name)

/* NULL and a line in `error` (cannot read 'x': reason; what to do) if a database turns out to be damaged. `options`
 * need not outlive the call. */
struct result_report *report_build(struct run *run, const struct run_options *options, char *error, size_t error_size);
void report_free(struct result_report *report);
