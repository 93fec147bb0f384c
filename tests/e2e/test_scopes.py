"""The peak within NVTX ranges in the report, stats, the exports and `check --max-peak scope:NAME=SIZE`."""
import json
import random
import re
import shutil
import sqlite3

import pytest

from conftest import BUILD, ROOT, Recording, thread_sanitized
from rows import DEVICE, GIB, MIB, SECOND, TENSOR, Rows

PATHS = f"{ROOT / 'python'}:{ROOT / 'pytest-gpuspy'}"
PUSH, START, MOMENT = 0, 2, 4


def add_range(rows, name, start, end, kind=PUSH, domain=None, thread=2):
    def text(word):
        return None if word is None else rows.db.execute("INSERT INTO mark_name(name) VALUES(?)", (word,)).lastrowid
    rows.ranges = getattr(rows, "ranges", []) + [(int(start * SECOND), None if end is None else int((end - start) * SECOND), kind,
                                                  text(name), text(domain), thread)]


def write_ranges(rows):
    for start, life, kind, name, domain, thread in sorted(rows.ranges, key=lambda r: r[0]):
        rows.db.execute("INSERT INTO mark(kind,name,domain,start_ns,life_ns,thread_id) VALUES(?,?,?,?,?,?)",
                        (kind, name, domain, start, life, thread))


def scopes(recording, *words):
    return json.loads(recording.gpuspy("report", "--json", "--only", "scopes", *words, recording.database).stdout)["scopes"]


def figures(recording, name, layer="device"):
    return [tuple(s[k] for k in ("device", "peak_bytes", "entry_bytes", "exit_bytes", "count", "open"))
            for s in scopes(recording) if s["name"] == name and s["layer"] == layer]


@pytest.fixture
def made(recording):
    """One GPU: 1 MiB all the time, 10 from 2 to 5 s, 20 from 4 to 8 s."""
    with Rows(recording.database) as rows:
        rows.device()
        at = rows.stack("/home/me/train.py:9 step")
        rows.block(1, MIB, None, at)
        rows.block(2, 10 * MIB, 3, at)
        rows.block(4, 20 * MIB, 4, at)
        add_range(rows, "load", 1.5, 4.5)
        add_range(rows, "load", 6, 7)
        add_range(rows, "calm", 8.5, 9)
        add_range(rows, "before", 0.1, 0.2)
        add_range(rows, "open", 3, None)
        add_range(rows, "inner", 5.5, 6.5, domain="lib")
        add_range(rows, "instant", 4.2, 4.2)
        write_ranges(rows)
    return recording


def test_peak_entry_and_exit(made):
    assert figures(made, "load") == [(0, 31 * MIB, MIB, 31 * MIB, 2, 0)]  # of the first visit
    assert figures(made, "calm") == [(0, MIB, MIB, MIB, 1, 0)]
    assert figures(made, "before") == [(-1, 0, 0, 0, 1, 0)]  # nothing was live
    assert figures(made, "open") == [(0, 31 * MIB, 11 * MIB, None, 1, 1)]
    assert figures(made, "inner") == [(0, 21 * MIB, 21 * MIB, 21 * MIB, 1, 0)]
    assert figures(made, "instant") == [(0, 31 * MIB, 31 * MIB, 31 * MIB, 1, 0)]
    assert [s["peak_time_s"] for s in scopes(made) if s["name"] == "load"] == [4]
    assert [s["peak_bytes"] for s in scopes(made)] == sorted((s["peak_bytes"] for s in scopes(made)), reverse=True)


def test_every_view_has_it(made):
    for command in (["report", "--only", "scopes"], ["report", "--full"], ["stats"]):
        text = made.gpuspy(*command, made.database).stdout
        assert "Peaks by NVTX range" in text and "31.00 MiB" in text and "lib: inner" in text, text
    assert json.loads(made.gpuspy("stats", "--json", made.database).stdout)["scopes"] == scopes(made)
    table = made.gpuspy("export", "-f", "csv", "--tables", "scopes", "-o", "-", made.database)
    assert "load" in table.stdout and str(31 * MIB) in table.stdout, table.stderr
    metrics = made.gpuspy("export", "-f", "openmetrics", "-o", "-", made.database).stdout
    found = [line.split("} ") for line in metrics.splitlines() if line.startswith("gpuspy_scope_peak_bytes{")]
    assert [value for labels, value in found if 'scope="load"' in labels] == [str(31 * MIB)], metrics
    assert [value for labels, value in found if 'scope="inner",domain="lib"' in labels] == [str(21 * MIB)], metrics
    page = made.gpuspy("report", "--html", "page.html", made.database)
    assert page.returncode == 0 and "Peaks by range" in (made.folder / "page.html").read_text()


