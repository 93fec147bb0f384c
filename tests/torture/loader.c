/* Behaviours in which the dynamic loader is busy: it holds its lock in constructors and in callbacks of
 * dl_iterate_phdr. */
#include "tests/torture/torture.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

static void use(void *library, unsigned pairs)
{
    void (*work)(unsigned) = NULL;
    if (!library) return;
    *(void **)&work = dlsym(library, "t_plugin_work");
    if (work)
        work(pairs);
    else
        t_log("WRONG: no t_plugin_work: %s", dlerror());
}

static void load(unsigned mode, uint32_t n)
{
    static const int flags[] = {RTLD_NOW | RTLD_LOCAL, RTLD_NOW | RTLD_GLOBAL, RTLD_LAZY | RTLD_LOCAL,
                                RTLD_NOW | RTLD_DEEPBIND};
    t_plugin_mode = mode;
    void *library = dlopen(t_plugin(0), flags[n % 4]);
    T_CHECK(library);
    use(library, 2);
    if (library) dlclose(library);
    t_plugin_mode = 0;
}

void constructor(uint32_t n)
{
    load(T_CTOR_WORK | (n & 4 ? T_DTOR_WORK : 0), n);
}

void constructor_thread(uint32_t n)
{
    load(T_CTOR_HELPER | (n & 4 ? T_CTOR_WORK : 0), n);
}

void destructor(uint32_t n)
{
    t_plugin_mode = T_DTOR_WORK;
    void *library = dlopen(t_plugin(1), RTLD_NOW | (n & 1 ? RTLD_GLOBAL : RTLD_LOCAL));
    T_CHECK(library);
    if (n & 2) use(library, 2);
    if (library) T_CHECK(!dlclose(library));
    t_plugin_mode = 0;
    t_log("destructor: unloaded %d", !dlopen(t_plugin(1), RTLD_NOW | RTLD_NOLOAD));
}

static void open_library(uint32_t random, int flag)
{
    void *library = dlopen(t_plugin(t_next(&random)), RTLD_NOW | flag);
    T_CHECK(library);
    use(library, t_pick(&random, 0, 3));
    if (library) T_CHECK(!dlclose(library));
}

static void *open_and_close(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument;
    static const int flags[] = {RTLD_LOCAL, RTLD_GLOBAL, RTLD_DEEPBIND, RTLD_LOCAL};
    for (unsigned i = 0; i < 20; i++) open_library(t_next(&random), flags[t_pick(&random, 0, 3)]);
    return NULL;
}

void dlopen_storm(uint32_t n)
{
    pthread_t threads[8];
    const unsigned count = t_pick(&n, 1, 8);
    if (t_next(&n) & 1) t_plugin_mode = T_CTOR_WORK;
    /* before any thread: simcuda's first call takes the loader's lock, and other threads may wait for that call */
    t_work(1);
    t_crew_start(t_pick(&n, 0, 2));
    for (unsigned i = 0; i < count; i++) threads[i] = t_start(open_and_close, (void *)(uintptr_t)t_next(&n), 0);
    for (unsigned i = 0; i < count; i++) pthread_join(threads[i], NULL);
    t_crew_stop();
    t_plugin_mode = 0;
}

static void *do_some(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument;
    for (int i = 0; i < 10; i++) {
        t_deep_work(t_pick(&random, 0, 20), 3);
        if (random & 1) open_library(t_next(&random), RTLD_LOCAL);
        if (t_next(&random) % 4) continue;
        pid_t child = fork();
        if (!child) _exit(3);
        if (child > 0) t_log_end_of("together", child);
    }
    return NULL;
}

/* Also run under ThreadSanitizer and lockorder.c. */
void together(uint32_t n)
{
    pthread_t threads[64];
    for (int i = 0; i < 64; i++) threads[i] = t_start(do_some, (void *)(uintptr_t)t_next(&n), 0);
    for (int i = 0; i < 64; i++) pthread_join(threads[i], NULL);
}

static void *thread_work(void *unused)
{
    (void)unused;
    t_deep_work(10, 5);
    return NULL;
}

static int with_object(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)info, (void)size;
    const uint32_t n = *(uint32_t *)data;
    if (n & 1) t_deep_work(5, 2);
    if (n & 2) pthread_join(t_start(thread_work, NULL, 0), NULL);
    return 0;
}

void phdr(uint32_t n)
{
    n = 1;
    dl_iterate_phdr(with_object, &n);
}

void phdr_thread(uint32_t n)
{
    n = n % 2 + 2;
    dl_iterate_phdr(with_object, &n);
}

static void *find_and_call(void *argument)
{
    uint32_t random = (uint32_t)(uintptr_t)argument;
    for (unsigned i = 0; i < 50; i++) {
        int (*sync)(void *) = NULL;
        *(void **)&sync = dlsym(t_next(&random) & 1 ? RTLD_DEFAULT : RTLD_NEXT, "cudaStreamSynchronize");
        if (!sync) continue;
        t_begin(t_slot(), T_SYNC);
        sync(NULL);
        t_end(t_slot(), T_SYNC);
        T_CHECK(!dlsym(RTLD_DEFAULT, "cudaNoSuchFunction"));
    }
    return NULL;
}

void dlsym_storm(uint32_t n)
{
    pthread_t threads[6];
    for (int i = 0; i < 6; i++) threads[i] = t_start(find_and_call, (void *)(uintptr_t)t_next(&n), 0);
    for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
}
