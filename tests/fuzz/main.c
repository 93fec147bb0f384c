/* Runs a fuzz target without a fuzzer: on its seeds, and on the inputs that once found an error.
 *
 *   test_fuzz_NAME               all of them, with a line of TAP for each of the two
 *   test_fuzz_NAME --seeds DIR   writes the seeds, for a fuzzer to start from
 *   test_fuzz_NAME FILE...       these inputs */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <unistd.h>

static FILE *out; /* the targets may print to stdout */
static const char *seeds_to;
static unsigned count;

static void feed(const void *bytes, size_t size)
{
    /* in its own block of exactly this size, so that sanitizers detect reads past its end */
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy, "no memory");
    memcpy(copy, bytes, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    count++;
}

static void feed_seed(const void *bytes, size_t size)
{
    fprintf(stderr, "# seed %u, %zu bytes\n", count, size); /* identifies the seed if the target crashes */
    feed(bytes, size);
}

static void write_seed(const void *bytes, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/seed-%03u", seeds_to, count++);
    fuzz_write(path, bytes, size);
}

static void feed_file(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *f = fopen(path, "rbe");
    FUZZ_CHECK(f, "%s", path);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    fprintf(stderr, "# %s\n", path);
    feed(bytes, n);
}

static void feed_folder(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char file[1024];
        snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
        if (names[i]->d_name[0] != '.') feed_file(file);
        free(names[i]);
    }
    if (n >= 0) free(names);
}

static void hide_stdout(void)
{
    int fd = dup(STDOUT_FILENO);
    out = fd < 0 ? NULL : fdopen(fd, "w");
    FUZZ_CHECK(out && freopen("/dev/null", "w", stdout), "stdout");
    setvbuf(out, NULL, _IOLBF, 0);
}

int main(int argc, char **argv)
{
    const char *name = strstr(argv[0], "fuzz_");
    char found[512];
    hide_stdout();
    if (argc == 3 && !strcmp(argv[1], "--seeds")) {
        seeds_to = argv[2];
        fuzz_seeds(write_seed);
        return 0;
    }
    for (int i = 1; i < argc; i++) feed_file(argv[i]);
    if (argc > 1) return 0;
    while (name && strstr(name + 1, "fuzz_")) name = strstr(name + 1, "fuzz_");
    fprintf(out, "1..2\n");
    fuzz_seeds(feed_seed);
    fprintf(out, "%s 1 - %u seeds\n", count ? "ok" : "not ok", count);
    count = 0;
    snprintf(found, sizeof found, "tests/fuzz/found/%s", name ? name + strlen("fuzz_") : "");
    feed_folder(found);
    fprintf(out, "ok 2 - %u inputs that once found something\n", count);
    return 0;
}
