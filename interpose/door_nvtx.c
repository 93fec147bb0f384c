/* The door of the program's own marks: NVTX's ranges and moments. Each library that uses NVTX contains a copy of it,
 * which at its first call opens the library that NVTX_INJECTION64_PATH names and lets it fill a table of functions.
 * There can be only one: a profiler's own takes precedence.
 *
 * Ranges and domains may come before the first CUDA call. They start no session, but domains and registered strings
 * are stored from the beginning, and levels are counted. NVTX returns to the program what it returns without a tool,
 * except where a handle or a range must be distinguished from others. */
#include "interpose/door_nvtx.h"

#include <errno.h>
#include <link.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "interpose/mark.h"
#include "interpose/nvtx_abi.h"
#include "interpose/session.h"
#include "interpose/state.h"

#define EXPORT __attribute__((visibility("default")))
#define VARIABLE (sizeof(void *) == 8 ? "NVTX_INJECTION64_PATH" : "NVTX_INJECTION32_PATH")

/* --- what must be remembered -----------------------------------------------------------------
 * Strings that NVTX's user gave once and refers to by handle. Nothing is ever given back, as NVTX
 * cannot forget a string either; address space that is not used costs nothing. */

#define MEMORY_BYTES (4u << 20)
static _Atomic(uint8_t *) memory;
static _Atomic size_t memory_used;

struct string {
    uint32_t bytes;
    uint32_t number; /* of a domain: its level counter */
    char text[];     /* UTF-8 */
};

static bool reserve_memory(void)
{
    if (atomic_load(&memory)) return true;
    uint8_t *expected = NULL,
            *new = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (new == MAP_FAILED) return false;
    if (!atomic_compare_exchange_strong(&memory, &expected, new)) munmap(new, MEMORY_BYTES);
    return true;
}

/* NULL if no room is left. */
static struct string *keep_registered_string(struct gs_mark_text text, uint32_t number)
{
    const size_t bytes = (sizeof(struct string) + text.bytes + 7) & ~(size_t)7;
    size_t at = atomic_load(&memory_used);
    do {
        if (bytes > MEMORY_BYTES - at) return NULL;
    } while (!atomic_compare_exchange_weak(&memory_used, &at, at + bytes));
    struct string *s = (struct string *)(void *)(atomic_load(&memory) + at);
    s->bytes = (uint32_t)text.bytes;
    s->number = number;
    gs_mark_copy(s->text, text);
    return s;
}

static bool is_own_handle(const void *handle)
{
    const uintptr_t base = (uintptr_t)atomic_load(&memory), at = (uintptr_t)handle;
    return at >= base && at - base < MEMORY_BYTES && base;
}

static struct gs_mark_text registered_text_of(const struct string *s)
{
    return (struct gs_mark_text){.at = s->text, .bytes = s->bytes};
}

static const char forgotten_text[] = "(one of too many registered strings)";
static const char forgotten; /* the handle of strings for which there was no room */

static const void *register_string(struct gs_mark_text text)
{
    const struct string *s = keep_registered_string(text, 0);
    return s ? (const void *)s : &forgotten;
}

/* --- domains ---------------------------------------------------------------------------------
 * Ranges nest for each thread and domain, and NVTX does not say of a pop what it ends. So each
 * thread counts its levels, whether they are recorded or not: a push that was lost (before the
 * session, in a full spool) does not let its pop end another range. */

#define DOMAINS 64 /* 0 the default; the last one is shared by all later ones */
#define OTHERS (DOMAINS - 1)
static _Atomic(struct string *) domains[DOMAINS];
static __thread uint16_t levels[DOMAINS] __attribute__((tls_model("initial-exec")));
static const char others_text[] = "(other domains)";

/* The copies of NVTX in one process do not know of each other: domains are identified by their names. */
static const void *create_domain(struct gs_mark_text name)
{
    struct string *new = NULL;
    for (uint32_t i = 1; i < OTHERS; i++) {
        struct string *known = atomic_load(&domains[i]);
        if (!known && !new) new = keep_registered_string(name, i);
        if (!known && !new) break;
        if (!known) {
            new->number = i;
            if (atomic_compare_exchange_strong(&domains[i], &known, new)) return new;
        }
        if (gs_mark_same(registered_text_of(known), name)) return known;
    }
    return &domains[OTHERS];
}

struct domain {
    uint32_t number;
    struct gs_mark_text name;
};

