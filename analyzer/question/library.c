#include "analyzer/question/library.h"

#include <string.h>

static const struct {
    bool up;
    const char *file, *function, *advice;
} rows[] = {
#define WAIT(file, function, advice) {false, file, function, advice},
#define COPY(file, function, advice) {true, file, function, advice},
#include "analyzer/question/library.def"
#undef WAIT
#undef COPY
};

static const char *last_name_part(const char *function)
{
    const char *dot = function ? strrchr(function, '.') : NULL;
    return dot ? dot + 1 : function;
}

const char *question_library_advice(const struct result_site *site, const char *advice, bool up)
{
    const struct run_frame *frame = site->inner;
    const char *name = frame ? last_name_part(frame->function) : NULL;
    if (!advice || !frame || !frame->file) return advice;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].up == up && strstr(frame->file, rows[i].file) &&
            (!rows[i].function || (name && strcmp(name, rows[i].function) == 0)))
            return rows[i].advice;
    return advice;
}
