/* A hostile Nsight Systems export: tables with any columns, values and types, or a damaged file. The input: the rows of
 * the tables, then bytes to change in the file. If gpuspy imports it, the result must open; if not, no file may remain.
 */
#include "tests/fuzz/foreign.h"
#include "tests/fuzz/fuzz.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/import/import.h"
#include "analyzer/run/run.h"

enum { COLUMNS = 16, ROWS = 24, TABLES = 14, PROCESSES = 3, SQL = 2048 };

static const struct {
    const char *name, *columns[COLUMNS];
} tables[TABLES] = {
    {"StringIds", {"id", "value"}},
    {"CUPTI_ACTIVITY_KIND_RUNTIME",
     {"start", "end", "globalTid", "correlationId", "nameId", "callchainId", "returnValue"}},
    {"CUPTI_ACTIVITY_KIND_MEMCPY",
     {"start", "globalPid", "correlationId", "deviceId", "streamId", "bytes", "copyKind", "srcKind", "dstKind"}},
    {"CUPTI_ACTIVITY_KIND_MEMSET", {"start", "globalPid", "correlationId", "deviceId", "streamId", "bytes"}},
    {"CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
     {"start", "end", "globalPid", "correlationId", "deviceId", "streamId", "syncType", "eventId"}},
    {"CUPTI_ACTIVITY_KIND_KERNEL", {"start", "end", "globalPid", "correlationId"}},
    {"CUDA_GPU_MEMORY_USAGE_EVENTS",
     {"start", "globalPid", "correlationId", "deviceId", "bytes", "memKind", "memoryOperationType", "address",
      "localMemoryPoolAddress", "streamId"}},
    {"CUDA_CALLCHAINS", {"id", "stackDepth", "symbol", "module"}},
    {"NVTX_EVENTS", {"start", "end", "eventType", "globalTid", "domainId", "text", "textId"}},
    {"TARGET_INFO_GPU", {"id", "cuDevice", "name", "totalMemory"}},
    {"TARGET_INFO_CUDA_DEVICE", {"gpuId", "cudaId", "pid"}},
    {"PROCESSES", {"globalPid", "name"}},
    {"ThreadNames", {"globalTid", "nameId", "priority"}},
    {"TARGET_INFO_SESSION_START_TIME", {"utcEpochNs"}},
};

static bool is_process(const char *column)
{
    return strcmp(column, "globalPid") == 0 || strcmp(column, "globalTid") == 0;
}

static void bind_text(struct fuzz_bytes *b, sqlite3_stmt *st, int at)
{
    static const char *const names[] = {"cudaMalloc_v3020", "cudaFree_v3020",  "cudaMemcpyAsync_v3020", "cuMemAlloc_v2",
                                        "cudaLaunchKernel", "cudaGraphLaunch", "cudaStreamSynchronize"};
    const uint8_t which = fuzz_u8(b);
    size_t bytes;
    if (which < sizeof names / sizeof *names) {
        sqlite3_bind_text(st, at, names[which], -1, SQLITE_STATIC);
    } else {
        const void *text = fuzz_part(b, which % 32, &bytes);
        sqlite3_bind_text(st, at, text, (int)bytes, SQLITE_TRANSIENT);
    }
}

/* Mostly small numbers, so that ids and correlations match. */
static void bind(struct fuzz_bytes *b, sqlite3_stmt *st, int at, const char *column)
{
    const uint8_t how = fuzz_u8(b);
    const bool text = strcmp(column, "value") == 0 || strcmp(column, "name") == 0 || strcmp(column, "text") == 0;
    if (how >= 250)
        sqlite3_bind_double(st, at, (double)fuzz_hostile(b) / 3);
    else if (how >= 244)
        sqlite3_bind_null(st, at);
    else if (how >= 236 || (text && how < 200))
        bind_text(b, st, at);
    else if (how >= 192)
        sqlite3_bind_int64(st, at, (int64_t)fuzz_hostile(b));
    else if (is_process(column))
        sqlite3_bind_int64(st, at, (int64_t)(how % PROCESSES + 1) << 24);
    else
        sqlite3_bind_int64(st, at, how % 12);
}

