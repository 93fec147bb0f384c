/* Arithmetic in shell scripts: "$((1024 * 2))" and "$(((prompt + response) * 2))" become numbers, if the variables are
 * assigned numbers before. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzer/estimate/recipe.h"

enum { SEARCHED_MOST = 64 << 20 };

struct sum {
    const char *start, *text, *at; /* of the script, of the expression, where reading is */
    size_t *left;                  /* bytes that may be searched for assignments, in the whole script */
    unsigned depth;
    bool failed;
};

/* The number that the last assignment before the expression has: "name=2", "name=${NAME:-2}", "export name='2'". */
static int64_t assigned_number(struct sum *s, const char *name, size_t n)
{
    for (const char *at = s->text; *s->left && at-- > s->start; --*s->left) {
        if (strncmp(at, name, n) != 0 || at[n] != '=' || (at > s->start && !isspace((unsigned char)at[-1]))) continue;
        at += n + 1;
        at += strspn(at, "\"'");
        if (strncmp(at, "${", 2) == 0) {
            at += strcspn(at, "-}\n");
            at += *at == '-';
        }
        if (isdigit((unsigned char)*at)) return strtoll(at, NULL, 10);
        break;
    }
    s->failed = true;
    return 0;
}

static int64_t read_sum(struct sum *s);

static int64_t read_factor(struct sum *s)
{
    s->at += strspn(s->at, " \t");
    if (*s->at == '(' && s->depth < 16) {
        s->at++;
        s->depth++;
        const int64_t n = read_sum(s);
        s->depth--;
        s->at += strspn(s->at, " \t");
        if (*s->at != ')') s->failed = true;
        s->at += *s->at == ')';
        return n;
    }
    if (isdigit((unsigned char)*s->at)) {
        char *end;
        const int64_t n = strtoll(s->at, &end, 10);
        s->at = end;
        return n;
    }
    s->at += strspn(s->at, "${");
    size_t n = 0;
    while (isalnum((unsigned char)s->at[n]) || s->at[n] == '_') n++;
    const char *name = s->at;
    s->at += n + (s->at[n] == '}');
    if (n == 0) s->failed = true;
    return n ? assigned_number(s, name, n) : 0;
}

static int64_t read_product(struct sum *s)
{
    int64_t product = read_factor(s), n;

    for (;;) {
        s->at += strspn(s->at, " \t");
        const char sign = *s->at;
        if ((sign != '*' && sign != '/') || s->failed) return product;
        s->at++;
        n = read_factor(s);
        s->failed |= sign == '/' ? n <= 0 : __builtin_mul_overflow(product, n, &product);
        if (sign == '/' && n > 0) product /= n;
    }
}

static int64_t read_sum(struct sum *s)
{
    int64_t sum = read_product(s);

    for (;;) {
        s->at += strspn(s->at, " \t");
        const char sign = *s->at;
        if ((sign != '+' && sign != '-') || s->failed) return sum;
        s->at++;
        const int64_t n = read_product(s);
        s->failed |= sign == '+' ? __builtin_add_overflow(sum, n, &sum) : __builtin_sub_overflow(sum, n, &sum);
    }
}

void estimate_recipe_add_up(char *text)
{
    unsigned sums = 200;
    size_t left = SEARCHED_MOST;

    for (char *at = text; sums-- && (at = strstr(at, "$(("));) {
        struct sum s = {.start = text, .text = at, .at = at + 3, .left = &left};
        char number[24];
        const int64_t n = read_sum(&s);
        s.at += strspn(s.at, " \t");
        const size_t room = (size_t)(s.at - at) + 2, size = (size_t)snprintf(number, sizeof number, "%" PRId64, n);
        if (s.failed || strncmp(s.at, "))", 2) != 0 || n < 0 || size > room) {
            at += 3;
            continue;
        }
        memcpy(at, number, size);
        memmove(at + size, at + room, strlen(at + room) + 1);
    }
}
