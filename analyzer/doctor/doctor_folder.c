/* Where the recording goes, and what the environment asks of the recorder. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>
#include "analyzer/launch/limit.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/base/options.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "schema/spool.h"
#include "schema/store.h"

enum { ENOUGH_MIB = 1024, LEAST_MIB = 128 };

extern char **environ;

static const struct {
    unsigned long magic;
    const char *name;
} networks[] = {{NFS_SUPER_MAGIC, "NFS"}, {SMB_SUPER_MAGIC, "SMB"}, {0xff534d42, "CIFS"}, {0xfe534d42, "SMB2"},
                {0x0bd00bd0, "Lustre"},   {V9FS_MAGIC, "9p"},       {0x47504653, "GPFS"}, {0x00c36400, "Ceph"},
                {0x65735546, "FUSE"},     {0x19830326, "BeeGFS"}};

static const char *network_of(long type)
{
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if ((unsigned long)type == networks[i].magic) return networks[i].name;
    return NULL;
}

/* 0 or an errno. */
static int try_file(const char *folder)
{
    char name[PATH_MAX + 32];

    text_put(name, sizeof name, "%s/.gpuspy-doctor-XXXXXX", folder);
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) return errno;
    close(fd);
    unlink(name);
    return 0;
}

/* The spool is a shared memory segment. */
static void check_memory(struct doctor *d)
{
    int id = shmget(IPC_PRIVATE, GS_SPOOL_BYTES, IPC_CREAT | 0600);
    if (id < 0)
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_WARNING, "memory",
                           "allow shmget, or raise kernel.shmmni, kernel.shmall or kernel.shmmax",
                           "no shared memory (shmget: %s): if the program is killed, its last %d ms are lost",
                           strerror(errno), GS_SPOOL_LOST_MS);
    else
        shmctl(id, IPC_RMID, NULL);
}

static void check_space(struct doctor *d, const char *folder)
{
    struct statfs fs;
    char size[UNITS_TEXT];

    if (statfs(folder, &fs) != 0) return;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize;
    units_format_bytes(size, free_bytes);
    const char *network = network_of(fs.f_type), *asked = getenv("GPUSPY_MIN_FREE");
    const uint64_t least = asked && *asked ? 0 : gs_disk_floor((uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize);
    if (free_bytes < least)
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_PROBLEM, "space",
                           "record elsewhere: gpuspy run -o FOLDER/run.db; or set GPUSPY_MIN_FREE",
                           "%s has %s free; a recording does not grow when less than %s is free", folder, size,
                           UNITS_BYTES(least));
    else if (free_bytes < (uint64_t)LEAST_MIB << 20)
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_PROBLEM, "space", "record elsewhere: gpuspy run -o FOLDER/run.db",
                           "%s has %s free: events would be dropped (about 20 bytes each)", folder, size);
    else if (free_bytes < (uint64_t)ENOUGH_MIB << 20)
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_WARNING, "space", "record elsewhere: gpuspy run -o FOLDER/run.db",
                           "%s has only %s free; an event takes about 20 bytes", folder, size);
    else
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_OK, "space", NULL, "%s is writable, with %s free", folder, size);
    if (network)
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_WARNING, "network",
                           "record to a local disk (gpuspy run -o /tmp/run.db) and copy it afterwards",
                           "%s is on a network file system (%s): after a crash the recording may be incomplete", folder,
                           network);
}

void doctor_folder(struct doctor *d)
{
    const char *db = getenv("GPUSPY_DB");
    char cwd[PATH_MAX] = ".", path[2 * PATH_MAX];
    struct stat st;

    db = db && *db ? db : "run.db";
    if (!getcwd(cwd, sizeof cwd)) snprintf(cwd, sizeof cwd, ".");
    if (db[0] == '/')
        snprintf(path, sizeof path, "%s", db);
    else
        snprintf(path, sizeof path, "%s/%s", strcmp(cwd, "/") ? cwd : "", db);
    char *slash = strrchr(path, '/');
    slash[slash == path] = 0;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)) {
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_PROBLEM, "folder",
                           "create it, or record elsewhere: gpuspy run -o FILE",
                           "%s, the folder of the recording (GPUSPY_DB), is not a folder", path);
        return;
    }
    int error = try_file(path);
    if (error > 0) {
        doctor_add_finding(d, DOCTOR_FOLDER, DOCTOR_PROBLEM, "writable",
                           "record elsewhere: gpuspy run -o FOLDER/run.db", "%s is not writable: %s", path,
                           strerror(error));
        return;
    }
    text_put(d->folder, sizeof d->folder, "%s", path);
    check_space(d, path);
    check_memory(d);
}