def test_every_view_of_memory_names_them(made):
    """In one line, and in JSON; not where time or copies are shown, nor in a run without ranges."""
    line = "Peaks of NVTX ranges: instant 31.00 MiB, load 31.00 MiB, open 31.00 MiB and 2 more; gpuspy "
    for command in "tree", "flame", "table":
        text = made.gpuspy(command, made.database, env={"COLUMNS": "132"}).stdout
        assert text.endswith(f"\n\n{line}{command} --at scope:NAME\n"), text
        assert json.loads(made.gpuspy(command, "--json", made.database).stdout)["scopes"] == scopes(made)
        inside = json.loads(made_tree(made, "calm", "--json", command=command).stdout)
        assert inside["total"] == MIB and inside["scopes"] == scopes(made)
        assert "Peaks of" not in made.gpuspy(command, "--device", "1", made.database).stdout
    leaks = made.gpuspy("leaks", made.database, env={"COLUMNS": "132"}).stdout
    assert leaks.endswith(line + "tree --at scope:NAME\n"), leaks
    assert json.loads(made.gpuspy("leaks", "--json", made.database).stdout)["scopes"] == scopes(made)
    short = made.gpuspy("report", made.database, env={"COLUMNS": "132"}).stdout
    assert line + "report --only scopes\n" in short and len(short.splitlines()) <= 40, short


def test_no_line_without_ranges_or_memory(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None, rows.stack("/home/me/train.py:9 step"))
    for command in "tree", "flame", "table", "leaks", "report":
        assert "Peaks of" not in recording.gpuspy(command, recording.database).stdout
    assert json.loads(recording.gpuspy("tree", "--json", recording.database).stdout)["scopes"] == []


def test_the_line_has_no_ranges_of_nvidias_libraries(recording):
    """CUB and NCCL mark their own functions; the list has them."""
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None, rows.stack("/home/me/train.py:9 step"))
        add_range(rows, "cub::DeviceScan::InclusiveSum", 0.5, 2, domain="CCCL")
        add_range(rows, "ncclAllReduce", 0.5, 2, domain="NCCL")
        add_range(rows, "load", 0.5, 2)
        write_ranges(rows)
    for command in "tree", "report":
        assert "Peaks of NVTX ranges: load 1.00 MiB; gpuspy" in recording.gpuspy(command, recording.database).stdout
    listed = recording.gpuspy("report", "--only", "scopes", recording.database).stdout
    assert all(name in listed for name in ("cub::DeviceScan::InclusiveSum", "ncclAllReduce", "load")), listed


@pytest.mark.parametrize("command", ["tree", "flame", "table", "leaks", "report"])
def test_the_line_of_long_and_hostile_names(recording, command):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None, rows.stack("/home/me/train.py:9 step"))
        for name in "e" * 90, "\033[31mred\a", "ünïcode " * 12:
            add_range(rows, name, 0.5, 2)
        write_ranges(rows)
    text = recording.gpuspy(command, recording.database, env={"COLUMNS": "60"}).stdout
    assert "Peaks of NVTX ranges" in text and "\033" not in text and "\a" not in text
    assert all(len(line) <= 60 for line in text.splitlines()), text


def test_the_line_has_the_layer_and_gpu_of_the_view(recording):
    with Rows(recording.database) as rows:
        for device in 0, 1:
            rows.device(device)
            rows.block(1, (device + 1) * GIB, 8, None, DEVICE, device)
            rows.block(2, (device + 1) * MIB, 1, None, TENSOR, device)
        add_range(rows, "step", 0.5, 9)
        write_ranges(rows)
    for words, peak in [((), "2.00 MiB"), (("--layer", "device"), "2.00 GiB"), (("--device", "0"), "1.00 MiB"),
                        (("--layer", "device", "--device", "0"), "1.00 GiB")]:
        assert f"ranges: step {peak}; gpuspy" in " ".join(recording.gpuspy("tree", *words, recording.database).stdout.split())


