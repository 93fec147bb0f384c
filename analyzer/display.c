#include "analyzer/display.h"

#include "analyzer/pager.h"
#include "analyzer/progress.h"

struct term display_start(const struct display_settings *settings)
{
    term_choose_colour(settings->colour);
    struct term term = term_of(stdout);
    progress_clear();
    if (!settings->no_pager)
        pager_start();
    return term;
}
