/* A hostile torch.profiler trace or memory timeline. The input: the JSON. */
#include "tests/fuzz/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_foreign(data, size, IMPORT_FORMAT_TRACE);
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
    put("", 0);
    put(trace, sizeof trace - 1);
    put(trace, sizeof trace / 2);
    put(timeline, sizeof timeline - 1);
    put(list, sizeof list - 1);
}
