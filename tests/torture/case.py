"""Runs one case bare and recorded, compares both runs, and the recording with the program's own counts."""
import contextlib
import ctypes
import json
import mmap
import os
import re
import shutil
import signal
import sqlite3
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import outside

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
TORTURE = BUILD / "torture"

# struct t_shared of torture.h
MAGIC, SLOTS, LOG_BYTES = 0x72747274, 16384, 1 << 20
HEADER = struct.Struct("<6I64s")
SLOT = struct.Struct("<iI12Q")
MAY_LOSE, UNRECORDED, STOPPED, COUNTED = 1, 2, 4, 8
KINDS = ("alloc", "free", "copy", "sync")

STUCK_S = 10     # no processor time used for so long: a hang
SLOW_S = 45      # and at most this, and SLOW_TIMES the bare run, while it computes
SLOW_TIMES = 25
REPORT_S = 120
PR_SET_CHILD_SUBREAPER = 36


class Place:
    """The folder and the settings of one run."""
    raw = own_malloc = mounted = bounded = lock_order = False
    stdin_closed = stdout_closed = stderr_closed = stderr_full = stderr_full_nonblocking = False
    pipe = None

    def __init__(self, folder, items, needs_raw):
        self.folder, self.variables = folder, {}
        self.work, self.database_folder = folder / "work", folder / "db"
        for path in (folder, self.work, self.database_folder):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        self.raw = needs_raw
        self.behaviours = []
        for name, number in items:
            if name in outside.SETTINGS:
                outside.SETTINGS[name][1](self, number)
            else:
                self.behaviours.append(f"{name}={number}")
        # The check looks functions up, which allocates, which locks. A sanitizer's runtime looks up the functions that
        # it intercepts before it is ready for the check's thread-local data; ThreadSanitizer has a check of the order, too.
        self.lock_order &= not self.own_malloc and not os.environ.get("SAN")
        self.shared_path = folder / "shared"
        with open(self.shared_path, "w+b") as file:
            file.truncate(HEADER.size + SLOT.size * SLOTS + LOG_BYTES)
            self.shared = mmap.mmap(file.fileno(), 0)
        struct.pack_into("<I", self.shared, 0, MAGIC)
        self.shared_path.chmod(0o666)
        if self.stderr_full or self.stderr_full_nonblocking:
            self.pipe = outside.full_pipe()

    def remove(self):
        self.shared.close()
        for end in self.pipe or ():
            os.close(end)
        if self.mounted:
            outside.quiet_run("umount", "-l", str(self.database_folder))
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self, recorded):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "TORTURE_"))}
        libraries = [str(TORTURE / "raw")] if self.raw else []
        env.update(LD_LIBRARY_PATH=":".join([*libraries, str(BUILD / "sim")]), SIMCUDA_CLOCK="virtual",
                   SIMCUDA_MEMORY="24GiB")
        if self.stderr_full:
            env["TORTURE_QUIET"] = "1"
        if recorded:
            first = os.environ.get("SAN_PRELOAD")
            preload = str(BUILD / "libgpuspy.so")
            if self.lock_order:
                preload += f":{TORTURE}/libc.so.checked"
                env["LOCKORDER_OUT"] = str(self.folder / "lockorder")
            env.update(LD_PRELOAD=f"{first}:{preload}" if first else preload,
                       GPUSPY_DB=str(self.database_folder / "run.db"), GPUSPY_MIN_FREE="0",
                       **self.variables)
        return env

    def header(self):
        """(magic, slots, log_used, request, reply, child, meeting)"""
        *numbers, meeting = HEADER.unpack_from(self.shared, 0)
        return (*numbers, meeting.split(b"\0")[0].decode())

    def processes(self):
        """pid → (flags, begun, returned, floor), each by kind"""
        result = {}
        for n in range(min(self.header()[1], SLOTS)):
            pid, flags, *counts = SLOT.unpack_from(self.shared, HEADER.size + n * SLOT.size)
            result[pid] = (flags, counts[0:4], counts[4:8], counts[8:12])
        return result

    def log(self):
        start = HEADER.size + SLOTS * SLOT.size
        text = self.shared[start:start + min(self.header()[2], LOG_BYTES)].decode(errors="replace")
        return sorted(self.plain(line) for line in text.splitlines())

    def plain(self, line):
        """Removes everything that differs between runs."""
        line = line.replace(str(self.folder), "@")
        line = re.sub(r"(pipe|socket):\[\d+\]", r"\1", line)
        return re.sub(r"torture-\w{6}", "torture-file", line)


