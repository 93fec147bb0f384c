#include "interpose/state.h"

union gs_session_page gs_session_page __attribute__((aligned(4096)));
uint64_t gs_session_start_ns;
_Atomic int gs_session_state;

static struct gs_spool spool;

struct gs_spool *gs_session_spool(void)
{
    return &spool;
}
