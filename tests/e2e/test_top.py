"""gpuspy top: on running programs, compared with what they print; on a pseudo-terminal, read through a terminal
emulator; while they end, are killed, or lose their database."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time

import pytest
from conftest import BUILD, ROOT, SECONDS, remove_spools, sanitized, thread_sanitized, wait_until
from rows import GIB, MIB, TENSOR, Rows

pyte = pytest.importorskip("pyte")

# Reads one letter per line from its standard input and answers with what it holds; then it does nothing, so that the
# display can be compared with it.
PROGRAM = """import sys
import minicuda

rt = minicuda.Runtime()
weights, leaks = [], []

def weight():
    weights.append(minicuda.Tensor(rt, 64 << 20))

def leak():
    leaks.append(minicuda.Tensor(rt, 1 << 20))

def temporary():
    t = minicuda.Tensor(rt, 8 << 20)
    t.copy_from(bytes(4096))
    t.item()

def too_much():
    try:
        minicuda.Tensor(rt, 64 << 30)
    except minicuda.OutOfMemoryError:
        pass

scopes = []
def scope(name):
    import gpuspy
    scopes.append(gpuspy.scope(name))
    scopes[-1].__enter__()

for line in sys.stdin:
    for what in line.strip():
        {"s": lambda: scope("load"), "n": lambda: scope("step 3\\x1b[2J"), "e": lambda: scopes.pop().__exit__(None, None, None),
         "w": weight, "l": leak, "t": temporary, "o": too_much, "f": lambda: weights.pop(0)}[what]()
    print(sum(t.bytes for t in weights), len(weights), sum(t.bytes for t in leaks), len(leaks), flush=True)
