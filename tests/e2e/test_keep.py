"""GPUSPY_KEEP: a recording of bounded size, compared with a full recording of the same program."""
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from conftest import BUILD, SECONDS, Recording, thread_sanitized
from test_hostile_bounded import STEPS, bounded

PROGRAMS = BUILD / "programs"

LASTING = PROGRAMS / "lasting"
ROUNDS = 66000  # a full recording of 47 MiB, and more than 2^19 allocations: the buckets of removed_time are merged three times
BOUND = 32 << 20
WEEK_NS = 7 * 86400 * 10**9


def record(recording, **more):
    return recording.run(LASTING, ROUNDS, GPUSPY_STACKS="native", SIMCUDA_CONTEXT="100MiB", **more)


def start_for_days(recording, **more):
    env = recording.environment(GPUSPY_STACKS="native", SIMCUDA_CONTEXT="100MiB", CLOCK_SCALE="500000", **more)
    env["LD_PRELOAD"] += f":{PROGRAMS / 'fast_clock.so'}"
    return subprocess.Popen([LASTING, str(ROUNDS)], stdout=subprocess.DEVNULL, cwd=recording.folder, env=env)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """(full recording, bounded recording, the largest size of the bounded one on disk), of more than a simulated week"""
    full, kept = Recording(tmp_path_factory.mktemp("full")), Recording(tmp_path_factory.mktemp("kept"))
    first, second = start_for_days(full), start_for_days(kept, GPUSPY_KEEP="32MiB")
    largest = watch_size(second, kept.folder)
    assert first.wait() == second.returncode == 0
    return full, kept, largest


def watch_size(child, folder):
    largest = 0
    while child.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            largest = max(largest, sum(path.stat().st_size for path in folder.glob("run.db*")))
        time.sleep(0.02)
    return largest


@functools.cache
def whole_report(recording):
    """That of a recording of `pair`, which nothing changes."""
    return recording.report("--top", "100000")


def totals(recording, table, kind):
    """(count, bytes) of the existing rows plus, in a bounded recording, of the removed ones."""
    rows = recording.sql(f"SELECT count(*), total(bytes) FROM {table}")[0]
    removed = recording.sql("SELECT total(count), total(bytes) FROM removed WHERE what=?", kind)[0] if recording.sql(
        "SELECT 1 FROM sqlite_master WHERE name='removed'") else (0, 0)
    return rows[0] + removed[0], rows[1] + removed[1]


def test_it_stays_below_its_bound(pair):
    full, kept, largest = pair
    assert full.database.stat().st_size > BOUND and largest < BOUND, largest
    assert kept.sql("SELECT end_ns FROM process")[0][0] > WEEK_NS
    assert kept.sql("SELECT value FROM meta WHERE key='keep'") == [(BOUND,)]
    first = kept.sql("SELECT value FROM meta WHERE key='kept_from_ns'")[0][0]
    assert 0 < first < kept.sql("SELECT end_ns FROM process")[0][0]


def test_totals_are_those_of_the_whole_run(pair):
    full, kept, _ = pair
    for kind, table in (0, "allocation"), (1, "copy"):
        assert totals(full, table, kind) == totals(kept, table, kind)
    assert kept.sql("SELECT sum(n) FROM (SELECT count(*) AS n FROM allocation UNION ALL SELECT sum(count) FROM removed "
                    "WHERE what=0)") == kept.sql("SELECT max(id) FROM allocation")


def by_stack(entry):
    return sorted((x["bytes"], x["count"], tuple((f["function"], f["line"]) for f in x["frames"])) for x in entry)


def test_peaks_failures_and_what_is_live_are_those_of_the_whole_run(pair):
    full, kept = map(whole_report, pair[:2])
    for a, b in zip(full["peak"], kept["peak"], strict=True):
        assert by_stack(a["by_stack"]) == by_stack(b["by_stack"]) and a["bytes"] == b["bytes"]
        assert (a["count"], a["allocations"], a["allocated_bytes"]) == (b["count"], b["allocations"], b["allocated_bytes"])
    assert [(o["requested_bytes"], o["cause"], o["fatal"]) for o in full["oom"]] == [
        (o["requested_bytes"], o["cause"], o["fatal"]) for o in kept["oom"]]
    for name in ("live_bytes", "device_live_bytes", "largest_holder_bytes", "outside_bytes"):
        assert full["oom"][0]["evidence"][name] == kept["oom"][0]["evidence"][name]
    assert [o["evidence"]["turnover"] for o in full["oom"]] == [o["evidence"]["turnover"] for o in kept["oom"]]
    assert {o["evidence"].get("after_counts") for o in full["oom"]} == {None}
    for a, b in zip(full["oom"], kept["oom"], strict=True):
        assert b["evidence"].get("after_counts") == "at least" or a["evidence"].get("allocations_after") == b["evidence"].get("allocations_after")
    assert kept["oom"][0]["evidence"]["after_counts"] == "at least"
    assert by_stack([dict(x, frames=x["stack"]) for x in full["leaks"]]) == by_stack(
        [dict(x, frames=x["stack"]) for x in kept["leaks"]])


