#include "analyzer/import/unpickle_place.h"

#include <string.h>

/* In a zip archive of torch.save, the first file is "NAME/data.pkl", stored as it is and padded by an extra field. */
static size_t begins_in_archive(const unsigned char *head, size_t n)
{
    enum { METHOD = 8, NAME_LENGTH = 26, EXTRA_LENGTH = 28, NAME = 30 };
    static const char magic[] = "PK\x03\x04", entry[] = "/data.pkl";
    const size_t least = sizeof entry - 1;
    if (n < NAME || memcmp(head, magic, sizeof magic - 1) != 0 || head[METHOD] || head[METHOD + 1]) return 0;
    const size_t name = (size_t)head[NAME_LENGTH] | (size_t)head[NAME_LENGTH + 1] << 8;
    const size_t extra = (size_t)head[EXTRA_LENGTH] | (size_t)head[EXTRA_LENGTH + 1] << 8;
    if (name < least || name > n - NAME || memcmp(head + NAME + name - least, entry, least) != 0) return 0;
    return NAME + name + extra < n ? NAME + name + extra : 0;
}

static size_t begins_in_page(const unsigned char *head, size_t n)
{
    static const char key[] = "\"base64\": \"";
    size_t at = 0;
    while (at < n && head[at] && strchr(" \t\r\n", head[at])) at++;
    if (at == n || head[at] != '<') return 0;
    const unsigned char *found = memmem(head, n, key, sizeof key - 1);
    return found ? (size_t)(found - head) + sizeof key - 1 : 0;
}

bool import_is_archive(const unsigned char *head, size_t n)
{
    return begins_in_archive(head, n) > 0;
}

/* -1 for a character that is not one of base64's. */
static int digit_of(unsigned char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* In place: the bytes are fewer than their digits. Ends at the first other character. */
static size_t decode_digits(struct import_pickle_place *place, unsigned char *buffer, size_t from, size_t n)
{
    size_t to = 0;
    for (size_t i = from; i < n && !place->has_ended; i++) {
        const int digit = digit_of(buffer[i]);
        place->has_ended = digit < 0;
        if (digit < 0) break;
        place->bits = place->bits << 6 | (uint32_t)digit;
        place->bits_n = (uint8_t)(place->bits_n + 6);
        if (place->bits_n < 8) continue;
        place->bits_n = (uint8_t)(place->bits_n - 8);
        buffer[to++] = (unsigned char)(place->bits >> place->bits_n);
    }
    return to;
}

size_t import_pickle_bytes(struct import_pickle_place *place, unsigned char *buffer, size_t n)
{
    size_t from = 0;
    if (!place->is_found) {
        const size_t page = begins_in_page(buffer, n);
        place->is_found = true;
        place->is_base64 = page > 0;
        place->at = from = page ? page : begins_in_archive(buffer, n);
    }
    if (place->is_base64) return decode_digits(place, buffer, from, n);
    if (from) memmove(buffer, buffer + from, n - from);
    return n - from;
}
