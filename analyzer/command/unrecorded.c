#include "analyzer/command/unrecorded.h"

#include <elf.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

#if defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_X86_64 };
#endif

/* Why the file's properties prevented loading the recorder; NULL: they did not. ld.so loads preloaded libraries, and an
 * executable without an interpreter does not use ld.so. */
static const char *cannot_load(const char *name)
{
    char path[PATH_MAX];
    struct program p;
    struct stat st;

    if (!program_find(name, path, sizeof path) || stat(path, &st) != 0) return NULL;
    program_read(path, &p);
    return p.elf && p.class != ELFCLASS64  ? "is a 32-bit program, which cannot load a 64-bit library"
           : p.elf && p.machine != MACHINE ? "is a program for another processor, which cannot load this library"
           : p.elf && !p.loader[0]         ? "is linked statically, so no library can be loaded into it"
           : program_is_musl(&p)           ? "is linked to musl, and the recorder needs glibc"
           : geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0
               ? "has file capabilities, so the system loads no other library into it"
           : (st.st_mode & (S_ISUID | S_ISGID)) && geteuid() != 0
               ? "is set-user-ID, so the system loads no other library into it"
               : NULL;
}

/* "failed with status 2"; "" after success. Shells end with 126 and 127 if a command cannot be started. */
static void format_outcome(int status, char *out, size_t size)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    *out = 0;
    if (WIFSIGNALED(status))
        text_put(out, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (code)
        text_put(out, size, "failed with status %d%s", code,
                 code == 127   ? " (a shell's status for a command that was not found)"
                 : code == 126 ? " (a shell's status for a command that cannot be executed)"
                               : "");
}

/* The files of NVIDIA's driver, WSL's and Jetson's. */
static bool has_gpu(void)
{
    return access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 ||
           access("/dev/dxg", F_OK) == 0 || access("/dev/nvmap", F_OK) == 0;
}

void command_print_unrecorded(const char *program, int status, bool torch_cpu, bool what_if)
{
    const char *why = cannot_load(program), *name = basename(program);
    char ended[160];

    format_outcome(status, ended, sizeof ended);
    /* A process that calls CUDA but cannot write its recording reports that itself; this one does not know it. Nor does
     * it know what a process does whose environment was replaced: gpuspy doctor explains both. */
    if (why)
        complain("nothing was recorded: '%s' %s%s%s", program, why, *ended ? "; it " : "", ended);
    else if (strchr(ended, '('))
        complain("nothing was recorded: '%s' %s; see gpuspy doctor", name, ended);
    else
        complain("nothing was recorded: '%s' %s, and no recorded process called CUDA%s; see gpuspy doctor", name,
                 *ended ? ended : "succeeded",
                 torch_cpu || what_if ? ""
                 : !has_gpu()         ? "; no GPU here: add --simulate a100-40g"
                 : *ended             ? ""
                                      : "; --torch-cpu records PyTorch's CPU tensors");
}
