/* dlclose: before anything is unloaded, gpuspy pins the libraries whose addresses it holds; afterwards it forgets what
 * it knows of addresses in other libraries. The caller takes the loader's lock here anyway, so gpuspy may take it too.
 * */
#include "interpose/resolve.h"
#include "interpose/stack.h"

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    if (!gs_dlclose_at) gs_real_find();
    int (*const real)(void *) = (int (*)(void *))gs_dlclose_at;
    gs_pin_now();
    const int result = real(handle);
    gs_stack_unloaded();
    return result;
}
