/* Which PyTorch a library belongs to: the version comes from its files only. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "interpose/torch_version.h"

static char folder[] = "/tmp/torch-version-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *version_with(const char *file, const char *text)
{
    static char version[64];
    FILE *out = fopen(in_folder(file), "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    strcpy(version, "untouched");
    char module[256];
    snprintf(module, sizeof module, "%s", in_folder("lib/libc10_cuda.so"));
    const bool found = gs_torch_version(module, version, sizeof version);
    unlink(in_folder(file));
    return found ? version : NULL;
}

static void test_wheel(void **state)
{
    (void)state;
    assert_string_equal(version_with("version.py", "__version__ = '2.6.0+cu124'\ndebug = False\n"), "2.6.0+cu124");
    assert_string_equal(version_with("version.py", "from typing import Optional\n\n"
                                                   "__all__ = ['__version__', 'debug']\n"
                                                   "__version__ = '2.11.0+cu130'\n"),
                        "2.11.0+cu130");
    assert_string_equal(version_with("version.py", "__version__: str = \"2.16.0a0+git1234567\"\n"),
                        "2.16.0a0+git1234567");
    assert_string_equal(version_with("version.py", "__version__ = '1.13.1'"), "1.13.1");
}

static void test_library(void **state)
{
    (void)state;
    assert_string_equal(version_with("build-version", "2.5.1+cu121\n"), "2.5.1+cu121");
}

static void test_no_version(void **state)
{
    (void)state;
    static const char *const texts[] = {"",
                                        "__version__",
                                        "__version__ = ",
                                        "__version__ = '",
                                        "__version__ = 'abc'",
                                        "__version__ = '2'",
                                        "__version__ = '2.'",
                                        "__version__ = version()",
                                        "x = '__version__ = 2.1'",
                                        " __version__ = '2.6.0'"};
    char lengthy[4096] = "__version__ = '2.6.";
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_null(version_with("version.py", texts[i]));
    memset(lengthy + strlen(lengthy), '1', sizeof lengthy - strlen(lengthy) - 1);
    assert_null(version_with("version.py", lengthy));
    assert_null(version_with("build-version", lengthy));
    char version[64];
    assert_false(gs_torch_version("", version, sizeof version));
    assert_false(gs_torch_version("libc10_cuda.so", version, sizeof version));
    assert_false(gs_torch_version("/", version, sizeof version));
    mkfifo(in_folder("version.py"), 0600); /* has no writer: reading must not wait */
    assert_false(gs_torch_version(in_folder("lib/libc10_cuda.so"), version, sizeof version));
    unlink(in_folder("version.py"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_wheel), cmocka_unit_test(test_library),
                                       cmocka_unit_test(test_no_version)};
    if (!mkdtemp(folder)) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
