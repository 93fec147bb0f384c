#include "interpose/resolve.h"

__attribute__((weak)) void gs_pin_later(const void *address_in_library)
{
}