def test_waits_and_copies_are_those_of_the_whole_run(pair):
    full, kept = map(whole_report, pair[:2])
    def copies(report):
        return sorted((t["direction"], t["count"], t["bytes"], t["site"]["line"]) for t in report["transfers"])
    def waits(report): # on the fast clock every wait is long enough to be recorded, those of cudaFree too
        return sorted((w["pattern"] or "", w["count"], w["site"]["line"]) for w in report["sync"] if w["count"] >= ROUNDS)
    assert copies(full) == copies(kept)
    assert waits(full) == waits(kept) and len(waits(kept)) == 3


def test_exported_copies_are_those_of_the_whole_run(pair):
    def copies(recording):
        text = recording.gpuspy("export", "-f", "openmetrics", "-o", "-", recording.database).stdout
        return sorted(re.sub(r'(run_id|pid)="[^"]*"', "", line) for line in text.splitlines()
                      if line.startswith(("gpuspy_copies{", "gpuspy_copied_bytes{")))
    full, kept = map(copies, pair[:2])
    assert full == kept and len(full) >= 4


def lows_of(recording, firsts):
    """From all rows: {(kind, stack): [the least that was live while the allocations of each bucket were made]}, but for the
    last bucket, which nothing ends."""
    events, lows, live, at = [], {}, {}, 0
    for row in recording.sql("SELECT id, kind & 4095, coalesce(alloc_stack_id, 0), abs(bytes), alloc_ns, alloc_ns + life_ns "
                             "FROM allocation_row WHERE id <= ?", firsts[-1]):
        number, kind, stack, size, begin, end = row
        events.append((begin, 1, number, (kind, stack), size))
        if end is not None:
            events.append((end, 0, number, (kind, stack), -size))
    for _, begins, number, key, size in sorted(events):
        while begins and at + 1 < len(firsts) and number >= firsts[at + 1]:
            at += 1
            for of in live:
                lows[of].append(live[of])
        if at + 1 == len(firsts):
            break
        if key not in live:
            live[key], lows[key] = 0, [0] * (at + 1)
        live[key] += size
        lows[key][at] = min(lows[key][at], live[key])
    return lows


def assert_lows_are_those_of(full, kept):
    ends = [first for (first,) in kept.sql("SELECT first_id FROM removed_time ORDER BY 1")]
    assert 32 <= len(ends) <= 128
    lows = lows_of(full, [0, *ends])
    rows = {}
    for kind, stack, first, low in kept.sql("SELECT * FROM removed_course ORDER BY 1, 2, 3"):
        rows.setdefault((kind, stack), {})[first] = low
    for key in lows:
        expected, now = lows[key][:len(ends)], 0
        for i, first in enumerate([0, *ends[:-1]]):
            now = rows.get(key, {}).get(first, now)
            assert now == expected[i], (key, i)
    assert rows


def test_what_was_live_of_each_call_path_is_that_of_the_whole_run(pair):
    full, kept, _ = pair
    assert_lows_are_those_of(full, kept)


