/* The fuzz targets' files. */
#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static pid_t owner;

static void remove_folder(void)
{
    char command[300];
    if (owner != getpid() || getenv("FUZZ_KEEP")) return; /* kept for inspection */
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) perror(folder);
}

const char *fuzz_folder(void)
{
    if (*folder) return folder;
    const char *base = getenv("TMPDIR");
    if (!access("/dev/shm", W_OK)) base = "/dev/shm";
    snprintf(folder, sizeof folder, "%s/gpuspy-fuzz-XXXXXX", base && *base ? base : "/tmp");
    FUZZ_CHECK(mkdtemp(folder), "%s", folder);
    owner = getpid();
    atexit(remove_folder);
    return folder;
}

void fuzz_write(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "wbe");
    FUZZ_CHECK(f, "%s", path);
    FUZZ_CHECK(fwrite(bytes, 1, size, f) == size && fclose(f) == 0, "%s", path);
}

void fuzz_unlink_database(const char *path)
{
    static const char *const beside[] = {"", "-wal", "-shm", "-journal", ".spool"};
    char name[512];
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(name, sizeof name, "%s%s", path, beside[i]);
        unlink(name);
    }
}
