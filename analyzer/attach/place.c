#include "analyzer/attach/place.h"
#include "analyzer/base/arena.h"
#include "analyzer/attach/process.h"

#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

enum { FRAMES = 1024 };

struct attach_places {
    pid_t pid;
    Dwfl_Callbacks callbacks;
    Dwfl *dwfl;
};

/* Finds nothing, on purpose: libdw would search other folders and may ask a debuginfod server over the network. */
static int find_no_debuginfo(Dwfl_Module *m, void **data, const char *name, Dwarf_Addr base, const char *file,
                             const char *link, GElf_Word crc, char **found)
{
    return -1;
}

struct attach_places *attach_places_open(pid_t pid)
{
    struct attach_places *p = arena_zeroed(1, sizeof *p);

    p->pid = pid;
    p->callbacks = (Dwfl_Callbacks){.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = find_no_debuginfo};
    p->dwfl = dwfl_begin(&p->callbacks);
    if (p->dwfl && dwfl_linux_proc_report(p->dwfl, pid) == 0 && dwfl_report_end(p->dwfl, NULL, NULL) == 0) {
        if (dwfl_linux_proc_attach(p->dwfl, pid, true) == 0) return p;
    }
    attach_places_close(p);
    return NULL;
}

void attach_places_close(struct attach_places *p)
{
    if (p && p->dwfl) dwfl_end(p->dwfl);
    free(p);
}

/* FORBIDDEN: code that may hold a lock of its own at any instruction: the loader, and libraries that define malloc.
 * ALLOCATES: a program that defines malloc itself. */
enum kind { OTHER, LIBC, FORBIDDEN, ALLOCATES };

static bool module_starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool has_dynamic_malloc(Elf *elf)
{
    for (Elf_Scn *scn = NULL; (scn = elf_nextscn(elf, scn));) {
        GElf_Shdr header;
        GElf_Sym symbol;
        if (!gelf_getshdr(scn, &header) || header.sh_type != SHT_DYNSYM) continue;
        Elf_Data *data = elf_getdata(scn, NULL);
        for (int i = 1; data && gelf_getsym(data, i, &symbol); i++) {
            if (symbol.st_shndx == SHN_UNDEF) continue;
            const char *name = elf_strptr(elf, header.sh_link, symbol.st_name);
            if (name && strcmp(name, "malloc") == 0) return true;
        }
    }
    return false;
}

static bool has_interpreter(Elf *elf)
{
    size_t n = 0;
    GElf_Phdr header;

    if (elf_getphdrnum(elf, &n) != 0) return false;
    for (size_t i = 0; i < n; i++)
        if (gelf_getphdr(elf, (int)i, &header) && header.p_type == PT_INTERP) return true;
    return false;
}

static enum kind judge_module(Dwfl_Module *m, const char *name)
{
    static const char *const libc[] = {"libc.so", "libc-2.", "libpthread", "libdl."};
    static const char *const forbidden[] = {"ld-", "[vdso", "libgpuspy", "libmemray"};
    GElf_Addr bias;

    for (size_t i = 0; i < COUNT_OF(libc); i++)
        if (module_starts_with(name, libc[i])) return LIBC;
    for (size_t i = 0; i < COUNT_OF(forbidden); i++)
        if (module_starts_with(name, forbidden[i])) return FORBIDDEN;
    Elf *elf = dwfl_module_getelf(m, &bias);
    if (!elf || !has_dynamic_malloc(elf)) return OTHER;
    return has_interpreter(elf) ? ALLOCATES : FORBIDDEN;
}

/* Judges each module once. */
static enum kind module_kind_of(Dwfl_Module *m)
{
    static const char kinds[ALLOCATES + 1];
    void **known = NULL;
    const char *name = m ? dwfl_module_info(m, &known, NULL, NULL, NULL, NULL, NULL, NULL) : NULL;

    if (!name) return OTHER;
    if (!*known) *known = (void *)(uintptr_t)&kinds[judge_module(m, basename(name))];
    return (enum kind)((const char *)*known - kinds);
}

struct lookup {
    const char *name;
    uintptr_t at;
};