def made_tree(recording, name, *words, command="tree"):
    return recording.gpuspy(command, "--at", f"scope:{name}", *words, recording.database)


def test_what_was_live_at_the_peak_of_a_range(made):
    """In tree, flame and table; of equal names in several domains, the highest peak."""
    for command in ("tree", "flame", "table"):
        text = made_tree(made, "load", command=command).stdout
        assert "Live at the peak of the range 'load': 31.00 MiB in 3 blocks" in text and "train.py:9" in text, text
    assert "at 4.00 s" in made_tree(made, "load").stdout
    unknown = made_tree(made, "lode")
    assert unknown.returncode == 3 and unknown.stdout == ""
    assert "no NVTX range is named 'lode'; this run has " in unknown.stderr and "'load'" in unknown.stderr
    empty = made_tree(made, "before")
    assert empty.returncode == 1 and "no memory was allocated in a range named 'before'" in empty.stderr, empty.stderr
    assert made_tree(made, "").returncode == 2


def test_a_range_whose_name_ends_like_the_title_of_a_moment(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None)
        add_range(rows, "that moment", 0.5, 2)
        write_ranges(rows)
    assert "Live at the peak of the range 'that moment': 1.00 MiB in 1 block" in made_tree(recording, "that moment").stdout
    assert "Live at 1.50 s: 1.00 MiB" in recording.gpuspy("tree", "--at", "1.5", recording.database).stdout


def test_at_of_a_run_without_ranges(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None)
    done = made_tree(recording, "load")
    assert done.returncode == 3 and "no NVTX range is named 'load': this run has no ranges" in done.stderr


def test_diff_has_them_side_by_side(made, tmp_path_factory):
    other = Recording(tmp_path_factory.mktemp("other"))
    with Rows(other.database) as rows:
        rows.device()
        rows.block(1, 5 * MIB, None, rows.stack("/home/me/train.py:9 step"))
        for name in "load", "save":
            add_range(rows, name, 2, 3)
        write_ranges(rows)
    done = made.gpuspy("diff", made.database, other.database)
    text = [line.split() for line in done.stdout.split("Peaks of CUDA allocations by NVTX range")[1].splitlines()]
    assert ["load", "31.00", "MiB", "5.00", "MiB", "-26.00", "MiB", "(84", "%)"] in text, done.stdout
    assert ["save", "no", "range", "5.00", "MiB"] in text and ["lib:", "inner", "21.00", "MiB", "no", "range"] in text
    found = {s["name"]: s for s in json.loads(made.gpuspy("diff", "--json", made.database, other.database).stdout)["scopes"]}
    assert (found["load"]["before"], found["load"]["after"], found["load"]["change"]) == (31 * MIB, 5 * MIB, -26 * MIB)
    assert (found["save"]["before"], found["save"]["count_before"], found["save"]["after"]) == (None, 0, 5 * MIB)
    done = made.gpuspy("diff", "--top", "1", made.database, other.database)
    assert "6 more, --top 7 shows them" in done.stdout, done.stdout


def test_timeline_draws_them(made):
    text = made.gpuspy("timeline", made.database, env={"COLUMNS": "113"}).stdout
    lines = text.split("NVTX ranges, each with its peak")[1].splitlines()
    load, = [line for line in lines if line.endswith(" load")]
    assert load.startswith("  31.00 MiB")
    bar = load[13:].rstrip(" load")
    column = [i for i, c in enumerate(bar) if c in "▬="]  # 100 columns of 0.1 s
    assert column == [*range(15, 46), *range(60, 71)], load
    assert any(line.endswith("lib: inner") for line in lines) and not any("before" in line for line in lines), text
    found = json.loads(made.gpuspy("timeline", "--json", made.database).stdout)["scopes"]
    assert {s["name"]: s["peak_bytes"] for s in found}["load"] == 31 * MIB
    part = made.gpuspy("timeline", "--from", "8.2", made.database).stdout
    assert "calm" in part and "load" not in part, part


