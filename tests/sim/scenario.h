/* The simulator reads its environment once per process, so each scenario has its own: scenario() forks, sets the
 * variables, runs the function and asserts that it succeeded. */
#pragma once

#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define MICROSECOND ((int64_t)1000)

static inline void check_equal(const char *file, int line, const char *text, long long is, long long should)
{
    if (is == should) return;
    fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", file, line, text, is, should);
    _exit(1);
}

/* For use in a scenario instead of cmocka's asserts, which would return into the parent's test. */
#define CHECK_EQ(is, should) check_equal(__FILE__, __LINE__, #is, (long long)(is), (long long)(should))
#define CHECK(condition) CHECK_EQ(!!(condition), 1)
#define OK(call) CHECK_EQ(call, 0)

/* `variables`: "NAME=value" strings, then NULL. */
static inline void scenario_at(const char *file, int line, void (*run)(void), const char *const *variables)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60); /* a deadlock is a failure, not a hang */
        for (; *variables != NULL; variables++) putenv((char *)*variables);
        run();
        fflush(NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) print_error("scenario at %s:%d ended with status %#x\n", file, line, (unsigned)status);
    assert_int_equal(status, 0);
}
#define scenario(run, ...) scenario_at(__FILE__, __LINE__, run, (const char *const[]){__VA_ARGS__})

/* The path of a file in the folder of this test's executable. */
static inline const char *beside_test(const char *name)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    snprintf(strrchr(path, '/') + 1, sizeof path - (size_t)length, "%s", name);
    return path;
}

/* Runs a shell command; its exit status, and its output (both streams) in `output`. */
static inline int shell(const char *command, char *output, size_t size)
{
    fflush(NULL);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t filled = fread(output, 1, size - 1, pipe);
    output[filled] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
