/* Validates that bytes of a spool are a record, and returns its parts. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "schema/event.h"

/* Is there a complete, consistent record at `rec`, with `room` readable bytes? If so, the lengths in it can be relied
 * on. */
bool gs_record_valid(const struct gs_rec *rec, size_t room);

/* A definition takes effect with the event after it; everything else is an event. */
static inline bool gs_record_is_definition(const struct gs_rec *rec)
{
    return rec->type < GS_REC_ALLOC;
}

/* The time that sorts the record: when it was made, or shortly before. */
uint64_t gs_record_time(const struct gs_rec *rec);
