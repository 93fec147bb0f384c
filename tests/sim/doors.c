/* Preloaded by test_libraries: prints to stderr what a runtime looks up in libcuda, and how. If the
 * runtime looks up cuGetProcAddress@12000, it gets second_hop, so that the log shows whether it then calls the function
 * that it was given. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*proc_address)(const char *, void **, int, uint64_t, int *);
typedef void *(*symbol)(void *, const char *);

static proc_address real;

static int ask(const char *hop, const char *name, void **function, int version, uint64_t flags, int *status)
{
    fprintf(stderr, "%s %s@%d flags=%d%s\n", hop, name, version, (int)flags, status != NULL ? " status" : "");
    return real(name, function, version, flags, status);
}

static int second_hop(const char *name, void **function, int version, uint64_t flags, int *status)
{
    return ask("second", name, function, version, flags, status);
}

static int first_hop(const char *name, void **function, int version, uint64_t flags, int *status)
{
    int result = ask("first", name, function, version, flags, status);
    if (strcmp(name, "cuGetProcAddress") == 0 && version >= 12000) *function = (void *)second_hop;
    return result;
}

void *dlsym(void *restrict handle, const char *restrict name);
void *dlsym(void *restrict handle, const char *restrict name)
{
    static symbol next;
    if (next == NULL) next = (symbol)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    if (next == NULL) next = (symbol)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *found = next(handle, name);
    if (strncmp(name, "cu", 2) != 0 || strncmp(name, "cuda", 4) == 0) return found;
    fprintf(stderr, "dlsym %s%s\n", name, found == NULL ? " (none)" : "");
    if (strcmp(name, "cuGetProcAddress_v2") != 0 || found == NULL) return found;
    real = (proc_address)found;
    return (void *)first_hop;
}
