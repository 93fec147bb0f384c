/* Lines of the program's source around a call site, for the result. */
#pragma once

#include "analyzer/site/builder.h"

/* Excerpts around sites, each call site once; sites with unknown source are left out. */
struct site_excerpts {
    struct result_excerpt *list;
    size_t n;
};
/* `role`: what the site did, as a word. */
void site_add_excerpt(struct site_builder *b, struct site_excerpts *to, const struct result_site *site,
                      const char *role);
