/* Physical memory (cuMemCreate) and its mappings.
 *
 * An object is a lifetime in `allocation` whose address is its handle's value. It lives while it has
 * references or mappings; its bytes count once, however often it is mapped. The handle's value names
 * it until CUDA reuses the value, which may happen while mappings still keep it alive.
 * Memory that was created before the recording began, or by another process (an import), is an object
 * of space `shared`: it can be mapped, and counts in no total; only its mappings show its size. */
#include "schema/store_state.h"

#include <stdlib.h>
#include <string.h>

struct object {
    struct gs_live live; /* address: the handle; id 0: the slot is unused */
    uint32_t refs, maps;
    bool named;
    uint32_t next_unused;
};
struct mapped { /* the tree's tag is an index of these */
    int64_t id, object;
    uint32_t next_unused;
};

struct gs_vmm {
    GS_ARRAY(struct object) objects;
    GS_ARRAY(struct mapped) mapped;
    struct gs_live_map by_id, by_handle; /* → slot + 1 */
    struct gs_ranges tree;
    uint32_t unused_object, unused_mapped; /* slot + 1 */
};

static struct gs_vmm *vmm_of_store(struct gs_store *s)
{
    if (!s->vmm && !(s->vmm = calloc(1, sizeof *s->vmm))) gs_store_no_memory(s);
    return s->vmm;
}

void gs_vmm_free(struct gs_store *s)
{
    struct gs_vmm *v = s->vmm;
    for (size_t t = 0; t < s->threads.count; t++)
        if (s->threads.at[t].undo) {
            free(s->threads.at[t].undo->mappings.at);
            free(s->threads.at[t].undo->ended.at);
            free(s->threads.at[t].undo);
        }
    if (!v) return;
    free(v->objects.at);
    free(v->mapped.at);
    gs_live_free(&v->by_id);
    gs_live_free(&v->by_handle);
    gs_ranges_free(&v->tree);
    free(v);
    s->vmm = NULL;
}

const struct gs_range *gs_vmm_find(const struct gs_store *s, uint64_t address)
{
    return s->vmm ? gs_ranges_find(&s->vmm->tree, address) : NULL;
}

/* ---------------------------------------------------------------- objects */

static struct object *find_object(struct gs_vmm *v, const struct gs_live_map *map, uint64_t key)
{
    const struct gs_live *found = gs_live_find(map, 0, key);
    return found ? &v->objects.at[found->id - 1] : NULL;
}

static bool enter_live_map(struct gs_live_map *map, uint64_t key, uint64_t slot)
{
    struct gs_live entry = {.address = key, .id = slot + 1};
    return gs_live_add(map, &entry);
}

static void leave_live_map(struct gs_live_map *map, uint64_t key)
{
    struct gs_live *found = gs_live_find(map, 0, key);
    if (found) gs_live_remove(map, found);
}

static void forget_object_handle(struct gs_vmm *v, struct object *o)
{
    if (o->named) leave_live_map(&v->by_handle, o->live.address);
    o->named = false;
}

/* Adds an object that has a row. Its handle's value names it if `named` is set and no other object has the value. */
static struct object *new_object(struct gs_store *s, const struct gs_live *live, bool named)
{
    struct gs_vmm *v = vmm_of_store(s);
    if (!v) return NULL;
    uint32_t slot = v->unused_object - 1;
    struct object *o = v->unused_object ? &v->objects.at[slot] : GS_ARRAY_ADD(&v->objects);
    if (!o) {
        gs_store_no_memory(s);
        return NULL;
    }
    v->unused_object = v->unused_object ? o->next_unused : 0;
    slot = (uint32_t)(o - v->objects.at);
    *o = (struct object){.live = *live};
    o->named = named && !find_object(v, &v->by_handle, live->address);
    if (!enter_live_map(&v->by_id, live->id, slot) ||
        (o->named && !enter_live_map(&v->by_handle, live->address, slot))) {
        gs_store_no_memory(s);
        return NULL;
    }
    gs_store_track_bytes(s, live, 1);
    return o;
}

static int note_object(struct gs_store *s, const struct object *o)
{
    struct gs_row_object *row = GS_ARRAY_ADD(&s->object_rows);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_object){(int64_t)o->live.id, o->refs, o->named};
    return 0;
}

/* `undo` NULL: it cannot be reverted. The object's slot is unused afterwards. */
static int end_object(struct gs_store *s, struct object *o, uint64_t time_ns, uint32_t stack, struct gs_undo *undo)
{
    struct gs_vmm *v = s->vmm;
    uint64_t life = time_ns > o->live.alloc_ns ? time_ns - o->live.alloc_ns : 0;
    if (undo) {
        struct gs_live *ended = GS_ARRAY_ADD(&undo->ended);
        if (!ended) return gs_store_no_memory(s);
        *ended = o->live;
    }
    gs_store_track_bytes(s, &o->live, -1);
    int rc = gs_store_end_row(s, o->live.id, gs_whole(life), stack);
    forget_object_handle(v, o);
    leave_live_map(&v->by_id, o->live.id);
    o->live.id = 0;
    o->next_unused = v->unused_object;
    v->unused_object = (uint32_t)(o - v->objects.at) + 1;
    return rc;
}

