/* The program's own Python files: from the recording, else from disk if they are older than it. Each file is read once,
 * when it is first requested. */
#include "analyzer/base/text.h"
#include "analyzer/run/run_internal.h"
#include "schema/source_file.h"
#include "schema/mask.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <unistd.h>
#include <zlib.h>

enum {
    END = 22,
    ENTRY = 46,
    LOCAL = 30, /* bytes of the records, without their names and comments */
    COMMENT_MAX = 0xffff,
    DIRECTORY_MAX = 16 << 20,
    STORED = 0,
    DEFLATED = 8
};

struct member {
    uint64_t at, packed, size; /* `at`: of its local header, from where the archive begins in the file */
    unsigned method;
};

static uint32_t read_little_endian(const unsigned char *p, unsigned bytes)
{
    uint32_t value = 0;
    while (bytes--) value = value << 8 | p[bytes];
    return value;
}

static bool is_record(const unsigned char *p, const char *mark)
{
    return p[0] == 'P' && p[1] == 'K' && p[2] == (unsigned char)mark[0] && p[3] == (unsigned char)mark[1];
}

/* `length` bytes of the file, in memory that the caller frees; NULL: it has fewer. */
static unsigned char *read_part(int fd, uint64_t at, size_t length)
{
    unsigned char *part = malloc(length + 1);
    if (part && pread(fd, part, length, (off_t)at) == (ssize_t)length) return part;
    free(part);
    return NULL;
}

/* The directory of the archive, at its end. `start`: where the archive begins, after a line such as #!/usr/bin/python3.
 */
static unsigned char *read_directory(int fd, uint64_t size, size_t *length, uint64_t *start)
{
    const size_t tail = size < END + COMMENT_MAX ? (size_t)size : END + COMMENT_MAX;
    unsigned char *last = size >= END ? read_part(fd, size - tail, tail) : NULL, *directory = NULL;
    for (size_t i = last ? tail - END + 1 : 0; i-- > 0 && !directory;) {
        if (!is_record(last + i, "\5\6")) continue;
        const uint64_t bytes = read_little_endian(last + i + 12, 4), at = read_little_endian(last + i + 16, 4),
                       end = size - tail + i;
        if (bytes > DIRECTORY_MAX || bytes + at > end) break;
        *length = (size_t)bytes;
        *start = end - bytes - at;
        directory = read_part(fd, end - bytes, *length);
    }
    free(last);
    return directory;
}

static bool find_member(int fd, uint64_t size, const char *name, struct member *member)
{
    size_t length = 0, n = strlen(name);
    uint64_t start = 0;
    bool found = false;
    unsigned char *directory = read_directory(fd, size, &length, &start), *p = directory;
    while (p && length - (size_t)(p - directory) >= ENTRY && is_record(p, "\1\2")) {
        const size_t named = read_little_endian(p + 28, 2),
                     rest = named + read_little_endian(p + 30, 2) + read_little_endian(p + 32, 2);
        if (length - (size_t)(p - directory) - ENTRY < rest) break;
        if (named == n && memcmp(p + ENTRY, name, n) == 0) { /* of two, Python imports the last */
            found = true;
            *member = (struct member){start + read_little_endian(p + 42, 4), read_little_endian(p + 20, 4),
                                      read_little_endian(p + 24, 4), read_little_endian(p + 10, 2)};
        }
        p += ENTRY + rest;
    }
    free(directory);
    return found && member->size <= GS_SOURCE_FILE_BYTES && member->packed <= 2 * GS_SOURCE_FILE_BYTES;
}

static char *inflate_member(const struct member *m, unsigned char *packed)
{
    char *text = malloc(m->size + 1);
    z_stream z = {
        .next_in = packed, .avail_in = (uInt)m->packed, .next_out = (Bytef *)text, .avail_out = (uInt)m->size};
    const bool ready = text && inflateInit2(&z, -MAX_WBITS) == Z_OK;
    const bool whole = ready && inflate(&z, Z_FINISH) == Z_STREAM_END && !z.avail_out;
    if (ready) inflateEnd(&z);
    if (whole) return text;
    free(text);
    return NULL;
}

