"""Situations in which a Python stack is captured and compared with what Python itself says.

Runs in every CPython from 3.8 up, with the standard library alone:

    python3 situations.py LIBSTACKPROBE [NAME…]

Each situation calls check() at the depth of interest. check() captures, then walks sys._getframe()
and traceback.extract_stack() on the same line. A difference is printed as expected and seen. One
line "ok NAME comparisons" or "FAIL NAME" a situation, in the order of SITUATIONS.
"""
import contextlib
import ctypes
import functools
import gc
import os
import sys
import threading
import traceback
import weakref

PYTHON, NATIVE, BOTH = 1, 2, 3
ROOM = 1 << 18
SITUATIONS = []
CUT = "(deeper frames cut)"
MOST = 512

probe = probe_gil = None  # without and with the GIL held during the call
local = threading.local()


def situation(function):
    SITUATIONS.append(function)
    return function


# --------------------------------------------------------------------- comparing


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def text_of(s):
    return s.encode("utf-8", "surrogatepass").decode("utf-8", "replace") if s.isascii() else "".join(
        "\ufffd" if 0xD800 <= ord(c) < 0xE000 else c for c in s)


def chain(frame):
    found = []
    while frame is not None:
        found.append((text_of(name_of(frame.f_code)), text_of(frame.f_code.co_filename), frame.f_lineno or 0))
        frame = frame.f_back
    return found


def buffer():
    if not hasattr(local, "buffer"):
        local.buffer = ctypes.create_string_buffer(ROOM)
    return local.buffer


@contextlib.contextmanager
def own_buffer():
    """One for each check: a destructor may run a check in the middle of another one."""
    spare = local.__dict__.setdefault("spare", [])
    b = spare.pop() if spare else ctypes.create_string_buffer(ROOM)
    yield b
    spare.append(b)


def parsed(text):
    frames = []
    for line in text.decode("utf-8").split("\n")[:-1]:
        kind, function, file, number = line.split("\t")
        frames.append((kind, function, file, int(number)))
    return frames


def expected_of(frames):
    if len(frames) < MOST:
        return frames
    return frames[:MOST - 1] + [(CUT, "", 0)]


class Wrong(Exception):
    pass


def compare(seen, expected):
    local.comparisons = getattr(local, "comparisons", 0) + 1
    if seen != expected:
        raise Wrong("expected\n%s\nseen\n%s" % ("\n".join(map(repr, expected)), "\n".join(map(repr, seen))))


def checked(library, label, b):
    n, frames, listed = library.probe_stack(PYTHON, b, ROOM), chain(sys._getframe()), traceback.extract_stack()
    if not n:
        raise Wrong("%s: no stack, expected\n%r" % (label, frames))
    seen = [frame[1:] for frame in parsed(b.value)]
    compare(seen, expected_of(frames))
    if len(frames) < MOST:
        # extract_stack has plain names, and lines where the frame's line is known
        plain = [(s[0].split(".")[-1], s[2]) for s in seen]
        compare(plain, [(text_of(f.name).split(".")[-1], f.lineno or 0) for f in reversed(listed)])


def check(label=""):
    if probe is None:
        return True
    for library in (probe, probe_gil):
        with own_buffer() as b:
            try:
                checked(library, label, b)
            except Wrong as wrong:
                failures.append("%s: %s" % (label, wrong))
    return True


failures = []


# --------------------------------------------------------------------- plain code


@situation
def nested():
    def a():
        return b()

    def b():
        def c():
            check()
            return 1
        return c()

    a()
    (lambda: check())()
    (lambda f: f(lambda: check()))(lambda g: g())


@situation
def lines_of_expressions():
    def value(x):
        check("value %d" % x)
        return x

    (value(1) +
     value(2) * (
         value(3)
         if value(0) else
         value(4)))
    [
        value(5),
        value(6),
    ]
    value(
        value(
            7
        )
    )
    total = value(8) \
        + value(9)
    assert total == 17, value(
        10)
    f"{value(11)}" \
        f"{value(12)}"
    for _ in (
        value(13),
    ): value(14)
    while not value(15): value(16)
    if not (value(0)
            or value(17)):
        pass


