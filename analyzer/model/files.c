/* Opens any path that a user may give, and prints errors about it. */
#include "analyzer/model/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/text.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/exit_code.h"

bool model_file_reject(const struct model_file *f, const char *format, ...)
{
    char text[512];
    TEXT_FORMAT(text, sizeof text, format);
    /* "'x.gguf' is cut off", "'x.gguf': tensor 'y' has …" */
    const bool predicate =
        strncmp(text, "is ", 3) == 0 || strncmp(text, "has ", 4) == 0 || strncmp(text, "cannot ", 7) == 0;
    complain("%s: --model: '%s'%s %s", f->command, f->path, predicate ? "" : ":", text);
    *f->exit_code = EXIT_INPUT;
    return false;
}

bool model_file_open(struct model_file *f, const char *command, const char *path, int *exit_code)
{
    struct stat st;

    *f = (struct model_file){command, path, exit_code, -1, 0};
    if (stat(path, &st) != 0) /* before open(), which would wait for a FIFO's writer */
        return model_file_reject(f, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return model_file_reject(f, S_ISDIR(st.st_mode) ? "is a folder; give a file" : "is not a regular file");
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0) return model_file_reject(f, "cannot be read: %s", strerror(errno));
    if (fstat(f->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        model_file_close(f);
        return model_file_reject(f, "is not a regular file");
    }
    f->size = (uint64_t)st.st_size;
    return true;
}

void model_file_close(struct model_file *f)
{
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
}

bool model_file_read(struct model_file *f, uint64_t at, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = at + done > INT64_MAX ? 0 : pread(f->fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return model_file_reject(f, "cannot be read: %s", strerror(errno));
        if (got == 0) return model_file_reject(f, "is cut off: it ends after %ju bytes", (uintmax_t)(at + done));
        done += (size_t)got;
    }
    return true;
}

char *model_file_all(struct model_file *f, size_t most, size_t *n)
{
    char *bytes;

    if (f->size > most) {
        model_file_reject(f, "has %ju bytes; gpuspy reads at most %zu as JSON", (uintmax_t)f->size, most);
        return NULL;
    }
    *n = (size_t)f->size;
    bytes = arena_realloc(NULL, *n + 1, 1);
    bytes[*n] = 0;
    if (model_file_read(f, 0, bytes, *n)) return bytes;
    free(bytes);
    return NULL;
}

/* The length of the path's folder, including the slash. */
static size_t is_model_folder(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? (size_t)(slash + 1 - path) : 0;
}

char *model_beside(const char *path, const char *name)
{
    size_t folder = is_model_folder(path), n = strlen(name) + 1;
    char *out = arena_realloc(NULL, folder + n, 1);

    memcpy(out, path, folder);
    memcpy(out + folder, name, n);
    return out;
}

/* "-00002-of-00005" */
enum { PART = 15, PARTS_MAX = 10000 };

uint64_t model_parts(const char *path, const char *ending)
{
    const size_t n = strlen(path), k = strlen(ending);
    uint64_t count = 0;

    if (n < k + PART || strcmp(path + n - k, ending) != 0) return 0;
    const char *part = path + n - k - PART;
    if (part[0] != '-' || strncmp(part + 6, "-of-", 4) != 0 || strspn(part + 1, "0123456789") != 5) return 0;
    for (int i = 10; i < PART; i++) {
        if (part[i] < '0' || part[i] > '9') return 0;
        count = count * 10 + (uint64_t)(part[i] - '0');
    }
    return count <= PARTS_MAX ? count : 0;
}

char *model_part(const char *path, const char *ending, uint64_t no)
{
    const size_t n = strlen(path);
    char *out = arena_realloc(NULL, n + 1, 1), digits[24];

    memcpy(out, path, n + 1);
    snprintf(digits, sizeof digits, "%05ju", (uintmax_t)no);
    memcpy(out + n - strlen(ending) - PART + 1, digits, 5);
    return out;
}

char *model_config_beside(const char *path)
{
    char *config = model_beside(path, "config.json");

    if (access(config, F_OK) == 0) return config;
    free(config);
    return NULL;
}

/* In Hugging Face's cache, "…/models--owner--name/snapshots/0123…", the name "owner/name". `begin` and `end`: the part
 * of the path that may be a commit's folder. */
static bool name_in_cache(const char *path, size_t begin, size_t end, char *out, size_t size)
{
    static const char snapshots[] = "/snapshots/", models[] = "models--";
    const size_t n = sizeof snapshots - 1;
    char part[256];
    size_t at = 0;

    if (end - begin != 40 || begin < n || memcmp(path + begin - n, snapshots, n) != 0) return false;
    end = begin - n;
    for (begin = end; begin > 0 && path[begin - 1] != '/';) begin--;
    if (end - begin <= sizeof models - 1 || memcmp(path + begin, models, sizeof models - 1) != 0) return false;
    for (size_t i = begin + sizeof models - 1; i < end && at < sizeof part - 1; i++) {
        const bool slash = path[i] == '-' && path[i + 1] == '-';
        part[at++] = slash ? '/' : path[i];
        i += slash;
    }
    part[at] = 0;
    terminal_clean(out, size, part, true);
    return true;
}

void model_name_of(const char *path, char *out, size_t size)
{
    static const char *const common[] = {"config.json", "model.safetensors", "model.safetensors.index.json",
                                         "adapter_model.safetensors"};
    size_t folder = is_model_folder(path), end = strlen(path);
    char part[256];

    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (strcmp(path + folder, common[i]) == 0) end = folder;
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (begin == end || (end - begin <= 2 && path[begin] == '.')) { /* "", ".", "..": not a name */
        begin = folder;
        end = strlen(path);
    }
    if (name_in_cache(path, begin, end, out, size)) return;
    snprintf(part, sizeof part, "%.*s", (int)(end - begin > 250 ? 250 : end - begin), path + begin);
    terminal_clean(out, size, part, true);
}