static int end_if_unheld(struct gs_store *s, struct object *o, uint64_t time_ns, uint32_t stack, struct gs_undo *undo)
{
    return o->refs || o->maps ? 0 : end_object(s, o, time_ns, stack, undo);
}

/* ---------------------------------------------------------------- mappings */

static int end_mapping_row(struct gs_store *s, int64_t id, int64_t time_ns)
{
    if (id >= s->first_mapping) {
        s->mappings.at[id - s->first_mapping].unmap_ns = time_ns;
        return 0;
    }
    struct gs_row_moment *row = GS_ARRAY_ADD(&s->mapping_ends);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_moment){id, time_ns};
    return 0;
}

static int enter_mapping(struct gs_store *s, int64_t id, int64_t object, const struct gs_range *at)
{
    struct gs_vmm *v = s->vmm;
    struct mapped *m = v->unused_mapped ? &v->mapped.at[v->unused_mapped - 1] : GS_ARRAY_ADD(&v->mapped);
    if (!m) return gs_store_no_memory(s);
    v->unused_mapped = v->unused_mapped ? m->next_unused : 0;
    *m = (struct mapped){.id = id, .object = object};
    struct gs_range range = *at;
    range.tag = (uint32_t)(m - v->mapped.at);
    return gs_ranges_add(&v->tree, &range) ? 0 : gs_store_no_memory(s);
}

static int unmap_from_range(struct gs_store *s, const struct gs_range *found, uint64_t time_ns, uint32_t stack,
                            struct gs_undo *undo)
{
    struct gs_vmm *v = s->vmm;
    const struct gs_range at = *found;
    struct mapped *m = &v->mapped.at[at.tag];
    const struct mapped was = *m;
    if (undo) {
        struct gs_undo_mapping *kept = GS_ARRAY_ADD(&undo->mappings);
        if (!kept) return gs_store_no_memory(s);
        *kept = (struct gs_undo_mapping){was.id, was.object, at};
    }
    gs_ranges_remove(&v->tree, at.start);
    m->next_unused = v->unused_mapped;
    v->unused_mapped = at.tag + 1;
    struct object *o = find_object(v, &v->by_id, (uint64_t)was.object);
    if (o) {
        o->maps--;
        if (end_if_unheld(s, o, time_ns, stack, undo)) return -1;
    }
    return end_mapping_row(s, was.id, gs_whole(time_ns));
}

/* Unmaps all mappings within the range; with `part` also those that it covers in part. Returns their number, or -1. */
static int64_t unmap_range(struct gs_store *s, uint64_t address, uint64_t bytes, bool part, uint64_t time_ns,
                           uint32_t stack, struct gs_undo *undo)
{
    uint64_t end = bytes > UINT64_MAX - address ? UINT64_MAX : address + bytes, from = address;
    const struct gs_range *at;
    int64_t n = 0;
    while ((at = gs_ranges_from(&s->vmm->tree, from)) && at->start < end) {
        bool within = at->start >= address && at->bytes <= end - at->start;
        from = at->start + at->bytes;
        if (!within && !part) continue;
        if (unmap_from_range(s, at, time_ns, stack, undo)) return -1;
        n++;
    }
    return n;
}

/* ---------------------------------------------------------------- the calls */

static int add_object(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec, uint8_t space, uint32_t refs,
                      struct object **out)
{
    struct gs_live live = {
        .address = rec->handle,
        .bytes = space == GS_SPACE_VMM ? (uint64_t)gs_whole(rec->bytes) : 0,
        .alloc_ns = (uint64_t)gs_whole(rec->rec.time_ns),
        .device = rec->device > 126 || rec->device < -1 ? -1 : rec->device,
        .layer = GS_LAYER_DEVICE,
        .space = space,
        .home = rec->device,
    };
    if (gs_store_begin_row(s, thread, &rec->rec, &live, 0, GS_EXTRA_UNKNOWN, rec->api)) return -1;
    struct object *o = *out = new_object(s, &live, true);
    if (!o) return -1;
    o->refs = refs;
    if (note_object(s, o)) return -1;
    return space == GS_SPACE_VMM ? gs_store_recover_ooms(s, thread, &live) : 0;
}

