#include "analyzer/question/library.h"
#include "analyzer/base/text.h"

#include <string.h>

static const struct {
    bool up, pageable;
    const char *file, *function, *caller, *advice;
} rows[] = {
#define WAIT(file, function, advice) {false, false, file, function, NULL, advice},
#define COPY(file, function, advice) {true, false, file, function, NULL, advice},
#define WAIT_OF(caller, file, advice) {false, false, file, NULL, caller, advice},
#define COPY_OF(caller, file, advice) {true, false, file, NULL, caller, advice},
#define PAGEABLE(file, function, advice) {true, true, file, function, NULL, advice},
#include "analyzer/question/library.def"
#undef WAIT
#undef COPY
#undef WAIT_OF
#undef COPY_OF
#undef PAGEABLE
};

const char *question_library_advice(const struct run *run, uint32_t stack, const struct result_site *site,
                                    const char *advice, bool up)
{
    const struct run_frame *frame = site->inner;
    if (!advice || !frame || !frame->file) return advice;
    const char *name = text_last_part(frame->function);
    const bool pageable = strstr(advice, "pin_memory") != NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].up == up && (pageable || !rows[i].pageable) && run_path_has(frame->file, rows[i].file) &&
            (!rows[i].function || strcmp(name, rows[i].function) == 0) &&
            (!rows[i].caller || run_stack_is_in(run, stack, rows[i].caller, NULL)))
            return rows[i].advice;
    return advice;
}
