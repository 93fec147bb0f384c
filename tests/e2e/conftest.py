"""What all end-to-end tests need: where the build is, how to record, how to report."""
import ctypes
import fcntl
import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from collecting import pytest_collection  # noqa: E402, F401

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
# tests/arm64.sh: what runs the programs of BUILD, which are another processor's; gpuspy itself is then this one's.
EMULATOR = os.environ.get("EMULATOR", "").split()
ANALYZER = os.environ.get("ANALYZER") or str(BUILD / "gpuspy")
SECONDS = 120  # how long a test waits for what happens at once: long, so that a busy machine does not fail it
SAN = [name for name in os.environ.get("SAN", "").split(",") if name]
# ThreadSanitizer's reports (see tests/run.py): its exit status is lost if the program is killed.
RACES = BUILD / "tests" / "tsan"
# Tests must not use the developer's own settings: what `gpuspy calibrate` stored would change every estimate.
CONFIG = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = CONFIG.name
os.environ.pop("GPUSPY_CALIBRATION", None)
# A background job of a shell ignores these signals, and so would its children. With a handler here, children get the
# default.
for number in signal.SIGINT, signal.SIGQUIT:
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler)


# The longest ones start first, so that no worker of pytest-xdist still runs one when the others have finished.
LONG = ("test_keep", "test_category", "test_estimate", "test_import_odd", "test_holder", "test_lives", "test_spool", "test_import_trace",
        "test_languages", "test_one_truth", "test_programs", "test_top", "test_symbolize", "test_matrix", "test_pytest_plugin", "test_kill",
        "test_nvml", "test_reports", "test_extending", "test_estimate_runs", "test_build", "test_demo", "test_views", "test_diffusion",
        "test_docs", "test_warehouse", "test_json", "test_oom")


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


def sanitized(reason):
    """Marks a test that cannot run with any sanitizer."""
    return pytest.mark.skipif(bool(SAN), reason=reason)


def thread_sanitized(reason):
    return pytest.mark.skipif("thread" in SAN, reason=reason)


# gpuspy's files have a table of descriptors of their own only with libc's malloc.
own_files = pytest.mark.skipif("address" in SAN, reason="AddressSanitizer replaces malloc: gpuspy's files have the program's descriptors")
# It takes a number that the C library gives anew for one of its dead: in a child that was forked among threads.
forks_threads = thread_sanitized("ThreadSanitizer starts no thread in a child of a process of several threads")


def taken_reports():
    """What ThreadSanitizer reported since the last call."""
    texts = []
    for path in sorted(RACES.glob("log.*")) if "thread" in SAN else []:
        texts.append(path.read_text(errors="replace"))
        path.unlink()
    return "\n".join(texts)


@pytest.fixture(autouse=True)
def no_race():
    taken_reports()
    yield
    reports = taken_reports()
    assert not reports, reports


# ---- the command, for tests without a recording of their own

def gpuspy(*words, cwd=None, code=0, **environment):
    done = subprocess.run([ANALYZER, *words], capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})
    assert done.returncode == code, done.stderr + done.stdout
    return done


def one_line(text):
    return " ".join(text.split())


def imported(file, tmp_path):
    database = tmp_path / "imported.db"
    database.unlink(missing_ok=True)
    gpuspy("import", file, "-o", database)
    return sqlite3.connect(database)


SPOOL_BYTES = "33574912"  # GS_SPOOL_BYTES


def remove_spools(folder):
    """The shared memory of recordings that no report completes."""
    controls = [path.read_bytes() for path in folder.rglob("*.spool") if path.is_file()]
    named = {str(int.from_bytes(control[104:108], "little")) for control in controls if control.startswith(b"gpuspy spool")}
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        _, number, _, size, *_ = line.split()
        if number in named and size == SPOOL_BYTES:
            ctypes.CDLL(None).shmctl(int(number), 0, None)


@pytest.fixture(scope="session", autouse=True)
def no_segment(tmp_path_factory):
    """Processes that a test killed leave shared memory, which a report would remove."""
    yield
    remove_spools(tmp_path_factory.getbasetemp())


def wait_until(condition, every=0.02):
    """What the condition returns as soon as it is true."""
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(every)
    return found


class Recording:
    """The folder of one test and the recordings made in it."""

    def __init__(self, folder):
        self.folder = folder
        self.database = folder / "run.db"

    def environment(self, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
        preload = str(BUILD / "libgpuspy.so")
        sanitizer = os.environ.get("SAN_PRELOAD")  # a sanitized library needs the sanitizer's runtime to be loaded first
        env.update(LD_PRELOAD=f"{sanitizer}:{preload}" if sanitizer else preload,
                   LD_LIBRARY_PATH=str(BUILD / "sim"), GPUSPY_DB=str(self.database),
                   GPUSPY_MIN_FREE="0")  # tests must not depend on how full the disk is
        env.update({k: str(v) for k, v in more.items()})
        return {k: v for k, v in env.items() if v != ""}

    def run(self, *command, check=True, **more):
        env = self.environment(**more)
        before = EMULATOR and [*EMULATOR, *(x for name in list(env) if name.startswith("LD_") for x in ("-E", f"{name}={env.pop(name)}"))]
        done = subprocess.run([*before, *(str(c) for c in command)], env=env, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def python(self, script, *arguments, **more):
        """Runs a script of fixtures/python, or source text, under the recorder."""
        path = ROOT / "fixtures" / "python" / script if "\n" not in script else self.folder / "script.py"
        if "\n" in script:
            path.write_text(script)
        more.setdefault("PYTHONPATH", str(ROOT / "fixtures" / "python"))
        return self.run(sys.executable, path, *arguments, **more)

    def sql(self, query, *arguments):
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as db:
            return db.execute(query, arguments).fetchall()

    def gpuspy(self, *arguments, env=None):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        return subprocess.run([ANALYZER, *map(str, arguments)], env={**kept, **(env or {})}, cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)

    def report(self, *arguments):
        done = self.gpuspy("report", "--json", *arguments, self.database)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        for oom in report["oom"]:  # the parts add up to the device, and none is larger than it
            parts = oom["waterfall"]
            assert not parts or sum(part["bytes"] for part in parts) == oom["total_bytes"], parts
            for part in parts:
                assert sum(line["bytes"] or 0 for line in part["detail"]) <= part["bytes"], part
        return report


@pytest.fixture
def recording(tmp_path):
    return Recording(tmp_path)


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """The recording of that name for tests that only read it. The first worker of pytest-xdist that needs it makes
    it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def get(name, record):
        place = folder / ("once-" + hashlib.sha256(name.encode()).hexdigest()[:16])
        done = place / "stderr.txt"
        with open(place.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(place, ignore_errors=True)
                place.mkdir()
                result = record(Recording(place))
                done.write_text(getattr(result, "stderr", ""))
        recording = Recording(place)
        recording.reported = done.read_text()
        return recording
    return get