static struct domain domain_of(const void *handle)
{
    const struct string *s = handle;
    if (is_own_handle(handle) && s->number) return (struct domain){s->number, registered_text_of(s)};
    if (handle == &domains[OTHERS]) return (struct domain){OTHERS, gs_mark_text(others_text, SIZE_MAX)};
    return (struct domain){0, gs_mark_text(NULL, 0)};
}

/* --- marks ----------------------------------------------------------------------------------- */

static struct gs_mark_text message_of(const struct nvtx_abi_attributes *a)
{
    if (!a || a->size < sizeof *a) return gs_mark_text(NULL, 0);
    const void *registered = a->message.registered;
    switch (a->message_type) {
    case NVTX_ABI_TEXT: return gs_mark_text(a->message.text, SIZE_MAX);
    case NVTX_ABI_WIDE: return gs_mark_wide(a->message.wide);
    case NVTX_ABI_REGISTERED:
        if (registered == &forgotten) return gs_mark_text(forgotten_text, SIZE_MAX);
        return is_own_handle(registered) ? registered_text_of(registered) : gs_mark_text(NULL, 0);
    default: return gs_mark_text(NULL, 0);
    }
}

static void record_mark(uint8_t kind, uint64_t id, struct gs_mark_text domain, struct gs_mark_text name)
{
    struct gs_thread *t = gs_enter_mark();
    gs_record_mark_text(t, kind, id, domain, name);
    gs_leave_mark(t);
}

static void record_moment(const void *domain, struct gs_mark_text name)
{
    record_mark(GS_MARK_MOMENT, 0, domain_of(domain).name, name);
}

