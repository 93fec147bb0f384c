#include "analyzer/view/text_chart.h"

#include <string.h>
#include "analyzer/base/units.h"

#define COLUMNS_MAX 160
#define LABEL 12 /* columns of the axis' labels: "1023.99 MiB " */

/* The maximum in each of `columns` equal intervals of [0, end], including the value at the interval's start. */
static void sample_chart_columns(const struct result_timeline *t, double end, int columns, int64_t *most)
{
    size_t i = 0;
    int64_t now = 0;

    for (int c = 0; c < columns; c++) {
        double until = end * (c + 1) / columns;
        int64_t top = now;
        for (; i < t->n && (t->points[i].time_s < until || c + 1 == columns); i++) {
            now = t->points[i].bytes;
            top = now > top ? now : top;
        }
        most[c] = top;
    }
}

/* The part of one character cell that is filled, in eighths: row 0 is the lowest. */
static int column_eighths(int64_t bytes, double per_row, int row)
{
    double height = per_row > 0 ? (double)bytes / per_row - row : 0;

    if (bytes > 0 && row == 0 && height < 0.125) return 1; /* small amounts remain visible */
    return height >= 1 ? 8 : height <= 0 ? 0 : (int)(height * 8 + 0.5);
}

static const char *chart_glyph(int front, int back, bool utf8)
{
    static const char *const block[] = {"", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

    if (front > 0 && utf8) return block[front];
    if (front >= 4 || (front > 0 && back < 4)) return front >= 4 ? "#" : "_";
    if (back >= 4) return utf8 ? "░" : ".";
    return " ";
}

static void print_chart_row(const int64_t *front, const int64_t *back, int columns, double per_row, int r,
                            const struct terminal *term, FILE *out)
{
    char line[COLUMNS_MAX * 4];
    size_t at = 0, end = 0;

    for (int c = 0; c < columns; c++) {
        const char *g =
            chart_glyph(column_eighths(front[c], per_row, r), column_eighths(back[c], per_row, r), term->utf8);
        size_t n = strlen(g);
        memcpy(line + at, g, n);
        at += n;
        if (*g != ' ') end = at;
    }
    fprintf(out, "%s%.*s%s\n", terminal_style(term, TERMINAL_CYAN), (int)end, line,
            terminal_style(term, TERMINAL_PLAIN));
}

static int64_t most_of_columns(const int64_t *value, int n)
{
    int64_t most = 0;

    for (int i = 0; i < n; i++) most = value[i] > most ? value[i] : most;
    return most;
}

void view_chart(const struct result_timeline *front, const struct result_timeline *back, double end_s, int rows,
                const struct terminal *term, int indent, FILE *out)
{
    int64_t f[COLUMNS_MAX] = {0}, b[COLUMNS_MAX] = {0};
    int columns = term->width - indent - LABEL - 3;

    if (columns > COLUMNS_MAX) columns = COLUMNS_MAX;
    if (columns < 20 || !(end_s > 0) || (!front && !back)) return;
    if (front) sample_chart_columns(front, end_s, columns, f);
    if (back) sample_chart_columns(back, end_s, columns, b);
    int64_t top = most_of_columns(f, columns), other = most_of_columns(b, columns);
    top = other > top ? other : top;
    if (top <= 0) return;
    for (int r = rows - 1; r >= 0; r--) {
        fprintf(out, "%*s%*s %s", indent, "", LABEL - 1, r == rows - 1 ? UNITS_BYTES((uint64_t)top) : "",
                term->utf8 ? "│" : "|");
        print_chart_row(f, b, columns, (double)top / rows, r, term, out);
    }
    fprintf(out, "%*s%*s %s", indent, "", LABEL - 1, "0 B", term->utf8 ? "└" : "+");
    for (int c = 0; c < columns; c++) fputs(term->utf8 ? "─" : "-", out);
    const int begin = fprintf(out, "\n%*s%s", indent + LABEL + 1, "", UNITS_SECONDS(0)) - (indent + LABEL + 2);
    fprintf(out, "%*s\n", columns - begin, UNITS_SECONDS(end_s));
}
