#include "analyzer/symbol/module.h"

#include <dlfcn.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/symbol/demangle.h"
#include "analyzer/symbol/dwarf_unit.h"
#include "analyzer/symbol/sections.h"
#include "analyzer/symbol/symtab.h"

enum { ID_MAX = 64 };
_Static_assert((int)MODULE_PLACES == (int)DWARF_PLACES, "one chain");

const char symbol_module_changed[] = "has changed since the recording";

struct symbol_module {
    Dwfl *dwfl;
    Dwfl_Module *mod;
    Dwfl_Callbacks callbacks;
    char *folders; /* libdwfl's list, and its storage */
    struct symbol_table *symtab;
    struct symbol_units *units;
    struct symbol_sections *sections;
    Dwarf_Addr bias; /* of the debugging information */
    bool have_symtab, have_units;
    char build_id[2 * ID_MAX + 1];
};

/* A path from a database may be anything: only a regular file is opened, because a FIFO would block and a device could
 * act. */
static int open_plain(const char *path, struct stat *st)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd >= 0 && (fstat(fd, st) != 0 || !S_ISREG(st->st_mode))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void read_build_id(struct symbol_module *m)
{
    const unsigned char *bits;
    GElf_Addr where;
    int n = dwfl_module_build_id(m->mod, &bits, &where);

    for (int i = 0; i < n && i < ID_MAX; i++) snprintf(m->build_id + 2 * i, 3, "%02x", bits[i]);
}

