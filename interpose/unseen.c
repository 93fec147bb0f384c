/* Names that were returned to the program without a wrapper. */
#include "interpose/unseen.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "interpose/recorder.h"
#include "interpose/shield.h"
#include "interpose/state.h"

#define UNSEEN 64
#define NAME_MAX_BYTES 60

static struct {
    char name[NAME_MAX_BYTES];
    _Atomic bool ready;       /* the name is complete … */
    _Atomic uint32_t session; /* … and was written to this session's spool */
} unseen[UNSEEN];
static _Atomic uint32_t unseen_count;

static void write_name(struct gs_writer *w, uint32_t number)
{
    const uint16_t len = (uint16_t)strlen(unseen[number].name);
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_name) + len + 7) & ~7u);
    struct gs_rec_name *r = gs_writer_reserve(w, bytes);
    if (!r) return;
    memset(r, 0, bytes);
    r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_API, .time_ns = gs_now()};
    r->number = GS_API_UNSEEN + number;
    r->name_len = len;
    memcpy(r + 1, unseen[number].name, len);
    gs_writer_commit(w, bytes);
}

void gs_unseen_write(void)
{
    const uint32_t live = atomic_load(&gs_session_live);
    if (!live || !atomic_load(&unseen_count)) return;
    struct gs_writer w = {0};
    struct gs_shield shield;
    gs_shield_begin(&shield);
    gs_writer_open(&w, gs_session_spool());
    for (uint32_t i = 0; i < UNSEEN; i++)
        if (atomic_load(&unseen[i].ready) && atomic_exchange(&unseen[i].session, live) != live) write_name(&w, i);
    gs_writer_close(&w);
    gs_shield_end(&shield);
}

/* Two threads at once may both store a name; the reader counts it once. */
void gs_unseen_keep(const char *name)
{
    for (uint32_t i = 0; i < UNSEEN; i++)
        if (atomic_load(&unseen[i].ready) && strcmp(unseen[i].name, name) == 0) return;
    const uint32_t number = atomic_fetch_add(&unseen_count, 1);
    if (number >= UNSEEN) {
        atomic_store(&unseen_count, UNSEEN);
        return;
    }
    snprintf(unseen[number].name, sizeof unseen[number].name, "%s", name);
    atomic_store(&unseen[number].ready, true);
    gs_unseen_write();
}
