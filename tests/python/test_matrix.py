"""The stack capture in every CPython of this machine, situation by situation (situations.py).

Each interpreter runs all situations in one process, once; a situation is one test. An interpreter
that crashes fails the situations it did not get to.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / os.environ.get("O", "build")
PROBE = BUILD / "tests" / "python" / "libstackprobe.so"
EMBED = BUILD / "tests" / "python" / "embed"
SECONDS = 900

sys.path.insert(0, str(HERE))
import interpreters  # noqa: E402
import situations  # noqa: E402

NAMES = [f.__name__ for f in situations.SITUATIONS]
INTERPRETERS = interpreters.found()
runs = {}


def run_all(python):
    """{situation: (verdict, comparisons, [text])} and the finished process."""
    if python in runs:
        return runs[python]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
    done = subprocess.run([python, str(HERE / "situations.py"), str(PROBE)], text=True, errors="replace",
                          timeout=SECONDS, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    results, name = {}, None
    for line in done.stdout.splitlines():
        head = re.fullmatch(r"(ok|FAIL) (\w+) (\d+)", line)
        if head:
            name = head[2]
            results[name] = (head[1], int(head[3]), [])
        elif name:
            results[name][2].append(line)
    runs[python] = results, done
    return runs[python]


@pytest.fixture(params=INTERPRETERS, ids=lambda i: i[0])
def python(request):
    return request.param[1]


@pytest.mark.parametrize("name", NAMES)
def test_stacks(python, name):
    results, done = run_all(python)
    if name not in results:
        pytest.fail("not reached, exit status %d:\n%s" % (done.returncode, done.stdout[-3000:]))
    verdict, _, text = results[name]
    assert verdict == "ok", "\n".join(text)


def test_ends_well(python):
    """Threads capture while the interpreter shuts down."""
    _, done = run_all(python)
    assert done.returncode == 0, done.stdout[-3000:]


def test_compared_enough(python):
    results, _ = run_all(python)
    assert sum(n for _, n, _ in results.values()) > 100000


def test_some_interpreter_is_there():
    assert INTERPRETERS, "no CPython from 3.8 up on this machine"


def test_needs_no_unwinder_by_name():
    """A needed library with an unwinder would precede libgcc and break C++ exceptions."""
    needed = subprocess.run(["readelf", "-d", str(PROBE)], text=True, stdout=subprocess.PIPE, check=True).stdout
    assert "libc.so" in needed and "unwind" not in needed and "libgcc" not in needed


# --------------------------------------------------------------------- a Python that is loaded late


def parts(text):
    found, frames = [], None
    for line in text.splitlines():
        if line.startswith("["):
            frames = []
            found.append((line[1:-1], frames))
        else:
            frames.append(line.split("\t"))
    return found


def test_embedded_late_and_local(python):
    question = ("import sys, sysconfig as s; print(s.get_config_var('LIBDIR') + '/' + "
                "str(s.get_config_var('INSTSONAME')), sys.base_prefix)")
    library, home = interpreters.ask(python, question)
    if ".so" not in library or not os.path.exists(library):
        pytest.skip("no shared libpython")
    done = subprocess.run([str(EMBED), str(PROBE), library, home], text=True, timeout=SECONDS,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    stacks = parts(done.stdout)
    assert [title for title, _ in stacks] == ["before", "inside", "inside", "after", "closed"]
    for title, frames in stacks:
        python_frames = [(f[1].split(".")[-1], f[2], int(f[3])) for f in frames if f[0] == "python"]
        native = [f for f in frames if f[0] == "native"]
        assert native and os.path.realpath(native[0][1]) == str(EMBED)
        if title == "inside":
            assert python_frames == [("inner", "<string>", 2), ("method", "<string>", 5),
                                     ("<module>", "<string>", 6)]
            assert not any("libpython" in f[1] for f in native)
        else:
            assert not python_frames
