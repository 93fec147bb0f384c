#include "interpose/setting.h"

#include <string.h>
#include "interpose/recorder.h"
#include "schema/event.h"

void gs_setting_write(struct gs_writer *w, const char *name, const char *value, uint8_t flags)
{
    const size_t given = strlen(value);
    const uint16_t name_len = (uint16_t)strlen(name);
    const uint16_t value_len = given < GS_STRING_MAX ? (uint16_t)given : GS_STRING_MAX;
    const uint16_t bytes = (uint16_t)((sizeof(struct gs_rec_setting) + name_len + value_len + 7) & ~7u);
    struct gs_rec_setting *r = gs_writer_reserve(w, bytes);
    if (!r) return;
    memset(r, 0, bytes);
    r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_SETTING, .flags = flags, .time_ns = gs_now()};
    r->name_len = name_len;
    r->value_len = value_len;
    memcpy(r + 1, name, name_len);
    memcpy((char *)(r + 1) + name_len, value, value_len);
    gs_writer_commit(w, bytes);
}
