#pragma once

/* Scripts depend on these. `run` ends like the recorded program instead. */
enum exit_code {
    EXIT_YES = 0,
    EXIT_NO = 1,    /* the command worked, but a check failed */
    EXIT_USAGE = 2, /* usage error */
    EXIT_INPUT = 3, /* a file that cannot be read, or output that cannot be written */
};