class Result:
    """The result of a run."""
    def __init__(self):
        self.status, self.seconds, self.problems, self.pids = None, 0.0, [], []


# --- processes ------------------------------------------------------------------------------------------------------

def adopt_orphans():
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def children_of(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    except OSError:
        pass
    return found


def tree(pid):
    found = [pid]
    for child in children_of(pid):
        found += tree(child)
    return found


def lives(pid):
    """Whether some thread of the process is alive: the first one may have ended."""
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            if Path(f"/proc/{pid}/task/{task}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                return True
    except OSError:
        pass
    return False


def processor_seconds(pids):
    total = 0.0
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            pass
    return total


def stacks_of(pids):
    """The stacks of a hung run's threads, if gdb is installed."""
    if not shutil.which("gdb"):
        return ["(gdb is not installed: no stacks)"]
    lines = []
    for pid in pids[:4]:
        if not lives(pid):
            lines.append(f"process {pid}: ended")
            continue
        try:
            done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "set pagination off", "-ex",
                                   "thread apply all bt 12"], text=True, errors="replace", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
        except subprocess.TimeoutExpired:
            continue
        lines.append(f"process {pid}:")
        lines += [line for line in done.stdout.splitlines() if line.startswith(("Thread", "#"))]
    lines = [re.sub(r"0x[0-9a-f]{6,} in |\(([^()]|\([^()]*\))*\) (?=at|from|$)", "", line)[:110] for line in lines]
    return lines


def kill_all(main):
    """Kills the run and the processes that were reparented to this one."""
    for _ in range(50):
        pids = {p for child in children_of(os.getpid()) for p in tree(child)} | ({main} if main else set())
        alive = [p for p in pids if lives(p)]
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        if not alive:
            break
        time.sleep(0.02)


def reap_all():
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


class Watch:
    """Detects a run that hangs: it uses no processor time, or takes far longer than the bare one."""
    def __init__(self, bare_seconds):
        self.start = self.moved = time.monotonic()
        self.limit = max(SLOW_S, SLOW_TIMES * bare_seconds)
        self.seconds = 0.0
        self.checked = self.start

    def hangs(self):
        now = time.monotonic()
        if now - self.checked < 1:
            return ""
        self.checked = now
        used = processor_seconds(p for child in children_of(os.getpid()) for p in tree(child))
        if abs(used - self.seconds) > 0.02:
            self.moved, self.seconds = now, used
        if now - self.moved > STUCK_S:
            return f"no progress for {now - self.moved:.0f} s"
        if now - self.start > self.limit:
            return f"still running after {now - self.start:.0f} s"
        return ""


def meet(place, recorded, result):
    """Does the act that the program requests."""
    *_, request, reply, child, act = place.header()
    if request == reply:
        return
    if recorded and act == "report":
        result.problems += report_of_the_dead(place, child)
    elif recorded:
        try:
            outside.MEETINGS[act](place)
        except OSError:
            pass
    struct.pack_into("<I", place.shared, 16, request)


def ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def run(place, recorded, bare_seconds):
    result = Result()
    program = TORTURE / ("torture_malloc" if place.own_malloc else "torture")
    out, err = place.folder / "out", place.folder / "err"
    result.segments_before = segments()
    start = time.monotonic()
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        child = subprocess.Popen([str(program), str(place.shared_path), *place.behaviours], cwd=place.work,
                                 env=place.environment(recorded), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                                 start_new_session=True, preexec_fn=lambda: outside.prepare_descriptors(place))
    watch, hang = Watch(bare_seconds), ""
    while not hang and not (ended(child.pid) and not any(map(lives, children_of(os.getpid())))):
        meet(place, recorded, result)
        time.sleep(0.002)
        hang = watch.hangs()
    result.seconds = time.monotonic() - start
    if hang:
        left = sorted(p for mine in children_of(os.getpid()) for p in tree(mine))
        result.problems.append(f"hang: {hang}\n" + "\n".join(stacks_of(left)))
        kill_all(child.pid)
    if recorded:  # while it is a zombie
        result.problems += report(place, child.pid, hang)
    child.wait()
    result.status = child.returncode
    reap_all()
    result.out, result.err = out.read_bytes(), err.read_text(errors="replace")
    return result


# --- the recording ----------------------------------------------------------------------------------------------------

def gpuspy(place, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    try:
        return subprocess.run([str(BUILD / "gpuspy"), *map(str, arguments)], env=env, cwd=place.folder, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=REPORT_S)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(arguments, -99, "", f"no end after {REPORT_S} s")


def query(path, text):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        return database.execute(text).fetchall()


def databases(place):
    return sorted(place.database_folder.glob("*.db"))


def still_recording(name, done):
    text = done.stdout + done.stderr
    return [f"zombie: {line.strip()}" for line in text.splitlines() if "still recording" in line and name in line]


@contextlib.contextmanager
def copied(place, path):
    """A recording as SQLite may read it. Beside the original it would leave files for which this user may have no permission, and
    end this process by SIGBUS on a full disk: it maps run.db-shm, which has holes if a block is smaller than a page."""
    copy = place.folder / "copy"
    copy.mkdir(exist_ok=True)
    try:
        for name in (path.name, path.name + "-wal"):
            if (path.parent / name).exists():
                shutil.copy(path.parent / name, copy)
        yield copy / path.name
    finally:
        shutil.rmtree(copy)


def recorded_pid(place, path):
    try:
        with copied(place, path) as copy:
            return query(copy, "select pid from process")[0][0]
    except (OSError, sqlite3.Error, IndexError):
        return None


def report_of_the_dead(place, pid):
    """No report may state that a killed child is still recording, even if it was not reaped."""
    for path in databases(place):
        if recorded_pid(place, path) == pid:
            return still_recording(path.name, gpuspy(place, "report", path))
    return []


def report(place, pid, hang):
    """Runs `gpuspy report` on every recording of the run."""
    problems, seen = [], set()
    lossy = place.bounded or any(b.startswith("outside_") for b in place.behaviours)
    for _ in range(2):
        for path in databases(place):
            spool = path.with_name(path.name + ".spool")
            if path in seen or (seen and not spool.exists()):
                continue
            seen.add(path)
            done = gpuspy(place, "report", "--json", path)
            if done.returncode not in ((0, 3) if lossy else (0,)):
                problems.append(f"report: ended with {done.returncode}: {done.stderr.strip()[-300:]}")
            elif done.returncode == 0 and not hang:
                problems += still_recording("", done)
    return problems


def rows_of(path):
    """(pid, rows by kind, lost events, frees of unknown addresses)"""
    (pid, lost), = query(path, "select pid, lost_events from process")
    (allocs, frees), = query(path, "select count(*), count(free_ns) from allocation where layer = 0 and space = 0")
    (copies,), = query(path, "select count(*) from copy")
    (syncs,), = query(path, "select count(*) from syncs where kind <> 'implicit'")
    unknown = query(path, "select value from meta where key = 'unknown_frees'")
    return pid, [allocs, frees, copies, syncs], lost, int(unknown[0][0]) if unknown else 0


def recorded_rows(place, lossy):
    rows, lost, problems = {}, {}, []
    for path in databases(place):
        try:
            with copied(place, path) as copy:
                pid, counts, gone, unknown = rows_of(copy)
        except (OSError, sqlite3.Error, ValueError) as error:
            problems += [] if lossy else [f"recording: {path.name}: {error}"]
            continue
        rows[pid] = [a + b for a, b in zip(rows.get(pid, [0] * 4), counts)]
        lost[pid] = lost.get(pid, 0) + gone + unknown
    return rows, lost, problems


def unprepared(text):
    """Processes that gpuspy says it does not record because of the loader. Its own work must not take so long."""
    return {int(pid) for pid in re.findall(r"^gpuspy: not recording process (\d+): it was forked while another thread was using "
                                           "the list of loaded libraries$", text, re.M)}


def compare_counts(place, said):
    """Compares the rows of each process with its own counts."""
    left_out = unprepared(said)
    lossy = place.bounded or any(b.startswith("outside_") for b in place.behaviours)
    rows, lost, problems = recorded_rows(place, lossy)
    for pid, (flags, begun, returned, floor) in place.processes().items():
        had = rows.get(pid, [0] * 4)
        if pid in left_out and not any(had):
            continue
        least = floor if flags & STOPPED else returned
        for kind, (name, count) in enumerate(zip(KINDS, had)):
            if count > begun[kind]:
                problems.append(f"recording: {count} rows of {name}, {begun[kind]} calls")
            if count < least[kind] and not lossy and not flags & (MAY_LOSE | UNRECORDED | COUNTED):
                problems.append(f"recording: {count} rows of {name}, {least[kind]} calls had returned "
                                f"({lost.get(pid, 0)} events lost)")
        if lost.get(pid, 0) and not lossy and not flags & (MAY_LOSE | UNRECORDED | COUNTED):
            problems.append(f"recording: {lost[pid]} events lost or frees unknown")
        if flags & COUNTED and not flags & MAY_LOSE and not lossy:
            if sum(had) + lost.get(pid, 0) < 0.95 * sum(least):
                problems.append(f"recording: {sum(had)} rows and {lost.get(pid, 0)} lost, {sum(least)} calls had returned")
    return problems


# --- bare and recorded ------------------------------------------------------------------------------------------------

OWN_THREADS = 4  # of the recorder, at most


def compare_logs(bare, recorded):
    problems = []
    threads = [[int(line.split()[1]) for line in log if line.startswith("threads:")] for log in (bare, recorded)]
    for a, b in zip(*threads):
        if not a <= b <= a + OWN_THREADS:
            problems.append(f"threads: {a} bare, {b} recorded")
    bare, recorded = ([line for line in log if not line.startswith("threads:")] for log in (bare, recorded))
    only_bare, only_recorded = list(bare), []
    for line in recorded:
        if line in only_bare:
            only_bare.remove(line)
        else:
            only_recorded.append(line)
    # The recorder may hide mistakes of the simulated CUDA.
    only_bare = [line for line in only_bare if not line.startswith("WRONG: errno")]
    problems += [f"log: only bare: {line}" for line in only_bare[:5]]
    return problems + [f"log: only recorded: {line}" for line in only_recorded[:5]]


def others(text):
    return [line for line in text.splitlines() if not line.startswith("gpuspy: ")]


def names(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


KILLED_AT_START = (".new", ".spool", "-journal")


def compare_files(bare, recorded):
    a, b = names(bare.work), names(recorded.work)
    problems = [] if a == b else [f"files: {a} bare, {b} recorded"]
    if recorded.bounded or any(i.startswith("outside_") for i in recorded.behaviours):
        return problems
    # From another root SQLite cannot remove its log by name; without descriptors it leaves an empty journal. A
    # process that is killed while its recording begins leaves its unfinished files.
    allowed = {"other_root": ("-shm", "-wal"), "limit_files": ("-journal",), "subreaper": KILLED_AT_START}
    allowed = tuple(end for b in recorded.behaviours for end in allowed.get(b.partition("=")[0], ()))
    left = [name for name in names(recorded.database_folder)
            if not name.endswith(allowed) and not re.fullmatch(r"run(-\d+)?(\.\d+)?(-\d+)?\.db", name)]
    return problems + ([f"files: left beside the recording: {left[:6]}"] if left else [])


def source_line(address):
    """The source line of an address in libgpuspy.so, with those that it is inlined into."""
    if not shutil.which("addr2line"):
        return address
    return subprocess.run(["addr2line", "-fpsie", BUILD / "libgpuspy.so", address], text=True,
                          stdout=subprocess.PIPE).stdout.strip()


# NVML may take the loader's lock under nvml.lock, for which all other threads wait only a limited time.
LIMITED_WAITS = "nvml.c:"


def lock_order(place):
    """The problems that lockorder.c reported."""
    path = place.folder / "lockorder"
    lines = sorted(set(path.read_text().splitlines())) if path.exists() else []
    lines = [re.sub(r"libgpuspy\.so\+(0x\w+)", lambda m: source_line(m.group(1)), line) for line in lines]
    return ["lock order: " + line for line in lines
            if not line.startswith("saw") and LIMITED_WAITS not in line.partition("under the lock")[2]]


def segments():
    """Shared memory segments: number → the process that created it."""
    lines = map(str.split, Path("/proc/sysvipc/shm").read_text().splitlines()[1:])
    return {words[1]: int(words[4]) for words in lines}


def remove_segments(place, before):
    """What killed processes left in the run: no report completes it any more. Before place.remove()."""
    pids = place.processes()
    for number, maker in segments().items():
        if maker in pids and number not in before:
            ctypes.CDLL(None).shmctl(int(number), 0, None)


def compare_segments(place, recorded):
    """Only new segments count, because process ids are reused."""
    if place.bounded or "outside_" in str(place.behaviours) or "subreaper" in str(place.behaviours):
        return []
    pids = place.processes()
    left = [s for s, maker in segments().items() if maker in pids and s not in recorded.segments_before]
    return [f"files: shared memory left: {left}"] if left else []


def compare(bare_place, bare, place, recorded):
    problems = list(recorded.problems)
    if recorded.status != bare.status:
        problems.append(f"status: {bare.status} bare, {recorded.status} recorded")
    hung = any(p.startswith("hang") for p in problems)
    if not hung:
        if recorded.out != bare.out:
            problems.append(f"stdout: {bare.out[-200:]!r} bare, {recorded.out[-200:]!r} recorded")
        if others(recorded.err) != others(bare.err):
            problems.append(f"stderr: {others(bare.err)[-5:]} bare, {others(recorded.err)[-5:]} recorded")
        problems += compare_logs(bare_place.log(), place.log())
        problems += compare_files(bare_place, place)
        problems += compare_segments(place, recorded)
        problems += compare_counts(place, recorded.err)
        problems += lock_order(place) + races()
    return problems


RACES = BUILD / "tests" / "tsan"


def races():
    """What ThreadSanitizer reported since the last call (tests/run.py says where)."""
    found = []
    for path in sorted(RACES.glob("log.*")) if "thread" in os.environ.get("SAN", "") else []:
        found += [line for line in path.read_text(errors="replace").splitlines() if line.startswith("SUMMARY")]
        path.unlink()
    return [f"race: {line}" for line in sorted(set(found))]


def try_case(items, needs_raw):
    """Runs the case both ways; returns the problems and the duration of both runs in seconds."""
    folder = Path(tempfile.mkdtemp(prefix="gpuspy-torture-"))
    folder.chmod(0o755)
    places, before = [], segments()
    try:
        for name in ("bare", "recorded"):
            places.append(Place(folder / name, items, needs_raw))
        bare = run(places[0], False, 0)
        races()
        if any(p.startswith("hang") for p in bare.problems):
            return ["(bare) " + p for p in bare.problems], bare.seconds, 0
        recorded = run(places[1], True, bare.seconds)
        problems = compare(places[0], bare, places[1], recorded)
        reported = [line for line in recorded.err.splitlines() if line.startswith("gpuspy: ") and "next:" not in line]
        if problems and reported:
            problems.append("(gpuspy reported: " + " | ".join(reported[:3]) + ")")
        return problems, bare.seconds, recorded.seconds
    finally:
        for place in places:
            remove_segments(place, before)
            place.remove()
        shutil.rmtree(folder, ignore_errors=True)
