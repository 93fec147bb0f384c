"""tree, table, stats, leaks, timeline and flame have the report's figures; sections of the report; terminals: width,
colour, pager, progress, malicious names."""
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
import unicodedata

import pytest

from conftest import BUILD, SECONDS
from rows import DEVICE, GIB, MIB, TENSOR, Rows

GPUSPY = str(BUILD / "gpuspy")
VIEWS = ["tree", "table", "stats", "leaks", "timeline", "flame"]
TORCH = "/usr/lib/python3/dist-packages/torch"
HOSTILE = "\u9b31\u9b31e\u0301\U0001f600\x1b[2J\x1b]0;owned\x07\u202e\x9b31m<b>"


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "LESS"))
           and k not in ("PAGER", "NO_COLOR", "COLUMNS", "COLORTERM", "TERM")}
    env.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
    env.update({k: str(v) for k, v in more.items()})
    return env


def gpuspy(*words, code=0, **env):
    done = subprocess.run([GPUSPY, *map(str, words)], env=environment(**env), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout if code == 0 else done.stderr


def data(*words):
    return json.loads(gpuspy(words[0], "--json", *words[1:]))


def terminal(*words, columns=80, rows=200, keys=b"", after=b"", code=0, **env):
    """What a user sees in a terminal: all that is written to it. `keys` are typed once `after` appears."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    child = subprocess.Popen([GPUSPY, *map(str, words)], env=environment(**env), stdin=slave, stdout=slave,
                             stderr=slave, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    seen, end = b"", time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                piece = os.read(master, 65536)
            except OSError:  # the last process has closed it
                break
            if not piece:
                break
            seen += piece
        elif keys and after in seen:
            os.write(master, keys)
            keys = b""
    child.wait(SECONDS)
    os.close(master)
    assert code is None or child.returncode == code, (child.returncode, seen)
    return seen.decode().replace("\r\n", "\n")


def plain(text):
    """Without colours and links (OSC 8)."""
    return re.sub(r"\x1b\[[0-9;]*m|\x1b\]8;;[!-~]*\x1b\\", "", text)


def width(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def train(path, name="step", complete=1, oom=False, rank=None, pid=100):
    """Weights that stay, a list that grows, activations that are allocated and freed; and pinned memory."""
    main = "/home/me/train.py:90 <module>"
    call = f"{TORCH}/nn/modules/module.py:1790 Module._call_impl"
    with Rows(path, seconds=20, complete=complete, rank=rank, pid=pid) as r:
        r.device()
        weights = r.stack(main, "/home/me/train.py:20 build", f"{TORCH}/nn/modules/linear.py:96 Linear.__init__")
        kept = r.stack(main, f"/home/me/train.py:48 {name}")
        attention = r.stack(main, f"/home/me/train.py:40 {name}", call, "/home/me/model.py:33 Block.forward", call,
                            f"{TORCH}/nn/modules/linear.py:134 Linear.forward")
        gelu = r.stack(main, f"/home/me/train.py:40 {name}", call, "/home/me/model.py:34 Block.forward",
                       f"{TORCH}/nn/functional.py:900 gelu")
        r.block(0.1, 4 * GIB, None, weights, DEVICE)
        r.reserved(0.1, 4 * GIB)
        r.block(0.2, 700 * MIB, None, weights, TENSOR)
        for i in range(50):
            at = 1 + i * 0.35
            r.block(at, 100 * MIB, .2, attention, TENSOR)
            r.block(at + .01, 50 * MIB, .1, gelu, TENSOR)
            r.block(at + .02, 10 * MIB, None, kept, TENSOR)
            r.sync(at + .3, .01, attention)
        if oom:
            r.oom(19, 30 * GIB, GIB, 24 * GIB, layer=TENSOR, allocated=1200 * MIB, reserved=4 * GIB, stack=kept)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("views") / "run.db"
    train(path)
    return path


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("hostile") / "run.db"
    train(path, name=HOSTILE)
    return path


def peak(report, layer="tensor"):
    return next(p for p in report["peak"] if p["layer"] == layer)


# ---------------------------------------------------------------- figures

def test_the_tree_sums_to_the_peak(run):
    tree, of = data("tree", run), peak(data("report", run))
    nodes = tree["nodes"]
    assert tree["total"] == of["bytes"] == nodes[0]["total"] and tree["count"] == of["count"]
    assert tree["unit"] == "bytes" and nodes[0]["parent"] is None and nodes[0]["frame"] is None
    assert sum(n["self"] for n in nodes) == of["bytes"]
    for number, node in enumerate(nodes):
        below = [n for n in nodes if n["parent"] == number]
        assert node["total"] == node["self"] + sum(n["total"] for n in below)
        assert node["count"] == node["self_count"] + sum(n["count"] for n in below)
    names = [n["frame"]["function"] for n in nodes[1:]]
    assert "Linear.__init__" in names and "Module._call_impl" in names


@pytest.mark.parametrize("what, layer, wanted", [
    ("peak", None, lambda r: peak(r)["bytes"]), ("peak", "device", lambda r: peak(r, "device")["bytes"]),
    ("leaks", None, lambda r: sum(x["bytes"] for x in r["leaks"])),
    ("allocated", None, lambda r: peak(r)["allocated_bytes"]),
    ("waits", None, lambda r: sum(x["blocked_s"] for x in r["sync"])),
])
def test_every_profile_is_the_reports(run, what, layer, wanted):
    words = ["--what", what] + (["--layer", layer] if layer else [])
    report = data("report", "--top", "1000", run)
    assert data("tree", *words, run)["total"] == pytest.approx(wanted(report))
    table = data("table", *words, run)
    assert sum(r["own"] for r in table["rows"]) == pytest.approx(wanted(report))
    assert data("flame", *words, run)["nodes"] == data("tree", *words, run)["nodes"]


def test_the_table_by_line_is_the_reports(run):
    rows = {(r["file"], r["line"]): r for r in data("table", run)["rows"]}
    sums = {}
    for s in peak(data("report", "--top", "1000", run))["by_site"]:
        key = s["site"]["file"], s["site"]["line"]
        sums[key] = sums.get(key, 0) + s["bytes"]
    assert {k: r["own"] for k, r in rows.items() if r["own"]} == sums
    main = rows["/home/me/train.py", 90]  # calls all others, allocates nothing itself
    assert main["own"] == 0 and main["total"] == sum(sums.values())
    assert rows["/home/me/model.py", 33]["own"] == 100 * MIB


def test_the_table_by_category_and_owner(run):
    report = data("report", run)
    rows = {r["category"]: r["own"] for r in data("table", "--by", "category", run)["rows"]}
    assert rows == {k: v for k, v in peak(report)["by_category"].items() if v}
    owners = data("table", "--by", "owner", run)
    assert owners["total"] == peak(report, "device")["bytes"]
    modules = {r["module"]: r["own"] for r in data("table", "--by", "module", run)["rows"]}
    assert modules["torch.nn.modules.linear"] == 800 * MIB and modules["torch.nn.functional"] == 50 * MIB
    assert modules["train"] == 500 * MIB


@pytest.mark.parametrize("sort, key", [("own", lambda r: -r["own"]), ("total", lambda r: -r["total"]),
                                       ("count", lambda r: -r["count"]),
                                       ("each", lambda r: -r["own"] / max(1, r["count"]))])
def test_the_table_is_sorted(run, sort, key):
    keys = [key(r) for r in data("table", "--sort", sort, run)["rows"]]
    assert keys == sorted(keys)


def test_stats_by_kind_of_memory(tmp_path):
    with Rows(tmp_path / "run.db") as r:
        r.device()
        r.block(1, 3 * MIB)
        r.block(2, 2 * MIB, layer=DEVICE + 1 * 4)  # managed
    text = gpuspy("stats", tmp_path / "run.db")
    rows = text.split("kind of GPU memory")[1].split("\n\n")[0].splitlines()[1:]
    assert [row.split() for row in rows] == [["cudaMalloc", "1", "3.00", "MiB"], ["managed", "1", "2.00", "MiB"]]


def test_stats_count_what_the_report_counts(run):
    stats, report = data("stats", run), data("report", "--top", "1000", run)
    for layer in ("tensor", "device"):
        got, of = stats["layers"][layer], peak(report, layer)
        assert (got["allocations"], got["frees"], got["allocated_bytes"]) == \
            (of["allocations"], of["frees"], of["allocated_bytes"])
        assert got["not_freed"]["bytes"] == of["end_bytes"]
        assert sum(s["count"] for s in got["sizes"]) == of["allocations"]
        assert sum(s["bytes"] for s in got["sizes"]) == of["allocated_bytes"]
        assert sum(s["count"] for s in got["lifetimes"]) == of["frees"]
    tensor = stats["layers"]["tensor"]
    assert {s["from_bytes"]: s["count"] for s in tensor["sizes"]} == {8 * MIB: 50, 32 * MIB: 50, 64 * MIB: 50,
                                                                     512 * MIB: 1}
    assert [s["from_s"] for s in tensor["lifetimes"]] == [pytest.approx(0.1)]
    assert tensor["largest_bytes"] == 700 * MIB
    assert sum(c["bytes"] for c in stats["by_category"]) == tensor["allocated_bytes"]
    assert sum(c["bytes"] for c in stats["most_bytes"]) == tensor["allocated_bytes"]
    assert stats["most_bytes"][0]["frame"]["line"] == 33


def test_leaks_are_the_reports(run):
    leaks, report = data("leaks", run), data("report", "--top", "1000", run)
    assert leaks["at_orderly_end"] is True
    assert sorted((x["bytes"], x["count"], x["growing"]) for x in leaks["leaks"]) == \
        sorted((x["bytes"], x["count"], x["growing"]) for x in report["leaks"])
    assert leaks["leaks"][0]["growing"] and leaks["leaks"][0]["site"]["line"] == 48
    assert [x["bytes"] for x in data("leaks", "--min", "600MiB", run)["leaks"]] == [700 * MIB]
    text = gpuspy("leaks", run)
    assert ", never freed: normal" in text and re.search(r"500\.00 MiB +50 +tensors .*grows +train.py:48", text)


@pytest.mark.parametrize("more, reported", [({"complete": 0}, "when the program died"),
                                        ({"oom": True}, "after it had run out of memory")])
def test_memory_of_a_killed_program_is_not_a_leak(tmp_path, more, reported):
    train(tmp_path / "run.db", **more)
    text = gpuspy("leaks", tmp_path / "run.db")
    assert reported in text.replace("\n", " ") and "never freed" not in text
    assert data("leaks", tmp_path / "run.db")["at_orderly_end"] is False


def test_nothing_left_is_stated(tmp_path):
    with Rows(tmp_path / "run.db") as r:
        r.device()
        r.block(1, MIB, 1, r.stack("/home/me/a.py:1 f"))
    assert "Nothing is still live at exit" in gpuspy("leaks", tmp_path / "run.db")


def test_the_timeline_has_the_peak(run):
    line, report = data("timeline", "--points", "137", run), data("report", run)
    assert [s["layer"] for s in line["series"]] == ["tensor", "device"]
    for series in line["series"]:
        of = peak(report, series["layer"])
        assert series["peak_bytes"] == of["bytes"] == max(p["high_bytes"] for p in series["points"])
        assert series["peak_time_s"] == pytest.approx(of["time_s"]) and series["end_bytes"] == of["end_bytes"]
        assert len(series["points"]) == 137
    tensors = line["series"][0]["points"]
    assert all(sum(p["by_category"].values()) == p["high_bytes"] >= p["low_bytes"] for p in tensors)
    top = max(tensors, key=lambda p: p["high_bytes"])
    assert top["by_category"] == {k: v for k, v in peak(report)["by_category"].items() if v}


def test_a_stretch_of_the_timeline(run):
    line = data("timeline", "--from", "10", "--to", "12", "--points", "20", run)
    points = line["series"][0]["points"]
    assert points[0]["start_s"] == 10 and points[1]["start_s"] == pytest.approx(10.1)
    assert 700 * MIB + 25 * 10 * MIB <= points[0]["low_bytes"] <= points[-1]["high_bytes"] <= 1200 * MIB
    assert "--to must be later" in gpuspy("timeline", "--from", "3", "--to", "2", run, code=2)


@pytest.mark.parametrize("columns", [40, 60, 80, 132])
def test_the_timeline_names_steps_that_share_a_column(tmp_path, columns):
    with Rows(tmp_path / "run.db", seconds=20000) as r:
        r.device()
        kept, step = (r.stack("/home/me/train.py:90 <module>", f"/home/me/train.py:{line} step") for line in (40, 48))
        r.block(0.1, GIB, None, kept)
        r.db.execute("INSERT INTO mark_name VALUES(1, 'train_step')")
        for i in range(50):
            r.block(1 + i * .1, 100 * MIB, .05, step)
            r.db.execute("INSERT INTO mark(kind,name,start_ns,life_ns,thread_id) VALUES(0,1,?,80000000,2)", (10**9 + i * 10**8,))
    assert data("report", tmp_path / "run.db")["steps"][0]["n"] == 50
    assert "50 steps of" in " ".join(gpuspy("timeline", tmp_path / "run.db", COLUMNS=str(columns)).split())


def test_a_file_that_is_named_twice_counts_once(tmp_path):
    """Under the same name, through another path, a link, or the folder that contains it."""
    train(tmp_path / "run.db")
    once = data("report", tmp_path / "run.db")
    (tmp_path / "latest.db").symlink_to("run.db")
    for words in ([tmp_path / "run.db"] * 2, [tmp_path / "run.db", tmp_path / "../" / tmp_path.name / "run.db"],
                  [tmp_path / "latest.db", tmp_path / "run.db"], [tmp_path], [tmp_path, tmp_path], [tmp_path / "run.db", tmp_path]):
        twice = data("report", *words)
        assert twice["peak"] == once["peak"] and len(twice["run"]["processes"]) == 1, words


def test_text_has_the_figures(run):
    of = peak(data("report", run))
    for view in ("tree", "table", "flame"):
        text = gpuspy(view, run)
        assert text.startswith(f"Live at the peak: {of['bytes'] / GIB:.2f} GiB in {of['count']} blocks, tensors on GPU 0")
    tree = gpuspy("tree", run)
    assert "_call_impl" not in tree and "_call_impl" in gpuspy("tree", "--full", run)
    assert re.search(r"500\.00 MiB +37 % .*train.py:48 step", tree)


def test_moments_and_limits(run):
    early = data("tree", "--at", "0.5", run)
    assert early["total"] == 700 * MIB and early["moments_s"] == [0.5]
    assert subprocess.run([BUILD / "gpuspy", "tree", "--at", "9999", run], capture_output=True, text=True).stderr.startswith("gpuspy: tree: the recording ends after ")
    assert len(data("tree", "--depth", "2", run)["nodes"]) < len(data("tree", run)["nodes"])
    assert all(n["total"] >= 100 * MIB for n in data("tree", "--min", "100MiB", run)["nodes"])
    assert gpuspy("tree", "--depth", "1", run).count("\n") == 3


@pytest.mark.parametrize("words, reported, code", [
    (["tree", "--what", "oom"], "memory did not run out", 1), (["table", "--what", "copies"], "nothing was copied", 1),
    (["tree", "--at", "x"], "neither a number of seconds", 2), (["table", "--at", "oom"], "use --what oom", 2), (["tree", "--at", "1", "--what", "peak"], "not both", 2),
    (["tree", "--min", "5x%"], "not a share", 2), (["flame", "--min", "blah"], "is not a", 2),
    (["table", "--what", "waits", "--by", "owner"], "have no owner", 2), (["table", "--by", "lien"], "'line'", 2),
    (["tree", "--rank", "3"], "this run has no rank 3", 1), (["leaks", "--process", "7"], "it has process 100", 1),
    (["report", "--only", "oom,peek"], "did you mean 'peak'", 2), (["stats", "--color", "alway"], "'always'", 2),
])
def test_wrong_words(run, words, reported, code):
    line = gpuspy(*words, run, code=code)
    assert reported in line and re.fullmatch(r"gpuspy: [^\n]+\n", line)


def test_processes_are_chosen(tmp_path):
    train(tmp_path / "run.db", rank=0, pid=100)
    train(tmp_path / "run.200.db", rank=1, pid=200, oom=True)
    both, one = data("table", tmp_path), data("table", "--rank", "1", tmp_path)
    assert both["total"] == 2 * one["total"] and [p["pid"] for p in one["processes"]] == [200]
    assert "sum of 2 processes" in gpuspy("table", tmp_path).replace("\n ", "")
    charts = gpuspy("timeline", tmp_path)
    assert charts.index("rank 0, GPU 0") < charts.index("rank 1, GPU 0")
    assert data("tree", "--what", "oom", tmp_path)["total"] == 1200 * MIB  # memory of the failed process at that moment


@pytest.mark.parametrize("command", ["report", *VIEWS])
def test_each_command_chooses_equally(tmp_path, command):
    train(tmp_path / "run.db", rank=0, pid=100)
    train(tmp_path / "run.200.db", rank=1, pid=200)
    for words in (["--rank", "1"], ["-r", "1"], ["--process", "200"], ["-p", "200"]):
        answer = data(command, *words, tmp_path)
        answer = answer["run"] if command == "report" else answer
        assert [p["pid"] for p in answer["processes"]] == [200]
    assert data(command, "-d", "0", tmp_path)
    for words, reported in [(["--rank", "2"], "this run has no rank 2; it has processes 100 (rank 0), 200 (rank 1)"),
                        (["-d", "5"], "this run has no GPU 5; it has GPU 0")]:
        line = gpuspy(command, *words, tmp_path, code=1)
        assert reported in line and re.fullmatch(r"gpuspy: [^\n]+\n", line)


@pytest.mark.parametrize("words", [*([view] for view in VIEWS), ["diff", "{db}"], ["check", "--max-peak", "1TiB"], ["top"]])
def test_a_view_names_itself_and_its_recording(run, words):
    answer = data(*(word.format(db=run) for word in words), run)
    assert answer["view"] == words[0]
    assert answer["command"] == data("report", run)["run"]["command"]


# ---------------------------------------------------------------- sections of the report

def test_sections(run):
    whole = gpuspy("report", "--full", run)
    part = gpuspy("report", "--only", "sync,leaks", run)
    assert part.startswith("Never freed") and "\nWaiting for the GPU" in part and "Next" not in part
    for block in part.strip().split("\n\n"):
        assert block.strip("\n") in whole
    assert len(part) < len(whole) / 2
    assert set(data("report", "--only", "sync", run)) == {"schema", "sync", "sync_lines", "sync_share", "calls"}
    full = data("report", run)
    assert data("report", "--only", "peak", run)["peak"] == full["peak"]


@pytest.mark.parametrize("width", [60, 100])
@pytest.mark.parametrize("words", [["report"], ["report", "--full"], *([view] for view in VIEWS), ["tree", "--what", "waits"],
                                   ["diff", "{run}"], ["check", "--max-peak", "1TiB"], ["top", "--once"], ["whatif"],
                                   ["whatif", "--limit", "64GiB"]], ids=" ".join)
def test_no_view_prints_an_empty_line_where_it_separates_nothing(tmp_path, words, width):
    """Neither as the first line, nor as the last one, nor twice."""
    train(tmp_path / "run.db", oom=True)
    words = [str(tmp_path / "run.db") if word == "{run}" else word for word in words]
    text = gpuspy(*words, tmp_path / "run.db", COLUMNS=width)
    assert text.strip() and not text.startswith("\n") and "\n\n\n" not in text and not text.endswith("\n\n"), text


def test_one_screen_omits_rows_below_a_thousandth(tmp_path):
    with Rows(tmp_path / "run.db") as r:
        r.device()
        for line, size in enumerate((4 * GIB, 2 * GIB, 3 * MIB, 1 * MIB), 10):
            r.block(0.1 * line, size, None, r.stack(f"/home/me/train.py:{line} step"))
    brief, whole = gpuspy("report", tmp_path / "run.db"), gpuspy("report", "--full", tmp_path / "run.db")
    for line, shown in (10, True), (11, True), (12, False), (13, False):
        assert (f"train.py:{line}" in brief) == shown and f"train.py:{line}" in whole, brief


def test_each_section_can_be_the_only_one(tmp_path):
    train(tmp_path / "run.db", oom=True)
    words = re.search(r"one of (.*)", gpuspy("report", "--only", "x", tmp_path / "run.db", code=2))[1].split(", ")
    assert {"oom", "peak", "sync", "leaks", "growth", "advice", "run"} <= set(words)
    for word in words:
        text = gpuspy("report", "--only", word, tmp_path / "run.db")
        assert not text.startswith("\n")
    assert "OUT OF MEMORY" in gpuspy("report", "--only", "oom", tmp_path / "run.db")
    keys = set(data("report", tmp_path / "run.db"))
    assert keys == set(data("report", "--only", ",".join(words), tmp_path / "run.db"))  # each key is in a section


def test_missing_data_is_stated_whatever_is_chosen(tmp_path):
    train(tmp_path / "run.db", complete=0)
    for words in (["report", "--only", "sync"], ["tree"], ["stats"], ["timeline"]):
        text = gpuspy(*words, tmp_path / "run.db")
        assert text.startswith("! the program was killed, crashed or called _exit")


def test_a_kernel_of_a_notebook_ends_as_its_front_end_wants(tmp_path):
    train(tmp_path / "run.db", complete=0)
    with sqlite3.connect(tmp_path / "run.db") as db:
        db.execute("UPDATE process SET command = 'python3 -m ipykernel_launcher -f kernel.json'")
    assert "killed" not in gpuspy("report", tmp_path / "run.db").lower()
    assert data("report", tmp_path / "run.db")["run"]["processes"][0]["kernel"] is True


def test_long_names_are_shortened_where_they_say_least(tmp_path):
    """A C++ function has no template arguments in sentences, but in JSON; a file's name is never cut."""
    kernel = "void at::native::vectorized_kernel<4, " + "std::array<char*, 3ul>, " * 20 + "int>(int, float)"
    name = "a_very_long_name_of_a_module" * 4
    with Rows(tmp_path / "run.db") as r:
        r.device()
        frame = r.db.execute("INSERT INTO frame(kind, function, file, line) VALUES(1, ?, '/src/my kernels.cu', 12)", (kernel,)).lastrowid
        stack = r.db.execute("INSERT INTO stack(frame_id, depth) VALUES(?, 1)", (frame,)).lastrowid
        for line in f"/home/me/{name}.py:12345", "/home/me/train.py:2":
            r.block(1, GIB, None, r.stack("/home/me/train.py:1 main", f"{line} step"))
        r.oom(2, 30 * GIB, GIB, 24 * GIB, stack=stack)
    text = re.sub(r"\s+", " ", gpuspy("report", tmp_path / "run.db"))
    assert "at my kernels.cu:12 in at::native::vectorized_kernel " in text and "std::array" not in text
    assert kernel in json.dumps(data("report", tmp_path / "run.db")["oom"])
    assert f"{name}.py:12345" in gpuspy("tree", tmp_path / "run.db")


# ---------------------------------------------------------------- terminals

@pytest.mark.parametrize("columns", [40, 80, 200, 300])
@pytest.mark.parametrize("view", VIEWS + ["report"])
def test_nothing_is_wider_than_the_terminal(run, hostile, view, columns):
    for database in (run, hostile):
        text = plain(terminal(view, "--no-pager", database, columns=columns))
        for line in re.sub(r"^  (export run=|gpuspy (.* \\\n)*).*", "", text, flags=re.M).splitlines():  # paths of commands are whole
            assert width(line) <= columns, line


@pytest.mark.parametrize("view", VIEWS + ["report"])
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_names_cannot_drive_the_terminal(hostile, view, locale):
    """Every escape sequence is a colour written by gpuspy; with a plain locale, all output is ASCII."""
    for text in (terminal(view, "--no-pager", hostile, LC_ALL=locale), gpuspy(view, hostile, LC_ALL=locale)):
        rest = plain(text)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", rest), rest
        assert locale != "C" or rest.isascii()
    if view == "table":
        assert ("\u9b31\u9b31" in gpuspy(view, hostile, LC_ALL=locale)) == (locale != "C")


@pytest.mark.parametrize("view", VIEWS + ["report"])
def test_colour(run, view):
    assert "\x1b[" in terminal(view, "--no-pager", run)
    assert "\x1b" not in terminal(view, "--no-pager", run, NO_COLOR="1")
    assert "\x1b" not in terminal(view, run, TERM="dumb")
    assert "\x1b" not in terminal(view, "--no-pager", "--color=never", run)
    assert "\x1b" not in gpuspy(view, run)
    assert "\x1b[" in gpuspy(view, "--color=always", run)
    assert "\x1b[" in terminal(view, "--no-pager", "--color=always", run, NO_COLOR="1")


def test_columns_of_the_environment(run):
    assert max(map(width, gpuspy("timeline", run, COLUMNS="60").splitlines())) == 60
    assert max(map(width, plain(terminal("timeline", "--no-pager", run, columns=80, COLUMNS="120")).splitlines())) == 120


def test_a_flame_graph_fills_the_width(run):
    lines = terminal("flame", "--no-pager", run, columns=100, NO_COLOR="1").splitlines()
    root = next(line for line in lines if line.startswith("│all"))
    below = lines[lines.index(root) + 1]
    assert width(root) == 100 and below.startswith("│train.py:90 <module>  100 %")
    assert gpuspy("flame", run).count("│") == 0  # no indentation lines if the output is not a terminal


# ---------------------------------------------------------------- the pager

PAGER = ["--color=never"]


def test_the_pager_gets_all(run, tmp_path):
    out = tmp_path / "paged"
    seen = terminal("tree", *PAGER, run, PAGER=f"cat > {out}; exit 7")
    assert seen == "" and out.read_text() == terminal("tree", "--no-pager", *PAGER, run)
    terminal("tree", *PAGER, run, PAGER="false", GPUSPY_PAGER=f"cat > {out}2")
    assert (tmp_path / "paged2").read_text() == out.read_text()


@pytest.mark.parametrize("env", [{"PAGER": ""}, {"PAGER": "cat"}, {"GPUSPY_PAGER": "", "PAGER": "false"}])
def test_no_pager(run, env):
    assert "Live at the peak" in terminal("tree", run, **env)


def test_a_pager_that_is_not_there(run):
    seen = terminal("tree", run, PAGER="frobnicate-pager -x")
    assert "program 'frobnicate-pager -x' not found" in seen and "Live at the peak" in seen


def test_never_without_a_terminal(run):
    assert "Live at the peak" in gpuspy("tree", run, PAGER="false")


def test_leaving_a_pager_early_is_not_an_error(run):
    for pager in ("head -c 10 >/dev/null", "true"):
        for words in (["report", "--full"], ["report", "--json"], ["tree"], ["tree", "--json"]):
            assert terminal(*words, run, PAGER=pager) == ""  # no error message, and status 0


def test_the_answers_status_and_ctrl_c(run, tmp_path):
    """Ctrl-C in a pager is handled by the pager: the program waits for it and ends with its usual status."""
    script = tmp_path / "pager"
    script.write_text(f"#!{sys.executable}\nimport signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: None)\n"
                      "text = sys.stdin.read()\nprint('ready', flush=True)\nsys.stdin = open('/dev/tty')\n"
                      "line = sys.stdin.readline()\nprint('left', len(text) > 0, flush=True)\n")
    script.chmod(0o755)
    seen = terminal("tree", run, PAGER=script, keys=b"\x03\n", after=b"ready")
    assert "ready" in seen and "left True" in seen


def test_less_where_it_is(run):
    if not any(os.access(f"{d}/less", os.X_OK) for d in os.environ["PATH"].split(":")):
        pytest.skip("no less here")
    short = terminal("tree", run, rows=200)  # it fits: less prints it and exits
    assert "Live at the peak" in plain(short)
    long = terminal("stats", run, rows=10, keys=b"q", after=b"events")
    assert "Allocations" in plain(long) or "events" in plain(long)


# ---------------------------------------------------------------- progress

def test_progress_is_shown_and_removed(tmp_path):
    path = tmp_path / "long.db"
    with Rows(path, seconds=100) as r:
        r.device()
        stacks = [r.stack("/home/me/a.py:1 f", f"/home/me/a.py:{i} g") for i in range(2, 50)]
        r.db.execute("CREATE TEMP TABLE of(place INTEGER PRIMARY KEY, stack)")
        r.db.executemany("INSERT INTO of VALUES(?,?)", enumerate(stacks))
        r.db.execute("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT 2000000) "
                     "INSERT INTO allocation_row(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) "
                     "SELECT ?, 0, 512 + i % 4096, i * 20000, 10000000 * (1 + i % 7), 0, stack FROM n JOIN of ON place = i % 48",
                     (DEVICE + 32 + 4096,))
    for view in ("stats", "report"):
        seen = terminal(view, "--no-pager", path)
        if "reading" in seen:  # a fast machine prints no progress
            assert re.search(r"gpuspy: reading [\d,]+ (of [\d,]+ allocations \(\d+ %\)|stacks)\x1b\[K", seen)
            after = seen[seen.rindex("gpuspy: reading"):]
            assert "\r\x1b[K" in after
        assert "reading" not in terminal(view, "--no-pager", path, TERM="dumb")
    done = subprocess.run([GPUSPY, "stats", path], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stderr == b""


def test_a_run_on_the_cpu_only(recording):
    """It has only tensors: they are shown without a further option."""
    with Rows(recording.database) as r:
        r.block(1, 5 * MIB, 3, r.stack("train.py:3 main"), layer=2, device=-1)
    for command in "tree", "table", "timeline", "flame", "stats":
        done = recording.gpuspy(command, recording.database)
        assert done.returncode == 0 and "CPU tensors" in done.stdout and "5.00 MiB" in done.stdout, command
    assert json.loads(recording.gpuspy("tree", "--json", recording.database).stdout)["nodes"][0]["total"] == 5 * MIB
