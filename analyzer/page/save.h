/* Saves pages and cards as files. Never overwrites a recording: neither one that is read nor another. */
#pragma once

#include "analyzer/page/view_html.h"

struct page_target {
    const char *who, *option; /* for the line on stderr: "report", "html" */
    const char *path;         /* "-": stdout */
    char *const *inputs;      /* the recordings that are read */
    size_t inputs_n;
};

/* Each returns an exit code, after a line on stderr: the file that was written, or what went wrong. */

/* Before the recording is read: is the target a recording, or, for a page, a terminal? Silent if not. */
int page_save_check(const struct page_target *target, bool card);
/* `report` as for page_write. */
int page_save(const struct page_target *target, struct page *page, const struct result_report *report);
/* SVG; PNG through the programs rsvg-convert or cairosvg, if the name ends so. */
int page_save_card(const struct page_target *target, const struct result_report *report);