def test_the_timeline_is_of_the_whole_run(pair):
    full, kept, _ = pair
    a, b = (recording.report()["timeline"][0]["points"] for recording in (full, kept))
    assert max(bytes_ for _, bytes_ in a) == max(bytes_ for _, bytes_ in b)
    low = min(bytes_ for seconds, bytes_ in a[len(a) // 4:])
    assert min(bytes_ for seconds, bytes_ in b[len(b) // 4:]) >= 0.8 * low  # not only the sum of the remaining rows
    assert len(b) > 500


def test_a_growth_that_only_the_whole_run_shows_is_stated(pair, recording):
    """256 KiB every few seconds, among blocks that are allocated and freed: the remaining rows are too few to show
    it."""
    full, kept, _ = pair
    rose = [note for note in kept.report()["run"]["notes"] if "rose in each eighth" in note]
    assert len(rose) == 1 and "CUDA allocations on GPU 0" in rose[0] and "per hour" in rose[0]
    assert not any("rose in each eighth" in note for note in full.report()["run"]["notes"])
    late = recording.folder / "late.db"  # a program that begins its work after a fifth of the time
    shutil.copy(kept.database, late)
    with sqlite3.connect(late) as db:
        db.execute("UPDATE level SET low_bytes = 1 WHERE start_ns < (SELECT max(end_ns) / 5 FROM level)")
    db.close()
    report = json.loads(recording.gpuspy("report", "--json", late).stdout)
    assert "from 1 B to" in "".join(report["run"]["notes"])
    usual = [float(re.search(r"usually by ([\d.]+) KiB per hour", note)[1]) for note in (*rose, *report["run"]["notes"])
             if "rose" in note]
    assert len(usual) == 2 and usual[1] == pytest.approx(usual[0], rel=0.5)  # of real time: the jump would make it 1,000 times as much
    recording.run(PROGRAMS / "storm", 1200000, GPUSPY_STACKS="none", GPUSPY_KEEP="32MiB")
    report = recording.report()
    assert report["run"]["processes"][0]["kept_from_s"] > 0
    assert not any("rose in each eighth" in note for note in report["run"]["notes"])


def test_the_reader_learns_what_is_exact(pair):
    kept = pair[1]
    text = kept.gpuspy("report", kept.database).stdout
    assert "(GPUSPY_KEEP=32.00 MiB): the recording has every event after" in " ".join(text.split())
    assert kept.report()["run"]["processes"][0]["kept_from_s"] > 0
    answer = kept.gpuspy("sql", kept.database, "SELECT w.word, sum(count) FROM removed JOIN removed_what w ON w.id=what "
                         "GROUP BY 1").stdout
    assert "allocation" in answer and "copy" in answer


def test_sql_says_that_rows_are_missing(pair):
    full, kept, _ = pair
    asked = [r.gpuspy("sql", r.database, "SELECT count(*) FROM allocations") for r in (full, kept)]
    assert asked[0].stderr == "" and "this recording is bounded: of what ended before " in asked[1].stderr


@thread_sanitized("too slow for a recording of that size")
@pytest.mark.parametrize("seed", range(int(os.environ.get("KILLS", 3))))
def test_a_kill_loses_nothing_that_is_promised(pair, recording, seed):
    """At any moment, also during a removal: each lifetime is a row or in the totals, and the live set of the peak is
    complete."""
    full = pair[0]
    child = subprocess.Popen([LASTING, str(ROUNDS)], stdout=subprocess.DEVNULL, cwd=recording.folder,
                             env=recording.environment(GPUSPY_STACKS="native", SIMCUDA_CONTEXT="100MiB", GPUSPY_KEEP="32MiB"))
    deadline = time.time() + SECONDS
    while time.time() < deadline and not removed(recording.database):
        time.sleep(0.005)
    time.sleep(random.Random(seed).uniform(0, 0.05))
    child.send_signal(signal.SIGKILL)
    child.wait()
    report = recording.report("--top", "100000")
    rows, last = recording.sql("SELECT count(*), max(id) FROM allocation")[0]
    assert rows + recording.sql("SELECT total(count) FROM removed WHERE what=0")[0][0] == last
    peak = whole_report(full)["peak"][0]
    assert by_stack(report["peak"][0]["by_stack"]) == by_stack(peak["by_stack"])
    live = {row[0] for row in recording.sql("SELECT id FROM allocation WHERE free_ns IS NULL")}
    moment = full.sql("SELECT alloc_ns FROM allocation WHERE id=?", last)[0][0]
    then = {row[0] for row in full.sql("SELECT id FROM allocation WHERE id<=? AND (free_ns IS NULL OR free_ns>?)", last, moment)}
    assert live <= then and len(then - live) <= 1  # a free after the last allocation
    assert_lows_are_those_of(full, recording)


@pytest.mark.parametrize("removed", [0, 1, 30, 150, 299, 300])
def test_a_removal_that_a_kill_cut_short_shows_the_same_growth(recording, removed):
    bounded(recording.database, removed)
    growth = recording.report()["growth"]
    assert [(g["layer"], g["count"]) for g in growth] == [("tensor", STEPS)]
    assert all(abs(g["steps"] - STEPS) <= 1 and g["fit"] > 0.99 for g in growth)


def read_again_and_again(child, path, seconds, wait):
    """Transactions of so many seconds each, one after the other."""
    time.sleep(wait)
    while child.poll() is None:
        with contextlib.suppress(sqlite3.Error), contextlib.closing(
                sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)) as db:
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM meta").fetchone()
            until = time.time() + seconds
            while child.poll() is None and time.time() < until:
                time.sleep(0.01)
        time.sleep(0.001)


@thread_sanitized("too slow for a recording of that size")
@pytest.mark.parametrize("seconds, readers", [(0.3, 2), (1000, 1)])
def test_readers_do_not_make_it_exceed_its_bound(pair, recording, seconds, readers):
    """Overlapping readers, or one that never ends, never let SQLite restart its log. What is promised is still kept."""
    full = pair[0]
    child = subprocess.Popen([LASTING, str(ROUNDS)], stdout=subprocess.DEVNULL, cwd=recording.folder,
                             env=recording.environment(GPUSPY_STACKS="native", SIMCUDA_CONTEXT="100MiB", GPUSPY_KEEP="32MiB"))
    others = [threading.Thread(target=read_again_and_again, args=(child, recording.database, seconds, n * seconds / readers))
              for n in range(readers)]
    for reader in others:
        reader.start()
    largest = watch_size(child, recording.folder)
    for reader in others:
        reader.join()
    assert child.returncode == 0 and largest < BOUND, largest
    for kind, table in (0, "allocation"), (1, "copy"):
        assert totals(full, table, kind) == totals(recording, table, kind)
    a, b = whole_report(full), recording.report("--top", "100000")
    for x, y in zip(a["peak"], b["peak"], strict=True):
        assert x["bytes"] == y["bytes"] and by_stack(x["by_stack"]) == by_stack(y["by_stack"])
    assert by_stack([dict(x, frames=x["stack"]) for x in a["leaks"]]) == by_stack([dict(x, frames=x["stack"]) for x in b["leaks"]])
    assert [(o["requested_bytes"], o["cause"]) for o in a["oom"]] == [(o["requested_bytes"], o["cause"]) for o in b["oom"]]
    assert b["run"]["lost_events"] == 0 and not b.get("disagreements")


FLUSHES = """
import ctypes, os
cuda, recorder = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL(None)
addresses = [ctypes.c_void_p() for _ in range(2000)]
def take():
    for address in addresses:
        cuda.cudaMalloc(ctypes.byref(address), 4096)
def replace():
    for address in addresses:
        cuda.cudaFree(address)
    take()
    return recorder.gpuspy_flush()
take()
for i in range(2000):
    if not replace() or os.path.getsize("run.db") > 16 << 20:
        break
input(print("ready", flush=True) or "")
for i in range(5000):
    if not replace():
        print("ended")
        break
"""


def test_a_reader_that_never_ends_makes_it_end(recording):
    """Each commit makes the log longer, and nothing can make it shorter: one line, before the bound is exceeded. Until then
    there is room for many commits of totals, although the database has nearly its full size when the reader begins."""
    child = subprocess.Popen(["/usr/bin/python3", "-c", FLUSHES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, cwd=recording.folder, env=recording.environment(GPUSPY_STACKS="native", GPUSPY_KEEP="32MiB"))
    assert child.stdout.readline() == "ready\n"
    with contextlib.closing(sqlite3.connect(f"file:{recording.database}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM meta").fetchone()
        out, err = child.communicate("\n", timeout=120)
        assert (child.returncode, out) == (0, "ended\n"), err
        assert BOUND - (1 << 20) < sum(path.stat().st_size for path in recording.folder.glob("run.db*")) < BOUND
    assert err.splitlines()[0] == ("gpuspy: recording stopped here: another program has read it in one transaction for so long that "
                                   "its log is full")
    assert recording.report()["run"]["processes"][0]["stopped"] == "reader"
    assert "another program had read it in one transaction" in " ".join(recording.gpuspy("report", recording.database).stdout.split())
    rows, last = recording.sql("SELECT count(*), max(id) FROM allocation")[0]
    assert last > 100 and rows + recording.sql("SELECT total(count) FROM removed WHERE what=0")[0][0] == last


def removed(path):
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute("SELECT 1 FROM meta WHERE key='kept_from_ns'").fetchone()
    except sqlite3.Error:
        return None


def test_what_must_be_kept_may_be_too_much(recording):
    """Then the recording ends properly with one line, and the program continues."""
    done = recording.run(PROGRAMS / "lasting", 400, 1300000, GPUSPY_STACKS="none", GPUSPY_KEEP="32MiB", SIMCUDA_MEMORY="640GiB")
    line = "gpuspy: recording stopped here: its live memory and peaks already exceed GPUSPY_KEEP (32.0 MiB)\n"
    assert done.stderr.startswith(line) and done.stderr.count("\n") <= 2  # or the usual line, if it was noticed only at the end
    assert recording.report()["run"]["processes"][0]["stopped"] == "keep"
    assert "GPUSPY_KEEP" in recording.gpuspy("report", recording.database).stdout
    assert sum(path.stat().st_size for path in recording.folder.glob("run.db*")) < BOUND


@pytest.mark.parametrize("value", ["much", "1MiB", "-5GiB", "64MiB\n\x1b[31m"])
def test_a_bound_that_makes_no_sense_is_reported(recording, value):
    done = recording.run(PROGRAMS / "storm", 10, GPUSPY_KEEP=value)
    shown = value.replace("\n", "?").replace("\x1b", "?")  # a line remains one
    assert f"GPUSPY_KEEP={shown} is not a size of at least 32MiB" in done.stderr
    assert recording.sql("SELECT count(*) FROM allocation") == [(10,)]


def test_run_has_an_option_for_it(recording):
    done = recording.gpuspy("run", "--keep", "64MiB", "--no-summary", "-o", recording.database, "--", LASTING, "100",
                            env=recording.environment(LD_PRELOAD=""))
    assert done.returncode == 0, done.stderr
    assert recording.sql("SELECT 1 FROM sqlite_master WHERE name='removed'") == [(1,)]
    wrong = recording.gpuspy("run", "--keep", "5MiB", "--", "true")
    assert wrong.returncode == 2 and "give a size of at least 32.00 MiB" in wrong.stderr


def test_attach_has_the_option_too(recording):
    child = subprocess.Popen([LASTING, str(100 * ROUNDS)], stdout=subprocess.PIPE, env=recording.environment(LD_PRELOAD=""))
    try:
        deadline = time.time() + SECONDS
        while "libcuda" not in open(f"/proc/{child.pid}/maps").read() and time.time() < deadline:
            time.sleep(0.01)
        done = recording.gpuspy("attach", "--keep", "40MiB", "--db", recording.database, child.pid)
        if done.returncode == 3 and "forbids" in done.stderr:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stderr
        assert recording.gpuspy("detach", child.pid).returncode == 0
        assert recording.sql("SELECT 1 FROM sqlite_master WHERE name='removed'") == [(1,)]
    finally:
        child.kill()
        child.communicate()


@thread_sanitized("too slow for a recording of that size")
@pytest.mark.parametrize("arguments, stops, seconds", [((110000,), False, 0), ((400, 1800000), True, 0), ((400, 1800000), True, 0.3)])
def test_a_disk_that_fills_bounds_the_recording(recording, arguments, stops, seconds):
    """New events replace old ones; if what remains must be kept, the recording ends. The message names the disk, not a
    variable that the user has not set, nor a program that reads."""
    disk = recording.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "none", disk], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("a file system cannot be mounted")
    try:
        recording.database = disk / "run.db"
        child = subprocess.Popen([LASTING, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=recording.environment(GPUSPY_STACKS="none" if stops else "native", GPUSPY_MIN_FREE="570MiB",
                                                           SIMCUDA_MEMORY="900GiB"))
        reader = threading.Thread(target=read_again_and_again, args=(child, recording.database, seconds, 0))
        if seconds:
            reader.start()
        err = child.communicate(timeout=SECONDS)[1]
        if seconds:
            reader.join()
        assert child.returncode == 0, err
        report, text = recording.report(), " ".join(recording.gpuspy("report", recording.database).stdout.split())
        process = report["run"]["processes"][0]
        assert process["kept_from_s"] > 0 and process["keep_bytes"] is None and process["stopped"] == ("disk" if stops else None)
        assert "its disk was nearly full" in text and "GPUSPY_KEEP" not in text + err
        assert ("its disk is nearly full (GPUSPY_MIN_FREE)" in err) == stops
        assert recording.database.stat().st_size < 60 << 20
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
