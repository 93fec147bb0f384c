/* Runs the questions over a run, all or some, and collects their answers. questions.def lists them. */
#ifndef GPUSPY_REPORT_H
#define GPUSPY_REPORT_H

#include "analyzer/result/result.h"

enum gs_question {
#define QUESTION(name, start, finish, call, called, build, needs) GS_QUESTION_##name,
#include "analyzer/report/questions.def"
#undef QUESTION
    GS_QUESTIONS_N
};
/* One bit of gs_options.questions. What a question needs is asked with it. */
#define GS_ASK(name) ((uint64_t)1 << GS_QUESTION_##name)

/* NULL and a line in `error` (cannot read 'x': reason; what to do) where a database turns out to be
 * damaged. `options` need not outlive the call. */
struct gs_report *gs_report_build(struct gs_run *run, const struct gs_options *options, char *error, size_t error_size);
void gs_report_free(struct gs_report *report);

#endif