def test_timeline_names_what_it_leaves_out(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(0.5, MIB)
        for i in range(9):
            add_range(rows, "phase " + "abcdefghi"[i] * 60, i + 0.1, i + 0.9)
        write_ranges(rows)
    text = recording.gpuspy("timeline", recording.database, env={"COLUMNS": "60"}).stdout
    assert "3 more: gpuspy report --only scopes" in text
    assert all(len(line) <= 60 for line in text.splitlines()), text


def test_devices_and_tensors_have_rows_of_their_own(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.device(1)
        for device in 0, 1:
            rows.block(1, (device + 1) * GIB, 8, None, DEVICE, device)
            rows.block(2, (device + 1) * MIB, 1, None, TENSOR, device)
        add_range(rows, "step", 0.5, 9)
        write_ranges(rows)
    rows = {(s["device"], s["layer"]): s["peak_bytes"] for s in scopes(recording)}
    assert rows == {(0, "device"): GIB, (1, "device"): 2 * GIB, (0, "tensor"): MIB, (1, "tensor"): 2 * MIB}
    assert {s["device"] for s in scopes(recording, "--device", "1")} == {1}
    text = recording.gpuspy("report", "--only", "scopes", recording.database).stdout
    assert "tensors" in text and "GPU 1" in text


def expected(blocks, ranges, name):
    """As the help defines it, moment by moment: the peak, and what was live at the begin and end of that visit."""
    def live(at, before):  # before: without the events at that very moment
        return sum(n for a, f, n in blocks if (a < at if before else a <= at) and (f is None or (f >= at if before else f > at)))
    own = sorted((s, e) for n, s, e in ranges if n == name)
    visits = []
    for start, end in own:
        if visits and start < visits[-1][1]:
            visits[-1][1] = max(visits[-1][1], end)
        else:
            visits.append([start, end])
    best = None
    for start, end in visits:
        moments = [live(start, True)] + [live(a, False) for a, _, _ in blocks if start <= a <= end]
        if best is None or max(moments) > best[0]:
            best = max(moments), live(start, True), live(end, False)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_any_mixture_of_ranges(recording, seed):
    """Nested, crossing on threads, with equal names at once; all times differ."""
    chance = random.Random(seed)
    times = [t / 1000 for t in chance.sample(range(1, 9999), 360)]
    blocks = []
    for _ in range(60):
        start, end = sorted((times.pop(), times.pop()))
        blocks.append((start, None if chance.random() < 0.2 else end, chance.randrange(1, 1000) * 1000))
    ranges = []
    for _ in range(60):
        start, end = sorted((times.pop(), times.pop()))
        ranges.append((chance.choice("abcdef"), start, start + (end - start) * chance.choice((0.01, 0.2, 1))))
    with Rows(recording.database) as rows:
        rows.device()
        for start, end, nbytes in sorted(blocks):
            rows.block(start, nbytes, None if end is None else end - start)
        for name, start, end in ranges:
            add_range(rows, name, start, end, chance.choice((PUSH, START)), thread=chance.randrange(2, 6))
        write_ranges(rows)
    for name in {name for name, *_ in ranges}:
        peak, entry, exit_ = expected(blocks, ranges, name)
        (device, *found, count, open_), = figures(recording, name)
        assert (found, count, open_) == ([peak, entry, exit_], sum(n == name for n, *_ in ranges), 0), name
        if peak:
            assert json.loads(made_tree(recording, name, "--json").stdout)["total"] == peak, name


def test_many_names_that_differ_in_numbers_are_one(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(0.5, GIB, None)
        for i in range(200):
            add_range(rows, f"step {i}", 1 + i / 100, 1 + i / 100 + 0.005)
        for i in range(20):
            add_range(rows, f"layer {i}", 4 + i / 100, 4 + i / 100 + 0.005)
        write_ranges(rows)
    names = [s["name"] for s in scopes(recording)]
    assert "step #" in names and "step 7" not in names and "layer 7" in names and len(names) == 21
    assert figures(recording, "step #")[0][4] == 200
    done = recording.gpuspy("check", recording.database, "--max-peak", "scope:step #=2GiB")
    assert done.returncode == 0, done.stdout
    done = recording.gpuspy("check", recording.database, "--max-peak", "scope:step 7=2GiB")
    assert done.returncode == 1 and "scope:step #=SIZE" in " ".join(done.stdout.split()), done.stdout


def test_more_names_than_are_kept(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(0.5, GIB, None)
        for i in range(5000):
            word = "".join(chr(97 + i // 26 ** k % 26) for k in range(4))
            add_range(rows, word, 1 + i / 1000, 1.0005 + i / 1000)
        write_ranges(rows)
    report = recording.report()
    assert report["scopes_total"] == 4096 and len(report["scopes"]) == 50
    assert any("904 more names" in note for note in report["run"]["notes"])


# ---------------------------------------------------------------- gpuspy check


def check(recording, *words, **more):
    return recording.gpuspy("check", recording.database, *words, **more)


def test_a_limit_of_a_scope_both_ways(made):
    assert check(made, "--max-peak", "scope:load=31MiB").returncode == 0
    done = check(made, "--max-peak", "scope:load=30MiB")
    assert done.returncode == 1 and "GPU memory in range 'load'" in done.stdout and "train.py:9" in done.stdout
    done = check(made, "--max-peak", "scope:calm=1MiB", "--max-peak", "40MiB,scope:load=1MiB")
    assert done.returncode == 1 and done.stdout.count("max-peak") == 3
    assert check(made, "--max-peak", "30MiB").returncode == 1  # the whole run's as before
    assert check(made, "--max-peak", "scope:before=0").returncode == 0
    assert check(made, "--max-peak", "scope:load=31MiB,scope:calm=0").returncode == 1


def test_machine_readable_output(made):
    done = check(made, "--max-peak", "scope:load=1MiB", "--json", "--junit", "out.xml")
    failed = [c for c in json.loads(done.stdout)["checks"] if c["status"] == "failed"]
    assert [(c["check"], c["scope"], c["value"], c["limit"]) for c in failed] == [("max-peak", "load", 31 * MIB, MIB)]
    assert "range 'load'" in (made.folder / "out.xml").read_text()


def test_a_scope_that_never_occurred_is_an_error(made, recording):
    done = check(made, "--max-peak", "scope:laod=1GiB")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "no NVTX range named 'laod'" in done.stderr and "'load'" in done.stderr


def test_a_run_without_ranges_shows_how_to_mark_them(recording):
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB)
    done = check(recording, "--max-peak", "scope:load=1GiB")
    assert done.returncode == 3 and "gpuspy.scope(\"load\")" in done.stderr and done.stderr.count("\n") == 1
    assert scopes(recording) == []


def test_a_scope_of_one_process_of_several(tmp_path, recording):
    for rank in 0, 1:
        with Rows(recording.folder / ("run.db" if rank == 0 else "run.101.db"), pid=100 + rank, rank=rank) as rows:
            rows.device()
            rows.block(1, (rank + 1) * GIB, None)
            add_range(rows, "save" if rank else "load", 2, 3)
            write_ranges(rows)
    assert check(recording, "--max-peak", "scope:save=2GiB").returncode == 0
    done = check(recording, "--max-peak", "scope:save=1GiB", "--max-peak", "scope:load=1GiB")
    assert done.returncode == 1 and "rank 1" in done.stdout and "'load'" in done.stdout
    assert check(recording, "--max-peak", "scope:other=1GiB").returncode == 3


@pytest.mark.parametrize("value", ["scope:", "scope:load", "scope:=1GiB", "scope:load=", "scope:load=many", "scope:load=-1", "scope:load=5%"])
def test_an_invalid_limit_is_a_usage_error(made, value):
    for words in (["--max-peak", value], ["--max-tensor-peak", value]):
        done = check(made, *words)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    (made.folder / "limits").write_text(f"max-peak = {value}\n")
    assert check(made, "--config", "limits").returncode == 2


def test_scopes_in_a_limits_file(made):
    limits = made.folder / "limits"
    limits.write_text("max-peak = scope:load=1MiB\nmax-peak = 1GiB\n")
    assert check(made, "--config", limits).returncode == 1
    limits.write_text("max-peak = scope:load=1MiB\nmax-peak = 1GiB\n[*.db]\nmax-peak = scope:load=off\n")
    done = check(made, "--config", limits)
    assert done.returncode == 0 and done.stdout.count("max-peak") == 1
    limits.write_text("max-peak = scope:load=1MiB\n[gpu 0]\nmax-peak = scope:load=1GiB\n")
    assert check(made, "--config", limits).returncode == 0


def test_relative_to_a_baseline(made, tmp_path):
    assert check(made, "--max-peak", "scope:load=+0%", "--baseline", made.database).returncode == 0
    assert check(made, "--max-peak", "scope:load=+5%").returncode == 2
    other = tmp_path / "other.db"
    with Rows(other) as rows:
        rows.device()
        rows.block(1, MIB, None)
        add_range(rows, "load", 2, 3)
        write_ranges(rows)
    done = check(made, "--max-peak", "scope:load=+10%", "--baseline", other)
    assert done.returncode == 1 and "1.10 MiB" in done.stdout


def test_names_of_any_kind(recording):
    names = ["a=b", "scope:x", "größer 语", "x" * 3000, " with blanks ", "\x1b[31mred", "aten::add, op_id",
             "a, b,c"]
    with Rows(recording.database) as rows:
        rows.device()
        rows.block(1, MIB, None)
        for i, name in enumerate(names):
            add_range(rows, name, 2 + i, 2.5 + i)
        write_ranges(rows)
    for name in names:
        done = check(recording, "--max-peak", f"scope:{name}=1MiB")
        assert done.returncode == 0, (name, done.stdout, done.stderr)
        assert "\x1b[31m" not in done.stdout
    done = check(recording, "--max-peak", "scope:\x1b[31mgreen=1MiB")
    assert done.returncode == 3 and "\x1b" not in done.stderr


# ---------------------------------------------------------------- recorded


def test_a_scope_around_the_first_cuda_call(recording):
    recording.python("""
import ctypes, gpuspy
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(n):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n << 20)) == 0
    return p
with gpuspy.scope("load"):
    a = allocate(4)
    cuda.cudaFree(allocate(3))
with gpuspy.scope("later"):
    allocate(1)
""", PYTHONPATH=PATHS)
    assert figures(recording, "load") == [(0, 7 * MIB, 0, 4 * MIB, 1, 0)]
    assert figures(recording, "later") == [(0, 5 * MIB, 4 * MIB, 5 * MIB, 1, 0)]
    assert check(recording, "--max-peak", "scope:load=7MiB", "--max-peak", "scope:later=5MiB").returncode == 0
    with sqlite3.connect(recording.database) as db:
        assert db.execute("SELECT count(*) FROM marks WHERE end_ns IS NULL").fetchone() == (0,)

# ---------------------------------------------------------------- a recording of bounded size

@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Scopes by name in full, bounded, and bounded until kill -9."""
    def of(name, *words, **more):
        recording = Recording(tmp_path_factory.mktemp(name))
        recording.run(BUILD / "programs" / "scoped", 1500000, *words, check=not words, GPUSPY_STACKS="none", **more)
        return recording
    return of("full"), of("kept", GPUSPY_KEEP="32MiB"), of("killed", "die", GPUSPY_KEEP="32MiB")


def by_name(recording):
    names = ("peak_bytes", "entry_bytes", "exit_bytes", "count", "open", "complete")
    return {s["name"]: [s[key] for key in names] for s in scopes(recording, "--top", "10000")}


@thread_sanitized("too slow for a recording of that size")
def test_a_bounded_recording_has_the_peaks_of_ranges_that_it_removed(mixture):
    full, kept, killed = map(by_name, mixture)
    assert mixture[1].report()["run"]["processes"][0]["kept_from_s"] > 0
    assert not mixture[1].sql("SELECT 1 FROM marks WHERE name='once'")
    assert full["once"][:3] == [(20 << 20) + 1, 1, 1] and len(full) > 6
    assert kept == full
    assert full["whole"][2] is not None and killed["whole"][2] is None
    for name in full:
        assert killed[name][:2] == full[name][:2] and killed[name][3] == full[name][3], name


@thread_sanitized("too slow for a recording of that size")
def test_what_a_bounded_recording_no_longer_has_is_not_shown(mixture):
    """Some rows of what was live then are gone: no figure, instead of one that is too small."""
    kept = mixture[1]
    from_s = kept.report()["run"]["processes"][0]["kept_from_s"]
    gone = [made_tree(kept, "once"), kept.gpuspy("tree", "--at", f"{from_s / 2}", kept.database)]
    gone += [kept.gpuspy("export", "-f", form, "--at", f"{from_s / 2}", "-o", "-", kept.database) for form in ("folded", "torch-snapshot")]
    for done in gone:
        assert done.returncode == 1 and done.stdout == "", done
        assert "this recording is bounded (GPUSPY_KEEP): the rows of what was live at " in done.stderr
    (early,) = [s for s in scopes(kept, "--top", "10000") if s["name"] == "early"]
    assert json.loads(made_tree(kept, "early", "--json").stdout)["total"] == early["peak_bytes"]
    assert "(no stack recorded)" in kept.gpuspy("tree", kept.database).stdout


@thread_sanitized("too slow for a recording of that size")
def test_sizes_and_lifetimes_say_of_how_many_allocations(mixture):
    for recording in mixture[:2]:
        device = json.loads(recording.gpuspy("stats", "--json", recording.database).stdout)["layers"]["device"]
        rows = device["allocations_with_rows"]
        assert sum(size["count"] for size in device["sizes"]) == rows
        thinned = f"{rows:,} of {device['allocations']:,} CUDA allocations (GPUSPY_KEEP: of the others only the sums are known)"
        text = " ".join(recording.gpuspy("stats", recording.database).stdout.split())
        assert (f"Sizes of {thinned}" in text) == (f"Lifetimes of {thinned}" in text) == (recording is mixture[1])
        assert ("largest ≥ " in text) == (recording is mixture[1])
        assert device["by_space"]["device"] == {"count": device["allocations"], "bytes": device["allocated_bytes"]}


@thread_sanitized("too slow for a recording of that size")
def test_what_only_the_kept_part_shows_says_so(mixture):
    full, kept, _ = mixture
    since = kept.report()["run"]["processes"][0]["kept_from_s"]
    texts = [" ".join(of.gpuspy("report", "--full", of.database).stdout.split()) for of in (full, kept)]
    for words in ("steps of [0-9.]+ ms", "Repeated cudaMalloc and cudaFree", r"Ranges that the program marks \(NVTX\)"):
        whole, thinned = (re.search(rf"{words}(?:, [0-9,]+ of them)?(?: after ([0-9.]+) (m?s)\b)?", text) for text in texts)
        assert whole[1] is None, words
        few = thinned is None and words.startswith("steps")  # too few of them are left to be steps
        assert few or float(thinned[1]) / (1000 if thinned[2] == "ms" else 1) == pytest.approx(since, rel=0.01), words
    diff = kept.gpuspy("diff", "--json", full.database, kept.database)
    figures = json.loads(diff.stdout)["figures"]
    assert figures["steps"]["before"] > 6 and figures["steps"]["after"] is None, figures
    ended = dict(kept.sql("SELECT name, count(*) FROM marks WHERE end_ns IS NULL OR end_ns >= (SELECT value FROM meta "
                          "WHERE key='kept_from_ns') GROUP BY name"))
    assert {m["name"]: m["count"] for m in kept.report("--top", "10000")["marks"]} == ended and "early" not in ended
    title = "each with its peak (not all of those before "
    drawn = [title in " ".join(of.gpuspy("timeline", of.database).stdout.split()) for of in (full, kept)]
    assert drawn == [False, True]


@thread_sanitized("too slow for a recording of that size")
def test_their_limits_are_checked(mixture):
    kept = mixture[1]
    assert check(kept, "--max-peak", "scope:once=21MiB,scope:whole=300MiB").returncode == 0
    assert check(kept, "--max-peak", "scope:whole=200MiB").returncode == 1
    done = check(kept, "--max-peak", "scope:once=15MiB")
    assert done.returncode == 1 and "range 'once' on GPU 0: 20.00 MiB" in " ".join(done.stdout.split()), done.stdout
    for name, has_rows in ("once", False), ("early", True):  # all lines of a peak, or none
        done = check(kept, "--max-peak", f"scope:{name}=1MiB", "--json", "--all")
        (failed,) = [c for c in json.loads(done.stdout)["checks"] if c["status"] == "failed"]
        assert sum(line["amount"] for line in failed["lines"]) == (failed["value"] if has_rows else 0), failed


@thread_sanitized("too slow for a recording of that size")
def test_what_an_older_gpuspy_removed_is_unknown(mixture, recording):
    """It kept no peaks: neither a limit that holds for what is left nor a name that is gone is an answer."""
    shutil.copy(mixture[1].database, recording.database)
    with sqlite3.connect(recording.database) as db:
        db.execute("DROP TABLE removed_scope")
    for name in "whole", "once":
        done = check(recording, "--max-peak", f"scope:{name}=10GiB")
        assert done.returncode == 1 and f"such as '{name}'" in " ".join(done.stdout.split()), done.stdout
    assert not any(s["complete"] for s in scopes(recording))
