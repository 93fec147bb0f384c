/* What every cmocka program includes, and its main: CASES(test_a, test_b) at the end of the file. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

/* `names`: those of the functions, with commas. */
static inline int run_cases(char *names, const CMUnitTestFunction *functions, size_t n, CMFixtureFunction first,
                            CMFixtureFunction last, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    struct CMUnitTest *cases = calloc(n, sizeof *cases);

    for (size_t i = 0; i < n; i++)
        cases[i] = (struct CMUnitTest){strtok_r(names, ", ", &names), functions[i], setup, teardown, NULL};
    const int failed = _cmocka_run_group_tests("tests", cases, n, first, last);
    free(cases);
    return failed;
}

/* NULL or functions that run before and after all cases together, and before and after each of them. */
#define CASES_BETWEEN(first, last, setup, teardown, ...)                                                              \
    int main(void)                                                                                                    \
    {                                                                                                                 \
        static const CMUnitTestFunction functions[] = {__VA_ARGS__};                                                  \
        return run_cases((char[]){#__VA_ARGS__}, functions, sizeof functions / sizeof *functions, first, last, setup, \
                         teardown);                                                                                   \
    }
#define CASES(...) CASES_BETWEEN(NULL, NULL, NULL, NULL, __VA_ARGS__)
#define CASES_WITHIN(first, last, ...) CASES_BETWEEN(first, last, NULL, NULL, __VA_ARGS__)
#define CASES_EACH(setup, teardown, ...) CASES_BETWEEN(NULL, NULL, setup, teardown, __VA_ARGS__)
