/* NVML's samples of a device, once per second → rows. */
#include "schema/store_state.h"

#include <stdio.h>

/* Unknown, or more than SQLite's integers hold: NULL in the database, -1 in memory. */
static int64_t known_or_null(uint64_t n)
{
    return n > INT64_MAX ? -1 : (int64_t)n;
}

int gs_store_add_device_sample(struct gs_store *s, const struct gs_rec_device_sample *rec)
{
    struct gs_row_device_sample *row = GS_ARRAY_ADD(&s->device_samples);
    if (!row) return gs_store_no_memory(s);
    const int64_t used = known_or_null(rec->used_bytes), total = known_or_null(rec->total_bytes);
    *row = (struct gs_row_device_sample){
        .time_ns = known_or_null(rec->rec.time_ns),
        .free = used >= 0 && total >= used ? total - used : -1,
        .total = total,
        .own = known_or_null(rec->own_bytes),
        .other = known_or_null(rec->other_bytes),
        .pid = rec->other_pid,
        .device = rec->device,
        .utilisation = rec->utilisation,
        .memory_utilisation = rec->memory_utilisation,
        .temperature = rec->temperature,
    };
    return gs_store_add_text(s, (const char *)(rec + 1), rec->name_len, &row->name);
}

static int64_t percent_or_null(uint8_t n)
{
    return n <= 100 ? n : -1;
}

/* Stores only the last one, as gpu0.temperature in meta. */
static int write_temperature(struct gs_store *s, const struct gs_row_device_sample *row)
{
    char key[32];
    if (!row->temperature) return 0;
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_META);
    if (!st) return -1;
    snprintf(key, sizeof key, "gpu%d.temperature", row->device);
    sqlite3_bind_text(st, 1, key, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int(st, 2, row->temperature - 1);
    return gs_store_run(s, st);
}

int gs_store_write_device_samples(struct gs_store *s)
{
    for (size_t i = 0; i < s->device_samples.count; i++) {
        const struct gs_row_device_sample *row = &s->device_samples.at[i];
        sqlite3_stmt *st = gs_store_statement(s, GS_SQL_DEVICE_SAMPLE);
        if (!st) return -1;
        sqlite3_bind_int(st, 1, row->device);
        sqlite3_bind_int64(st, 2, row->time_ns);
        gs_bind_known(st, 3, row->free);
        gs_bind_known(st, 4, row->total);
        sqlite3_bind_int(st, 5, GS_SAMPLE_NVML);
        gs_bind_known(st, 6, percent_or_null(row->utilisation));
        gs_bind_known(st, 7, percent_or_null(row->memory_utilisation));
        gs_bind_known(st, 8, row->own);
        gs_bind_known(st, 9, row->other);
        gs_bind_known(st, 10, row->pid ? (int64_t)row->pid : -1);
        if (row->name.length)
            sqlite3_bind_text(st, 11, s->text.at + row->name.at, (int)row->name.length, SQLITE_STATIC);
        else
            sqlite3_bind_null(st, 11);
        if (gs_store_run(s, st) || write_temperature(s, row)) return -1;
    }
    return 0;
}