/* False if the build id or the age shows that it is not the recorded file. */
static bool same_build(const struct symbol_module *m, const char *build_id, const struct stat *st,
                       const struct symbol_module_search *search)
{
    if (build_id && *build_id) return strcasecmp(m->build_id, build_id) == 0;
    return !search->recorded_ns ||
           (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec <= search->recorded_ns;
}

/* libdwfl interprets "+" as: use a debug link only if its CRC is right. */
static char *folder_list(const struct symbol_module_search *search)
{
    char *list;

    return asprintf(&list, "+:.debug:%s%s/usr/lib/debug", search->folders ? search->folders : "",
                    search->folders && *search->folders ? ":" : "") < 0
               ? NULL
               : list;
}

/* The folder is absolute and followed by the module's or by the end of it, or is in the module's. */
static bool folder_has_debug_file(const char *folder, const char *module, const char *slash, const char *name)
{
    char path[8192];

    if (*folder != '/') {
        snprintf(path, sizeof path, "%.*s/%s/%s", (int)(slash - module), module, folder, name);
        return access(path, F_OK) == 0;
    }
    for (const char *part = module; part; part = strchr(part + 1, '/')) {
        snprintf(path, sizeof path, "%s%.*s/%s", folder, (int)(slash - part), part, name);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

/* Whether libdwfl would find a file by its name: of the debug link or "MODULE.debug", or of the module itself. */
static bool have_debug_file(const char *folders, const char *module, const char *link)
{
    const char *slash = module[0] == '/' ? strrchr(module, '/') : NULL;
    char *list = strdup(folders), *save = NULL, own[4096];
    bool found = !slash || !list;

    snprintf(own, sizeof own, "%s.debug", slash ? slash + 1 : module);
    for (char *f = list ? strtok_r(list, ":", &save) : NULL; f && !found; f = strtok_r(NULL, ":", &save)) {
        const bool here = *f == '+'; /* and the module is there */
        found = folder_has_debug_file(here ? "." : f, module, slash, link ? link : own) ||
                (!here && folder_has_debug_file(f, module, slash, slash + 1));
    }
    free(list);
    return found;
}

/* If it finds nothing, libdwfl loads the library that queries servers, and that 28 others, although no server is to be
 * queried: 14 % of the processor time of a report on PyTorch. dwz's files, of which it passes no `file`, and links
 * with a folder are rare. */
static int find_local_debuginfo(Dwfl_Module *mod, void **folders, const char *modname, Dwarf_Addr base,
                                const char *file, const char *link, GElf_Word crc, char **found)
{
    const int fd = dwfl_build_id_find_debuginfo(mod, folders, modname, base, file, link, crc, found);

    if (fd >= 0) return fd;
    char *real = file ? realpath(file, NULL) : NULL; /* libdwfl tries both */
    const bool have = !file || (link && strchr(link, '/')) || have_debug_file(*folders, file, link) ||
                      (real && strcmp(real, file) != 0 && have_debug_file(*folders, real, link));
    free(real);
    return have ? dwfl_standard_find_debuginfo(mod, folders, modname, base, file, link, crc, found) : fd;
}

/* Tries one candidate; NULL and the reason. */
static struct symbol_module *open_module_file(const char *path, const char *build_id,
                                              const struct symbol_module_search *search, const char **problem)
{
    struct symbol_module *m = arena_zeroed(1, sizeof *m);
    struct stat st;
    int fd = open_plain(path, &st);

    *problem = "cannot be read";
    if (fd >= 0 && (m->folders = folder_list(search))) {
        m->callbacks =
            (Dwfl_Callbacks){.find_elf = dwfl_build_id_find_elf,
                             .find_debuginfo = search->servers ? dwfl_standard_find_debuginfo : find_local_debuginfo,
                             .section_address = dwfl_offline_section_address,
                             .debuginfo_path = &m->folders};
        m->dwfl = dwfl_begin(&m->callbacks);
    }
    if (!m->dwfl) {
        if (fd >= 0) close(fd);
        symbol_module_close(m);
        return NULL;
    }
    dwfl_report_begin(m->dwfl);
    m->mod = dwfl_report_elf(m->dwfl, path, path, fd, 0, true); /* owns fd on success */
    dwfl_report_end(m->dwfl, NULL, NULL);
    if (m->mod) {
        void **data;
        dwfl_module_info(m->mod, &data, NULL, NULL, NULL, NULL, NULL, NULL);
        *data = m->folders;
        read_build_id(m);
    } else
        close(fd);
    if (m->mod && same_build(m, build_id, &st, search)) return m;
    *problem = m->mod ? symbol_module_changed : "is not an ELF file";
    symbol_module_close(m);
    return NULL;
}

static bool plain_id(const char *build_id)
{
    size_t n = build_id ? strlen(build_id) : 0;

    return n > 2 && n <= 2 * ID_MAX && strspn(build_id, "0123456789abcdefABCDEF") == n;
}

/* The file is missing or different: the same build may be in a folder for debugging information. */
static struct symbol_module *open_elsewhere(const char *path, const char *build_id,
                                            const struct symbol_module_search *search)
{
    static const char *const forms[] = {"%s/.build-id/%.2s/%s.debug", "%s/.build-id/%.2s/%s"};
    char *folders = folder_list(search), *save = NULL, name[8192];
    const char *slash = strrchr(path, '/'), *ignored;
    struct symbol_module *m = NULL;

    if (!plain_id(build_id) || !folders) {
        free(folders);
        return NULL;
    }
    for (char *f = strtok_r(folders, ":", &save); f && !m; f = strtok_r(NULL, ":", &save)) {
        if (*f != '/') continue;
        for (size_t i = 0; i < sizeof forms / sizeof *forms && !m; i++) {
            snprintf(name, sizeof name, forms[i], f, build_id, build_id + 2);
            m = open_module_file(name, build_id, search, &ignored);
        }
        if (!m && snprintf(name, sizeof name, "%s/%s", f, path) < (int)sizeof name)
            m = open_module_file(name, build_id, search, &ignored);
        if (!m && snprintf(name, sizeof name, "%s/%s", f, slash ? slash + 1 : path) < (int)sizeof name)
            m = open_module_file(name, build_id, search, &ignored);
    }
    free(folders);
    return m;
}

/* A debuginfod server may have it. libdw itself requests the debugging information of a local file; for a file that is
 * missing entirely, gpuspy makes the request through the library that libdw uses. */
static struct symbol_module *open_served(const char *build_id, const struct symbol_module_search *search)
{
    typedef struct debuginfod_client client;
    static const char *const what[] = {"debuginfod_find_debuginfo", "debuginfod_find_executable"};
    void *library = plain_id(build_id) ? dlopen(MODULE_SERVER_LIBRARY, RTLD_NOW | RTLD_LOCAL) : NULL;
    client *(*begin)(void) = library ? (client * (*)(void)) dlsym(library, "debuginfod_begin") : NULL;
    void (*end)(client *) = library ? (void (*)(client *))dlsym(library, "debuginfod_end") : NULL;
    client *c = begin && end ? begin() : NULL;
    struct symbol_module *m = NULL;
    const char *ignored;

    for (size_t i = 0; c && i < sizeof what / sizeof *what && !m; i++) {
        int (*find)(client *, const unsigned char *, int, char **) =
            (int (*)(client *, const unsigned char *, int, char **))dlsym(library, what[i]);
        char *path = NULL;
        int fd = find ? find(c, (const unsigned char *)build_id, 0, &path) : -1;
        if (fd >= 0) close(fd);
        if (fd >= 0 && path) m = open_module_file(path, build_id, search, &ignored);
        free(path);
    }
    if (c) end(c);
    return m; /* the library stays open: libdw also uses it */
}

struct symbol_module *symbol_module_open(const char *path, const char *build_id,
                                         const struct symbol_module_search *search, const char **problem)
{
    struct symbol_module *m = open_module_file(path, build_id, search, problem);

    if (!m) m = open_elsewhere(path, build_id, search);
    if (!m && search->servers) m = open_served(build_id, search);
    return m;
}

void symbol_module_close(struct symbol_module *m)
{
    symbol_units_free(m->units);
    symbol_table_free(m->symtab);
    if (m->dwfl) dwfl_end(m->dwfl);
    symbol_sections_free(m->sections);
    ARENA_RELEASE(m->folders, m);
}

const char *symbol_module_build_id(const struct symbol_module *m)
{
    return m->build_id;
}

/* Of the file with the symbols: it is also the one with the debugging information, unless only that was moved out. */
static Elf *elf_of_symbols(Dwfl_Module *mod)
{
    const int count = dwfl_module_getsymtab(mod);
    GElf_Sym sym;
    GElf_Addr address;
    Elf *elf = NULL;

    if (count > 0) dwfl_module_getsym_info(mod, count - 1, &sym, &address, NULL, &elf, NULL);
    return elf;
}

static struct symbol_units *units_of(struct symbol_module *m)
{
    if (!m->have_units) {
        m->have_units = true;
        Elf *elf = elf_of_symbols(m->mod);
        m->sections = symbol_sections_new(elf);
        Dwarf *dwarf = dwfl_module_getdwarf(m->mod, &m->bias);
        m->units = dwarf ? symbol_units_new(dwarf, dwarf_getelf(dwarf) == elf ? m->sections : NULL) : NULL;
    }
    return m->units;
}

static const char *symbol_at(struct symbol_module *m, uint64_t address)
{
    if (!m->have_symtab) {
        m->have_symtab = true;
        m->symtab = symbol_table_new(m->mod);
    }
    return symbol_table_at(m->symtab, address);
}

static char *join_module_path(const char *folder, const char *file)
{
    char *path;

    if (file[0] == '/' || !folder)
        path = strdup(file);
    else if (asprintf(&path, "%s/%s", folder, file) < 0)
        path = NULL;
    /* "/build/./x.c" and "/build//x.c" are one file; a path with ".." may contain a link, and stays. */
    for (char *at = path; at && (at = strstr(at, "/."));)
        if (at[2] == '/')
            memmove(at, at + 2, strlen(at + 2) + 1);
        else
            at += 2;
    return path;
}

/* DWARF names a static function of C++ without its scope and parameters; the symbol table has both. */
static bool says_more(const char *symbol, const char *name)
{
    const char *last = name;

    if (symbol[0] != '_' || (symbol[1] != 'Z' && symbol[1] != 'R')) return false;
    for (const char *colons = name; (colons = strstr(colons, "::")); colons += 2) last = colons + 2;
    size_t n = strspn(last, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    char *part = strndup(last, n);
    bool more = part && n && strstr(symbol, part);
    free(part);
    return more;
}

static char *function_name(struct symbol_module *m, uint64_t address, struct symbol_unit_place *from)
{
    char *name = from->function;
    const char *symbol = from->whole && !from->mangled ? symbol_at(m, address) : NULL;

    if (symbol && (!name || says_more(symbol, name))) {
        free(name);
        return symbol_demangle(symbol);
    }
    if (!name || !from->mangled) return name;
    char *plain = symbol_demangle(name);
    free(name);
    return plain;
}

size_t symbol_module_find(struct symbol_module *m, uint64_t address, struct symbol_module_place *places)
{
    struct symbol_unit_place found[DWARF_PLACES];
    const char *folder = NULL, *symbol;
    size_t n = 0;

    if (dwfl_addrmodule(m->dwfl, address) != m->mod) return 0;
    if (units_of(m)) n = symbol_units_at(m->units, address - m->bias, found, &folder);
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        found[i].whole = found[i].whole || n == 1;
        struct symbol_module_place p = {.function = function_name(m, address, &found[i]),
                                        .file = found[i].file ? join_module_path(folder, found[i].file) : NULL,
                                        .line = found[i].file ? found[i].line : 0};
        if (p.function || p.file) /* damaged data may have neither */
            places[kept++] = p;
    }
    if (kept || !(symbol = symbol_at(m, address))) return kept;
    places[0] = (struct symbol_module_place){.function = symbol_demangle(symbol)};
    return places[0].function != NULL;
}

enum symbol_module_detail symbol_module_detail(struct symbol_module *m)
{
    GElf_Addr bias;
    Elf *elf = dwfl_module_getelf(m->mod, &bias);

    if (units_of(m) && dwfl_module_getdwarf(m->mod, &bias)) return MODULE_LINES;
    symbol_at(m, 0);
    if (!m->symtab) return MODULE_NOTHING;
    for (Elf_Scn *s = NULL; elf && (s = elf_nextscn(elf, s));) {
        GElf_Shdr head;
        size_t names;
        const char *name =
            gelf_getshdr(s, &head) && elf_getshdrstrndx(elf, &names) == 0 ? elf_strptr(elf, names, head.sh_name) : NULL;
        if (name && (head.sh_type == SHT_SYMTAB || strcmp(name, ".gnu_debugdata") == 0)) return MODULE_SYMBOLS;
    }
    return MODULE_EXPORTS;
}