static uint64_t next_id(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

/* Nothing records yet: a range that begins now is kept in case a session starts later. */
static bool is_early(void)
{
    return !atomic_load_explicit(&gs_session_live, memory_order_acquire) &&
           atomic_load(&gs_session_state) == GS_SESSION_NOT_YET && gs_session_is_enabled();
}

static void record_range_end(uint64_t id)
{
    record_mark(GS_MARK_END, id, gs_mark_text(NULL, 0), gs_mark_text(NULL, 0));
}

static uint64_t start_range(const void *domain, struct gs_mark_text name)
{
    const struct domain d = domain_of(domain);
    const uint64_t id = next_id();
    const struct gs_mark_early range = {.level = id, .id = id, .domain_name = d.name};
    if (!is_early() || !gs_mark_early_add(&range, name)) record_mark(GS_MARK_START, id, d.name, name);
    return id;
}

static void finish_range(uint64_t id)
{
    uint64_t early;
    if (id && (!gs_mark_early_end(&(struct gs_mark_early){.level = id}, &early) || early)) record_range_end(id);
}

static struct gs_mark_early nested_range(struct domain d, uint16_t level)
{
    return (struct gs_mark_early){.owner = levels, .domain = d.number, .level = level, .domain_name = d.name};
}

static int push_range(const void *domain, struct gs_mark_text name)
{
    const struct domain d = domain_of(domain);
    const uint16_t level = levels[d.number]++;
    struct gs_mark_early range = nested_range(d, level);
    uint64_t ignored;
    gs_mark_early_end(&range, &ignored); /* of a thread that has ended and had its levels at the same address */
    if (is_early()) range.id = next_id();
    if (!range.id || !gs_mark_early_add(&range, name)) record_mark(GS_MARK_PUSH, level, d.name, name);
    return NVTX_ABI_NO_TRACKING;
}

static int pop_range(const void *domain)
{
    const struct domain d = domain_of(domain);
    if (!levels[d.number]) return NVTX_ABI_NO_TRACKING; /* nothing was pushed */
    const uint16_t level = --levels[d.number];
    const struct gs_mark_early range = nested_range(d, level);
    uint64_t early;
    if (!gs_mark_early_end(&range, &early))
        record_mark(GS_MARK_POP, level, d.name, gs_mark_text(NULL, 0));
    else if (early)
        record_range_end(early);
    return NVTX_ABI_NO_TRACKING;
}

/* --- the functions of NVTX's tables, under its names ------------------------------------------ */

typedef const struct nvtx_abi_attributes attributes;
#define TEXT(text) gs_mark_text(text, SIZE_MAX)

static void do_MarkEx(attributes *a)
{
    record_moment(NULL, message_of(a));
}
static void do_MarkA(const char *text)
{
    record_moment(NULL, TEXT(text));
}
static void do_MarkW(const wchar_t *text)
{
    record_moment(NULL, gs_mark_wide(text));
}
static uint64_t do_RangeStartEx(attributes *a)
{
    return start_range(NULL, message_of(a));
}
static uint64_t do_RangeStartA(const char *text)
{
    return start_range(NULL, TEXT(text));
}
static uint64_t do_RangeStartW(const wchar_t *text)
{
    return start_range(NULL, gs_mark_wide(text));
}
static void do_RangeEnd(uint64_t id)
{
    finish_range(id);
}
static int do_RangePushEx(attributes *a)
{
    return push_range(NULL, message_of(a));
}
static int do_RangePushA(const char *text)
{
    return push_range(NULL, TEXT(text));
}
static int do_RangePushW(const wchar_t *text)
{
    return push_range(NULL, gs_mark_wide(text));
}
static int do_RangePop(void)
{
    return pop_range(NULL);
}

static void do_DomainMarkEx(const void *d, attributes *a)
{
    record_moment(d, message_of(a));
}
static uint64_t do_DomainRangeStartEx(const void *d, attributes *a)
{
    return start_range(d, message_of(a));
}
static void do_DomainRangeEnd(const void *d, uint64_t id)
{
    finish_range(id);
}
static int do_DomainRangePushEx(const void *d, attributes *a)
{
    return push_range(d, message_of(a));
}
static int do_DomainRangePop(const void *d)
{
    return pop_range(d);
}
static const void *do_DomainRegisterStringA(const void *d, const char *s)
{
    return register_string(TEXT(s));
}
static const void *do_DomainRegisterStringW(const void *d, const wchar_t *s)
{
    return register_string(gs_mark_wide(s));
}
static const void *do_DomainCreateA(const char *name)
{
    return create_domain(TEXT(name));
}
static const void *do_DomainCreateW(const wchar_t *name)
{
    return create_domain(gs_mark_wide(name));
}

/* --- the injection --------------------------------------------------------------------------- */

/* Objects that are loaded at start come before the C library in the loader's list, or are the C library. */
static const struct link_map *preloaded_self(void)
{
    for (const struct link_map *map = _r_debug.r_map; map; map = map->l_next) {
        if (map->l_ld == _DYNAMIC) return map;
        const char *base = strrchr(map->l_name, '/');
        if (base && strncmp(base, "/libc.so", 8) == 0) return NULL;
    }
    return NULL;
}

struct function {
    unsigned number;
    nvtx_abi_function ours;
};
#define FUNCTION(name, number) {number, (nvtx_abi_function)do_##name},
static const struct function core[] = {NVTX_ABI_CORE(FUNCTION)};
static const struct function core2[] = {NVTX_ABI_CORE2(FUNCTION)};

static bool fill_callbacks(const struct nvtx_abi_callbacks *callbacks, int module, const struct function *functions,
                           size_t n)
{
    nvtx_abi_function **table = NULL;
    unsigned int size = 0;
    if (!callbacks->get_table(module, &table, &size) || !table) return false;
    for (size_t i = 0; i < n; i++)
        if (functions[i].number < size && table[functions[i].number]) *table[functions[i].number] = functions[i].ours;
    return true;
}

/* Called by each copy of NVTX. 0: it then behaves as without a tool. If LD_PRELOAD was removed from the environment on
 * the way here but NVTX's variable was not, gpuspy records no CUDA call and therefore no marks. */
EXPORT int InitializeInjectionNvtx2(nvtx_abi_lookup lookup);
int InitializeInjectionNvtx2(nvtx_abi_lookup lookup)
{
    int saved = errno;
    const struct nvtx_abi_callbacks *callbacks = NULL;
    const bool records = preloaded_self() || (gs_attached && !gs_dormant);
    if (lookup && gs_session_is_enabled() && records && reserve_memory()) callbacks = lookup(NVTX_ABI_TABLE_CALLBACKS);
    bool done = callbacks && callbacks->struct_size >= sizeof *callbacks &&
                fill_callbacks(callbacks, NVTX_ABI_MODULE_CORE, core, sizeof core / sizeof *core) &&
                fill_callbacks(callbacks, NVTX_ABI_MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
    errno = saved;
    return done;
}

/* Copies of NVTX that are built with this option look the symbol up in the global scope. */
EXPORT int InitializeInjectionNvtx2Preinject(nvtx_abi_lookup lookup);
int InitializeInjectionNvtx2Preinject(nvtx_abi_lookup lookup)
{
    return InitializeInjectionNvtx2(lookup);
}

void gs_nvtx_announce(void)
{
    char path[PATH_MAX];
    const struct link_map *self = preloaded_self();
    if (self && *self->l_name && gs_session_is_enabled() && !getenv(VARIABLE) && realpath(self->l_name, path))
        setenv(VARIABLE, path, 0);
}
