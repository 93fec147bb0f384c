/* A hostile recording of another tool: snapshot, trace, memory timeline or profile, depending on its content. The
 * input: the file. If gpuspy imports it, the result must open. */
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
    if (!format) {
        const char *hint = import_hint(path);
        FUZZ_CHECK(!hint || !strchr(hint, '\n'), "'%s'", hint);
        return 0;
    }
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
    /* A segment, a block, a history without free_requested, with its own frames, an OOM; protocol 2. */
    /* clang-format off */
    static const unsigned char snapshot[] = {
        128, 2, 125, 113, 0, 40, 88, 8, 0, 0, 0, 115, 101, 103, 109, 101, 110, 116, 115, 113, 1, 93, 113, 2, 125,
        113, 3, 40, 88, 6, 0, 0, 0, 100, 101, 118, 105, 99, 101, 113, 4, 75, 0, 88, 7, 0, 0, 0, 97, 100, 100, 114,
        101, 115, 115, 113, 5, 77, 0, 16, 88, 10, 0, 0, 0, 116, 111, 116, 97, 108, 95, 115, 105, 122, 101, 113, 6,
        74, 0, 0, 32, 0, 88, 6, 0, 0, 0, 98, 108, 111, 99, 107, 115, 113, 7, 93, 113, 8, 125, 113, 9, 40, 104, 5, 77,
        0, 16, 88, 4, 0, 0, 0, 115, 105, 122, 101, 113, 10, 77, 0, 2, 88, 14, 0, 0, 0, 114, 101, 113, 117, 101, 115,
        116, 101, 100, 95, 115, 105, 122, 101, 113, 11, 77, 0, 2, 88, 5, 0, 0, 0, 115, 116, 97, 116, 101, 113, 12,
        88, 16, 0, 0, 0, 97, 99, 116, 105, 118, 101, 95, 97, 108, 108, 111, 99, 97, 116, 101, 100, 113, 13, 88, 6, 0,
        0, 0, 102, 114, 97, 109, 101, 115, 113, 14, 93, 113, 15, 125, 113, 16, 40, 88, 8, 0, 0, 0, 102, 105, 108,
        101, 110, 97, 109, 101, 113, 17, 88, 4, 0, 0, 0, 97, 46, 112, 121, 113, 18, 88, 4, 0, 0, 0, 108, 105, 110,
        101, 113, 19, 75, 3, 88, 4, 0, 0, 0, 110, 97, 109, 101, 113, 20, 88, 1, 0, 0, 0, 102, 113, 21, 117, 97, 117,
        97, 117, 97, 88, 13, 0, 0, 0, 100, 101, 118, 105, 99, 101, 95, 116, 114, 97, 99, 101, 115, 113, 22, 93, 113,
        23, 93, 113, 24, 40, 125, 113, 25, 40, 88, 6, 0, 0, 0, 97, 99, 116, 105, 111, 110, 113, 26, 88, 13, 0, 0, 0,
        115, 101, 103, 109, 101, 110, 116, 95, 97, 108, 108, 111, 99, 113, 27, 88, 4, 0, 0, 0, 97, 100, 100, 114,
        113, 28, 77, 0, 16, 104, 10, 77, 0, 2, 88, 6, 0, 0, 0, 115, 116, 114, 101, 97, 109, 113, 29, 75, 0, 88, 7, 0,
        0, 0, 116, 105, 109, 101, 95, 117, 115, 113, 30, 75, 1, 104, 14, 93, 113, 31, 117, 125, 113, 32, 40, 104, 26,
        88, 5, 0, 0, 0, 97, 108, 108, 111, 99, 113, 33, 104, 28, 77, 0, 16, 104, 10, 77, 0, 2, 104, 29, 75, 0, 104,
        30, 75, 2, 104, 14, 93, 113, 34, 40, 104, 16, 125, 113, 35, 40, 104, 17, 104, 18, 104, 19, 75, 4, 104, 20,
        104, 21, 117, 101, 117, 125, 113, 36, 40, 104, 26, 88, 14, 0, 0, 0, 102, 114, 101, 101, 95, 99, 111, 109,
        112, 108, 101, 116, 101, 100, 113, 37, 104, 28, 77, 0, 16, 104, 10, 77, 0, 2, 104, 29, 75, 0, 104, 30, 75, 3,
        104, 14, 93, 113, 38, 40, 125, 113, 39, 40, 104, 17, 104, 18, 104, 19, 75, 3, 104, 20, 104, 21, 117, 125,
        113, 40, 40, 104, 17, 104, 18, 104, 19, 75, 4, 104, 20, 104, 21, 117, 101, 117, 125, 113, 41, 40, 104, 26,
        104, 33, 104, 28, 77, 0, 16, 104, 10, 77, 0, 2, 104, 29, 75, 0, 104, 30, 75, 4, 104, 14, 93, 113, 42, 104,
        16, 97, 88, 7, 0, 0, 0, 112, 111, 111, 108, 95, 105, 100, 113, 43, 75, 0, 75, 1, 134, 113, 44, 117, 125, 113,
        45, 40, 104, 26, 88, 3, 0, 0, 0, 111, 111, 109, 113, 46, 88, 11, 0, 0, 0, 100, 101, 118, 105, 99, 101, 95,
        102, 114, 101, 101, 113, 47, 75, 9, 104, 10, 75, 99, 104, 14, 93, 113, 48, 117, 101, 97, 117, 46};
    /* clang-format on */
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
    put(snapshot, sizeof snapshot);
}