/* "GPUSPY_DB=FILE" → "GPUSPY_DB|" */
static const char *const known[] = {
#define ENVIRONMENT(name, meaning) name,
#include "analyzer/base/environment.def"
};

static void known_words(char *words, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strncmp(known[i], "GPUSPY_", 7) == 0 && at < size)
            at += (size_t)snprintf(words + at, size - at, "%.*s|", (int)strcspn(known[i], "="), known[i]);
}

static void check_value(struct doctor *d, const char *name, const char *value)
{
    static const char flag[] = "0|no|false|off|1|yes|true|on";
    static const struct {
        const char *name, *words;
    } rows[] = {{"GPUSPY_STACKS", "python|native|both|none"},
                {"GPUSPY_DEEPBIND", "keep"},
                {"GPUSPY_TORCH_CPU", flag},
                {"GPUSPY_NVML", flag},
                {"GPUSPY_ARGS", flag},
                {"GPUSPY_SOURCE", flag},
                {"GPUSPY_QUIET", flag},
                {"GPUSPY_DISABLE", flag}};
    char near[64], fix[256], list[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(name, rows[i].name) != 0 || !*value || options_is_word(value, rows[i].words)) continue;
        options_list(rows[i].words, list, sizeof list);
        if (options_nearest(value, rows[i].words, near, sizeof near))
            snprintf(fix, sizeof fix, "did you mean %s=%s?", name, near);
        else
            snprintf(fix, sizeof fix, "give one of %s", list);
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_WARNING, "value", fix,
                           "%s=%s is invalid; gpuspy uses the default", name, value);
    }
    char *end;
    long depth = strtol(value, &end, 10);
    if (strcmp(name, "GPUSPY_NATIVE_DEPTH") == 0 && *value && (*end || depth < 1 || depth > 512))
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_WARNING, "value", "give a number from 1 to 512",
                           "%s=%s is invalid; gpuspy uses the default", name, value);
    char limit[2048], wrong[128];
    uint64_t bytes;
    const bool keep = strcmp(name, "GPUSPY_KEEP") == 0;
    if ((keep || strcmp(name, "GPUSPY_MIN_FREE") == 0) && *value && strcmp(value, "0") != 0 &&
        (!units_parse_bytes(value, &bytes, wrong) || (keep && bytes < GS_KEEP_MIN)))
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_WARNING, "value",
                           keep ? "give a size of at least 32MiB, such as 512MiB" : "give a size such as 5GiB, or 0",
                           "%s=%s is invalid; %s", name, value,
                           keep ? "the recording is not bounded" : "gpuspy uses the default");
    if (strcmp(name, "GPUSPY_LIMIT") == 0 && *value &&
        !launch_limit_value(value, false, limit, sizeof limit, wrong, sizeof wrong))
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_WARNING, "value", "give a size such as 24GiB, or 0:24GiB,1:40GiB",
                           "%s=%s is invalid; devices are not capped", name, value);
    if (strcmp(name, "GPUSPY_DISABLE") == 0 && *value && options_is_word(value, "1|yes|true|on"))
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_PROBLEM, "disabled", "unset GPUSPY_DISABLE",
                           "GPUSPY_DISABLE=%s: nothing is recorded", value);
}

void doctor_settings(struct doctor *d)
{
    char words[1024] = "", name[128], near[64], fix[96];
    size_t set = 0, before = d->n;

    known_words(words, sizeof words);
    for (char **e = environ; *e; e++) {
        if (strncmp(*e, "GPUSPY_", 7) != 0 || strncmp(*e, DOCTOR_CHILD, strlen(DOCTOR_CHILD)) == 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*e, "="), *e);
        set++;
        if (options_is_word(name, words)) {
            check_value(d, name, *e + strlen(name) + ((*e)[strlen(name)] == '='));
            continue;
        }
        bool hint = options_nearest(name, words, near, sizeof near);
        snprintf(fix, sizeof fix, "did you mean %s?", near);
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_WARNING, "unknown", hint ? fix : "see 'gpuspy help --man'",
                           "gpuspy has no variable %s; it has no effect", name);
    }
    if (d->n == before)
        doctor_add_finding(d, DOCTOR_SETTINGS, DOCTOR_OK, "settings", NULL,
                           set == 1 ? "the GPUSPY_ variable that is set is valid"
                           : set    ? "the %zu GPUSPY_ variables that are set are valid"
                                    : "no GPUSPY_ variable is set: gpuspy uses its defaults",
                           set);
}