static char *read_packed_member(int fd, const struct member *m)
{
    unsigned char *local = read_part(fd, m->at, LOCAL), *packed = NULL;
    char *text = NULL;
    if (local && is_record(local, "\3\4"))
        packed = read_part(fd, m->at + LOCAL + read_little_endian(local + 26, 2) + read_little_endian(local + 28, 2),
                           (size_t)m->packed);
    free(local);
    if (packed && m->method == STORED && m->packed == m->size) return (char *)packed;
    if (packed && m->method == DEFLATED) text = inflate_member(m, packed);
    free(packed);
    return text;
}

/* The text of a member of one archive, without secrets: see run_zip_source. */
static char *read_archive(const char *path, const char *name, int64_t latest_ns, size_t *length)
{
    const int fd = gs_source_open(path);
    struct stat st;
    struct member member = {0};
    char *text = NULL, *masked = NULL;
    if (fd >= 0 && fstat(fd, &st) == 0 && !gs_source_is_newer(&st.st_mtim, latest_ns) &&
        find_member(fd, (uint64_t)st.st_size, name, &member) && (text = read_packed_member(fd, &member)) != NULL) {
        const size_t size = 2 * (size_t)member.size + 16; /* a mask is longer than a short secret */
        if ((masked = malloc(size)) != NULL) *length = gs_mask_source(masked, size, text, (size_t)member.size);
    }
    free(text);
    if (fd >= 0) close(fd);
    return masked;
}

/* The text of "app.pyz/package/train.py" without secrets, in memory that the caller frees; NULL: no part of the name is
 * an archive of that member, it is too large, or the archive was written after latest_ns. A relative name is resolved
 * in `folder`, which may be NULL. */
static char *run_zip_source(const char *file, const char *folder, int64_t latest_ns, size_t *length)
{
    char path[PATH_MAX], *text = NULL;
    if (!gs_source_path(path, sizeof path, file, folder)) return NULL;
    struct stat st;
    for (char *slash = path + strlen(path); !text && (slash = memrchr(path, '/', (size_t)(slash - path))) != NULL;) {
        *slash = 0;
        const bool is_file = slash > path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
        if (is_file) text = read_archive(path, slash + 1, latest_ns, length);
        *slash = '/';
        if (is_file) break;
    }
    return text;
}

enum { FILES = 1024, TEXT_MAX = 2 * GS_SOURCE_FILE_BYTES + 16 };

struct run_source_file {
    const char *file; /* a string of the run */
    struct run_source_text text;
    bool library; /* run_library_text */
};

/* A view with the table's name could compute forever. */
static sqlite3_stmt *prepare_source(struct run_database *db, const char *sql)
{
    sqlite3_stmt *st = run_database_prepare(
        db, "SELECT 1 FROM sqlite_master WHERE name = 'source' AND type = 'table' AND sql NOT LIKE 'create virtual%'");
    const bool is = st && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return is ? run_database_prepare(db, sql) : NULL;
}

void run_load_installed(struct run *run, struct run_database *db)
{
    sqlite3_stmt *st = prepare_source(db, "SELECT file FROM source WHERE left_out = '" GS_SOURCE_INSTALLED "'");
    while (st && sqlite3_step(st) == SQLITE_ROW) *map_at(&run->installed, (uintptr_t)run_column_text(run, st, 0)) = 1;
    sqlite3_finalize(st);
}

static size_t count_lines(const char *text, size_t length)
{
    size_t n = 1;
    for (size_t i = 0; i < length; i++)
        n += text[i] == '\n' || (text[i] == '\r' && (i + 1 == length || text[i + 1] != '\n'));
    return n;
}

static void split_source_lines(struct run *run, const char *text, size_t length, struct run_source_text *to)
{
    const char **lines = arena_alloc(&run->arena, count_lines(text, length) * sizeof *lines);
    size_t from = 0;
    for (size_t i = 0; i <= length; i++) {
        if (i < length && text[i] != '\n' && text[i] != '\r') continue;
        if (i < length || i > from) lines[to->n++] = run_text(run, text + from, i - from);
        i += i + 1 < length && text[i] == '\r' && text[i + 1] == '\n';
        from = i + 1;
    }
    to->lines = lines;
}