/* CUDA reuses the value. If a reference still held the object that it named, the end of that was not recorded. */
static int vacate_object(struct gs_store *s, struct object *o, uint64_t time_ns)
{
    struct gs_vmm *v = s->vmm;
    if (!o->refs) {
        forget_object_handle(v, o);
        return note_object(s, o);
    }
    const uint64_t id = o->live.id;
    s->counts[GS_COUNT_IMPLIED_FREES]++;
    o->refs = 0;
    for (uint64_t from = 0; (o = find_object(v, &v->by_id, id)) && o->maps;) {
        const struct gs_range *at = gs_ranges_from(&v->tree, from);
        if (!at) break;
        from = at->start + at->bytes;
        if ((uint64_t)v->mapped.at[at->tag].object == id && unmap_from_range(s, at, time_ns, 0, NULL)) return -1;
    }
    return o ? end_object(s, o, time_ns, 0, NULL) : 0;
}

static int create_object(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    struct object *o = find_object(s->vmm, &s->vmm->by_handle, rec->handle);
    if (o && vacate_object(s, o, rec->rec.time_ns)) return -1;
    return add_object(s, thread, rec, GS_SPACE_VMM, 1, &o);
}

static int retain_object(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    struct object *o = find_object(s->vmm, &s->vmm->by_handle, rec->handle);
    if (!o) return add_object(s, thread, rec, GS_SPACE_SHARED, 1, &o);
    o->refs++;
    return note_object(s, o);
}

static int grow_object(struct gs_store *s, struct object *o, uint64_t bytes)
{
    int64_t id = (int64_t)o->live.id;
    if (o->live.space != GS_SPACE_SHARED || bytes <= o->live.bytes) return 0;
    o->live.bytes = bytes;
    if (id >= s->first_allocation) {
        s->allocations.at[id - s->first_allocation].bytes = (int64_t)bytes;
        return 0;
    }
    struct gs_row_bytes *row = GS_ARRAY_ADD(&s->sizes);
    if (!row) return gs_store_no_memory(s);
    *row = (struct gs_row_bytes){id, (int64_t)bytes};
    return 0;
}

static int map_object(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    struct gs_vmm *v = s->vmm;
    const uint64_t room = UINT64_MAX - rec->address, offset = (uint64_t)gs_whole(rec->offset);
    const uint64_t bytes = rec->bytes < room ? (uint64_t)gs_whole(rec->bytes) : (uint64_t)gs_whole(room);
    if (!bytes) return 0;
    /* mappings that are still recorded there are stale */
    int64_t stale = unmap_range(s, rec->address, bytes, true, rec->rec.time_ns, 0, NULL);
    if (stale < 0) return -1;
    s->counts[GS_COUNT_IMPLIED_FREES] += (uint64_t)stale;
    struct object *o = find_object(v, &v->by_handle, rec->handle);
    if (!o && add_object(s, thread, rec, GS_SPACE_SHARED, 0, &o)) return -1;
    struct gs_row_mapping *row = GS_ARRAY_ADD(&s->mappings);
    if (!row || grow_object(s, o, (uint64_t)gs_whole(offset + bytes))) return gs_store_no_memory(s);
    o->maps++;
    *row = (struct gs_row_mapping){
        .allocation = (int64_t)o->live.id,
        .address = (int64_t)rec->address,
        .bytes = (int64_t)bytes,
        .offset = (int64_t)offset,
        .map_ns = gs_whole(rec->rec.time_ns),
        .unmap_ns = GS_OPEN,
        .stack = gs_store_stack_id(s, thread, rec->rec.stack),
        .device = o->live.device,
    };
    struct gs_range at = {rec->address, bytes, o->live.device, o->live.space, 0};
    return enter_mapping(s, s->first_mapping + (int64_t)s->mappings.count - 1, (int64_t)o->live.id, &at);
}

/* ---------------------------------------------------------------- calls that may fail later */

struct gs_undo *gs_vmm_undo(struct gs_store *s, uint32_t thread)
{
    struct gs_store_thread *t = gs_store_thread(s, thread);
    if (t && !t->undo && !(t->undo = calloc(1, sizeof *t->undo))) gs_store_no_memory(s);
    return t ? t->undo : NULL;
}

static int release_or_unmap(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    struct gs_undo *undo = gs_vmm_undo(s, thread);
    if (!undo) return -1;
    const uint32_t stack = gs_store_stack_id(s, thread, rec->rec.stack);
    const uint64_t time_ns = (uint64_t)gs_whole(rec->rec.time_ns);
    undo->set = undo->dirty = true;
    undo->op = rec->op;
    undo->handle = rec->handle;
    undo->address = rec->address;
    undo->bytes = rec->bytes;
    undo->time_ns = time_ns;
    undo->object = 0;
    undo->mappings.count = undo->ended.count = 0;
    if (rec->op == GS_VMM_UNMAP) {
        int64_t n = unmap_range(s, rec->address, rec->bytes, false, time_ns, stack, undo);
        s->counts[GS_COUNT_UNKNOWN_FREES] += n == 0;
        return n < 0 ? -1 : 0;
    }
    struct object *o = find_object(s->vmm, &s->vmm->by_handle, rec->handle);
    if (!o || !o->refs) {
        s->counts[GS_COUNT_UNKNOWN_FREES]++;
        return 0;
    }
    undo->object = o->live.id;
    o->refs--;
    return note_object(s, o) ? -1 : end_if_unheld(s, o, time_ns, stack, undo);
}

