/* The format is that of https://www.sqlite.org/fileformat2.html, sections 1.3, 1.6 and 2.1. */
#include "analyzer/run/pages.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF = 13, INTERIOR = 5, LEAF_HEADER = 8, INTERIOR_HEADER = 12, FIRST_PAGE_HEADER = 100 };
enum { DEEPEST = 20, SPARE = 192 }; /* bytes after a page that a damaged row may reach; their content is irrelevant */
enum { AHEAD = 16 };                /* pages that are read at once while they follow one another */
enum { LAYOUT_BITS = 10 };          /* of the number of layouts that are kept */

struct layout {           /* of records whose columns have these types */
    uint64_t types, size; /* size: of the whole record; 0: none is kept here */
    int64_t mask[RUN_PAGES_COLUMNS];
    uint8_t offset[RUN_PAGES_COLUMNS], shift[RUN_PAGES_COLUMNS]; /* of a column's bytes; of the eight that are read */
    uint32_t nulls, ones; /* a bit for each column that is NULL, and that is 1 without any bytes */
};
_Static_assert(RUN_PAGES_COLUMNS - 1 == sizeof(uint64_t), "the types fit into struct layout");

struct walk {
    sqlite3_file *file;
    uint32_t page_size;
    int64_t pages_left; /* that may still be read: a damaged tree may have a cycle */
    struct run_pages_ids ids;
    struct layout *layouts; /* by a hash of the types: a table has a few */
    run_pages_fn each;
    void *self;
    uint8_t *pages[DEEPEST]; /* by depth */
    uint8_t *ahead;          /* ahead_n pages from ahead_first on */
    int64_t ahead_first, ahead_n, pages_n;
    uint32_t next; /* the page after the one that was read last */
    struct run_page_row row;
    int64_t last;
};

static uint32_t read_16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t read_32(const uint8_t *p)
{
    return read_16(p) << 16 | read_16(p + 2);
}

/* At most 9 bytes are read. */
static inline const uint8_t *read_page_varint(const uint8_t *p, uint64_t *value)
{
    uint64_t v = 0;
    for (int i = 0; i < 8; i++) {
        v = v << 7 | (p[i] & 127);
        if (p[i] < 128) {
            *value = v;
            return p + i + 1;
        }
    }
    *value = v << 8 | p[8];
    return p + 9;
}

/* False: they are not only integers and NULLs, the first one the id. */
static bool make_layout(struct layout *out, const uint8_t *types)
{
    static const uint8_t sizes[] = {0, 1, 2, 3, 4, 6, 8};
    struct layout l = {.size = RUN_PAGES_COLUMNS + 1, .nulls = 1};
    memcpy(&l.types, types + 1, sizeof l.types);
    if (types[0] != 0) return false;
    for (unsigned i = 1; i < RUN_PAGES_COLUMNS; i++) {
        const unsigned type = types[i], size = type < sizeof sizes ? sizes[type] : 0;
        if (type == 7 || type > 9) return false;
        l.offset[i] = (uint8_t)l.size;
        l.shift[i] = (uint8_t)(size ? 64 - 8 * size : 0);
        l.mask[i] = size ? -1 : 0;
        l.nulls |= (uint32_t)(type == 0) << i;
        l.ones |= (uint32_t)(type == 9) << i;
        l.size += size;
    }
    *out = l;
    return true;
}

/* Eight bytes are read for each column. False: another kind of record. */
static inline bool read_record(struct walk *w, const uint8_t *p, uint64_t size)
{
    uint64_t types;
    memcpy(&types, p + 2, sizeof types);
    struct layout *l = &w->layouts[types * 0x9e3779b97f4a7c15u >> (64 - LAYOUT_BITS)];
    if (p[0] != RUN_PAGES_COLUMNS + 1 || p[1] != 0) return false;
    if ((l->types != types || l->size != size) && (!make_layout(l, p + 1) || l->size != size)) return false;
#pragma GCC unroll 8
    for (unsigned i = 1; i < RUN_PAGES_COLUMNS; i++) {
        uint64_t bytes;
        memcpy(&bytes, p + l->offset[i], sizeof bytes);
        w->row.values[i] = (int64_t)be64toh(bytes) >> l->shift[i] & l->mask[i];
    }
    for (uint32_t ones = l->ones; ones; ones &= ones - 1) w->row.values[__builtin_ctz(ones)] = 1;
    w->row.nulls = l->nulls;
    return true;
}

static inline bool read_cell(struct walk *w, const uint8_t *page, uint32_t at)
{
    uint64_t size, id;
    if (at >= w->page_size) return false;
    const uint8_t *record = read_page_varint(read_page_varint(page + at, &size), &id), *end = page + w->page_size;
    if ((int64_t)id < w->ids.first || (int64_t)id > w->ids.last) return true;
    if (record >= end || size <= RUN_PAGES_COLUMNS || size > (uint64_t)(end - record)) return false;
    if (!read_record(w, record, size) || ((int64_t)id <= w->last && w->last != INT64_MIN)) return false;
    w->row.id = w->last = (int64_t)id;
    return w->each(w->self, &w->row);
}

static bool read_pages(struct walk *w, uint8_t *to, int64_t first, int64_t n)
{
    return w->file->pMethods->xRead(w->file, to, (int)(n * w->page_size), (first - 1) * w->page_size) == SQLITE_OK;
}

