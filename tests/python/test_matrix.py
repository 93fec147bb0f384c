"""The stack capture in every CPython of this machine, situation by situation (situations.py).

Each interpreter runs all situations in one process, once; a situation is one test. An interpreter
that crashes fails the situations it did not get to.
"""
import glob
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
SECONDS = 900

sys.path.insert(0, str(HERE))
import situations  # noqa: E402

NAMES = [f.__name__ for f in situations.SITUATIONS]


def candidates():
    places = os.environ.get("PATH", "").split(os.pathsep) + ["/usr/bin", "/usr/local/bin"]
    places += glob.glob(str(Path.home() / ".pyenv/versions/*/bin"))
    places += glob.glob(os.environ.get("GPUSPY_TEST_PYTHONS", ""))
    yield sys.executable
    for place in places:
        if place.endswith("shims"):
            continue
        for path in sorted(glob.glob(os.path.join(place, "python3*"))):
            if re.fullmatch(r"python3(\.\d+t?)?", os.path.basename(path)):
                yield path


def interpreters():
    """(id, path), one for each executable that is a CPython from 3.8 up."""
    question = ("import sys, platform; print(platform.python_implementation(), sys.version_info[0] * 100 + "
                "sys.version_info[1], platform.python_version(), getattr(sys, '_is_gil_enabled', lambda: True)())")
    found = {}
    for path in candidates():
        real = os.path.realpath(path)
        if real in found:
            continue
        try:
            answer = subprocess.run([real, "-c", question], text=True, timeout=60, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL).stdout.split()
        except (OSError, subprocess.TimeoutExpired):
            continue
        if len(answer) == 4 and answer[0] == "CPython" and int(answer[1]) >= 308:
            version = answer[2] + ("" if answer[3] == "True" else "t")
            ids = [i for i, _ in found.values()]
            n = sum(i.split("#")[0] == version for i in ids)
            found[real] = ("%s#%d" % (version, n + 1) if n else version, real)
    return sorted(found.values())


INTERPRETERS = interpreters()
runs = {}


def run(python, *options, env=None):
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore", **(env or {}))
    return subprocess.run([python, *options, str(HERE / "situations.py"), str(PROBE)], text=True,
                          errors="replace", timeout=SECONDS, env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


def run_once(python):
    if python not in runs:
        done = run(python)
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
    if not PROBE.exists():
        pytest.fail("%s is not built" % PROBE)
    return request.param[1]


@pytest.mark.parametrize("name", NAMES)
def test_stacks(python, name):
    results, done = run_once(python)
    if name not in results:
        pytest.fail("not reached, exit status %d:\n%s" % (done.returncode, done.stdout[-3000:]))
    verdict, comparisons, text = results[name]
    assert verdict == "ok", "\n".join(text)


def test_ends_well(python):
    """Threads capture while the interpreter is taken down."""
    _, done = run_once(python)
    assert done.returncode == 0, done.stdout[-3000:]


def test_many_comparisons(python):
    results, _ = run_once(python)
    assert sum(n for _, n, _ in results.values()) > 23000


def test_version_range():
    assert INTERPRETERS, "no CPython from 3.8 up on this machine"
