#include "analyzer/view/display.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"

static bool fits_on_screen(int lines)
{
    struct winsize size;

    return lines && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > lines;
}

struct terminal view_display_start(const struct view_display_settings *settings)
{
    terminal_choose_colour(settings->colour);
    struct terminal term = terminal_of(stdout);
    progress_clear();
    if (!settings->no_pager && !fits_on_screen(settings->lines)) pager_start();
    term.links = term.terminal && term.colour && !pager_is_running();
    return term;
}