@situation
def comprehensions():
    [check() for _ in range(2)]
    {check(i) for i in range(2)}
    {i: check(i) for i in range(2)}
    list(check() for _ in range(2))
    [[check() for _ in range(2)]
     for _ in
     range(2)]
    [(lambda: check())()
     for _ in range(2)]


class Body:
    check("class body")

    class Inner:
        check("inner class body")

    def method(self):
        check("method")
        return self

    @classmethod
    def of_class(cls):
        check("classmethod")

    @staticmethod
    def of_none():
        check("staticmethod")

    @property
    def value(self):
        check("property")

    def __getattr__(self, name):
        check("getattr")
        return 1

    def __enter__(self):
        return check("enter")

    def __exit__(self, *_):
        check("exit")
        return True

    def __lt__(self, other):
        check("lt")
        return False

    def __iter__(self):
        check("iter")
        return iter((1, 2))

    def __call__(self):
        check("call")


@situation
def classes():
    class Local(Body):
        check("local class body")

        def method(self):
            return super().method()

    x = Local()
    x.method()
    x.of_class()
    x.of_none()
    x.value
    x.unknown
    with x:
        raise ValueError
    sorted([x, Body(), Body()])
    list(x)
    x()
    class Meta(type):
        def __new__(mcs, *a, **k):
            check("metaclass")
            return super().__new__(mcs, *a, **k)
    class Made(metaclass=Meta):
        check("body under metaclass")


@situation
def constructors_when_warm():
    """From 3.12 on, CALL is specialised for __init__, with an additional shim frame."""
    class Point:
        def __init__(self, x):
            self.x = x
            check("init")

    class Cell:
        def __init__(self, x):
            def inner():
                return x
            check("init with cells")
            inner()

    class Gone:
        def __init__(self):
            self.me = self

        def __del__(self):
            check("del of a garbage cycle")

    for i in range(60):
        Point(i)
        Cell(i)
        Gone()
    gc.collect()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        check("in wrapper")
        return function(*args, **kwargs)
    return wrapper


