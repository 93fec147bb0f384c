/* Finds running recordings through /proc: a process that records has its database open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct top_found {
    uint32_t pid, parent; /* in this namespace */
    char *database;       /* a path that can be opened here */
    char *command;        /* its words, NULL unknown */
    char run_id[40];
};

/* All of them, by pid; free with top_found_free. Processes of other users are skipped. */
struct top_found *top_find_all(size_t *n);
/* Does this process record? `found` as in the list; free it the same way. */
bool top_find_process(uint32_t pid, struct top_found *found);
/* Its words, with secrets masked; NULL unknown. */
char *top_command_of(uint32_t pid);
void top_found_free(struct top_found *found, size_t n);
/* Is `pid` `ancestor`, or was it started by it, directly or not? */
bool top_descends(uint32_t pid, uint32_t ancestor);
