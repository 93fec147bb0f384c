#include "schema/record.h"

static const uint16_t least[GS_REC_TYPES] = {
    [GS_REC_THREAD] = sizeof(struct gs_rec_thread),
    [GS_REC_FRAME_PYTHON] = sizeof(struct gs_rec_frame_python),
    [GS_REC_FRAME_NATIVE] = sizeof(struct gs_rec_frame_native),
    [GS_REC_STACK] = sizeof(struct gs_rec_stack),
    [GS_REC_RESET] = sizeof(struct gs_rec),
    [GS_REC_API] = sizeof(struct gs_rec_name),
    [GS_REC_GPU] = sizeof(struct gs_rec_gpu),
    [GS_REC_SETTING] = sizeof(struct gs_rec_setting),
    [GS_REC_ALLOC] = sizeof(struct gs_rec_alloc),
    [GS_REC_FREE] = sizeof(struct gs_rec_free),
    [GS_REC_FREE_FAILED] = sizeof(struct gs_rec_free),
    [GS_REC_TENSOR] = sizeof(struct gs_rec_tensor),
    [GS_REC_COPY] = sizeof(struct gs_rec_copy),
    [GS_REC_SET] = sizeof(struct gs_rec_copy),
    [GS_REC_SYNC] = sizeof(struct gs_rec_sync),
    [GS_REC_OOM] = sizeof(struct gs_rec_oom),
    [GS_REC_SAMPLE] = sizeof(struct gs_rec_sample),
    [GS_REC_HANDLE] = sizeof(struct gs_rec_handle),
    [GS_REC_MARK] = sizeof(struct gs_rec_mark),
    [GS_REC_DEVICE_SAMPLE] = sizeof(struct gs_rec_device_sample),
    [GS_REC_VMM] = sizeof(struct gs_rec_vmm),
    [GS_REC_POOL] = sizeof(struct gs_rec_pool),
    [GS_REC_ALLOCATOR] = sizeof(struct gs_rec_allocator),
    [GS_REC_PENDING] = sizeof(struct gs_rec_pending),
    [GS_REC_EVENT_DONE] = sizeof(struct gs_rec_event_done),
};

/* The bytes after the fixed part. */
static size_t variable_bytes(const struct gs_rec *rec)
{
    switch (rec->type) {
    case GS_REC_THREAD: return ((const struct gs_rec_thread *)rec)->name_len;
    case GS_REC_FRAME_PYTHON: {
        const struct gs_rec_frame_python *f = (const void *)rec;
        return (size_t)f->function_len + f->file_len;
    }
    case GS_REC_FRAME_NATIVE: {
        const struct gs_rec_frame_native *f = (const void *)rec;
        return (size_t)f->path_len + f->build_id_len;
    }
    case GS_REC_STACK: return (size_t)((const struct gs_rec_stack *)rec)->depth * sizeof(uint32_t);
    case GS_REC_PENDING: return (size_t)((const struct gs_rec_pending *)rec)->count * sizeof(uint64_t);
    case GS_REC_API: return ((const struct gs_rec_name *)rec)->name_len;
    case GS_REC_MARK: {
        const struct gs_rec_mark *m = (const void *)rec;
        return (size_t)m->domain_len + m->name_len;
    }
    case GS_REC_DEVICE_SAMPLE: return ((const struct gs_rec_device_sample *)rec)->name_len;
    case GS_REC_SETTING: {
        const struct gs_rec_setting *s = (const void *)rec;
        return (size_t)s->name_len + s->value_len;
    }
    case GS_REC_GPU: return ((const struct gs_rec_gpu *)rec)->name_len;
    default: return 0;
    }
}

bool gs_record_valid(const struct gs_rec *rec, size_t room)
{
    if (room < sizeof *rec || rec->size > room || rec->size % 8 || rec->type == GS_REC_NONE ||
        rec->type >= GS_REC_TYPES || rec->size < least[rec->type])
        return false;
    return variable_bytes(rec) <= (size_t)rec->size - least[rec->type];
}

uint64_t gs_record_time(const struct gs_rec *rec)
{
    uint64_t blocked;
    if (rec->type == GS_REC_COPY || rec->type == GS_REC_SET)
        blocked = ((const struct gs_rec_copy *)rec)->blocked_ns;
    else if (rec->type == GS_REC_SYNC)
        blocked = ((const struct gs_rec_sync *)rec)->blocked_ns;
    else
        return rec->time_ns;
    return rec->time_ns + blocked < blocked ? UINT64_MAX : rec->time_ns + blocked;
}
