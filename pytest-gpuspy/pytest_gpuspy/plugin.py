"""pytest --gpuspy: records the tests' GPU memory with gpuspy, and holds them to limits.

    @pytest.mark.limit_gpu_memory("1 GiB")   the peak of what the test itself has allocated
    @pytest.mark.limit_gpu_leaks("0")        … and how much of it is still live when it returns
    @pytest.mark.limit_gpu_syncs(10)         how often it waits for the GPU

Python is started once more with the recorder loaded. Each test leaves two marks in the recording; what was
allocated between them is its own. A test that never touches CUDA leaves nothing, and costs nothing."""
from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Generator, Iterator, Sequence

import pytest

from . import recorder
from .recorder import NotFound
from .units import format_bytes, parse_bytes

PREFIX = "pytest "
MARKS = {
    "limit_gpu_memory": "limit_gpu_memory(size): fail if the test itself has more than size of GPU memory live at "
                        "once, on one GPU ('1 GiB')",
    "limit_gpu_leaks": "limit_gpu_leaks(size='0'): fail if more than size of the GPU memory that the test allocated is "
                       "still live when it returns, after a garbage collection",
    "limit_gpu_syncs": "limit_gpu_syncs(n): fail if the test waits for the GPU more than n times",
}
NAME_MOST = 400  # bytes of a test's name in the recording
PATIENCE_S = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gpuspy", "GPU memory, by gpuspy")
    group.addoption("--gpuspy", action="store_true", default=False,
                    help="record the tests' GPU memory, and hold them to their limit_gpu_* marks")
    group.addoption("--gpuspy-dir", metavar="DIR", default=None,
                    help="keep the recordings there, for gpuspy report (default: a folder that is removed)")
    group.addoption("--gpuspy-top", metavar="N", type=int, default=10,
                    help="tests in the table at the end, those with most GPU memory first (default: 10; 0: no table)")
    group.addoption("--gpuspy-native", action="store_true", default=False,
                    help="record C and C++ frames, too: slower")


def prepare(config: pytest.Config) -> None:
    """In the first process: starts Python again under the recorder, unless it is loaded; then this does not return."""
    if recorder.is_loaded():
        return
    if os.environ.get(recorder.OWN) == str(os.getpid()):
        raise pytest.UsageError("--gpuspy: the recorder was named in LD_PRELOAD, but the loader did not load it "
                                "(a static or setuid Python?)")
    try:
        library = recorder.find_library(str(getattr(config, "invocation_params", None) and config.invocation_params.dir or "."))
    except NotFound as error:
        raise pytest.UsageError(f"--gpuspy: {error}") from None
    kept = config.known_args_namespace.gpuspy_dir
    try:
        if kept:
            os.makedirs(kept, exist_ok=True)
        folder = os.path.abspath(kept) if kept else tempfile.mkdtemp(prefix="pytest-gpuspy-")
        if kept:  # a folder holds one session's
            folder = tempfile.mkdtemp(prefix="session-", dir=folder)
    except OSError as error:
        raise pytest.UsageError(f"--gpuspy-dir: cannot use '{kept}': {error.strerror}") from None
    try:
        recorder.start_again(library, folder, config.known_args_namespace.gpuspy_native)
    except (NotFound, OSError) as error:
        raise pytest.UsageError(f"--gpuspy: {error}") from None


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    if early_config.known_args_namespace.gpuspy:  # before pytest captures the output
        prepare(early_config)
    yield


