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
static inline int run_cases(char *names, const CMUnitTestFunction *functions, size_t n, CMFixtureFunction setup,
                            CMFixtureFunction teardown)
{
    struct CMUnitTest *cases = calloc(n, sizeof *cases);

    for (size_t i = 0; i < n; i++) {
        cases[i].name = strtok_r(names, ", ", &names);
        cases[i].test_func = functions[i];
    }
    const int failed = _cmocka_run_group_tests("tests", cases, n, setup, teardown);
    free(cases);
    return failed;
}

/* setup and teardown of all cases together; NULL none. */
#define CASES_WITHIN(setup, teardown, ...)                                                                          \
    int main(void)                                                                                                  \
    {                                                                                                               \
        static const CMUnitTestFunction functions[] = {__VA_ARGS__};                                                \
        return run_cases((char[]){#__VA_ARGS__}, functions, sizeof functions / sizeof *functions, setup, teardown); \
    }
#define CASES(...) CASES_WITHIN(NULL, NULL, __VA_ARGS__)