static bool from_database(struct run *run, struct run_database *db, struct run_source_file *f)
{
    sqlite3_stmt *st =
        db->db ? prepare_source(db, "SELECT text FROM source WHERE file = ?1 AND text IS NOT NULL LIMIT 1") : NULL;
    bool found = false;
    if (st) {
        sqlite3_bind_text(st, 1, f->file, -1, SQLITE_STATIC);
        found = sqlite3_step(st) == SQLITE_ROW && sqlite3_column_type(st, 0) == SQLITE_TEXT;
        const int length = found ? sqlite3_column_bytes(st, 0) : 0;
        found = found && length <= TEXT_MAX;
        if (found) split_source_lines(run, (const char *)sqlite3_column_text(st, 0), (size_t)length, &f->text);
    }
    sqlite3_finalize(st);
    return found;
}

/* The user allowed it, or the recording does not state it. */
static bool may_read(struct run_database *db)
{
    sqlite3_stmt *st = db->db ? run_database_prepare(db, "SELECT value FROM meta WHERE key = 'sources'") : NULL;
    const bool refused = st && sqlite3_step(st) == SQLITE_ROW && sqlite3_column_int(st, 0) == 0;
    sqlite3_finalize(st);
    return st && !refused;
}

/* When recording began; for another tool's file, when it was written. */
static int64_t began_real_ns(const struct run_process *p)
{
    struct stat st;
    if (p->start_real_ns > 0) return p->start_real_ns;
    return stat(run_shown_path(p->path), &st) == 0 ? (int64_t)st.st_mtim.tv_sec * 1000000000 : 0;
}

/* A recording that anyone may have made names the file, so only source files are shown. */
static void from_disk(struct run *run, struct run_source_file *f)
{
    if ((!text_ends_with(f->file, ".py") && (f->library || !gs_source_is_native(f->file))) ||
        (!f->library && (!gs_source_is_own(f->file) || map_get(&run->installed, (uintptr_t)f->file) != MAP_NEW)))
        return;
    for (size_t i = 0; i < run->processes_n && !f->text.n; i++) {
        const struct run_process *p = &run->processes[i];
        const char *left_out;
        size_t n;
        if (!may_read(&run->databases[p->database])) continue;
        char *text = gs_source_read(f->file, p->cwd, began_real_ns(p), false, &n, &left_out);
        if (!text) text = run_zip_source(f->file, p->cwd, began_real_ns(p), &n);
        if (text) {
            split_source_lines(run, text, n, &f->text);
            f->text.from_disk = true;
        }
        free(text);
    }
}

/* "code cell 3 of train.ipynb"; NULL: unknown. */
static const char *cell_place(struct run *run, const struct run_cell *cell)
{
    char text[NAME_MAX + 64];
    if (!cell->number) return NULL;
    snprintf(text, sizeof text, "code cell %zu%s%s", cell->number, cell->notebook ? " of " : "",
             cell->notebook ? cell->notebook : "");
    return run_text(run, text, strlen(text));
}

/* gpuspy's extension writes the number of a cell as its last line (python/gpuspy/notebook.py). */
static void take_cell_count(struct run_source_text *text)
{
    static const char prefix[] = "# In [";
    const char *last = text->n ? text->lines[text->n - 1] : "";
    if (strncmp(last, prefix, sizeof prefix - 1) != 0) return;
    text->count = strtol(last + sizeof prefix - 1, NULL, 10);
    text->n--;
}

/* Which cell of which notebook it is, and its text if nothing else has it: the file of a cell exists only while
 * gpuspy's extension is loaded, and nbconvert, papermill and editors do not load it. */
