"""The spool's protocol under a weak memory model: each dependency of one thread on another is a litmus test. The
checker lists all executions that RC11 (the repaired C11 model) allows: which write each read reads, and in which order
writes to a location take effect. `never` must hold in none of them, and non-atomic accesses must be ordered. Each test
is repeated with each order in `needs` relaxed: it must then fail, which shows that no order is stronger than necessary
and that the checker detects the error. The lines of code that a test models must be in the sources. schema/spool.h
explains the protocol."""
import itertools

import pytest

from conftest import ROOT

RELEASE, ACQUIRE, SC = ("rel", "acq_rel", "sc"), ("acq", "acq_rel", "sc"), ("sc",)


class W:
    """A write. Orders: na (not atomic), rlx, acq, rel, acq_rel, sc."""
    def __init__(self, place, value, order="rlx"):
        self.place, self.value, self.order, self.reads, self.writes = place, value, order, False, True


class R:
    """A read into a register."""
    def __init__(self, place, register, order="rlx"):
        self.place, self.register, self.order, self.reads, self.writes = place, register, order, True, False


class U:
    """An atomic read and write: an exchange, setting of bits, or addition."""
    def __init__(self, place, register, function, order="rlx"):
        self.place, self.register, self.function, self.order, self.reads, self.writes = place, register, function, order, True, True


class If:
    """The rest of this thread happens only if it holds; other executions are ignored."""
    def __init__(self, holds):
        self.holds = holds


def closure(pairs):
    pairs, size = set(pairs), -1
    while len(pairs) != size:
        size = len(pairs)
        after = {}
        for a, b in pairs:
            after.setdefault(a, []).append(b)
        pairs |= {(a, c) for a, b in pairs for c in after.get(b, ())}
    return pairs


def join(one, two):
    after = {}
    for a, b in two:
        after.setdefault(a, []).append(b)
    return {(a, c) for a, b in one for c in after.get(b, ())}


def is_acyclic(pairs):
    return all(a != b for a, b in closure(pairs))


class Litmus:
    def __init__(self, name, threads, never, needs=(), code=(), possible=False, initial=None):
        self.name, self.threads, self.never, self.needs, self.code = name, threads, never, needs, code
        self.possible, self.initial = possible, initial or {}

    def events(self, relaxed):
        """Events by number, program order, the initial writes first; `relaxed`: (thread, index) of the access whose
        order is removed."""
        places = sorted({e.place for t in self.threads for e in t if not isinstance(e, If)})
        events = [(W(p, self.initial.get(p, 0), "init"), -1) for p in places]
        order = set()
        for number, thread in enumerate(self.threads):
            before = list(range(len(places)))
            for index, e in enumerate(thread):
                if isinstance(e, If):
                    continue
                order |= {(b, len(events)) for b in before}
                before.append(len(events))
                events.append((e, number) if (number, index) != relaxed else (weaker(e), number))
        return events, order

    def executions(self, relaxed=None):
        events, po = self.events(relaxed)
        reads = [i for i, (e, _) in enumerate(events) if e.reads]
        writes = {}
        for i, (e, _) in enumerate(events):
            if e.writes:
                writes.setdefault(e.place, []).append(i)
        for sources in itertools.product(*([w for w in writes[events[r][0].place] if w != r] for r in reads)):
            rf = {(w, r) for w, r in zip(sources, reads)}
            if not is_acyclic(po | rf):  # nothing out of thin air
                continue
            for orders in itertools.product(*([[first, *rest] for rest in itertools.permutations(others)]
                                              for first, *others in writes.values())):
                mo = {(a, b) for one in orders for i, a in enumerate(one) for b in one[i + 1:]}
                found = self.judge(events, po, rf, mo)
                if found:
                    yield found

    def judge(self, events, po, rf, mo):
        """Registers, last values and races of a consistent execution in which every If holds; otherwise None."""
        source = {r: w for w, r in rf}
        fr = {(r, b) for r, w in source.items() for a, b in mo if a == w and b != r}
        for r, w in source.items():  # no write comes between the read and the write of a U
            if events[r][0].writes and not ((w, r) in mo and not any((w, x) in mo and (x, r) in mo for x in range(len(events)))):
                return None
        sw = set()
        for r, w in source.items():  # a release reaches an acquire through a chain of U's
            if events[r][0].order not in ACQUIRE:
                continue
            while True:
                if events[w][0].order in RELEASE:
                    sw.add((w, r))
                if w not in source:
                    break
                w = source[w]
        hb = closure(po | sw)
        eco = closure(rf | mo | fr)
        if any(a == b for a, b in hb) or any((b, a) in eco for a, b in hb):
            return None
        place = [e.place for e, _ in events]
        elsewhere = {(a, b) for a, b in po if place[a] != place[b]}
        scb = po | join(join(elsewhere, hb), elsewhere) | {(a, b) for a, b in hb if place[a] == place[b]} | mo | fr
        if not is_acyclic({(a, b) for a, b in scb if events[a][0].order in SC and events[b][0].order in SC}):
            return None
        return self.outcome(events, source, mo, hb)

    def outcome(self, events, source, mo, hb):
        value, registers = {}, {}

        def value_of(i):
            e = events[i][0]
            if i not in value:
                value[i] = e.function(value_of(source[i])) if isinstance(e, U) else e.value
            return value[i]
        for r, w in source.items():
            registers[events[r][0].register] = value_of(w)
        if not all(e.holds(registers) for t in self.threads for e in t if isinstance(e, If)):
            return None
        last = {events[i][0].place: value_of(i) for i in range(len(events))
                if events[i][0].writes and not any(a == i for a, _ in mo)}
        raced = any(x.place == y.place and (x.writes or y.writes) and tx != ty and "na" in (x.order, y.order) and
                    (a, b) not in hb and (b, a) not in hb
                    for a, (x, tx) in enumerate(events) for b, (y, ty) in enumerate(events) if a < b)
        return registers, last, raced

    def goes_wrong(self, relaxed=None):
        return any(raced or self.never(registers, last) for registers, last, raced in self.executions(relaxed))


