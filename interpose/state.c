#include "interpose/state.h"

#include <stdlib.h>

union gs_session_page gs_session_page __attribute__((aligned(GS_LARGEST_PAGE)));
uint64_t gs_session_start_ns;
_Atomic int gs_session_state;
_Atomic bool gs_attached, gs_dormant;

static struct gs_spool first;
static struct gs_spool *_Atomic spool = &first;

struct gs_spool *gs_session_spool(void)
{
    return atomic_load_explicit(&spool, memory_order_relaxed);
}

bool gs_session_new_spool(void)
{
    struct gs_spool *next = calloc(1, sizeof *next);
    if (next) atomic_store(&spool, next);
    return next != NULL;
}