static void from_notebook(struct run *run, struct run_source_file *f)
{
    const bool is_cell = gs_source_is_cell(f->file);
    if (is_cell) take_cell_count(&f->text);
    for (size_t i = 0; is_cell && i < run->processes_n && !f->text.cell; i++) {
        const struct run_process *p = &run->processes[i];
        if (!may_read(&run->databases[p->database])) continue;
        const struct run_cell cell = run_notebook_cell(run, f->file, p);
        if (!cell.text) continue;
        if (!f->text.n) {
            split_source_lines(run, cell.text, cell.length, &f->text);
            f->text.from_disk = true;
        }
        f->text.cell = cell_place(run, &cell);
        f->text.position = (long)cell.number;
        if (!f->text.count) f->text.count = cell.count;
    }
}

/* exec(open("job.py").read()): that text is named "<string>", too. One that is compiled first has its own name. */
static bool runs_other_text(const char *text)
{
    static const char *const calls[] = {"exec(", "eval("};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (const char *p = strstr(text, calls[i]); p; p = strstr(p + 1, calls[i])) {
            const bool method = (p > text && (isalnum((unsigned char)p[-1]) || strchr("_.", p[-1]))) ||
                                (p >= text + 4 && strncmp(p - 4, "def ", 4) == 0);
            if (!method && strncmp(p + strlen(calls[i]), "compile(", 8) != 0) return true;
        }
    }
    return strstr(text, "<string>");
}

/* `python -c` names its program "<string>": the command contains it, unless the user forbade arguments. Of several such
 * processes (multiprocessing starts its own so), which one is not known. */
static void from_command(struct run *run, struct run_source_file *f)
{
    const char *text = NULL;
    unsigned found = 0;
    for (size_t i = 0; i < run->processes_n && strcmp(f->file, "<string>") == 0; i++) {
        const struct run_process *p = &run->processes[i];
        const char *option = p->command ? strstr(p->command, " -c ") : NULL;
        if (!option || !p->python_version || !may_read(&run->databases[p->database])) continue;
        text = option + 4;
        found++;
    }
    if (found == 1 && !runs_other_text(text)) split_source_lines(run, text, strlen(text), &f->text);
}

static const struct run_source_text *text_of_file(struct run *run, const char *file, bool library)
{
    if (!file || !*file) return NULL;
    const char *name = run_cell_file(run, run_text(run, file, strlen(file)));
    for (size_t i = 0; i < run->sources_n; i++)
        if (run->sources[i]->file == name && run->sources[i]->library == library)
            return run->sources[i]->text.n ? &run->sources[i]->text : NULL;
    if (run->sources_n >= FILES) return NULL;
    struct run_source_file *f = arena_alloc(&run->arena, sizeof *f);
    f->file = name;
    f->library = library;
    *ARENA_ADD(run->sources) = f;
    bool found = false;
    for (size_t i = 0; i < run->databases_n && !found; i++) found = from_database(run, &run->databases[i], f);
    if (!found) from_disk(run, f);
    from_notebook(run, f);
    if (!found && !f->text.n) from_command(run, f);
    return f->text.n ? &f->text : NULL;
}

const struct run_source_text *run_source_text(struct run *run, const char *file)
{
    return text_of_file(run, file, false);
}

const struct run_source_text *run_library_text(struct run *run, const char *file)
{
    return text_of_file(run, file, true);
}

bool run_source_lines(struct run *run, const char *file, int line, int before, int after, struct run_source *out)
{
    const struct run_source_text *text = line > 0 ? run_source_text(run, file) : NULL;
    *out = (struct run_source){0};
    if (!text || (size_t)line > text->n) return false;
    before = before < 0 ? 0 : before < RUN_SOURCE_AROUND ? before : RUN_SOURCE_AROUND;
    after = after < 0 ? 0 : after < RUN_SOURCE_AROUND ? after : RUN_SOURCE_AROUND;
    const size_t at = (size_t)line - 1, first = at < (size_t)before ? 0 : at - (size_t)before;
    const size_t last = text->n - 1 - at < (size_t)after ? text->n - 1 : at + (size_t)after;
    out->line = line;
    out->first_line = (int)first + 1;
    out->n = last - first + 1;
    out->lines = text->lines + first;
    out->from_disk = text->from_disk;
    out->cell = text->cell;
    return true;
}
