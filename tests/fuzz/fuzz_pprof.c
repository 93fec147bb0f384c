/* A hostile device memory profile of JAX. The input: the unpacked protobuf. */
#include "tests/fuzz/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_foreign(data, size, IMPORT_FORMAT_PPROF);
}

/* ---------------------------------------------------------------- seeds */

void fuzz_seeds(fuzz_put put)
{
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
    put(profile, sizeof profile);
}
