#include "analyzer/oom/oom_retries.h"
#include "analyzer/base/sort.h"

#include <stddef.h>

static void add_retries(void *into, const void *from)
{
    struct result_retry_line *to = into;
    const struct result_retry_line *r = from;
    to->count += r->count;
    to->requested_bytes = r->requested_bytes > to->requested_bytes ? r->requested_bytes : to->requested_bytes;
    to->first_s = r->first_s < to->first_s ? r->first_s : to->first_s;
    to->last_s = r->last_s > to->last_s ? r->last_s : to->last_s;
}

SITE_LINE_PATH(retry_path_of, struct result_retry_line, .count = x->count, .site = x->site)

SORT_ORDER(order_retries_by_count, struct result_retry_line,
           SORT_DOWN(x->count, y->count) ?: SORT_UP(x->first_s, y->first_s))

void oom_retry_lines(struct site_builder *b, const struct result_retry_line *retries, size_t n)
{
    static const struct site_line_form form = SITE_LINE_FORM(struct result_retry_line, site, .add = add_retries,
                                                             .path = retry_path_of, .order = order_retries_by_count);
    b->report->retry_lines =
        site_lines_of(b, retries, n, &form, &b->report->retry_lines_n, &b->report->retry_lines_total);
}