def pytest_configure(config: pytest.Config) -> None:
    for text in MARKS.values():
        config.addinivalue_line("markers", text)
    if not config.getoption("gpuspy"):
        return
    if not recorder.is_loaded():
        raise pytest.UsageError("--gpuspy: pytest was started in a way that cannot be started again; put --gpuspy on its "
                                "command line, or run it under 'gpuspy run'")
    try:
        session = Session(config)
    except NotFound as error:
        raise pytest.UsageError(f"--gpuspy: {error}") from None
    config.pluginmanager.register(session, "gpuspy-session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A wrong mark is a usage error before any test runs, recorded or not."""
    wrong: list[str] = []
    for item in items:
        try:
            Limits(item)
        except ValueError as error:
            wrong.append(f"{item.nodeid}: {error}")
    if wrong:
        raise pytest.UsageError("\n".join(wrong))


@pytest.fixture
def gpuspy(request: pytest.FixtureRequest) -> Figures:
    """GPU memory of this test so far: `current`, `peak`, `waits`. Without --gpuspy `recording` is False, and reading a
    figure skips the test."""
    session: Any = request.config.pluginmanager.getplugin("gpuspy-session")
    return Figures(session, request.node)


class Figures:
    """The memory that the test itself has allocated, in bytes. Each access reads the recording, which takes some milliseconds."""

    def __init__(self, session: Session | None, item: pytest.Item) -> None:
        self.session, self.item = session, item

    @property
    def recording(self) -> bool:
        return self.session is not None

    def _ask(self, key: str) -> int:
        if not self.session:
            name = {"left": "current"}.get(key, key)
            pytest.skip(f"gpuspy.{name} is measured only with 'pytest --gpuspy' (gpuspy.recording is False without it)")
        return int(self.session.look(self.item).get(key, 0))

    @property
    def current(self) -> int:
        return self._ask("left")

    @property
    def peak(self) -> int:
        return self._ask("peak")

    @property
    def waits(self) -> int:
        return self._ask("waits")


# ---------------------------------------------------------------- limits

class Limits:
    """The marks of one test. ValueError if one is wrong."""

    def __init__(self, item: pytest.Item) -> None:
        self.memory = self.size(item, "limit_gpu_memory")
        self.leaks = self.size(item, "limit_gpu_leaks", "0")
        self.waits: int | None = None
        mark = item.get_closest_marker("limit_gpu_syncs")
        if mark:
            value = self.argument(mark, "n", None)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise ValueError(f"limit_gpu_syncs takes a whole number, not {value!r}")
            self.waits = value

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.memory, self.leaks, self.waits))

    @staticmethod
    def argument(mark: pytest.Mark, name: str, default: object) -> object:
        if len(mark.args) > 1 or set(mark.kwargs) - {name} or (mark.args and mark.kwargs):
            raise ValueError(f"{mark.name} takes one value: {MARKS[mark.name]}")
        return mark.args[0] if mark.args else mark.kwargs.get(name, default)

    def size(self, item: pytest.Item, name: str, default: str | None = None) -> int | None:
        mark = item.get_closest_marker(name)
        if not mark:
            return None
        try:
            return parse_bytes(self.argument(mark, "size", default))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def broken(self, reported: dict[str, Any]) -> Iterator[tuple[str, Sequence[dict[str, Any]], bool]]:
        """The limits that were exceeded, each a paragraph with its lines."""
        if self.memory is not None and reported["peak"] > self.memory:
            yield (f"The test had {format_bytes(reported['peak'])} of GPU memory at once, {format_bytes(reported['peak'] - self.memory)} "
                   f"over its limit of {format_bytes(self.memory)}" + on_gpu(reported) + ". Live at that moment:",
                   reported.get("peak_lines", ()), True)
        if self.leaks is not None and reported["left"] > self.leaks:
            yield (f"{format_bytes(reported['left'])} of the GPU memory that the test allocated is still live, "
                   f"{format_bytes(reported['left'] - self.leaks)} over its limit of {format_bytes(self.leaks)}:",
                   reported.get("left_lines", ()), True)
        if self.waits is not None and reported["waits"] > self.waits:
            yield (f"The test waited for the GPU {reported['waits']} times, {reported['waits'] - self.waits} more than its limit of "
                   f"{self.waits}:", reported.get("wait_lines", ()), False)


def on_gpu(reported: dict[str, Any]) -> str:
    return f" (GPU {reported['device']})" if reported.get("device") else ""


