/* A recording of another tool's that anybody may have written: snapshot, trace, memory timeline or profile, by its
 * content. The input: the file. What is imported is a recording that opens. */
#include "tests/fuzz/fuzz.h"

#include <string.h>
#include <unistd.h>
#include "analyzer/import/import.h"
#include "analyzer/run/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300], to[300], error[512] = "";
    snprintf(path, sizeof path, "%s/foreign", fuzz_folder());
    snprintf(to, sizeof to, "%s/imported.db", fuzz_folder());
    fuzz_write(path, data, size);
    enum import_format format = import_format_of(path);
    if (!format) return 0;
    fuzz_unlink_database(to);
    if (import_file(path, format, to, NULL, NULL, error, sizeof error)) {
        const char *const paths[] = {to};
        struct run *run = run_open(paths, 1, NULL, error, sizeof error);
        FUZZ_CHECK(run, "%s", error);
        run_close(run);
    } else {
        FUZZ_CHECK(error[0] && !strchr(error, '\n'), "'%s'", error);
        FUZZ_CHECK(access(to, F_OK) != 0, "%s", to);
    }
    return 0;
}

/* ---------------------------------------------------------------- seeds */

#define MEMORY(ts, bytes)                                                                                             \
    "{\"ph\": \"i\", \"name\": \"[memory]\", \"pid\": 1, \"tid\": 1, \"ts\": " ts ", \"args\": {\"Device Type\": 1, " \
    "\"Device Id\": 0, \"Addr\": 4096, \"Bytes\": " bytes ", \"Total Allocated\": 9000, \"Total Reserved\": 9999}}"
#define SLICE(cat, name, ts, args)                                                                          \
    "{\"ph\": \"X\", \"cat\": \"" cat "\", \"name\": \"" name "\", \"pid\": 1, \"tid\": \"1\", \"ts\": " ts \
    ", \"dur\": 5.5, "                                                                                      \
    "\"args\": {" args "}}"

static const char trace[] =
    "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"name\": \"GPU\", \"totalGlobalMem\": 99999}],\n"
    "\"distributedInfo\": {\"rank\": 1}, \"baseTimeNanoseconds\": 7, \"traceEvents\": [\n"       //
    SLICE("python_function", "a.py(3): f", "1", "\"Python id\": 1, \"Python parent id\": 2") "," //
    SLICE("cpu_op", "aten::empty", "1.25", "\"Call stack\": \"a.py(3): f;b.py(4): g\"") ","      //
    MEMORY("2", "512") "," MEMORY("3", "-512") "," MEMORY("4", "-1024") ","                      //
    SLICE("cuda_runtime", "cudaMemcpyAsync", "5", "\"correlation\": 7") ","                      //
    SLICE("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "6",
          "\"correlation\": 7, \"bytes\": 512, \"device\": 0, \"stream\": 7") "," //
    SLICE("cuda_runtime", "cudaStreamSynchronize", "8", "") ","                   //
    SLICE("user_annotation", "ProfilerStep#3", "9", "") "]}";

void fuzz_seeds(fuzz_put put)
{
    static const char timeline[] = "[[-1, 1, 512, 0], [5, 2, 99, 4], [6, 3, -99, 4], [6, 3, 99, 5], [7, 4, -99, 5]]";
    static const char list[] = "[" SLICE("Operator", "aten::\\u00e9\\ud83d\\ude00", "NaN", "\"x\": [[{}]]") "]";
    static const char pickle[] = "(dp0\nS'segments'\np1\n(lp2\ns.";
    static const unsigned char profile[] = {
        0x0a, 4,    8,    1,   16,   2,                                   /* allocations, count */
        0x0a, 4,    8,    3,   16,   4,                                   /* space, bytes */
        0x12, 22,   0x0a, 1,   1,    0x12, 3,    2,   0x80, 8,            /* 2 of 1024 bytes */
        0x1a, 4,    8,    5,   16,   6,    0x1a, 4,   8,    7,    16,  8, /* a buffer of gpu:0 */
        0x2a, 6,    8,    1,   16,   9,    32,   10,                      /* f of a.py */
        0x22, 8,    8,    1,   0x22, 4,    8,    1,   16,   3,            /* its line 3 */
        0x32, 0,    0x32, 11,  'a',  'l',  'l',  'o', 'c',  'a',  't', 'i',  'o', 'n', 's', 0x32, 1,
        'c',  0x32, 5,    's', 'p',  'a',  'c',  'e', 0x32, 1,    'b', 0x32, 4,   'k', 'i', 'n',  'd',
        0x32, 6,    'b',  'u', 'f',  'f',  'e',  'r', 0x32, 6,    'd', 'e',  'v', 'i', 'c', 'e',  0x32,
        5,    'g',  'p',  'u', ':',  '0',  0x32, 1,   'f',  0x32, 4,   'a',  '.', 'p', 'y'};
    put("", 0);
    put(trace, sizeof trace - 1);
    put(trace, sizeof trace / 2);
    put(timeline, sizeof timeline - 1);
    put(list, sizeof list - 1);
    put(pickle, sizeof pickle - 1);
    put(profile, sizeof profile);
}
