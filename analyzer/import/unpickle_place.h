/* Where a file contains its pickle: at its beginning, as the first file of an archive of torch.save, which is not
 * compressed, or in base64 in a page of PyTorch's memory_viz. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct import_pickle_place {
    size_t at; /* the index of its first byte, or of its first digit of base64 */
    bool is_found, is_base64, has_ended;
    uint32_t bits; /* of base64: what was read of the next three bytes */
    uint8_t bits_n;
};

/* Whether the file is an archive of torch.save, whose pickle need not be a snapshot. */
bool import_is_archive(const unsigned char *head, size_t n);
/* Replaces the next bytes of the file by those of the pickle. The first call, with `place` zeroed, gets the beginning
 * of the file. Returns their number, 0 at the end of the pickle. */
size_t import_pickle_bytes(struct import_pickle_place *place, unsigned char *buffer, size_t n);
