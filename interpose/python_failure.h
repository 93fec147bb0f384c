/* The exception that ends a Python program: type, message and line, so that a report of a crashed program can state how
 * it crashed. */
#pragma once

/* Before main, while a Python (3.8 or later) that the program is linked with has not started yet: registers for
 * exceptions that nothing catches, by an audit hook (PEP 578). It runs no Python code. `arguments`: the program's, or
 * NULL. */
void gs_python_failure_load(char *const *arguments);