/* Returns where it is: at `to`, or ahead, where other pages follow. */
static const uint8_t *read_page(struct walk *w, uint8_t *to, uint32_t number)
{
    const bool follows = number == w->next;
    w->next = number + 1;
    if (number < w->ahead_first || number >= w->ahead_first + w->ahead_n) {
        const int64_t left = w->pages_n - number + 1;
        if (!follows || left < 2) return read_pages(w, to, number, 1) ? to : NULL;
        if (!w->ahead) w->ahead = arena_zeroed(AHEAD * w->page_size + SPARE, 1);
        w->ahead_first = number;
        w->ahead_n = left < AHEAD ? left : AHEAD;
        if (!read_pages(w, w->ahead, number, w->ahead_n)) { /* perhaps a later page cannot be read */
            w->ahead_n = 0;
            return read_pages(w, to, number, 1) ? to : NULL;
        }
    }
    const uint8_t *page = w->ahead + (number - w->ahead_first) * w->page_size;
    return page[0] == LEAF ? page : memcpy(to, page, w->page_size); /* others are used while more is read ahead */
}

static const uint8_t *load_page(struct walk *w, uint32_t number, unsigned depth)
{
    if (!number || depth == DEEPEST || w->pages_left-- <= 0) return NULL;
    if (!w->pages[depth]) {
        w->pages[depth] = arena_realloc(NULL, w->page_size + SPARE, 1);
        memset(w->pages[depth] + w->page_size, 0, SPARE);
    }
    return read_page(w, w->pages[depth], number);
}

/* The largest id below a cell of an interior page. */
static int64_t last_id_below(const uint8_t *cell)
{
    uint64_t id;
    (void)read_page_varint(cell + 4, &id);
    return (int64_t)id;
}

static bool walk_pages(struct walk *w, uint32_t number, unsigned depth)
{
    const uint8_t *page = load_page(w, number, depth);
    if (!page) return false;
    const uint8_t *header = page + (number == 1 ? FIRST_PAGE_HEADER : 0);
    uint32_t cells = read_16(header + 3);
    const uint8_t *cell = header + (header[0] == LEAF ? LEAF_HEADER : INTERIOR_HEADER);
    if ((header[0] != LEAF && header[0] != INTERIOR) || cell + 2 * cells > page + w->page_size) return false;
    for (uint32_t i = 0; i < cells; i++, cell += 2) {
        uint32_t at = read_16(cell);
        if (header[0] == LEAF) {
            if (!read_cell(w, page, at)) return false;
            continue;
        }
        if (at >= w->page_size) return false;
        const int64_t id = last_id_below(page + at);
        if (id >= w->ids.first && !walk_pages(w, read_32(page + at), depth + 1)) return false;
        if (id > w->ids.last) return true;
    }
    return header[0] == LEAF || walk_pages(w, read_32(header + 8), depth + 1);
}

/* The first page of a table; 0 if it has other columns. */
static uint32_t root_of(struct run_database *db, const char *table, const char *const *columns)
{
    sqlite3_stmt *st = run_database_prepare(
        db, "SELECT m.rootpage, c.name, c.hidden, c.pk, c.type FROM sqlite_master m, pragma_table_xinfo(m.name) c "
            "WHERE m.type = 'table' AND m.name = ?1 ORDER BY c.cid");
    uint32_t root = 0, n = 0;
    bool same = st && sqlite3_bind_text(st, 1, table, -1, SQLITE_STATIC) == SQLITE_OK;
    for (; same && sqlite3_step(st) == SQLITE_ROW; n++) {
        const char *name = (const char *)sqlite3_column_text(st, 1), *type = (const char *)sqlite3_column_text(st, 4);
        root = (uint32_t)sqlite3_column_int64(st, 0);
        same = n < RUN_PAGES_COLUMNS && name && strcmp(name, columns[n]) == 0 && sqlite3_column_int(st, 2) == 0 &&
               sqlite3_column_int(st, 3) == (n == 0) && (n > 0 || (type && strcmp(type, "INTEGER") == 0));
    }
    sqlite3_finalize(st);
    return same && n == RUN_PAGES_COLUMNS ? root : 0;
}

bool run_pages_scan(struct run_database *db, const char *table, const char *const *columns,
                    const struct run_pages_ids *ranges, size_t ranges_n, run_pages_fn each, void *self, int64_t *last)
{
    struct walk w = {.each = each, .self = self, .last = INT64_MIN};
    uint32_t root = db->immutable ? root_of(db, table, columns) : 0;
    uint8_t head[FIRST_PAGE_HEADER];
    sqlite3_int64 size = 0;
    bool done = root && sqlite3_file_control(db->db, "main", SQLITE_FCNTL_FILE_POINTER, &w.file) == SQLITE_OK &&
                w.file->pMethods && w.file->pMethods->xRead(w.file, head, sizeof head, 0) == SQLITE_OK &&
                w.file->pMethods->xFileSize(w.file, &size) == SQLITE_OK &&
                head[20] == 0; /* no bytes of a page are reserved */
    if (done) {
        w.page_size = read_16(head + 16) == 1 ? 65536 : read_16(head + 16);
        w.pages_n = size / (w.page_size ? w.page_size : 1);
        w.layouts = arena_zeroed((size_t)1 << LAYOUT_BITS, sizeof *w.layouts);
        done = w.page_size >= 512;
    }
    for (size_t i = 0; done && i < ranges_n; i++) {
        w.ids = ranges[i];
        w.pages_left = w.pages_n;
        done = walk_pages(&w, root, 0);
    }
    for (unsigned i = 0; i < DEEPEST; i++) free(w.pages[i]);
    ARENA_RELEASE(w.ahead, w.layouts);
    *last = w.last;
    return done;
}