static void fill(struct fuzz_bytes *b, sqlite3 *db, size_t table)
{
    char create[SQL], insert[SQL];
    const char *kept[COLUMNS];
    const uint8_t rows = fuzz_u8(b) % ROWS, absent = fuzz_u8(b);
    sqlite3_stmt *st = NULL;
    size_t made = (size_t)snprintf(create, sizeof create, "CREATE TABLE %s(", tables[table].name), n = 0;
    for (size_t i = 0; i < COLUMNS && tables[table].columns[i]; i++) {
        if (absent >= 224 && i == absent % 8u) continue;
        made +=
            (size_t)snprintf(create + made, sizeof create - made, "%s\"%s\"", n ? "," : "", tables[table].columns[i]);
        kept[n++] = tables[table].columns[i];
    }
    snprintf(create + made, sizeof create - made, ")");
    if (!n || sqlite3_exec(db, create, NULL, NULL, NULL) != SQLITE_OK) return;
    made = (size_t)snprintf(insert, sizeof insert, "INSERT INTO %s VALUES(?", tables[table].name);
    for (size_t i = 1; i < n; i++) made += (size_t)snprintf(insert + made, sizeof insert - made, ",?");
    snprintf(insert + made, sizeof insert - made, ")");
    FUZZ_CHECK(sqlite3_prepare_v2(db, insert, -1, &st, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(db));
    for (unsigned row = 0; row < rows && b->left; row++) {
        sqlite3_reset(st);
        for (size_t i = 0; i < n; i++) bind(b, st, (int)i + 1, kept[i]);
        sqlite3_step(st);
    }
    sqlite3_finalize(st);
}

/* Changes single bytes of the file, as a bad disk does. */
static void damage(struct fuzz_bytes *b, const char *path)
{
    struct stat st;
    FILE *f = fopen(path, "r+b");
    for (unsigned i = 0; f && b->left && i < 32 && fstat(fileno(f), &st) == 0 && st.st_size > 0; i++) {
        const long at = (long)(fuzz_number(b, 3) % (uint64_t)st.st_size);
        fseek(f, at, SEEK_SET);
        fputc(fuzz_u8(b), f);
    }
    if (f) fclose(f);
}

static void make(struct fuzz_bytes *b, const char *path)
{
    sqlite3 *db = NULL;
    const uint8_t damaged = fuzz_u8(b);
    FUZZ_CHECK(sqlite3_open(path, &db) == SQLITE_OK, "%s", path);
    sqlite3_exec(db, "PRAGMA page_size = 512; PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN", NULL, NULL,
                 NULL);
    for (unsigned i = 0; i < TABLES && b->left; i++) {
        const size_t table = fuzz_u8(b);
        if (table == 255) break;
        fill(b, db, table % TABLES);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    if (damaged >= 192) damage(b, path);
}

/* The first process has the requested name, the others names beside it. */
static void remove_imported(const char *to)
{
    char other[320];
    fuzz_unlink_database(to);
    for (unsigned pid = 0; pid < 16; pid++) {
        snprintf(other, sizeof other, "%.*s.%u.db", (int)strlen(to) - 3, to, pid);
        fuzz_unlink_database(other);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300], to[300];
    struct fuzz_bytes b = {data, size};
    snprintf(path, sizeof path, "%s/export.sqlite", fuzz_folder());
    snprintf(to, sizeof to, "%s/imported.db", fuzz_folder());
    fuzz_unlink_database(path);
    remove_imported(to);
    make(&b, path);
    if (import_format_of(path) != IMPORT_FORMAT_NSYS) return 0;
    fuzz_import(path, IMPORT_FORMAT_NSYS, to);
    return 0;
}

/* ---------------------------------------------------------------- seeds */

/* Rows of all tables with small numbers that match, then some with hostile numbers among them, and a damaged file. */
void fuzz_seeds(fuzz_put put)
{
    uint8_t bytes[4096];
    uint64_t random = 7;
    for (unsigned seed = 0; seed < 12; seed++) {
        const unsigned hostile = seed % 3 * 8;
        size_t n = 0;
        bytes[n++] = seed % 4 == 3 ? 200 : 0;
        for (size_t table = 0; table < TABLES && n + 2 + 8 * COLUMNS < sizeof bytes; table++) {
            size_t columns = 0;
            while (columns < COLUMNS && tables[table].columns[columns]) columns++;
            bytes[n++] = (uint8_t)table;
            bytes[n++] = 8;
            bytes[n++] = 0;
            for (size_t i = 0; i < 8 * columns && n < sizeof bytes - 16; i++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const uint8_t small = (uint8_t)(random >> 56) % 12;
                bytes[n++] = (random >> 40) % 64 < hostile ? (uint8_t)(192 + (random >> 32) % 64) : small;
            }
        }
        put(bytes, n);
    }
    put("", 0);
}
