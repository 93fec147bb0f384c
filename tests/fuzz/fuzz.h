/* What a fuzz target is, and what all of them share.
 *
 * A target takes any bytes (LLVMFuzzerTestOneInput) as a description of hostile input to one part of gpuspy, and runs
 * that part in its own process. An error shows as a crash, as a sanitizer's report or as a FUZZ_CHECK that fails. The
 * target offers some inputs to start from (fuzz_seeds).
 * `make fuzz` links it with libFuzzer; `make test` with main.c, which feeds it its seeds and the files of
 * tests/fuzz/found/NAME: inputs that once found an error. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
typedef void (*fuzz_put)(const void *bytes, size_t size);
void fuzz_seeds(fuzz_put put);

#define FUZZ_CHECK(holds, ...)                                                  \
    do {                                                                        \
        if (!(holds)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #holds); \
            fprintf(stderr, __VA_ARGS__);                                       \
            fputc('\n', stderr);                                                \
            abort();                                                            \
        }                                                                       \
    } while (0)

/* ---------------------------------------------------------------- reading the input
 * Past its end everything is 0. */

struct fuzz_bytes {
    const uint8_t *at;
    size_t left;
};

static inline uint64_t fuzz_number(struct fuzz_bytes *b, size_t bytes)
{
    uint64_t n = 0;
    for (size_t i = 0; i < bytes && b->left; i++, b->left--) n |= (uint64_t)*b->at++ << (8 * i);
    return n;
}

static inline uint8_t fuzz_u8(struct fuzz_bytes *b)
{
    return (uint8_t)fuzz_number(b, 1);
}

/* A string of at most `most` bytes; it is not terminated. */
static inline const void *fuzz_part(struct fuzz_bytes *b, size_t most, size_t *bytes)
{
    const void *at = b->at;
    *bytes = most < b->left ? most : b->left;
    b->at += *bytes;
    b->left -= *bytes;
    return at;
}

/* A number that is small, hostile, or arbitrary, as the next byte chooses. */
static inline uint64_t fuzz_hostile(struct fuzz_bytes *b)
{
    static const uint64_t odd[] = {
        UINT64_MAX, INT64_MAX,  (uint64_t)INT64_MIN, UINT64_MAX - 1, UINT32_MAX,    INT32_MAX, 1ull << 32, 1ull << 31,
        1ull << 62, 1ull << 53, 1ull << 48,          1ull << 40,     1000000000ull, 65535,     65536,      4096,
    };
    const uint8_t how = fuzz_u8(b);
    if (how < 192) return how;
    if (how < 208) return odd[how - 192];
    if (how < 232) return (uint64_t)(how - 208) << 20;
    return fuzz_number(b, how < 244 ? 4 : 8);
}

/* ---------------------------------------------------------------- files
 * In memory where the system has such a folder: the targets write thousands of databases. */

const char *fuzz_folder(void); /* the first call makes it; removed at exit */
void fuzz_write(const char *path, const void *bytes, size_t size);
void fuzz_unlink_database(const char *path); /* and the files that belong to it */
