#include "tests/fuzz/foreign.h"

#include <unistd.h>
#include "analyzer/run/run.h"

void fuzz_import(const char *path, enum import_format format, const char *to)
{
    char error[512] = "";
    if (import_file(path, format, to, NULL, NULL, error, sizeof error)) {
        const char *const paths[] = {to};
        struct run *run = run_open(paths, 1, NULL, error, sizeof error);
        FUZZ_CHECK(run, "%s", error);
        run_close(run);
    } else {
        FUZZ_CHECK(error[0] && !strchr(error, '\n'), "'%s'", error);
        FUZZ_CHECK(access(to, F_OK) != 0, "%s", to);
    }
}

int fuzz_foreign(const uint8_t *data, size_t size, enum import_format format)
{
    char path[300], to[300];
    snprintf(path, sizeof path, "%s/foreign", fuzz_folder());
    snprintf(to, sizeof to, "%s/imported.db", fuzz_folder());
    fuzz_write(path, data, size);
    if (import_format_of(path) != format) {
        char named[768];
        const char *hint = import_hint(path, named, sizeof named);
        FUZZ_CHECK(!hint || !strchr(hint, '\n'), "'%s'", hint);
        return 0;
    }
    fuzz_unlink_database(to);
    fuzz_import(path, format, to);
    return 0;
}
