#include "analyzer/text/display.h"

#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"

struct term display_start(const struct display_settings *settings)
{
    term_choose_colour(settings->colour);
    struct term term = term_of(stdout);
    progress_clear();
    if (!settings->no_pager) pager_start();
    return term;
}
