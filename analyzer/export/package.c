#include "analyzer/export/package.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/launch/child.h"

enum { TIMEOUT_MS = 2000 };

/* "libc6:amd64: /lib/x86_64-linux-gnu/libc.so.6" → "libc6" */
static bool dpkg_owner(const char *path, char *out, size_t size)
{
    const char *const argv[] = {"dpkg-query", "-S", "--", path, NULL};
    struct launch_child c = {.argv = argv, .timeout_ms = TIMEOUT_MS};

    launch_child_set(&c, "LC_ALL", "C");
    launch_child_set(&c, "LD_PRELOAD", NULL);
    if (!launch_child_run(&c)) return false;
    size_t n = strcspn(c.out, ":,\n ");
    if (!n || n >= size || strncmp(c.out, "diversion", 9) == 0) return false;
    memcpy(out, c.out, n);
    out[n] = 0;
    return true;
}

/* If /lib is a link to /usr/lib, the package database may have the file under either name. */
static bool dpkg_owner_either(const char *path, char *out, size_t size)
{
    char other[4096];

    if (dpkg_owner(path, out, size)) return true;
    if (strncmp(path, "/usr/lib", 8) == 0) return dpkg_owner(path + 4, out, size);
    snprintf(other, sizeof other, "/usr%s", path);
    return strncmp(path, "/lib", 4) == 0 && dpkg_owner(other, out, size);
}

static bool rpm_owner(const char *path, char *out, size_t size)
{
    const char *const argv[] = {"rpm", "-qf", "--queryformat", "%{NAME}\n", path, NULL};
    struct launch_child c = {.argv = argv, .timeout_ms = TIMEOUT_MS};

    launch_child_set(&c, "LD_PRELOAD", NULL);
    if (!launch_child_run(&c)) return false;
    size_t n = strcspn(c.out, "\n ");
    if (!n || n >= size) return false;
    memcpy(out, c.out, n);
    out[n] = 0;
    return true;
}

bool export_package_debug_hint(const char *path, char *out, size_t size)
{
    char name[256];

    if (strstr(path, "/site-packages/")) {
        snprintf(out, size, "wheels contain no debugging information: build it from source with -g");
        return true;
    }
    if (path[0] != '/' || access(path, F_OK) != 0) return false;
    if (dpkg_owner_either(path, name, sizeof name)) {
        bool libc = strcmp(name, "libc6") == 0; /* in the main archive, and under another name */
        snprintf(out, size, "apt install %s%s", name, libc ? "-dbg" : "-dbgsym");
        return true;
    }
    if (rpm_owner(path, name, sizeof name)) {
        snprintf(out, size, "dnf debuginfo-install %s", name);
        return true;
    }
    return false;
}
