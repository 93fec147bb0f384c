/* The tables generated from cuda_api.def, and the look-up by name. */
#include "tests/cases.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interpose/api.h"
#include "interpose/resolve.h"

static void every_row_has_a_name_and_a_wrapper(void **state)
{
    for (int i = 1; i < GS_API_CUDA_END; i++) {
        assert_non_null(gs_apis[i].name);
        assert_int_equal(strncmp(gs_apis[i].name, "cu", 2), 0);
        int runtime = strncmp(gs_apis[i].name, "cuda", 4) == 0;
        assert_int_not_equal(gs_apis[i].versions, 0);
        for (int v = 0; v < GS_VERSIONS; v++) {
            bool wanted = runtime ? gs_apis[i].versions >> v & 1 : v == GS_VERSION_DRIVER;
            assert_int_equal(gs_wrappers[i][v] != NULL, wanted);
        }
        assert_int_equal(gs_apis[i].library, runtime ? GS_LIBRARY_RT : GS_LIBRARY_DRV);
    }
    assert_null(gs_apis[GS_API_NONE].name);
}

/* Also: two rows of one name must have no version in common, otherwise the second would not be found. */
static bool found_in_each_version(int row)
{
    bool found = gs_api_known(gs_apis[row].name);
    for (int v = 0; v < GS_VERSIONS; v++)
        if (gs_apis[row].versions >> v & 1) found &= gs_api_find(gs_apis[row].name, (enum gs_version)v) == row;
    return found;
}

static void every_name_is_found_and_is_unique(void **state)
{
    for (int i = 1; i < GS_API_CUDA_END; i++) assert_true(found_in_each_version(i));
}

static void only_exact_names_are_found(void **state)
{
    static const char *const others[] = {"",
                                         "c",
                                         "cu",
                                         "cuda",
                                         "cudaMallo",
                                         "cudaMallocX",
                                         "CUDAMALLOC",
                                         "cudnnCreate",
                                         "cublasCreate",
                                         "curandCreate",
                                         "cudaMalloc_v2",
                                         "dlsym",
                                         "printf",
                                         "cuMemAlloc_v3",
                                         "cudaMalloc "};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(gs_api_known(others[i]));
    for (int i = 1; i < GS_API_CUDA_END; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s_", gs_apis[i].name);
        assert_false(gs_api_known(name));
    }
}

static void *look_up_everything(void *failed)
{
    for (int round = 0; round < 100; round++)
        for (int i = 1; i < GS_API_CUDA_END; i++)
            if (!found_in_each_version(i)) *(int *)failed = 1;
    return NULL;
}

static void threads_may_look_up_first(void **state)
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

static void a_runtime_is_known_by_its_versions(void **state)
{
    static const char *const file[GS_VERSIONS] = {"libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"};
    for (int v = 0; v < GS_VERSIONS; v++) {
        char from[512], to[512], command[1200];
        const char *build = getenv("O");
        snprintf(from, sizeof from, "%s/sim/%s", build ? build : "build", file[v]);
        snprintf(to, sizeof to, "%s/tests/unit/renamed-%d.so", build ? build : "build", v);
        snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
        assert_int_equal(system(command), 0);
        void *handle = dlopen(to, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(handle);
        assert_int_equal(gs_runtime_version(handle), v);
        assert_int_equal(gs_runtime_version_at(gs_real_dlsym(handle, "cudaMalloc")), v);
        dlclose(handle);
        unlink(to);
    }
    assert_int_equal(gs_runtime_version_at((void *)gs_real_dlsym(NULL, "strlen")), GS_VERSION_NONE);
    assert_int_equal(gs_runtime_version_at(state), GS_VERSION_NONE);
}

/* threads_may_look_up_first must be the first: it fills the table. */
CASES(threads_may_look_up_first, every_row_has_a_name_and_a_wrapper, every_name_is_found_and_is_unique,
      only_exact_names_are_found, the_real_dlsym_is_the_c_librarys, a_runtime_is_known_by_its_versions)
