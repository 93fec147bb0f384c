/* The functions that a program imports and the simulated CUDA does not implement, and how often the program called
 * them. The simulator counts the calls in every process of the run (schema/lacks.h). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct launch_lack {
    const char *name;    /* "": the whole library */
    const char *library; /* libnccl.so.2 */
    uint64_t calls;
    bool refused; /* the simulator has the function, which only returns an error */
};

/* The path of an empty table, for GS_LACKS_VARIABLE in the program's environment. NULL: memory is short; nothing is
 * counted. */
const char *launch_lacks_table(void);

/* After the program has ended: each name once, the most called first. The caller frees the list; its text stays. */
size_t launch_lacks_list(struct launch_lack **list);

/* A line on stderr that names what was called, if anything was. */
void launch_lacks_complain(void);
