/* Processes that use a GPU and are not recorded. */
#include "analyzer/top/view_parts.h"

#include "analyzer/base/text.h"

void top_users_line(struct top_line *l)
{
    const struct top_users *users = &l->v->users;
    size_t processes = 0;
    for (size_t i = 0; i < users->n; i++) processes += i == 0 || users->at[i].pid != users->at[i - 1].pid;
    if (processes) {
        top_put(l, TERMINAL_YELLOW, "not recorded: %s on a GPU; press a to list and attach",
                UNITS_PLURAL(processes, "process", "processes"));
        top_finish(l);
    }
}

static void user_line(struct top_line *l, const struct top_user *u, bool chosen)
{
    char command[TOP_LINE], clean[TOP_LINE];
    top_put(l, chosen ? TERMINAL_BOLD : TERMINAL_PLAIN, "%c %8u  GPU %-2d %12s", chosen ? '>' : ' ', u->pid, u->device,
            u->bytes < 0 ? "unknown" : TOP_BYTES(u->bytes));
    const int room = l->v->columns - l->at - 2;
    if (u->command && room >= 12) {
        terminal_clean(clean, sizeof clean, u->command, l->v->term.utf8);
        text_command(command, sizeof command, clean, room, l->v->term.utf8);
        top_put(l, chosen ? TERMINAL_BOLD : TERMINAL_DIM, "  %s", command);
    }
    top_finish(l);
}

void top_users_part(struct top_line *l, int room)
{
    const struct top_users *users = &l->v->users;
    const size_t rows = room > 1 ? (size_t)room - 1 : users->n;
    const size_t from = l->v->chosen >= rows ? l->v->chosen + 1 - rows : 0;
    top_put(l, TERMINAL_BOLD, "%10s  %-6s %12s  COMMAND", "PID", "GPU", "HOLDS");
    top_put(l, TERMINAL_DIM, users->n ? "   not recorded, by NVML" : "   every process that NVML reports is recorded");
    top_finish(l);
    for (size_t i = from; i < users->n && i < from + rows; i++)
        user_line(l, &users->at[i], l->v->live && i == l->v->chosen);
}
