/* Anyone may have made the file: sizes and offsets are checked, and what is wrong is left to libdw. */
#include "analyzer/symbol/sections.h"

#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "analyzer/base/arena.h"

enum { ZLIB_HEADER = 2, RATIO_MAX = 1100 /* of deflate */, PIECE = 1 << 16 };
enum { SET_HEADER = 12, SET_RANGES = 16, RANGE = 16 }; /* of .debug_aranges, with addresses of 8 bytes */

struct symbol_sections {
    uint8_t *info, *ranges;
    size_t info_n, ranges_n;
    z_stream stream; /* of .debug_info; total_out bytes are inflated */
};

static const char *const left_out[] = {".debug_loc",          ".debug_loclists",    ".debug_macro",    ".debug_macinfo",
                                       ".debug_frame",        ".debug_pubnames",    ".debug_pubtypes", ".debug_aranges",
                                       ".debug_gnu_pubnames", ".debug_gnu_pubtypes"};

static Elf_Scn *compressed_section(Elf *elf, const char *name, GElf_Shdr *head)
{
    size_t names;
    if (elf_getshdrstrndx(elf, &names) != 0) return NULL;
    for (Elf_Scn *s = NULL; (s = elf_nextscn(elf, s));) {
        const char *its = gelf_getshdr(s, head) ? elf_strptr(elf, names, head->sh_name) : NULL;
        if (its && head->sh_flags & SHF_COMPRESSED && head->sh_type == SHT_PROGBITS && strcmp(its, name) == 0) return s;
    }
    return NULL;
}

/* A stream of the section's content, and room for it, zeroed. The checksum after it is not computed. NULL: it is
 * compressed otherwise. */
static uint8_t *begin_section(Elf_Scn *section, z_stream *stream, size_t *size)
{
    GElf_Chdr chdr;
    Elf_Data *raw = elf_rawdata(section, NULL);
    const size_t header = sizeof(Elf64_Chdr);
    if (!raw || raw->d_size < header + ZLIB_HEADER || !gelf_getchdr(section, &chdr)) return NULL;
    const uint8_t *from = (const uint8_t *)raw->d_buf + header;
    const size_t n = raw->d_size - header;
    if (chdr.ch_type != ELFCOMPRESS_ZLIB || (from[0] & 15) != Z_DEFLATED || from[1] & 32 || n > UINT32_MAX ||
        !chdr.ch_size || chdr.ch_size > UINT32_MAX || chdr.ch_size / RATIO_MAX > n)
        return NULL;
    *stream = (z_stream){.next_in = (z_const Bytef *)from + ZLIB_HEADER, .avail_in = (uInt)(n - ZLIB_HEADER)};
    uint8_t *room = inflateInit2(stream, -MAX_WBITS) == Z_OK ? calloc(1, chdr.ch_size) : NULL;
    if (!room) inflateEnd(stream);
    *size = chdr.ch_size;
    return room;
}

static bool inflate_to(z_stream *stream, uint8_t *room, size_t end)
{
    stream->next_out = room + stream->total_out;
    stream->avail_out = end > stream->total_out ? (uInt)(end - stream->total_out) : 0;
    while (stream->avail_out && inflate(stream, Z_NO_FLUSH) == Z_OK) continue;
    return stream->total_out >= end;
}

static bool read_ranges(struct symbol_sections *s, Elf *elf)
{
    GElf_Shdr head;
    Elf_Scn *section = compressed_section(elf, ".debug_aranges", &head);
    z_stream stream;
    s->ranges = section ? begin_section(section, &stream, &s->ranges_n) : NULL;
    if (!s->ranges) return false;
    const bool whole = inflate_to(&stream, s->ranges, s->ranges_n);
    inflateEnd(&stream);
    return whole;
}

/* libdw then reads the section from that memory: by one of these two, depending on its version. */
static bool replace_info(struct symbol_sections *s, Elf *elf)
{
    GElf_Shdr head;
    Elf_Scn *section = compressed_section(elf, ".debug_info", &head);
    s->info = section ? begin_section(section, &s->stream, &s->info_n) : NULL;
    if (!s->info) return false;
    Elf_Data *const both[] = {elf_rawdata(section, NULL), elf_getdata(section, NULL)};
    head.sh_flags &= ~(GElf_Xword)SHF_COMPRESSED;
    head.sh_size = s->info_n;
    if (!gelf_update_shdr(section, &head)) return false;
    for (size_t i = 0; i < 2; i++)
        if (both[i])
            *both[i] = (Elf_Data){.d_buf = s->info, .d_size = s->info_n, .d_version = EV_CURRENT, .d_align = 1};
    return true;
}

struct symbol_sections *symbol_sections_new(Elf *elf)
{
    const char *ident = elf ? elf_getident(elf, NULL) : NULL;
    const int here = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    if (!ident || ident[EI_CLASS] != ELFCLASS64 || ident[EI_DATA] != here) return NULL;
    struct symbol_sections *s = arena_zeroed(1, sizeof *s);
    const bool lazy = read_ranges(s, elf) && replace_info(s, elf);
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++) {
        GElf_Shdr head;
        Elf_Scn *section = compressed_section(elf, left_out[i], &head);
        head.sh_type = SHT_NOBITS;
        if (section) gelf_update_shdr(section, &head);
    }
    if (lazy) return s;
    symbol_sections_free(s);
    return NULL;
}

void symbol_sections_free(struct symbol_sections *s)
{
    if (!s) return;
    if (s->info) inflateEnd(&s->stream);
    ARENA_RELEASE(s->info, s->ranges, s);
}

static uint64_t read_dwarf_number(const uint8_t *p, size_t size)
{
    uint64_t value = 0;
    memcpy(&value, p, size); /* the file has this machine's byte order, checked above */
    return value;
}

bool symbol_sections_find(const struct symbol_sections *s, uint64_t address, uint64_t *unit)
{
    const uint8_t *at = s->ranges, *end = s->ranges + s->ranges_n;
    while ((size_t)(end - at) >= SET_RANGES) {
        const uint64_t size =
            read_dwarf_number(at, 4) + 4; /* 0xffffffff: 64 bits follow, and it exceeds what is left */
        if (size < SET_HEADER || size > (uint64_t)(end - at)) return false;
        const bool known = read_dwarf_number(at + 4, 2) == 2 && at[10] == 8 && at[11] == 0;
        for (const uint8_t *r = at + SET_RANGES; known && r + RANGE <= at + size; r += RANGE) {
            const uint64_t low = read_dwarf_number(r, 8);
            if (!low || address - low >= read_dwarf_number(r + 8, 8))
                continue; /* at 0 are functions that were discarded */
            *unit = read_dwarf_number(at + 6, 4);
            return true;
        }
        at += size;
    }
    return false;
}

bool symbol_sections_inflate(struct symbol_sections *s, uint64_t end)
{
    if (end > s->info_n) return false;
    if (end <= s->stream.total_out) return true;
    const size_t more = s->info_n - end < PIECE ? s->info_n : (size_t)end + PIECE; /* each call copies 32 KiB */
    (void)inflate_to(&s->stream, s->info, more);
    return s->stream.total_out >= end;
}

void symbol_sections_inflate_all(struct symbol_sections *s)
{
    (void)inflate_to(&s->stream, s->info, s->info_n);
}