static int find_in_libc(Dwfl_Module *m, void **data, const char *module, Dwarf_Addr base, void *to)
{
    struct lookup *w = to;
    const int n = module_kind_of(m) == LIBC ? dwfl_module_getsymtab(m) : 0;

    for (int i = 1; i < n; i++) {
        GElf_Sym symbol;
        GElf_Addr at;
        GElf_Word section;
        const char *name = dwfl_module_getsym_info(m, i, &symbol, &at, &section, NULL, NULL);
        if (!name || section == SHN_UNDEF || GELF_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
        const size_t length = strcspn(name, "@"); /* the rest is a version */
        if (length != strlen(w->name) || strncmp(name, w->name, length) != 0) continue;
        w->at = at;
        return DWARF_CB_ABORT;
    }
    return DWARF_CB_OK;
}

uintptr_t attach_places_libc(struct attach_places *p, const char *name)
{
    struct lookup w = {name, 0};

    (void)dwfl_getmodules(p->dwfl, find_in_libc, &w, 0);
    return w.at;
}

struct walk {
    Dwfl *dwfl;
    unsigned frames;
    bool inside;       /* all frames so far belong to the C library or a FORBIDDEN library */
    bool forbidden;    /* one of them belongs to a FORBIDDEN library, or the first one to a program that ALLOCATES */
    bool allocates;    /* the caller of the C library belongs to such a program: its lock may be malloc's */
    bool in_libc;      /* one of them belongs to the C library */
    bool in_handler;   /* a signal interrupted one of the frames */
    const char *entry; /* the function of the C library that was called */
};

static int on_frame(Dwfl_Frame *frame, void *to)
{
    struct walk *w = to;
    Dwarf_Addr pc;
    bool interrupted = false;

    if (!dwfl_frame_pc(frame, &pc, &interrupted)) return DWARF_CB_ABORT;
    if (w->frames && interrupted) w->in_handler = true;
    if (w->inside) {
        const Dwarf_Addr at = interrupted ? pc : pc - 1; /* the call instruction, not the one after it */
        Dwfl_Module *m = dwfl_addrmodule(w->dwfl, at);
        const enum kind kind = module_kind_of(m);
        w->inside = kind == LIBC || kind == FORBIDDEN;
        w->allocates = kind == ALLOCATES;
        if (kind == FORBIDDEN || (kind == ALLOCATES && !w->frames)) w->forbidden = true;
        if (kind == LIBC) {
            w->in_libc = true;
            w->entry = dwfl_module_addrname(m, at);
        }
    }
    return ++w->frames < FRAMES && !w->in_handler ? DWARF_CB_OK : DWARF_CB_ABORT;
}

/* System calls during which the functions of the C library hold none of its locks. */
static const long calm[] = {
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_select
    SYS_select,
#endif
#ifdef SYS_pause
    SYS_pause,
#endif
#ifdef SYS_epoll_wait
    SYS_epoll_wait,
#endif
    SYS_ppoll,        SYS_pselect6,        SYS_epoll_pwait,  SYS_nanosleep,       SYS_clock_nanosleep, SYS_read,
    SYS_write,        SYS_readv,           SYS_writev,       SYS_pread64,         SYS_pwrite64,        SYS_recvfrom,
    SYS_recvmsg,      SYS_sendto,          SYS_sendmsg,      SYS_accept,          SYS_accept4,         SYS_connect,
    SYS_wait4,        SYS_waitid,          SYS_ioctl,        SYS_rt_sigsuspend,   SYS_sched_yield,     SYS_fsync,
    SYS_fdatasync,    SYS_rt_sigtimedwait, SYS_semop,        SYS_semtimedop,      SYS_msgrcv,          SYS_msgsnd,
    SYS_io_getevents, SYS_recvmmsg,        SYS_sendfile,     SYS_splice,          SYS_flock,           SYS_fcntl,
    SYS_msync,        SYS_epoll_pwait2,    SYS_mq_timedsend, SYS_mq_timedreceive, SYS_io_uring_enter,  SYS_preadv,
    SYS_pwritev,      SYS_sendmmsg,
};

/* Whether the futex is a lock or a condition variable of the program, not one inside the C library (malloc). */
static bool is_wait_of_programs(const char *entry)
{
    static const char *const names[] = {"pthread_", "__pthread_", "sem_",    "__sem_",    "___pthread_", "cnd_",
                                        "mtx_",     "thrd_",      "syscall", "__new_sem", "clock_"};

    for (size_t i = 0; entry && i < COUNT_OF(names); i++)
        if (module_starts_with(entry, names[i])) return !strstr(entry, "pthread_create") && !strstr(entry, "atfork");
    return false;
}

static bool is_calm(long call, const struct walk *w)
{
    if (call == SYS_futex) return is_wait_of_programs(w->entry) && !(w->allocates && strstr(w->entry, "lock"));
    return ANY_OF(c, calm, COUNT_OF(calm), *c == call);
}

bool attach_places_safe(struct attach_places *p, const struct attach_thread *t)
{
    struct walk w = {.dwfl = p->dwfl, .inside = true};

    (void)dwfl_getthread_frames(p->dwfl, t->tid, on_frame,
                                &w); /* its result only says whether unwinding reached the last frame */
    if (!w.frames || w.in_handler || w.forbidden) return false;
    return !w.in_libc || is_calm(attach_thread_syscall(t), &w);
}
