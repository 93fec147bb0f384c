/* The tables generated from cuda_api.def, and the look-up by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "interpose/api.h"
#include "interpose/resolve.h"

static void every_row_has_a_name_and_a_wrapper(void **state)
{
    for (int i = 1; i < GS_API_CUDA_END; i++) {
        assert_non_null(gs_apis[i].name);
        assert_non_null(gs_wrappers[i]);
        assert_int_equal(strncmp(gs_apis[i].name, "cu", 2), 0);
        int runtime = strncmp(gs_apis[i].name, "cuda", 4) == 0;
        assert_int_equal(gs_apis[i].library, runtime ? GS_LIBRARY_RT : GS_LIBRARY_DRV);
    }
    assert_null(gs_apis[GS_API_NONE].name);
    assert_true(GS_API_COUNT <= UINT16_MAX);
}

static void every_name_is_found_and_is_unique(void **state)
{
    for (int i = 1; i < GS_API_CUDA_END; i++) assert_int_equal(gs_api_find(gs_apis[i].name), i);
}

static void only_exact_names_are_found(void **state)
{
    static const char *const others[] = {
        "",          "c",           "cu",           "cuda",         "cudaMallo",     "cudaMallocX",
        "CUDAMALLOC", "cudnnCreate", "cublasCreate", "curandCreate", "cudaMalloc_v2", "dlsym",
        "printf",    "cuMemAlloc_v3", "cudaMalloc "};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(gs_api_find(others[i]), GS_API_NONE);
    for (int i = 1; i < GS_API_CUDA_END; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s_", gs_apis[i].name);
        assert_int_equal(gs_api_find(name), GS_API_NONE);
    }
}

static void *look_up_everything(void *failed)
{
    for (int round = 0; round < 100; round++)
        for (int i = 1; i < GS_API_CUDA_END; i++)
            if (gs_api_find(gs_apis[i].name) != i) *(int *)failed = 1;
    return NULL;
}

static void threads_may_be_the_first_to_ask(void **state)
{
    pthread_t thread[8];
    int failed[8] = {0};
    for (int i = 0; i < 8; i++) pthread_create(&thread[i], NULL, look_up_everything, &failed[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(failed[i], 0);
    }
}

static void the_real_dlsym_is_the_c_librarys(void **state)
{
    gs_real_find();
    assert_non_null(gs_dlsym_at);
    assert_non_null(gs_dlvsym_at);
    assert_ptr_not_equal(gs_dlsym_at, gs_dlvsym_at);
    assert_ptr_equal(gs_real_dlsym(NULL, "strlen"), gs_real_dlsym(NULL, "strlen"));
    assert_non_null(gs_real_dlsym(NULL, "strlen"));
    assert_null(gs_real_dlsym(NULL, "no_such_function_anywhere"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_may_be_the_first_to_ask), /* first: it fills the table */
        cmocka_unit_test(every_row_has_a_name_and_a_wrapper),
        cmocka_unit_test(every_name_is_found_and_is_unique),
        cmocka_unit_test(only_exact_names_are_found),
        cmocka_unit_test(the_real_dlsym_is_the_c_librarys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
