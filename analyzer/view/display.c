#include "analyzer/view/display.h"

#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"

struct terminal view_display_start(const struct view_display_settings *settings)
{
    terminal_choose_colour(settings->colour);
    struct terminal term = terminal_of(stdout);
    progress_clear();
    if (!settings->no_pager) pager_start();
    return term;
}
