/* The exception that ends a Python program: type, message and line, so that a report of a crashed program can
 * say how it crashed. */
#ifndef GPUSPY_PYTHON_FAILURE_H
#define GPUSPY_PYTHON_FAILURE_H

/* Before main, where a Python that the program is linked with (3.8 or later) has not started yet: asks it to be
 * told of exceptions that nobody catches. Its audit hooks are there for this (PEP 578); no Python code is run. */
void gs_python_failure_load(void);

#endif