/* Restores the object that the thread's last call may have ended. */
static struct object *revive_object(struct gs_store *s, const struct gs_undo *undo, uint64_t id)
{
    struct object *o = find_object(s->vmm, &s->vmm->by_id, id);
    for (size_t i = 0; !o && i < undo->ended.count; i++)
        if (undo->ended.at[i].id == id) {
            o = new_object(s, &undo->ended.at[i], true);
            if (o && gs_store_end_row(s, id, GS_OPEN, 0)) o = NULL;
        }
    return o;
}

static int take_back(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    struct gs_undo *undo = gs_vmm_undo(s, thread);
    if (!undo) return -1;
    s->counts[GS_COUNT_FAILED_FREES]++;
    if (!undo->set || undo->op != rec->op || undo->address != rec->address ||
        (rec->op == GS_VMM_RELEASE && undo->handle != rec->handle))
        return 0;
    undo->set = false;
    undo->dirty = true;
    if (rec->op == GS_VMM_RELEASE ? !undo->object : !undo->mappings.count) {
        s->counts[GS_COUNT_UNKNOWN_FREES]--;
        return 0;
    }
    if (rec->op == GS_VMM_RELEASE) {
        struct object *o = revive_object(s, undo, undo->object);
        if (o) o->refs++;
        return o ? note_object(s, o) : 0;
    }
    for (size_t i = 0; i < undo->mappings.count; i++) {
        const struct gs_undo_mapping *m = &undo->mappings.at[i];
        const struct gs_range *now = gs_ranges_from(&s->vmm->tree, m->at.start);
        if (now && now->start < m->at.start + m->at.bytes) continue; /* mapped again since: it was free after all */
        struct object *o = revive_object(s, undo, (uint64_t)m->object);
        if (!o) continue;
        o->maps++;
        if (note_object(s, o) || end_mapping_row(s, m->id, GS_OPEN) || enter_mapping(s, m->id, m->object, &m->at))
            return -1;
    }
    return 0;
}

int gs_store_add_vmm(struct gs_store *s, uint32_t thread, const struct gs_rec_vmm *rec)
{
    if (!vmm_of_store(s)) return -1;
    bool failed = rec->rec.flags & GS_FLAG_FAILED;
    switch (rec->op) {
    case GS_VMM_RELEASE:
    case GS_VMM_UNMAP: return failed ? take_back(s, thread, rec) : release_or_unmap(s, thread, rec);
    case GS_VMM_CREATE: return failed ? 0 : create_object(s, thread, rec);
    case GS_VMM_IMPORT:
    case GS_VMM_RETAIN: return failed ? 0 : retain_object(s, thread, rec);
    case GS_VMM_MAP: return failed ? 0 : map_object(s, thread, rec);
    default: return 0;
    }
}

int gs_vmm_end_device(struct gs_store *s, int device, uint64_t time_ns, uint32_t stack)
{
    struct gs_vmm *v = s->vmm;
    if (!v) return 0;
    for (size_t t = 0; t < s->threads.count; t++)
        if (s->threads.at[t].undo && s->threads.at[t].undo->set) {
            s->threads.at[t].undo->set = false;
            s->threads.at[t].undo->dirty = true;
        }
    const struct gs_range *at;
    for (uint64_t from = 0; (at = gs_ranges_from(&v->tree, from));) {
        from = at->start + at->bytes;
        if (at->device == device && unmap_from_range(s, at, time_ns, stack, NULL)) return -1;
    }
    for (size_t i = 0; i < v->objects.count; i++) {
        struct object *o = &v->objects.at[i];
        if (o->live.id && o->live.device == device && !o->maps && end_object(s, o, time_ns, stack, NULL)) return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- after a death */

int gs_vmm_load_object(struct gs_store *s, const struct gs_live *live, uint32_t refs, bool named)
{
    struct object *o = new_object(s, live, named);
    if (o) o->refs = refs;
    return o ? 0 : -1;
}

int gs_vmm_load_mapping(struct gs_store *s, int64_t id, int64_t object, const struct gs_range *at)
{
    if (!vmm_of_store(s)) return -1;
    struct object *o = find_object(s->vmm, &s->vmm->by_id, (uint64_t)object);
    if (!o) return 1;
    struct gs_range range = *at;
    range.space = o->live.space;
    range.device = o->live.device;
    o->maps++;
    return enter_mapping(s, id, object, &range);
}
