#include "analyzer/view/roofline_chart.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define ROWS 14
#define COLUMNS_MAX 120
#define LABEL 9  /* "1.98 P  |" */
#define RIGHT 13 /* names of the roofs */

/* Draws lines at three heights of a cell, by characters that all terminal fonts have (many lack braille). */
#define HIGH 3
struct canvas {
    int columns;
    uint8_t dots[ROWS][COLUMNS_MAX];
    char mark[ROWS][COLUMNS_MAX];
    double left, right, bottom, top; /* log10 */
};

#define MAIN 8 /* it belongs to the main roof */

static void draw_dot(struct canvas *c, int x, int y, bool light)
{
    if (x >= 0 && y >= 0 && y < ROWS * HIGH && x < c->columns)
        c->dots[y / HIGH][x] = (uint8_t)((light ? c->dots[y / HIGH][x] : MAIN) | 1 << y % HIGH);
}

static int x_of(const struct canvas *c, double intensity)
{
    return (int)lround((log10(intensity) - c->left) / (c->right - c->left) * (c->columns - 1));
}

static int y_of(const struct canvas *c, double flops_per_s)
{
    return (int)lround((c->top - log10(flops_per_s)) / (c->top - c->bottom) * (ROWS * HIGH - 1));
}

/* Decades that contain all points and ridges, with some margin. */
static void choose_range(const struct view_roof_chart *r, struct canvas *c)
{
    double low = INFINITY, high = 0, least = INFINITY, most = 0;

    for (size_t i = 0; i < r->roofs_n; i++) {
        low = fmin(low, r->roofs[i].flops_per_s / r->bytes_per_s);
        high = fmax(high, r->roofs[i].flops_per_s / r->bytes_per_s);
        most = fmax(most, r->roofs[i].flops_per_s);
    }
    for (size_t i = 0; i < r->points_n; i++) {
        low = fmin(low, r->points[i].intensity);
        high = fmax(high, r->points[i].intensity);
        least = fmin(least, r->points[i].flops_per_s);
    }
    c->left = floor(log10(low / 2));
    c->right = ceil(log10(high * 2));
    c->top = log10(most) + 0.15;
    c->bottom = log10(fmin(least / 1.5, pow(10, c->left) * r->bytes_per_s));
}

static void draw_roof(const struct view_roof_chart *r, struct canvas *c)
{
    for (size_t i = r->roofs_n; i-- > 0;) {
        double ridge = r->roofs[i].flops_per_s / r->bytes_per_s;
        for (int x = 0; x < c->columns; x++) {
            double at = pow(10, c->left + (c->right - c->left) * x / (c->columns - 1));
            if (i && (at < ridge || x % 2)) /* lightly, and the slope only once */
                continue;
            int y = y_of(c, fmin(at * r->bytes_per_s, r->roofs[i].flops_per_s));
            draw_dot(c, x, y, i > 0);
        }
    }
    for (size_t i = 0; i < r->points_n; i++) {
        int x = x_of(c, r->points[i].intensity), y = y_of(c, r->points[i].flops_per_s) / HIGH;
        y = y < 0 ? 0 : y >= ROWS ? ROWS - 1 : y;
        x = x < 0 ? 0 : x >= c->columns ? c->columns - 1 : x;
        while (c->mark[y][x] && x + 1 < c->columns) /* two at one position are shown side by side */
            x++;
        c->mark[y][x] = r->points[i].mark;
    }
}

static void print_roof_cell(const struct canvas *c, int row, int column, const struct terminal *term, FILE *out)
{
    static const char *const line[] = {"▔", "─", "▁"}, *const plain[] = {"\"", "-", "_"};
    uint8_t d = c->dots[row][column];

    if (c->mark[row][column])
        fprintf(out, "%s%c%s", terminal_style(term, TERMINAL_YELLOW), c->mark[row][column],
                terminal_style(term, TERMINAL_PLAIN));
    else if (!d)
        fputc(' ', out);
    else
        fprintf(out, "%s%s%s", terminal_style(term, d & MAIN ? TERMINAL_CYAN : TERMINAL_DIM),
                (term->utf8 ? line : plain)[d & 1   ? 0
                                            : d & 2 ? 1
                                                    : 2],
                terminal_style(term, TERMINAL_PLAIN));
}

/* "312 T" operations per second; below one "1e-4". */
static void short_rate(double rate, char out[16])
{
    static const char unit[] = " kMGTPE";
    size_t u = 0;

    for (; u + 2 < sizeof unit && rate >= 999.5; u++) rate /= 1000;
    snprintf(out, 16, rate < 0.05 || rate > 9999 ? "%.0e %c" : "%.3g %c", rate, unit[u]);
}

/* The power of ten whose line is nearest to the middle of this row; false: none is in it. */
static bool roof_tick(const struct canvas *c, int row, double *rate)
{
    for (double e = ceil(c->bottom); e <= c->top; e++) {
        if (y_of(c, pow(10, e)) / HIGH == row) {
            *rate = pow(10, e);
            return true;
        }
    }
    return false;
}

static void roof_row_name(const struct view_roof_chart *r, const struct canvas *c, int row, char out[24])
{
    out[0] = 0;
    for (size_t i = 0; i < r->roofs_n && !*out; i++) /* the main roof has the row for itself */
        if (y_of(c, r->roofs[i].flops_per_s) / HIGH == row) snprintf(out, 24, " %.12s", r->roofs[i].name);
}

static void print_roof_axis(const struct canvas *c, const struct terminal *term, FILE *out)
{
    char line[COLUMNS_MAX + 16];
    int taken = -1; /* columns of the numbers so far */

    fprintf(out, "%*s %s", LABEL - 2, "", term->utf8 ? "└" : "+");
    for (int i = 0; i < c->columns; i++) fputs(term->utf8 ? "─" : "-", out);
    memset(line, ' ', sizeof line);
    for (double e = c->left; e <= c->right; e++) {
        char number[16];
        int n = snprintf(number, sizeof number, e > 5 || e < -3 ? "1e%.0f" : "%.15g", e > 5 || e < -3 ? e : pow(10, e));
        int at = (int)lround((e - c->left) / (c->right - c->left) * (c->columns - 1)) - (e > c->left ? n / 2 : 0);
        if (at + n > c->columns) at = c->columns - n;
        if (at <= taken) continue;
        taken = at + n;
        memcpy(line + at, number, (size_t)n);
    }
    line[c->columns] = 0;
    fprintf(out, "\n%*s %s FLOP/B\n", LABEL - 1, "", line);
}

void view_roof_chart(const struct view_roof_chart *r, const struct terminal *term, FILE *out)
{
    struct canvas c = {.columns = term->width - LABEL - RIGHT};

    if (c.columns > COLUMNS_MAX) c.columns = COLUMNS_MAX;
    for (size_t i = 0; i < r->points_n; i++)
        if (!(r->points[i].intensity > 0) || !(r->points[i].flops_per_s > 0) || isinf(r->points[i].flops_per_s)) return;
    if (c.columns < 16 || !r->roofs_n || !r->points_n) return;
    choose_range(r, &c);
    draw_roof(r, &c);
    for (int row = 0; row < ROWS; row++) {
        char label[16] = "", name[24];
        double rate;
        if (roof_tick(&c, row, &rate)) short_rate(rate, label);
        fprintf(out, "%*s %s", LABEL - 2, label, term->utf8 ? "│" : "|");
        roof_row_name(r, &c, row, name);
        for (int column = 0; column < c.columns; column++) print_roof_cell(&c, row, column, term, out);
        fprintf(out, "%s\n", name);
    }
    print_roof_axis(&c, term, out);
}
