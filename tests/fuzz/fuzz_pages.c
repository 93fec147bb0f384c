/* A database with damaged bytes: SQLite detects most of the damage, and the report must cope with the rest. */
#include "tests/fuzz/databases.h"

#include "tests/unit/events.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t copy[1 << 20];
    char path[300];
    struct fuzz_bytes b = {data, size};
    const uint8_t how = fuzz_u8(&b), base = fuzz_u8(&b);
    size_t bytes;
    const void *begin = fuzz_base(base, &bytes);
    memcpy(copy, begin, bytes);
    if (base > 240) bytes = fuzz_number(&b, 3) % bytes;
    while (b.left && bytes > 16) {
        const size_t at = fuzz_number(&b, 3) % (bytes - 8);
        const uint8_t n = fuzz_u8(&b);
        const uint64_t v = n & 8 ? fuzz_hostile(&b) : fuzz_number(&b, 1 + n % 8);
        memcpy(copy + at, &v, 1 + n % 8);
    }
    snprintf(path, sizeof path, "%s/run.db", fuzz_folder());
    fuzz_unlink_database(path);
    fuzz_write(path, copy, bytes);
    fuzz_report(path, how);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 17;
    put("\0\0", 2);
    for (size_t i = 0; i < 48; i++) {
        uint8_t bytes[64];
        for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)ev_below(&random, 256);
        bytes[1] = (uint8_t)(i < 40 ? i : 255);
        put(bytes, 6 + i);
    }
}