"""


class Program:
    def __init__(self, recording, name="program.py", **more):
        path = recording.folder / name
        path.write_text(PROGRAM)
        more.setdefault("PYTHONPATH", ":".join(str(ROOT / path) for path in ("fixtures/python", "python", "pytest-gpuspy")))
        self.recording = recording
        self.process = subprocess.Popen([sys.executable, str(path)], cwd=recording.folder, text=True, stdin=subprocess.PIPE,
                                        env=recording.environment(SIMCUDA_MEMORY="8GiB", **more),
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def do(self, letters):
        self.process.stdin.write(letters + "\n")
        self.process.stdin.flush()
        return dict(zip(("weight", "weights", "leak", "leaks"), map(int, self.process.stdout.readline().split())))

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(SECONDS) == 0

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def program(recording):
    program = Program(recording)
    yield program
    if program.process.poll() is None:
        program.kill()


def snapshot(recording, *arguments, code=0):
    done = recording.gpuspy("top", "--json", *(arguments or [recording.database]))
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if code == 0 else done


def settled(recording, *arguments):
    """Output after everything has left the spool."""
    deadline = time.monotonic() + SECONDS
    while True:
        now = snapshot(recording, *arguments)
        if all(p["waiting_bytes"] == 0 and p["events"] for p in now["processes"]) or time.monotonic() > deadline:
            return now
        time.sleep(0.05)


def by_function(now, table="functions"):
    return {row["site"]["function"]: row for row in now[table]}


def test_the_figures_are_the_programs_own(recording, program):
    for letters in ("wwwwlllttt", "fflltttt", "w" * 5 + "f" * 4):
        own = program.do(letters)
        now = settled(recording)
        (process,) = now["processes"]
        assert process["state"] == "recording" and process["age_s"] == 0 and process["unfound_bytes"] == 0
        live = next(series for series in process["live"] if series["layer"] == "device")
        assert live["bytes"] == own["weight"] + own["leak"] and live["count"] == own["weights"] + own["leaks"]
        held = by_function(now)
        assert (held["weight"]["bytes"], held["weight"]["count"]) == (own["weight"], own["weights"])
        assert (held["leak"]["bytes"], held["leak"]["count"]) == (own["leak"], own["leaks"])
        assert held["weight"]["change_bytes"] == own["weight"]  # all of it in the last minute
        assert sum(row["bytes"] for row in now["lines"]) == live["bytes"]
    assert {(row["direction"], row["count"], row["bytes"]) for row in now["copies"]} == {("h2d", 7, 7 * 4096), ("d2h", 7, 28)}
    assert sum(row["count"] for row in now["syncs"] if row["kind"] == "stream") == 7
    assert process["last_waits"][0]["site"]["line"]
    program.end()


def test_tensors_whose_memory_is_unmapped_are_not_live(recording):
    """As of a vLLM that sleeps (mapping 1): they count again when their memory is mapped again (mapping 2)."""
    with Rows(recording.database) as r:
        r.device()
        line = r.stack("serve.py:3 load")
        for address, kept in ((1 << 30, MIB), (2 << 30, 2 * MIB), (3 << 30, 4 * MIB)):
            r.block(1, kept, stack=line, layer=TENSOR, address=address)
            r.block(.5, 4 * MIB, stack=line, address=address + 1)
        r.db.executemany("INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,unmap_ns) VALUES(1,1,0,?,?,0,?,?)",
                         [(1 << 30, 4 * MIB, 10**9 // 2, 2 * 10**9), (2 << 30, 4 * MIB, 10**9 // 2, 2 * 10**9),
                          (2 << 30, 4 * MIB, 3 * 10**9, None), (3 << 30, 4 * MIB, 10**9 // 2, 10**9 - 1)])
    (process,) = snapshot(recording)["processes"]
    live = {series["layer"]: (series["bytes"], series["count"]) for series in process["live"]}
    assert live["tensor"] == (6 * MIB, 2)


def test_the_peak_is_unknown_after_tensors_slept_before_the_first_look(recording):
    """The recorder's peak contains what slept then."""
    def peak():
        return {series["layer"]: series["peak_bytes"] for series in snapshot(recording)["processes"][0]["live"]}

    with Rows(recording.database) as r:
        r.device()
        line = r.stack("serve.py:3 load")
        r.block(1, 3 * MIB, stack=line, layer=TENSOR, address=1 << 30)
        mapping = "INSERT INTO mapping(process_id,allocation_id,device,address,bytes,offset,map_ns,unmap_ns) VALUES(1,1,0,?,?,0,?,?)"
        r.db.execute(mapping, (1 << 30, 4 * MIB, 10**9 // 2, None))
        r.db.execute("CREATE TABLE IF NOT EXISTS recovery_value(name TEXT, number INTEGER, value INTEGER)")
        r.db.execute("INSERT INTO recovery_value VALUES('tensor_peak',0,?)", (5 * MIB,))
    assert peak()["tensor"] == 5 * MIB
    with sqlite3.connect(recording.database) as db:
        db.execute("UPDATE mapping SET unmap_ns=?", (2 * 10**9,))
        db.execute(mapping, (1 << 30, 4 * MIB, 3 * 10**9, None))
    assert peak()["tensor"] is None


def test_looking_again_and_again_finds_the_same_as_looking_once(recording, program):
    """Updating from new rows gives the same as reading everything once, and agrees with the program."""
    program.do("wwwwllll")
    settled(recording)
    watcher = subprocess.Popen([str(BUILD / "gpuspy"), "top", "--json", "--interval", "0.1", str(recording.database)],
                               stdout=subprocess.PIPE, text=True)
    for letters in ("ttttf", "wl", "fftt", "lllwww", "f"):
        own = program.do(letters)
        time.sleep(0.3)
    settled(recording)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        now = json.loads(watcher.stdout.readline())
        if now["processes"][0]["waiting_bytes"] == 0 and sum(r["bytes"] for r in now["lines"]) == own["weight"] + own["leak"]:
            break
    once = settled(recording)
    for table in ("functions", "lines", "copies", "syncs"):
        assert [(row["site"], row["count"], row.get("bytes")) for row in now[table] if row["count"]] == \
               [(row["site"], row["count"], row.get("bytes")) for row in once[table] if row["count"]]
    program.end()
    last = [json.loads(line) for line in watcher.stdout][-1]  # it ends when the recording ends
    assert last["processes"][0]["state"] == "ended" and watcher.wait(SECONDS) == 0


def open_ranges(recording):
    process, = settled(recording)["processes"]
    assert process["ranges_total"] == len(process["ranges"]) and all(r["open_s"] >= 0 for r in process["ranges"])
    return [r["name"] for r in process["ranges"]]


def test_the_ranges_that_are_open(recording, program):
    program.do("wsn")
    assert open_ranges(recording) == ["load", "step 3\x1b[2J"]
    shown = recording.gpuspy("top", "--once", recording.database).stdout
    line, = [line for line in shown.splitlines() if line.startswith("  in load ")]
    assert ", step 3" in line and "\x1b" not in shown, shown
    program.do("elw")
    assert open_ranges(recording) == ["load"]
    program.do("ew")
    assert open_ranges(recording) == [] and "\n  in " not in recording.gpuspy("top", recording.database).stdout
    program.do("s")
    program.kill()
    assert open_ranges(recording) == []


def test_the_peak_of_a_range_that_is_open(recording, program):
    """At least: the curve has a value each tenth of a second."""
    program.do("s")
    high = program.do("www")["weight"]
    time.sleep(0.3)
    left = program.do("ff")["weight"]
    time.sleep(0.3)
    program.do("n")
    load, step = settled(recording)["processes"][0]["ranges"]
    assert (load["peak_at_least_bytes"], step["peak_at_least_bytes"]) == (high, left)
    line, = [line for line in recording.gpuspy("top", "--once", recording.database).stdout.splitlines() if line.startswith("  in load ")]
    assert re.search(r"in load [\d.]+ m?s \(peak at least [\d.]+ [MG]iB\), step", line), line


def test_a_failure_and_a_pid(recording, program):
    program.do("wo")
    now = settled(recording, program.process.pid)
    (failure,) = now["processes"][0]["failures"]
    assert failure["requested_bytes"] == 64 << 30 and now["processes"][0]["pid"] == program.process.pid
    assert now["processes"][0]["failures_total"] == 1


def test_a_parents_pid_and_no_recording(recording, program):
    program.do("w")
    assert settled(recording, os.getpid())["processes"][0]["pid"] == program.process.pid
    other = subprocess.Popen(["sleep", "60"])
    done = snapshot(recording, other.pid, code=3)
    assert f"to record it: gpuspy attach {other.pid}" in done.stderr
    other.kill()
    other.wait()
    assert f"process {other.pid} does not exist" in snapshot(recording, other.pid, code=3).stderr


def test_what_ended_is_shown_at_its_end(recording, program):
    program.do("wwl")
    program.end()
    now = snapshot(recording)
    assert now["processes"][0]["state"] == "ended" and "has ended" in now["processes"][0]["said"]
    text = recording.gpuspy("top", recording.database).stdout
    assert "gpuspy report" in text and "\x1b" not in text
    assert sorted(path.name for path in recording.folder.iterdir()) == ["program.py", "run.db"]


def test_a_failure_on_a_thread_of_autograd_names_the_line_that_called_backward(recording):
    """That thread runs no Python. Beside a second backward pass, whose line it is is unknown."""
    torch = "/venv/lib/python3.11/site-packages/torch"

    def record(*lines):
        with Rows(recording.database) as r:
            r.device()
            for line in lines:
                r.block(1, 512, None, layer=TENSOR, stack=r.stack(
                    f"/home/me/train.py:{line} train", f"{torch}/_tensor.py:631 Tensor.backward",
                    f"{torch}/autograd/__init__.py:381 backward", f"{torch}/autograd/__init__.py:200 _make_grads"))
            frame = r.db.execute("INSERT INTO frame(kind, function) VALUES(1, 'c10::cuda::malloc')").lastrowid
            r.oom(2, GIB, MIB, 24 * GIB, stack=r.db.execute("INSERT INTO stack(frame_id, depth) VALUES(?, 1)", (frame,)).lastrowid)
            r.db.execute("INSERT INTO thread VALUES(3, 1, 7, 'pt_autograd_0')")
            r.db.execute("UPDATE oom SET thread_id = 3")
        text = recording.gpuspy("top", "--once", recording.database).stdout
        recording.database.unlink()
        return re.search(r"failed.*?\n\n", text, re.S)[0]
    assert "train.py:39  train" in record(39)
    assert "train.py" not in record(39, 40)


def test_a_killed_one_is_completed_as_a_report_does(recording, program):
    own = program.do("wwwl")
    program.kill()
    now = snapshot(recording)
    assert now["processes"][0]["state"] == "died"
    assert sum(row["bytes"] for row in now["lines"]) == own["weight"] + own["leak"]


def test_wrong_words(recording):
    assert recording.gpuspy("top", "--interval", "0", "x.db").returncode == 2
    assert recording.gpuspy("top", "a.db", "b.db").returncode == 2
    assert recording.gpuspy("top", "none.db").returncode == 3
    (recording.folder / "text.db").write_text("hello")
    assert recording.gpuspy("top", "text.db").returncode == 3
    (recording.folder / "empty").mkdir()
    assert recording.gpuspy("top", "empty").returncode == 3


def test_the_next_program_of_a_process_belongs_to_its_run(recording):
    """A process that becomes another program (exec) begins run.PID-2.db: top and sql read it, as reports do."""
    for name, run in (("run.db", "r"), ("run.101.db", "r"), ("run.101-2.db", "r"), ("run.101-3.db", "other"), ("run.101-x.db", "r")):
        with Rows(recording.folder / name, run=run) as r:
            r.block(1, MIB)
    assert len(snapshot(recording, recording.folder / "run.db")["processes"]) == 3
    counted = recording.gpuspy("sql", "--json", recording.folder / "run.db", "SELECT count(*) AS n FROM process").stdout
    assert json.loads(counted) == [{"n": 3}]


def test_two_processes_of_a_run_and_two_runs_of_a_folder(recording):
    first = Program(recording, GPUSPY_RUN_ID="one", RANK="0")
    own = [first.do("wlt")]
    second = Program(recording, GPUSPY_RUN_ID="one", RANK="1")
    own.append(second.do("wwllt"))
    now = settled(recording, recording.folder)
    assert [p["rank"] for p in now["processes"]] == [0, 1]
    assert by_function(now)["weight"]["bytes"] == sum(o["weight"] for o in own)
    text = recording.gpuspy("top", "--once", recording.folder).stdout
    assert "rank 0" in text and "rank 1" in text and "and 1 more" in text
    first.end()
    second.end()


# ------------------------------------------------------------------ on a terminal

class Screen(pyte.Screen):
    """After a character in the last column, xterm's cursor stays there until the next one: a line erased from the cursor
    on loses that character. pyte's cursor is beyond it."""

    def erase_in_line(self, how=0, private=False):
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().erase_in_line(how, private)


class Terminal:
    def __init__(self, folder, *arguments, columns=80, rows=24, **more):
        self.screen = Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.before = None
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        env.update(TERM="xterm-256color", LC_ALL="C.UTF-8", **more)
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            time.sleep(0.1)
            os.execve(str(BUILD / "gpuspy"), ["gpuspy", "top", *map(str, arguments)], env)
        self.resize(columns, rows)
        self.before = termios.tcgetattr(self.fd)

    def resize(self, columns, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def pump(self, seconds=0.05):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return False
            self.raw += data
            self.stream.feed(data)
            return bool(data)
        return True

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, pattern, seconds=SECONDS):
        deadline = time.monotonic() + seconds
        while not re.search(pattern, self.text()) and time.monotonic() < deadline and self.pump():
            pass
        assert re.search(pattern, self.text()), self.text()
        return self.text()

    def key(self, keys):
        os.write(self.fd, keys.encode())

    def ended(self):
        """The exit status; the terminal must be as before."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            self.pump()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
        else:
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail("it did not end")
        while select.select([self.fd], [], [], 0)[0] and self.pump():
            pass
        assert self.raw.count(b"\x1b[?1049h") == self.raw.count(b"\x1b[?1049l") == 1
        assert self.raw.rindex(b"\x1b[?25h") > self.raw.rindex(b"\x1b[?25l")
        assert b"\x1b[?1049l" in self.raw[-20:]
        assert termios.tcgetattr(self.fd)[:4] == self.before[:4]
        os.close(self.fd)
        return status


@pytest.fixture
def watched(recording, program):
    program.do("wwwllltt")
    settled(recording)
    terminal = Terminal(recording.folder, "run.db", "--interval", "0.2")
    terminal.until("HELD")
    yield terminal
    if terminal.fd >= 0:
        try:
            os.kill(terminal.pid, signal.SIGKILL)
            os.waitpid(terminal.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


@pytest.mark.parametrize("columns, rows", [(80, 24), (200, 50), (40, 10), (20, 5)])
def test_it_fits(recording, program, columns, rows):
    program.do("wwwllltto")
    settled(recording)
    terminal = Terminal(recording.folder, "run.db", "--interval", "0.2", columns=columns, rows=rows)
    text = terminal.until("gpuspy top")
    if columns >= 80:
        text = terminal.until(r"192\.00 MiB +98 % +3 ")
        assert "weight" in text or "program.py:8" in text
        assert re.search(r"GPU 0 \[", text) and "195.00 MiB" in text
        terminal.until(r"\nq quit[^\n]*\Z")  # a screen may arrive in parts
        terminal.until(r"\A[^\n]* \d\d:\d\d:\d\d\n")  # it ends in the last column
    assert "\x1b[" not in text
    terminal.key("q")
    assert terminal.ended() == 0


def test_it_follows_the_program(watched, program):
    watched.until(r"192\.00 MiB +98 % +3 ")
    program.do("ff")
    watched.until(r"64\.00 MiB +96 % +1 ")
    program.do("lllll")
    watched.until(r" 8\.00 MiB +11 % +8 ")
    watched.key("q")
    assert watched.ended() == 0


def test_keys(watched, program):
    watched.key("2")
    assert "by function" in watched.until("FUNCTION")
    watched.key("3")
    assert "cudaStreamSynchronize" in watched.until("latest waits")
    watched.key("4")
    assert "h2d pageable" in watched.until("copies by line")
    watched.key("1")
    watched.until("memory by line")
    watched.key("/program.py:11")
    watched.until("/program.py:11_")
    watched.key("\x7f")
    watched.until("/program.py:1_")
    watched.key("1\r")
    text = watched.until("only /program.py:11")
    assert re.search(r"3\.00 MiB", text) and not re.search(r"192\.00 MiB +98", text)
    watched.key("/")
    watched.key("\x1b")
    watched.until(r"192\.00 MiB +98")
    watched.key("?")
    watched.until("Ctrl-C +quit")
    watched.key("?")
    watched.until("HELD")
    watched.key("\t")
    watched.key("m")
    watched.until("CUDA allocations")
    watched.key("m")
    watched.until("pinned host memory")
    watched.key("mmm")
    watched.until("CUDA allocations")
    watched.key(" ")
    watched.until("paused")
    program.do("w")
    time.sleep(1.5)
    watched.pump()
    assert re.search(r"192\.00 MiB +98", watched.text())
    watched.key(" ")
    watched.until(r"256\.00 MiB")
    watched.key("c")  # by count: 3 leaks and 4 weights
    watched.key("n\x1b[A\x1b[B\x1b[5~\x1b[6~\x1b[H\x1b[Z\x1b[99;99R")
    watched.resize(132, 40)
    os.kill(watched.pid, signal.SIGWINCH)
    watched.until("LAST AGO")
    watched.key("\x03")
    assert watched.ended() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGSEGV])
def test_signals_leave_the_terminal_as_it_was(watched, number):
    os.kill(watched.pid, number)
    status = watched.ended()
    assert os.WTERMSIG(status) == number if number == signal.SIGSEGV else status == 0


def test_killed_while_watched(recording, watched, program):
    own = program.do("wl")
    program.kill()
    text = watched.until("without notice")
    assert "gpuspy report run.db" in re.sub(r"\s+", " ", text)
    report = recording.report()  # it does not interfere
    assert report["run"]["complete"] is False and report["run"]["lost_events"] == 0
    assert sum(leak["bytes"] for leak in report["leaks"]) == own["weight"] + own["leak"]
    watched.key("2")
    watched.until("FUNCTION")
    watched.key("q")
    assert watched.ended() == 0


def test_ended_while_watched(recording, watched, program):
    began = time.monotonic()
    program.end()
    assert time.monotonic() - began < 4  # the end of the recorder does not wait for a watcher
    watched.until("has ended")
    watched.key("q")
    assert watched.ended() == 0
    assert sorted(path.name for path in recording.folder.iterdir()) == ["program.py", "run.db"]


def test_deleted_while_watched(recording, watched, program):
    remove_spools(recording.folder)
    for path in recording.folder.glob("run.db*"):
        path.unlink()
    watched.until("was deleted")
    watched.key("q")
    assert watched.ended() == 0


def test_a_terminal_without_colour(recording, program):
    program.do("w")
    settled(recording)
    terminal = Terminal(recording.folder, "run.db", NO_COLOR="1")
    terminal.until("HELD")
    terminal.key("q")
    assert terminal.ended() == 0
    assert not re.search(rb"\x1b\[[1-9][0-9;]*m", terminal.raw)


def test_names_cannot_drive_the_terminal(recording):
    hostile = Program(recording, name="\x1b[2J\x1b]0;x\x07evil.py")
    hostile.do("wl")
    settled(recording)
    terminal = Terminal(recording.folder, "run.db")
    terminal.until("evil.py")
    terminal.key("q")
    terminal.ended()
    assert b"\x1b[2J" not in terminal.raw and b"\x1b]0" not in terminal.raw
    hostile.kill()


@thread_sanitized("the cost is another")
def test_many_live_blocks_that_change(recording):
    """Some of many change between two updates: the last display is correct."""
    program = Program(recording)
    for _ in range(20):
        program.do("l" * 100)
    own = program.do("t" * 500 + "w")
    settled(recording)
    watcher = subprocess.Popen([str(BUILD / "gpuspy"), "top", "--json", "--interval", "0.5", "--count", "6",
                                str(recording.database)], stdout=subprocess.PIPE, text=True)
    for _ in range(4):
        own = program.do("t" * 50 + "l" * 50)
        time.sleep(0.4)
    lines = watcher.stdout.read().splitlines()
    assert watcher.wait() == 0 and len(lines) == 6
    now = settled(recording)
    assert by_function(now)["leak"]["bytes"] == own["leak"]
    program.kill()


LEAKS = """import sys, time
import minicuda
rt = minicuda.Runtime()
leaks = []
while True:
    step = [minicuda.Tensor(rt, 100 << 20) for _ in range(5)]
    if sys.argv[1] == "leaks":
        leaks.append(minicuda.Tensor(rt, 8 << 20))
    time.sleep(0.05)
    del step
"""


@pytest.mark.parametrize("what", ["leaks", "steady"])
def test_when_the_gpu_is_full_at_this_growth(recording, what):
    (recording.folder / "leaks.py").write_text(LEAKS)
    job = subprocess.Popen([sys.executable, "leaks.py", what], cwd=recording.folder,
                           env=recording.environment(SIMCUDA_MEMORY="16GiB", SIMCUDA_CONTEXT="256MiB", SIMCUDA_TEMPERATURE=63,
                                                     SIMCUDA_UTILIZATION="37/12", PYTHONPATH=ROOT / "fixtures" / "python"))
    try:
        def three_points():  # of five seconds each: the fewest that show whether it grows
            if not recording.database.exists():
                return None
            now = json.loads(recording.gpuspy("top", "--json", recording.database).stdout or "{}").get("processes")
            live = now and next((s for s in now[0]["live"] if s["layer"] == "device"), None)
            return now and live and len(live["curve"]) >= 3 and (time.monotonic(), now[0]["devices"][0], live)
        began, device, live = wait_until(three_points, 0.5)
        assert (device["temperature_celsius"], device["utilisation_percent"]) == (63, 37)
        assert max(live["curve"]) == live["peak_bytes"]
        shown = recording.gpuspy("top", "--once", recording.database, env={"COLUMNS": "140", "LC_ALL": "C.UTF-8"}).stdout
        assert "busy 37 %  63 °C" in shown and re.search("[▁▂▃▄▅▆▇█]{3,}  ", shown)
        if what == "steady":
            assert device["growth_bytes_per_s"] is None and device["full_in_s"] is None and "full in" not in shown
            return
        assert re.search(r"full in [0-9.]+ (s|min)", shown)
        time.sleep(5)
        (later,) = snapshot(recording)["processes"][0]["devices"]
        grown = (later["allocated_bytes"] - device["allocated_bytes"]) / (time.monotonic() - began)
        assert 0.7 * grown - (100 << 20) < device["growth_bytes_per_s"] < 1.3 * grown + (100 << 20)
        assert later["full_in_s"] * later["growth_bytes_per_s"] < device["full_in_s"] * device["growth_bytes_per_s"]
        full = (16 << 30) - (256 << 20) - live["peak_bytes"]
        assert device["full_in_s"] == pytest.approx(full / device["growth_bytes_per_s"], rel=0.1)
    finally:
        job.kill()
        job.wait()


# ------------------------------------------------------------------ what is not recorded

UNRECORDED = """import ctypes, sys, time
rt = ctypes.CDLL("libcudart.so.13")
def step():
    p = ctypes.c_void_p()
    assert rt.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0
    time.sleep(0.002)
    assert rt.cudaFree(p) == 0
print("ready", flush=True)
while True:
    step()
"""


@pytest.fixture
def unrecorded(recording):
    """A process that uses the GPU without the recorder, and is listed by NVML."""
    (recording.folder / "unrecorded.py").write_text(UNRECORDED)
    process = subprocess.Popen([sys.executable, "unrecorded.py", "--token", "s3cret"], cwd=recording.folder, text=True,
                               env=recording.environment(LD_PRELOAD="", GPUSPY_DB=""), stdout=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    nvml = {"LD_LIBRARY_PATH": str(BUILD / "sim"), "SIMCUDA_OTHER": f"2GiB@{process.pid}"}
    yield process, nvml
    process.kill()
    process.communicate()


def test_processes_that_are_not_recorded_are_listed(recording, program, unrecorded):
    other, nvml = unrecorded
    program.do("w")
    settled(recording)
    done = recording.gpuspy("top", "--json", recording.database, env=nvml)
    (entry,) = json.loads(done.stdout)["unrecorded"]
    assert entry == {"pid": other.pid, "device": 0, "bytes": 2 << 30, "command": entry["command"]}
    assert "unrecorded.py" in entry["command"] and "s3cret" not in entry["command"]
    text = recording.gpuspy("top", "--once", recording.database, env=nvml).stdout
    assert re.search(rf"PID +GPU +HOLDS.*\n +{other.pid} +GPU 0 +2\.00 GiB +\S*python.*unrecorded\.py", text)
    # the recorded process is not in the list, nor is one of another namespace
    recorded = recording.gpuspy("top", "--json", recording.database, env={**nvml, "SIMCUDA_OTHER": f"2GiB@{program.process.pid}"})
    assert json.loads(recorded.stdout)["unrecorded"] == []
    assert snapshot(recording)["unrecorded"] is None  # no NVML
    program.end()


def test_they_are_also_listed_without_a_recording(recording, unrecorded):
    other, nvml = unrecorded
    done = recording.gpuspy("top", "--json", env=nvml)
    if "several programs" in done.stderr or done.returncode == 0:
        pytest.skip("something else is being recorded here")
    assert done.returncode == 1 and "no program is being recorded" in done.stderr
    assert [u["pid"] for u in json.loads(done.stdout)["unrecorded"]] == [other.pid]


@sanitized("a sanitizer's run time has to be loaded first")
def test_a_key_attaches_to_one(recording, program, unrecorded):
    other, nvml = unrecorded
    program.do("w")
    settled(recording)
    terminal = Terminal(recording.folder, "run.db", "--interval", "0.2", columns=120, GPUSPY_DB="late.db", **nvml)
    terminal.until("not recorded: 1 process on a GPU")
    terminal.key("a")
    terminal.until(rf"> +{other.pid} +GPU 0 +2\.00 GiB.*unrecorded\.py")
    terminal.key("\x1b")
    terminal.until("HELD")
    terminal.key("a")
    terminal.until("a attach")
    terminal.key("a")
    text = terminal.until("(now recorded to|not attached: ).*\n?")
    if "forbids" in text or "lets only root" in text:
        pytest.skip(text)
    terminal.until(rf"{other.pid} .* alloc/s")
    terminal.key("\t")
    terminal.key("q")
    assert terminal.ended() == 0
    assert (recording.folder / "late.db").exists() and other.poll() is None