def shown_place(place: str, root: object) -> str:
    prefix = str(root).rstrip("/") + "/"
    return " < ".join(part[len(prefix):] if part.startswith(prefix) else part for part in place.split(" < "))


def paragraph(text: str, lines: Sequence[dict[str, Any]], is_bytes: bool, root: object) -> str:
    out = [text]
    for line in lines:
        amount = format_bytes(line["amount"]) if is_bytes else str(line["amount"])
        more = f"  ({line['count']} allocations)" if is_bytes and line["count"] > 1 else ""
        out.append(f"  {amount:>12}  {shown_place(line['place'], root)}{more}")
    return "\n".join(out)


def give_back() -> None:
    """Frees unreachable objects and the workspaces that PyTorch keeps for cuBLAS, which are not a leak of the test:
    PyTorch allocates them again when it needs them."""
    gc.collect()
    torch: Any = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # of another version: then they count
        if torch.cuda.is_initialized():
            torch._C._cuda_clearCublasWorkspaces()


# ---------------------------------------------------------------- a session

class Session:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.recorder = recorder.Recorder()
        self.pid, self.since = os.getpid(), time.time_ns()
        named = os.environ.get(recorder.FOLDER)
        self.folder = named or os.path.dirname(os.path.abspath(os.environ.get("GPUSPY_DB") or "run.db"))
        self.first = os.environ.get(recorder.OWN) == str(os.getpid())  # it prints, and cleans up
        self.reader: subprocess.Popen[str] | None = None
        self.reader_pid: int | None = None
        self.number = 0
        self.now: dict[str, str] = {}     # by test, the name of its start
        self.broken: dict[str, str] = {}  # by test, which limits do not hold
        if self.first and not config.getoption("gpuspy_dir"):
            atexit.register(self.remove)

    def remove(self) -> None:
        """Removes the folder after this process has ended, because it writes the recording until then."""
        if os.getpid() != self.pid:
            return
        if self.database_exists():
            self.ask({"remove": self.pid})
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the reader

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answers of the program that reads; each process has its own."""
        if self.reader is None or self.reader_pid != os.getpid():
            env = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "NVTX_INJECTION64_PATH")}
            script = str(Path(__file__).with_name("reader.py"))
            self.reader = subprocess.Popen([sys.executable, "-I", script], env=env, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, universal_newlines=True, start_new_session=True)
            self.reader_pid = os.getpid()
        assert self.reader.stdin and self.reader.stdout  # pipes
        try:
            self.reader.stdin.write(json.dumps({"folder": self.folder, **request}) + "\n")
            self.reader.stdin.flush()
            line = self.reader.stdout.readline()
        except OSError:
            line = ""
        return json.loads(line) if line else {"error": "the program that reads the recording has died"}

    def close(self) -> None:
        if self.reader is not None and self.reader_pid == os.getpid():
            assert self.reader.stdin and self.reader.stdout
            with contextlib.suppress(OSError):
                self.reader.stdin.close()
            self.reader.stdout.close()
            self.reader.wait()
            self.reader = None

    # ---- marks

    def name(self, item: pytest.Item) -> str:
        name = item.nodeid.encode("ascii", "backslashreplace").decode("ascii")
        return f"{os.getpid()}.{self.number} {name[:NAME_MOST]}"

    def measured(self, item: pytest.Item, start: str | None, end: str) -> dict[str, Any]:
        """The figures of the window; empty if the process made no CUDA call."""
        nothing = {"peak": 0, "left": 0, "now": 0, "waits": 0}
        request = {"pid": os.getpid(), "start": start, "end": end, "file": str(item.fspath)}
        if not self.recorder.flush():
            stopped = self.database_exists() and self.ask(request).get("found")
            return {**nothing, "error": "the recording has stopped"} if stopped else nothing
        reported, until = self.ask(request), time.monotonic() + PATIENCE_S
        while reported.get("late") and time.monotonic() < until:  # another thread is in the middle of a record
            time.sleep(0.005)
            self.recorder.flush()
            reported = self.ask(request)
        if reported.get("late"):
            reported["error"] = "the recording does not contain the end of the test"
        return reported if reported.get("found") else {**nothing, "error": reported.get("error", "the recording was not found")}

    def database_exists(self) -> bool:
        try:
            return any(name.endswith(".db") for name in os.listdir(self.folder))
        except OSError:
            return False

    def look(self, item: pytest.Item) -> dict[str, Any]:
        """Up to now."""
        self.number += 1
        name = f"{PREFIX}look {self.name(item)}"
        self.recorder.mark(name)
        reported = self.measured(item, self.now.get(item.nodeid), name)
        if reported.get("error"):
            raise RuntimeError(f"gpuspy: {reported['error']}")
        return reported

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        try:
            limits = Limits(item)
        except ValueError as error:  # a mark that was added while the test was set up
            pytest.fail(str(error), pytrace=False)
        self.number += 1
        name = self.name(item)
        start, end = f"{PREFIX}start {name}", f"{PREFIX}end {name}"
        self.now[item.nodeid] = start
        shown = self.recorder.start(item.nodeid[:NAME_MOST])
        self.recorder.mark(start)
        outcome = yield
        if limits.leaks is not None and outcome.excinfo is None:
            give_back()
        self.recorder.mark(end)
        self.recorder.end(shown)
        self.now.pop(item.nodeid, None)
        if limits and outcome.excinfo is None:
            self.judge(item, limits, self.measured(item, start, end))
        elif os.getpid() != self.pid:  # a child that was forked for this test leaves without an end
            self.recorder.flush()

    def judge(self, item: pytest.Item, limits: Limits, reported: dict[str, Any]) -> None:
        if reported.get("error"):
            self.broken[item.nodeid] = f"gpuspy could not measure what the test used: {reported['error']}"
            return
        root = getattr(self.config, "rootpath", None) or getattr(self.config, "rootdir")
        texts = [paragraph(text, lines, is_bytes, root) for text, lines, is_bytes in limits.broken(reported)]
        if texts:
            self.broken[item.nodeid] = "\n\n".join(texts)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        outcome = yield
        report = outcome.get_result()
        text = self.broken.pop(item.nodeid, None) if report.when == "call" else None
        if text is None or not report.passed:
            return
        xfail = item.get_closest_marker("xfail")
        if xfail:
            report.outcome, report.wasxfail = "skipped", xfail.kwargs.get("reason", "")
        else:
            report.outcome = "failed"
        report.longrepr = text

    # ---- the end

    def pytest_sessionfinish(self) -> None:
        self.recorder.flush()
        if hasattr(self.config, "workerinput"):
            self.close()

    def pytest_report_header(self) -> str | None:
        return f"gpuspy: recording into {self.folder}" if self.config.getoption("gpuspy_dir") else None

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        top = int(self.config.getoption("gpuspy_top") or 0)
        if hasattr(self.config, "workerinput") or top <= 0:
            return
        reported = self.ask({"all": PREFIX, "pid": self.pid, "since": self.since}) if self.database_exists() else {}
        tests = sorted(reported.get("tests", ()), key=lambda test: (-test["peak"], -test["waits"], test["name"]))
        if reported.get("error"):
            terminalreporter.write_line(f"gpuspy: {reported['error']}")
        if not tests:
            return
        terminalreporter.section("GPU memory of tests (gpuspy)")
        terminalreporter.write_line(f"{'test itself':>12}  {'all live':>12}  {'left':>12}  {'waits':>6}  test")
        for test in tests[:top]:
            terminalreporter.write_line(f"{format_bytes(test['peak']):>12}  {format_bytes(test['all']):>12}  "
                                        f"{format_bytes(test['left']):>12}  {test['waits']:>6}  {test['name']}")
        if len(tests) > top:
            terminalreporter.write_line(f"and {len(tests) - top} more tests with GPU memory: --gpuspy-top={len(tests)}")
        if self.config.getoption("gpuspy_dir"):
            terminalreporter.write_line(f"gpuspy report {shlex.quote(str(self.folder))}")