def weaker(e):
    copy = object.__new__(type(e))
    copy.__dict__.update(e.__dict__, order={"acq_rel": "acq", "sc": "rel" if e.writes else "acq"}.get(e.order, "rlx"))
    return copy


WRITE, READ = "schema/spool_write.c", "schema/spool_read.c"
PUBLISH = (WRITE, "atomic_store_explicit(&c->used, w->used, memory_order_release);")
USED = (READ, "atomic_load_explicit(&chunk->used, memory_order_acquire)")
STATE = (READ, "atomic_load_explicit(&chunk->state, memory_order_acquire)")
CLAIM = (WRITE, "memory_order_acq_rel, memory_order_relaxed))\n                return (int)(word * 64 + bit);")
GIVE_BACK = (READ, "~(1ull << (index % 64)), memory_order_release);")
FULL = (WRITE, "atomic_store_explicit(&w->chunk->state, GS_CHUNK_FULL, memory_order_release);")
TAKEN_, FULL_ = 1, 2
THREAD_, PARKED_ = 8, 9

TESTS = [
    Litmus("a published record is whole",
         [[W("record", 7, "na"), W("used", 1, "rel")],
          [R("used", "u", "acq"), If(lambda r: r["u"] == 1), R("record", "d", "na")]],
         lambda r, last: r["d"] != 7, needs=[(0, 1), (1, 0)], code=[PUBLISH, USED]),
    Litmus("busy cleared after the record: the record is in used",
         [[W("used", 1, "rel"), W("busy", 0, "rel")],
          [R("busy", "b", "acq"), R("used", "u", "acq")]],
         lambda r, last: r["b"] == 0 and r["u"] == 0, needs=[(0, 1), (1, 0)], initial={"busy": 1},
         code=[(WRITE, "atomic_store_explicit(&c->busy, 0, memory_order_release);"),
               (READ, "atomic_load_explicit(&chunk->busy, memory_order_acquire)")]),
    Litmus("a chunk that is seen taken is described, and busy",
         [[W("thread", 3, "na"), W("used", 0), W("busy", 1), W("state", TAKEN_, "rel")],
          [R("state", "s", "acq"), If(lambda r: r["s"] == TAKEN_), R("thread", "t", "na"), R("busy", "b", "acq"),
           R("used", "u", "acq")]],
         lambda r, last: r["t"] != 3 or r["b"] != 1 or r["u"] != 0, needs=[(0, 3), (1, 0)], initial={"used": 9},
         code=[(WRITE, "atomic_store_explicit(&c->state, GS_CHUNK_TAKEN, memory_order_release);"), STATE]),
    Litmus("who sees a thread's newer number sees all that it published before",
         [[W("used", 1, "rel"), U("next_seq", "n", lambda v: v + 1, "rel")],
          [R("next_seq", "newest", "acq"), R("used", "u", "acq")]],
         lambda r, last: r["newest"] == 1 and r["u"] == 0, needs=[(0, 1), (1, 0)],
         code=[(WRITE, "atomic_fetch_add_explicit(&s->header->next_seq, 1, memory_order_release)"),
               (READ, "atomic_load_explicit(&r->spool->header->next_seq, memory_order_acquire)")]),
    Litmus("another thread's number in between does not hide it",
         [[W("used", 1, "rel"), U("next_seq", "n", lambda v: v + 1, "rel")],
          [U("next_seq", "m", lambda v: v + 1, "rel")],
          [R("next_seq", "newest", "acq"), R("used", "u", "acq")]],
         lambda r, last: r["newest"] == 2 and r["u"] == 0, needs=[(0, 1), (2, 0)]),
    Litmus("a chunk that is seen full has all its records",
         [[W("record", 7, "na"), W("used", 1, "rel"), W("state", FULL_, "rel")],
          [R("state", "s", "acq"), If(lambda r: r["s"] == FULL_), R("used", "u", "acq"), R("record", "d", "na")]],
         lambda r, last: r["u"] != 1 or r["d"] != 7, needs=[(0, 2), (1, 0)], code=[FULL, STATE]),
    Litmus("a chunk is given back after it was read",
         [[R("record", "d", "na"), U("taken", "x", lambda v: 0, "rel")],
          [U("taken", "c", lambda v: 1, "acq_rel"), If(lambda r: r["c"] == 0), W("record", 8, "na")]],
         lambda r, last: r["d"] == 8, needs=[(0, 1)], initial={"taken": 1, "record": 7}, code=[GIVE_BACK, CLAIM]),
    Litmus("its state is free before it is another's",
         [[W("state", 0), U("taken", "x", lambda v: v & ~1, "rel")],
          [U("taken", "y", lambda v: v | 2, "rlx")],
          [U("taken", "c", lambda v: v | 1, "acq_rel"), If(lambda r: not r["c"] & 1), W("state", TAKEN_, "rel")]],
         lambda r, last: last["state"] != TAKEN_, needs=[(0, 1)], initial={"taken": 1, "state": FULL_}, code=[GIVE_BACK, CLAIM]),
    Litmus("a writer that has given a chunk up never writes to it again",
         [[W("record", 7, "na"), W("state", FULL_, "rel")],
          [R("state", "s", "acq"), If(lambda r: r["s"] == FULL_), U("taken", "x", lambda v: 0, "rel")],
          [U("taken", "c", lambda v: 1, "acq_rel"), If(lambda r: r["c"] == 0), W("record", 8, "na")]],
         lambda r, last: last["record"] != 8, needs=[(0, 1), (1, 0), (1, 2)], initial={"taken": 1}, code=[FULL, STATE, GIVE_BACK, CLAIM]),
    Litmus("a number's next writer has higher sequence numbers",
         [[U("next_seq", "first", lambda v: v + 1, "rel"), U("numbers", "x", lambda v: 0, "rel")],
          [U("numbers", "free", lambda v: 1, "acq"), If(lambda r: r["free"] == 0), U("next_seq", "second", lambda v: v + 1, "rel")]],
         lambda r, last: r["second"] < r["first"], initial={"numbers": 1},  # RC11 does not require an order here, a processor may
         code=[(WRITE, "~(1ull << thread % 64), memory_order_release);"),
               (WRITE, "bits | bit, memory_order_acquire,")]),
    Litmus("a thread that has parked its writer before it ended is not buried",
         [[W("owner", PARKED_, "rel"), W("ended", 1, "rel")],
          [R("owner", "seen", "acq"), If(lambda r: r["seen"] == THREAD_), R("ended", "e", "acq"), If(lambda r: r["e"] == 1),
           U("owner", "was", lambda v: 0 if v == THREAD_ else v, "sc")]],
         lambda r, last: r["was"] == THREAD_, needs=[(0, 1), (1, 2)], initial={"owner": THREAD_},  # the kernel orders ended
         code=[(WRITE, "atomic_store_explicit(&w->chunk->owner, w->owner, memory_order_release);\n    return true;"),
               (READ, "tid == GS_CHUNK_PARKED || !gs_system_call(SYS_tgkill, getpid(), tid, 0) || errno != ESRCH) continue;"),
               (READ, "if (atomic_compare_exchange_strong(&chunk->owner, &owner, owner >> 32 << 32)) close_buried")]),
    Litmus("nor is the one that has adopted it",
         [[R("parked", "p", "acq"), If(lambda r: r["p"] == 1), W("owner", 5, "rel")],
          [R("owner", "seen", "acq"), If(lambda r: r["seen"] == THREAD_), R("ended", "e", "acq"), If(lambda r: r["e"] == 1),
           U("owner", "was", lambda v: 0 if v == THREAD_ else v, "sc")],
          [W("owner", PARKED_, "rel"), W("parked", 1, "rel"), W("ended", 1, "rel")]],
         lambda r, last: r["was"] == THREAD_ or last["owner"] != 5, needs=[(0, 0), (1, 2), (2, 1), (2, 2)], initial={"owner": THREAD_}),
    Litmus("a count has its key",
         [[U("key", "k", lambda v: 3, "sc"), U("count", "n", lambda v: v + 1, "rel")],
          [R("key", "mine"), If(lambda r: r["mine"] == 3), U("count", "m", lambda v: v + 1, "rel")],
          [R("count", "count", "acq"), R("key", "key")]],
         lambda r, last: r["count"] > 0 and r["key"] == 0, needs=[(0, 1), (1, 2), (2, 0)],
         code=[(WRITE, "if (!found && atomic_compare_exchange_strong(&slot->key, &found, key)) return true;"),
               (WRITE, "atomic_fetch_add_explicit(&slot->count, 1, memory_order_release);"),
               ("schema/store_count.c", "uint64_t count = atomic_load_explicit(&counters[slot].count, memory_order_acquire);\n"
                "        uint64_t key = atomic_load_explicit(&counters[slot].key, memory_order_relaxed);")]),
    Litmus("an end has its time",
         [[W("end_ns", 5, "sc"), W("closed", 1, "sc")], [R("closed", "c", "sc"), R("end_ns", "e", "sc")]],
         lambda r, last: r["c"] == 1 and r["e"] == 0,
         code=[(WRITE, "atomic_store(&s->header->end_ns, end_ns);\n    atomic_store(&s->header->closed, 1);")]),
    Litmus("a range that is begun as the recording begins is missed by one of two only",
         [[W("range", 1, "sc"), R("live", "l", "sc")], [W("live", 1, "sc"), R("range", "g", "sc")]],
         lambda r, last: r["l"] == 0 and r["g"] == 0, needs=[(0, 0), (0, 1), (1, 0), (1, 1)],
         code=[("interpose/mark_early.c", "atomic_store(&e->state, OPEN);"),
               ("interpose/mark_early.c", "if (!atomic_load(&gs_session_live) || !take_early_slot(e, OPEN, CLAIMED)) return true;")]),
    Litmus("the allocator's code has an end once it has a beginning",
         [[W("hi", 9), W("lo", 5, "rel")], [R("lo", "lo", "acq"), If(lambda r: r["lo"] != 0), R("hi", "hi")]],
         lambda r, last: r["hi"] != 9, needs=[(0, 1), (1, 0)],
         code=[("interpose/allocator.c", "atomic_store_explicit(&gs_allocator_lo, lo, memory_order_release);"),
               ("interpose/allocator.h", "const uintptr_t lo = atomic_load_explicit(&gs_allocator_lo, memory_order_acquire);\n"
                "    return lo && (uintptr_t)caller")]),
    # No fence is between the mark and the clock: GS_SLACK_NS exists because of this.
    Litmus("the clock may be read before the mark is seen",
         [[W("busy", 1), R("clock", "t")], [W("clock", 1), R("busy", "b", "acq")]],
         lambda r, last: r["t"] == 0 and r["b"] == 0, possible=True,
         code=[(WRITE, "atomic_signal_fence(memory_order_seq_cst); /* the time is read after this; see GS_SLACK_NS */")]),
]

@pytest.mark.parametrize("test", TESTS, ids=lambda t: t.name)
def test_the_protocol(test):
    assert any(True for _ in test.executions()), "no execution at all: the test is wrong"
    assert test.goes_wrong() == test.possible


@pytest.mark.parametrize("test, relaxed", [pytest.param(t, at, id=f"{t.name} {at}") for t in TESTS for at in t.needs])
def test_each_order_is_needed(test, relaxed):
    assert test.goes_wrong(relaxed)


@pytest.mark.parametrize("path, line", sorted({c for t in TESTS for c in t.code}))
def test_the_code_is_that_of_the_tests(path, line):
    assert line in (ROOT / path).read_text()
