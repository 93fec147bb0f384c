/* Recognises files that users confuse with recordings, and what to do instead. */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include "analyzer/base/text.h"
#include "analyzer/import/import.h"
#include "analyzer/import/protobuf.h"
#include "analyzer/import/unpickle_place.h"

enum { HEAD = 256 };

#define IS_MODEL "a model, not a recording; what it needs: gpuspy estimate --model FILE"
#define NVPROF "a recording of nvprof, which gpuspy does not read; record with nsys profile --trace=cuda,nvtx COMMAND"

static const struct {
    const char *ending, *hint;
} by_name[] = {
    {".nsys-rep", "a report of Nsight Systems; export it first: nsys export --type sqlite FILE"},
    {".qdrep", "a report of Nsight Systems; export it first: nsys export --type sqlite FILE"},
    {".qdstrm", "an unfinished report of Nsight Systems; convert it with QdstrmImporter, then: nsys export --type "
                "sqlite FILE"},
    {".nvvp", NVPROF},
    {".nvprof", NVPROF},
    {".xplane.pb", "a profile of JAX or TensorFlow over time, which gpuspy does not read; record device memory with "
                   "jax.profiler.save_device_memory_profile(\"memory.prof\")"},
    {".py", "a Python script; record it first: gpuspy run -- python FILE"},
    {".safetensors", IS_MODEL},
    {".gguf", IS_MODEL},
    {".ncu-rep", "a report of Nsight Compute, which does not record memory"},
};

static const struct {
    const char *begins;
    size_t n;
    const char *hint;
} by_content[] = {
#define BEGINS(bytes, hint)           \
    {                                 \
        bytes, sizeof bytes - 1, hint \
    }
    BEGINS("\x7f"
           "ELF",
           "a program or a library; record a program: gpuspy run -- FILE"),
    BEGINS("\x28\xb5\x2f\xfd", "packed by zstd, which gpuspy does not read; unpack it first: zstd -d FILE"),
    BEGINS("\xfd"
           "7zXZ",
           "packed by xz, which gpuspy does not read; unpack it first: xz -dk FILE"),
    BEGINS("BZh", "packed by bzip2, which gpuspy does not read; unpack it first: bzip2 -dk FILE"),
    BEGINS("\x1f\x8b", "packed by gzip more than once; unpack it first: gunzip FILE"),
    BEGINS("PK\x03\x04", "a zip archive, which gpuspy does not read; unpack it first: unzip FILE"),
    BEGINS("\xff\xfe", "text in UTF-16, which gpuspy does not read; convert it first: iconv -f UTF-16 -t UTF-8 FILE"),
    BEGINS("\xfe\xff", "text in UTF-16, which gpuspy does not read; convert it first: iconv -f UTF-16 -t UTF-8 FILE"),
};

/* A protobuf that begins with the type of its samples, a pair of two numbers, or with its time, duration and period. */
static bool is_pprof(const unsigned char *head, size_t n)
{
    enum { SAMPLE_TYPE = 1, TIME = 9, DURATION = 10, PERIOD_TYPE = 11 };
    struct import_message m = {head, head + n, false};
    struct import_field f = {0}, type, unit;
    while (import_protobuf_next(&m, &f) && (f.number == TIME || f.number == DURATION) && !f.is_bytes) continue;
    if (m.broken || !f.is_bytes || (f.number != SAMPLE_TYPE && f.number != PERIOD_TYPE)) return false;
    return import_protobuf_next(&f.bytes, &type) && import_protobuf_next(&f.bytes, &unit) && type.number == 1 &&
           unit.number == 2 && !type.is_bytes && !unit.is_bytes && f.bytes.at == f.bytes.end;
}

/* A dict of marshal (the type's byte may have the bit of a reference) whose first key is a tuple of three: file, line
 * and function. */
static bool is_cprofile(const unsigned char *head, size_t n)
{
    return n > 5 && (head[0] & 0x7f) == '{' &&
           (((head[1] & 0x7f) == ')' && head[2] == 3) ||
            ((head[1] & 0x7f) == '(' && memcmp(head + 2, "\3\0\0", 4) == 0));
}

/* Reads the unpacked beginning of a file. `broken`: the file begins as gzip's do, but cannot be unpacked. */
static size_t read_hint_head(const char *path, unsigned char head[HEAD + 1], bool *broken)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: does not wait for a FIFO's writer */
    gzFile file = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? gzdopen(fd, "rb") : NULL;
    const int n = file ? gzread(file, head, HEAD) : 0;
    *broken = file && n <= 0 && !gzdirect(file);
    if (file)
        gzclose(file);
    else if (fd >= 0)
        close(fd);
    head[n > 0 ? n : 0] = 0;
    return n > 0 ? (size_t)n : 0;
}

static const char *hint_of_text(const char *text)
{
    text += strspn(text, " \t\r\n");
    if (strncasecmp(text, "<!doctype html", 14) == 0 || strncasecmp(text, "<html", 5) == 0)
        return "a web page; open it in a browser, or give gpuspy the recording that it was made from";
    if (*text != '{' && *text != '[') return NULL;
    if (strncmp(text, "[[", 2) == 0 && text[2] && strchr("-0123456789", text[2]))
        return "JSON lists of numbers; if these are a memory timeline's curves, save its events instead: "
               "export_memory_timeline(\"timeline.raw.json.gz\")";
    if (strstr(text, "\"architectures\"") || strstr(text, "\"model_type\"")) return IS_MODEL;
    return strstr(text, "\"segments\"") || strstr(text, "\"total_size\"")
               ? "JSON of a PyTorch snapshot; gpuspy reads the pickle that torch.cuda.memory._dump_snapshot() writes"
               : "JSON, but not a trace of torch.profiler: it has no list \"traceEvents\"";
}

/* The hint of a file, in which FILE stands for its name. */
static const char *find_hint(const char *path)
{
    unsigned char head[HEAD + 1];
    bool broken;
    const size_t length = strlen(path), got = read_hint_head(path, head, &broken);
    struct stat st;
    const bool empty = !got && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
    if (empty && !text_ends_with(path, ".py")) return "empty; the recording never began, or its disk was full";
    if (broken) return "packed by gzip, but empty or damaged; copy it again from where it was recorded";
    for (size_t i = 0; i < sizeof by_name / sizeof *by_name; i++) {
        const size_t n = strlen(by_name[i].ending);
        if (length > n && strcmp(path + length - n, by_name[i].ending) == 0) return by_name[i].hint;
    }
    for (size_t i = 0; i < sizeof by_content / sizeof *by_content; i++) {
        if (got < by_content[i].n || memcmp(head, by_content[i].begins, by_content[i].n) != 0) continue;
        return import_is_archive(head, got) ? IMPORT_CHECKPOINT : by_content[i].hint;
    }
    if (is_pprof(head, got))
        return "a pprof profile, but not of the memory of a device; JAX writes one with "
               "jax.profiler.save_device_memory_profile(\"memory.prof\")";
    if (is_cprofile(head, got)) return "a profile of Python's cProfile, which does not record memory";
    return hint_of_text((const char *)head);
}

const char *import_hint(const char *path, char *out, size_t size)
{
    static const char placeholder[] = "FILE";
    const char *hint = find_hint(path), *at = hint ? strstr(hint, placeholder) : NULL;
    char name[PATH_MAX];
    if (!at) return hint;
    text_path_here(name, sizeof name, path);
    text_put(out, size, "%.*s%s%s", (int)(at - hint), hint, name, at + sizeof placeholder - 1);
    return out;
}
