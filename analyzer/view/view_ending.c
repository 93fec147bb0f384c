/* The name of the list of live memory at the end depends on how the programs ended. */
#include "analyzer/base/text.h"
#include "analyzer/view/view_text_parts.h"

enum ending { ENDING_NOT_YET, ENDING_UNSEEN, ENDING_DIED, ENDING_AFTER_OOM, ENDING_ORDERLY };

/* How the programs ended determines what the list is. */
static enum ending ending_of(const struct result_report *r)
{
    bool died = false, recording = false, oom = false;

    for (size_t i = 0; i < r->processes_n; i++) {
        recording = recording || r->processes[i].recording;
        died = died || (!r->processes[i].complete && !r->processes[i].recording);
    }
    for (size_t i = 0; i < r->ooms_n; i++) oom = oom || r->ooms[i].fatal;
    return recording     ? ENDING_NOT_YET
           : r->imported ? ENDING_UNSEEN
           : died        ? ENDING_DIED
           : oom         ? ENDING_AFTER_OOM
                         : ENDING_ORDERLY;
}

/* The page uses the same words: endWords in analyzer/web/page_live.js. */
static const struct {
    const char *title, *more;
} endings[] = {
    [ENDING_NOT_YET] = {"Live now", ": the program is still recording, so this memory is not a leak yet"},
    [ENDING_UNSEEN] = {"Live at the end of the recording",
                       ": whether the program freed it later is unknown; memory that grows is a leak"},
    [ENDING_DIED] = {"Live when the program died", ": it could not free this memory; only memory that grows is a leak"},
    [ENDING_AFTER_OOM] = {"Live when the program ended",
                          ", after it had run out of memory and freed part of it; memory that grows is a leak"},
    [ENDING_ORDERLY] = {"Never freed", ": normal for a model that lives until the end; memory that grows is a leak"},
};

const char *view_end_words(const struct result_report *r)
{
    return endings[ending_of(r)].title;
}

const char *view_end_explanation(const struct result_report *r)
{
    return endings[ending_of(r)].more;
}

const char *view_end_sentence(const struct result_report *r, char *out, size_t size)
{
    text_put(out, size, ", %s%s", endings[ending_of(r)].title, endings[ending_of(r)].more);
    out[2] = (char)(out[2] - 'A' + 'a');
    return out;
}