@situation
def decorators():
    @decorated
    @functools.lru_cache()
    @decorated
    def f(x):
        check("decorated")
        return x
    for i in range(3):
        f(i // 2)
    functools.partial(f, 4)()


@situation
def called_from_c():
    sorted([3, 1, 2], key=lambda x: check() and x)
    list(map(lambda x: check(), [1, 2]))
    list(filter(lambda x: check(), [1, 2]))
    max([1, 2], key=lambda x: check() and x)
    functools.reduce(lambda a, b: check(), [1, 2, 3])

    @ctypes.CFUNCTYPE(None)
    def callback():
        check("ctypes callback")
    probe.probe_callback(callback)
    probe_gil.probe_callback(callback)

    def again():
        probe.probe_callback(ctypes.CFUNCTYPE(None)(lambda: check("callback in callback")))
    probe.probe_callback(ctypes.CFUNCTYPE(None)(again))


@situation
def exceptions():
    try:
        try:
            raise KeyError
        except KeyError:
            check("except")
            raise ValueError
        finally:
            check("finally")
    except ValueError:
        check("outer except")
    else:
        check()
    try:
        [1 / (check("before") - 1)]
    except ZeroDivisionError:
        check("after")


@situation
def code_from_text():
    exec("check('exec')")
    exec("\n\n\ncheck('exec, third line')")
    eval("check('eval')")
    eval("[check('eval')\nfor _ in (1,\n2)]")
    exec(compile("def f():\n  check('compiled')\n\n\nf()", "made up <file>", "exec"), globals())
    exec(compile("check('unicode file')", "dossi\u00e9/\u8def\u5f84/\U0001f600.py", "exec"), globals())
    exec(compile("check('latin file')", "dossi\u00e9.py", "exec"), globals())
    exec("def \u00e9t\u00e9(): check('latin name')\n\u00e9t\u00e9()", globals())
    exec("def \u51fd\u6570(): check('wide name')\n\u51fd\u6570()", globals())
    exec("def \U00010400(): check('astral name')\n\U00010400()", globals())
    if sys.version_info >= (3, 12):
        exec(compile("check('surrogate file')", "a\udcff.py", "exec"), globals())


@situation
def long_functions():
    """Offsets beyond a byte, lines far apart, lines that go back."""
    body = "\n".join("    x = %d; y = x + 1" % i for i in range(3000))
    exec("def f():\n%s\n    check('after long body')\n%s\n    check('later')\nf()" % (body, body), globals())
    gap = "\n" * 70000
    exec("def g():\n    check('a')%s\n    check('b')\n    check('c')%s\n    return check('d')\ng()"
         % (gap, gap), globals())
    exec("h = lambda *a: check('many')\nh(%s\n%s)" % (
        ",\n".join("check('argument')" for _ in range(300)), "\n" * 300), globals())


@situation
def deep_recursion():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(6000)

    def down(n):
        if n == 0:
            return check("deep")
        return down(n - 1)

    try:
        for n in (480, 505, 506, 507, 508, 509, 510, 511, 512, 513, 1000, 1500, 3000):
            down(n)
    finally:
        sys.setrecursionlimit(limit)


# --------------------------------------------------------------------- generators, coroutines


@situation
def generators():
    def g(n):
        check("generator")
        try:
            yield 1
            check("after yield")
            yield from h(n)
        finally:
            check("generator closed")

    def h(n):
        if n:
            yield from h(n - 1)
        check("inner generator")
        yield n

    list(g(4))
    for _ in g(2):
        break
    it = g(1)
    next(it)
    it.close()
    it = g(1)
    next(it)
    with contextlib.suppress(KeyError):
        it.throw(KeyError)
    sum(x for x in g(2) if check("generator expression"))

    def cells(n):
        def inner():
            return n
        check("generator with cells")
        yield inner()
    for i in range(30):
        list(cells(i))


@situation
def coroutines():
    import asyncio

    async def leaf(n):
        check("leaf")
        await asyncio.sleep(0)
        check("leaf resumed")
        return n

    async def numbers(n):
        for i in range(n):
            check("async generator")
            yield i
            await asyncio.sleep(0)

    class Managed:
        async def __aenter__(self):
            check("aenter")
            await asyncio.sleep(0)

        async def __aexit__(self, *_):
            check("aexit")

    async def main():
        await leaf(1)
        async for _ in numbers(2):
            check("async for")
        async with Managed():
            check("async with")
        [await leaf(i) for i in range(2)]
        await asyncio.gather(*(leaf(i) for i in range(4)))
        task = asyncio.ensure_future(leaf(3))
        await task
        await asyncio.get_running_loop().run_in_executor(None, in_thread)

    def in_thread():
        check("executor")

    asyncio.run(main())


@situation
def greenlets():
    try:
        import greenlet
    except ImportError:
        return

    def one():
        check("one")
        two_.switch()
        check("one again")

    def two():
        check("two")
        one_.switch()

    one_, two_ = greenlet.greenlet(one), greenlet.greenlet(two)
    one_.switch()
    check("back")


# --------------------------------------------------------------------- finalizers


@situation
def finalizers():
    class Gone:
        def __init__(self, depth=0):
            self.child = Gone(depth - 1) if depth else None

        def __del__(self):
            check("del")

    Gone(5)
    x = Gone()
    x = None
    y = Gone()
    ref = weakref.ref(y, lambda _: check("weakref callback"))
    del y, ref
    z = Gone()
    weakref.finalize(z, check, "finalize")
    del z, x


@situation
def garbage_at_any_moment():
    """The garbage collector runs while frames are being set up: incomplete frames must not be visible."""
    class Gone:
        def __init__(self):
            self.me = self

        def __del__(self):
            local.deleted = getattr(local, "deleted", 0) + 1
            if local.deleted % 7 == 0:
                check("del of a cycle")

    def cells(a, b=1, *c, **d):
        def inner():
            return a, b, c, d
        return inner()

    def generator(n):
        def inner():
            return n
        for _ in range(n):
            Gone()
            yield inner

    class Made:
        def __init__(self, a):
            def inner():
                return a, self
            self.inner = inner

    old = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for i in range(150):
            Gone()
            cells(i, i, i, k=i)
            Gone()
            list(generator(2))
            Made(i)
            [lambda: i for _ in range(2)]
            Gone()
    finally:
        gc.set_threshold(*old)


# --------------------------------------------------------------------- code that is freed


def churn(rounds, tag):
    wrong = 0
    b = buffer()
    library = probe
    for i in range(rounds):
        name = "f%s_%d" % (tag, i)
        source = "%sdef %s():\n%s  return library.probe_stack(1, b, 1 << 18)\nresult = %s()" % (
            "\n" * (i % 5), name, "\n" * (i % 7), name)
        scope = {"library": library, "b": b}
        file = "<%s %d>" % (tag, i)
        exec(compile(source, file, "exec"), scope)
        seen = b.value.decode().split("\n")
        line = 2 + i % 5 + i % 7
        if seen[:2] != ["python\t%s\t%s\t%d" % (name, file, line),
                        "python\t<module>\t%s\t%d" % (file, line + 1)]:
            wrong += 1
            if wrong < 3:
                failures.append("churn %s %d line %d: %r" % (tag, i, line, seen[:3]))
    local.comparisons = getattr(local, "comparisons", 0) + rounds
    if wrong:
        failures.append("%s: %d of %d wrong" % (tag, wrong, rounds))


@situation
def code_that_dies():
    churn(20000, "churn")


@situation
def code_that_dies_in_threads():
    threads = [threading.Thread(target=churn, args=(1500, "thread%d" % i)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@situation
def unrecorded_code_costs_nothing():
    check()
    before = probe.probe_epoch()
    for i in range(500):
        exec("x = %d" % i)
    if probe.probe_epoch() != before:
        failures.append("the death of code that was never captured emptied the caches")


@situation
def definitions_are_written_once():
    def stack():
        return probe.probe_number(PYTHON)

    counts = (ctypes.c_ulong * 4)()
    seen = set()
    for i in range(1000):
        seen.add(stack())
        if i == 0:
            probe.probe_counts(counts)
            first = list(counts)
    probe.probe_counts(counts)
    if len(seen) != 1 or list(counts) != first:
        failures.append("1000 captures on one line gave %r and %r → %r" % (seen, first, list(counts)))


@situation
def spool_without_room():
    def stack():
        return probe.probe_number(PYTHON)

    probe.probe_full(1)
    numbers = [stack() for _ in range(3)]
    probe.probe_full(0)
    if numbers != [0, 0, 0] or not stack():
        failures.append("without room %r" % numbers)
    check("room again")


# --------------------------------------------------------------------- threads


@situation
def threads_of_python():
    def work(n):
        for _ in range(20):
            if n:
                work(n - 1)
                return
            check("thread")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for i in range(30):
        check("while others run")
        t = threading.Thread(target=lambda: check("short thread"))
        t.start()
        t.join()
    for t in threads:
        t.join()


@situation
def threads_of_c():
    b = ctypes.create_string_buffer(ROOM)
    probe.probe_in_thread(PYTHON, b, ROOM, None)
    if b.value:
        failures.append("Python frames in a thread that Python does not know: %r" % b.value)

    def called():
        check("called in a thread of C")
    for _ in range(5):
        probe.probe_in_thread(PYTHON, b, ROOM, ctypes.CFUNCTYPE(None)(called))


@situation
def traced():
    def trace(frame, event, arg):
        return trace

    def profile(frame, event, arg):
        pass

    sys.settrace(trace)
    try:
        nested()
        generators()
    finally:
        sys.settrace(None)
    sys.setprofile(profile)
    try:
        nested()
    finally:
        sys.setprofile(None)


@situation
def in_trace_functions():
    depth = [0]

    def trace(frame, event, arg):
        if depth[0] == 0 and frame.f_code.co_filename == __file__:
            depth[0] = 1
            try:
                check("trace function")
            finally:
                depth[0] = 0
        return trace

    def traced_function(n):
        x = n
        for i in range(2):
            x += i
        return [y for y in range(2)]

    sys.settrace(trace)
    try:
        traced_function(1)
    finally:
        sys.settrace(None)


@situation
def signals():
    import signal

    def handler(*_):
        check("signal handler")

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        for _ in range(5):
            os.kill(os.getpid(), signal.SIGUSR1)
            sum(range(10))
    finally:
        signal.signal(signal.SIGUSR1, old)


@situation
def imports():
    import tempfile
    with tempfile.TemporaryDirectory() as where:
        name = "imported_module_of_gpuspy"
        with open(os.path.join(where, name + ".py"), "w") as f:
            f.write("import situations_check\n\nsituations_check.check('module body')\n\n"
                    "class A:\n    situations_check.check('class in module')\n")
        module = type(sys)("situations_check")
        module.check = check
        sys.modules["situations_check"] = module
        sys.path.insert(0, where)
        sys.dont_write_bytecode = True
        try:
            __import__(name)
        finally:
            sys.path.remove(where)


@situation
def forked():
    check()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        before = len(failures)
        check("in a child")
        churn(200, "child")
        os._exit(len(failures) - before)
    if os.waitpid(pid, 0)[1]:
        failures.append("in a forked child")


@situation
def fork_while_threads_capture():
    stop = []

    def work():
        while not stop:
            churn(20, "busy%d" % threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            churn(5, "forked")
            os._exit(0)
        os.waitpid(pid, 0)
    stop.append(1)
    for t in threads:
        t.join()


@situation
def sub_interpreters():
    """Whatever the capture reads there, it does not crash."""
    code = ("import ctypes\nlib = ctypes.CDLL(%r)\nb = ctypes.create_string_buffer(1 << 18)\n"
            "lib.probe_stack.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_size_t]\n"
            "for i in range(50):\n  exec('lib.probe_stack(1, b, 1 << 18)')" % LIBRARY)
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        for _ in range(3):
            made = module.create()
            try:
                module.run_string(made, code)
            except Exception:
                pass
            module.destroy(made)
            check("after a sub-interpreter")
        return


# --------------------------------------------------------------------- line tables


def codes_of(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from codes_of(constant)


def ranges_of(code):
    """(first offset, first offset after, line or 0) as CPython says."""
    if hasattr(code, "co_lines"):
        return [(a, b, line or 0) for a, b, line in code.co_lines()]
    import dis
    starts = list(dis.findlinestarts(code)) + [(len(code.co_code), None)]
    return [(a, b, line) for (a, line), (b, _) in zip(starts, starts[1:])]


@situation
def every_line_of_the_library():
    """Each instruction of some forty modules, compared with the line that the code object itself gives."""
    import argparse, ast, asyncio.base_events, calendar, configparser, csv, dataclasses, datetime, decimal
    import difflib, email.message, fractions, html.parser, http.client, inspect, json, logging, pickle
    import random, shlex, socket, statistics, string, subprocess, tarfile, tempfile, textwrap, typing
    import unittest.mock, urllib.request, uuid, xml.dom.minidom, zipfile, _pydecimal
    wrong = 0
    for module in list(sys.modules.values()):
        loader = getattr(getattr(module, "__spec__", None), "loader", None)
        try:
            code = loader.get_code(module.__spec__.name)
        except Exception:
            continue
        for c in codes_of(code) if code else ():
            for first, after, line in ranges_of(c):
                for offset in {first, after - 2}:
                    local.comparisons += 1
                    seen = probe.probe_line(id(c), offset)
                    if offset >= first and seen != line:
                        wrong += 1
                        if wrong < 5:
                            failures.append("%r at %d: line %r, seen %r" % (c, offset, line, seen))
    if wrong:
        failures.append("%d wrong" % wrong)


# --------------------------------------------------------------------- native


def outside(frames):
    own = os.path.realpath(LIBRARY)
    return [f for f in frames if f[0] == "native" and os.path.realpath(f[1]) == own]


@situation
def native_above_python():
    b = buffer()

    def at_bottom():
        return probe.probe_stack(BOTH, b, ROOM), chain(sys._getframe())

    def middle(n):
        return middle(n - 1) if n else at_bottom()

    for n in (0, 1, 5, 40, 3, 0):
        for _ in range(70):
            _, frames = middle(n)
            both = parsed(b.value)
            native = [f for f in both if f[0] == "native"]
            if both != native + [("python",) + f for f in expected_of(frames)]:
                failures.append("native then Python: %r" % both)
                return
            if outside(both) or not native or len(native) > 30:
                failures.append("native part: %r" % native)
                return
            # CPython itself is below the native part
            if any("libpython" in f[1] for f in native) or any(f[1] == PROGRAM for f in native):
                failures.append("the interpreter in the native part: %r" % native)
                return
    if not all(f[2].isdigit() and f[1].startswith("/") and f[3] > 0 for f in native):
        failures.append("native frames: %r" % native)
    local.comparisons += 420


@situation
def native_alone():
    b = ctypes.create_string_buffer(ROOM)
    probe.probe_in_thread(BOTH, b, ROOM, None)
    frames = parsed(b.value)
    if not frames or any(f[0] != "native" for f in frames) or not outside(frames[:1]):
        failures.append("a thread of C: %r" % frames)
    if not any("libc.so" in f[1] or "libpthread" in f[1] for f in frames):
        failures.append("a thread of C starts in libc: %r" % frames)
    probe.probe_stack(NATIVE, b, ROOM)
    whole = parsed(b.value)
    if len(whole) < 6 or any(f[0] != "native" and f[1] != CUT for f in whole):
        failures.append("native only: %r" % whole)

    def called():
        probe.probe_stack(BOTH, b, ROOM)
    probe.probe_in_thread(BOTH, b, ROOM, ctypes.CFUNCTYPE(None)(called))
    kinds = [f[0] for f in parsed(b.value)]
    if kinds != sorted(kinds) or "python" not in kinds:
        failures.append("Python called in a thread of C: %r" % kinds)


# --------------------------------------------------------------------- the end of the process


class AtEnd:
    """Its modules are being destroyed: nothing is read any more, and nothing crashes."""

    def __init__(self):
        self.probe, self.b = probe, ctypes.create_string_buffer(ROOM)

    def __del__(self):
        self.probe.probe_stack(BOTH, self.b, ROOM)


def while_ending():
    while True:
        probe.probe_number(BOTH)


def last():
    global at_end
    import atexit
    at_end = AtEnd()
    atexit.register(lambda: probe.probe_number(BOTH))
    for _ in range(3):
        threading.Thread(target=while_ending, daemon=True).start()


# --------------------------------------------------------------------- running


def load(path):
    for kind in (ctypes.CDLL, ctypes.PyDLL):
        library = kind(path)
        library.probe_missing.restype = library.probe_version.restype = ctypes.c_char_p
        library.probe_stack.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_size_t]
        library.probe_in_thread.argtypes = [ctypes.c_uint, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
        library.probe_line.argtypes = [ctypes.c_void_p, ctypes.c_long]
        library.probe_number.restype = library.probe_stack.restype = ctypes.c_uint
        yield library


def main():
    global probe, probe_gil, LIBRARY, PROGRAM
    LIBRARY, PROGRAM = sys.argv[1], os.path.realpath("/proc/self/exe")
    probe, probe_gil = load(LIBRARY)
    if not probe.probe_open(BOTH, 0):
        print("FAIL attach: %s" % probe.probe_missing())
        return 1
    version = sys.version.split()[0].rstrip("+")
    if probe.probe_version().decode() not in (version, version + "+"):
        failures.append("version %r" % probe.probe_version())
    for f in SITUATIONS:
        if len(sys.argv) > 2 and f.__name__ not in sys.argv[2:]:
            continue
        del failures[:]
        local.comparisons = 0
        try:
            f()
        except Exception:
            failures.append(traceback.format_exc())
        print("%s %s %d" % ("FAIL" if failures else "ok", f.__name__, local.comparisons), flush=True)
        for text in failures[:3]:
            print(text, flush=True)
    last()
    return 0


def text_safe():
    sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    # The class bodies above ran before the library was loaded.
    text_safe()
    sys.exit(main())
