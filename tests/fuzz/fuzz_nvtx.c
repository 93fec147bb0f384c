/* Calls that a program may make to NVTX: any strings, invalid handles, ranges that do not match. Tests the door and its
 * marks with a spool of its own instead of the recorder. */
#include "tests/fuzz/fuzz.h"

#include "interpose/door_nvtx.c"
#include "interpose/mark.c"
#include "schema/record.h"
#include "schema/spool.h"

static struct gs_spool spool;
static struct gs_writer writer;
static bool session;
static uint64_t now, recorded;

bool gs_session_is_enabled(void)
{
    return true;
}

struct gs_thread *gs_enter_mark(void)
{
    return session ? (struct gs_thread *)(void *)&writer : NULL;
}

void gs_leave_mark(struct gs_thread *t)
{
}

void *gs_record_begin(struct gs_thread *t, uint16_t bytes, uint8_t type)
{
    struct gs_rec *rec = gs_writer_reserve(&writer, bytes);
    if (rec) *rec = (struct gs_rec){.size = bytes, .type = type, .time_ns = now++};
    return rec;
}

void gs_record_end(struct gs_thread *t, const void *record)
{
    const struct gs_rec *rec = record;
    FUZZ_CHECK(gs_record_valid(rec, rec->size), "%u bytes", rec->size);
    gs_writer_commit(&writer, rec->size);
    recorded++;
}

#define HANDLES 8
static const void *handles[HANDLES];

static const void *handle(struct fuzz_bytes *b)
{
    const uint8_t n = fuzz_u8(b);
    return n < 200 ? handles[n % HANDLES] : (const void *)(uintptr_t)fuzz_hostile(b);
}

/* A string in its own block, so that sanitizers detect reads past its end. */
static char *text(struct fuzz_bytes *b, size_t *bytes)
{
    size_t n = fuzz_u8(b), times = n > 250 ? 400 : 1;
    const void *part = fuzz_part(b, n % 48, &n);
    char *s = malloc(n * times + sizeof(wchar_t));
    FUZZ_CHECK(s, "no memory");
    for (size_t i = 0; i < times; i++) memcpy(s + n * i, part, n);
    *bytes = n * times;
    memset(s + *bytes, 0, sizeof(wchar_t));
    return s;
}

static wchar_t *wide(struct fuzz_bytes *b)
{
    size_t n;
    char *s = text(b, &n);
    wchar_t *w = malloc((n + 1) * sizeof *w);
    FUZZ_CHECK(w, "no memory");
    for (size_t i = 0; i < n; i++) w[i] = (wchar_t)((unsigned char)s[i] * (i % 3 ? 1 : 0x2f01));
    w[n] = 0;
    free(s);
    return w;
}

static void with_attributes(struct fuzz_bytes *b, unsigned what, const char *s, const wchar_t *w)
{
    const uint8_t type = fuzz_u8(b);
    struct nvtx_abi_attributes a = {.version = 3, .size = type < 240 ? sizeof a : type, .message_type = type % 5};
    if (a.message_type == NVTX_ABI_TEXT) a.message.text = type & 16 ? NULL : s;
    if (a.message_type == NVTX_ABI_WIDE) a.message.wide = type & 16 ? NULL : w;
    if (a.message_type == NVTX_ABI_REGISTERED) a.message.registered = handle(b);
    const void *d = handle(b);
    switch (what % 6) {
    case 0: do_MarkEx(&a); break;
    case 1: do_RangePushEx(&a); break;
    case 2: do_RangeEnd(do_RangeStartEx(&a)); break;
    case 3: do_DomainMarkEx(d, &a); break;
    case 4: do_DomainRangePushEx(d, &a); break;
    default: do_DomainRangeEnd(d, do_DomainRangeStartEx(d, &a));
    }
}

static void call(struct fuzz_bytes *b)
{
    const uint8_t what = fuzz_u8(b);
    size_t n;
    char *s = text(b, &n);
    wchar_t *w = wide(b);
    switch (what % 16) {
    case 0: do_MarkA(what & 16 ? NULL : s); break;
    case 1: do_MarkW(what & 16 ? NULL : w); break;
    case 2: do_RangeEnd(do_RangeStartA(s)); break;
    case 3: do_RangeEnd(do_RangeStartW(w)); break;
    case 4: do_RangePushA(s); break;
    case 5: do_RangePushW(w); break;
    case 6: do_RangePop(); break;
    case 7: handles[what / 16 % HANDLES] = do_DomainRegisterStringA(handle(b), s); break;
    case 8: handles[what / 16 % HANDLES] = do_DomainRegisterStringW(handle(b), w); break;
    case 9: handles[what / 16 % HANDLES] = do_DomainCreateA(s); break;
    case 10: handles[what / 16 % HANDLES] = do_DomainCreateW(w); break;
    case 11: do_DomainRangePop(handle(b)); break;
    default: with_attributes(b, what / 16, s, w);
    }
    free(s);
    free(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes b = {data, size};
    const uint8_t how = fuzz_u8(&b);
    FUZZ_CHECK(!gs_spool_create(&spool, NULL, "run", "", 0, 0), "no spool");
    gs_writer_open(&writer, &spool);
    FUZZ_CHECK(reserve_memory(), "no memory");
    /* each input starts with empty state, some with hardly any memory left */
    memset(handles, 0, sizeof handles);
    for (int i = 0; i < DOMAINS; i++) atomic_store(&domains[i], NULL);
    memset(levels, 0, sizeof levels);
    atomic_store(&memory_used, how & 1 ? MEMORY_BYTES - 256 : 0);
    session = !(how & 2);
    now = recorded = 0;
    while (b.left) {
        if (how & 4 && b.left % 32 == 0) session = !session;
        call(&b);
    }
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    uint32_t thread;
    uint64_t read = 0;
    gs_reader_poll(r, 0, true);
    while (gs_reader_next(r, &thread)) read++;
    FUZZ_CHECK(read == recorded && !gs_reader_damaged(r), "%llu of %llu", (unsigned long long)read,
               (unsigned long long)recorded);
    gs_reader_close(r);
    gs_spool_close(&spool);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 41;
    put("", 0);
    put("\0\0\xff"
        "abc",
        6);
    for (unsigned i = 0; i < 30; i++) {
        uint8_t bytes[400];
        for (size_t k = 0; k < sizeof bytes; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (uint8_t)(random >> 40);
        }
        bytes[0] = (uint8_t)(i % 8);
        put(bytes, 20 + 12 * i);
    }
}
