"""Every view of a recording must give the same figures: bytes, counts, lines, times and the end of the run. The
recordings are those of the fixtures that run without PyTorch."""
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import BUILD
from exports import PROGRAM
from fixture_trace import PROGRAMS
from page import Page
from rows import MIB, Rows
from test_reports import torch_run
from test_sql import SCRIPT

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

MEMORY = ("device", "tensor", "pinned", "host")
EMPTY = re.compile("nothing was|no call of this run")
SCENARIOS = {s.name: s for s in scenarios(torch=False)}


def scenario(name):
    def make(recording):
        s = SCENARIOS[name]
        more = {**s.environment, "OOM_LIBRARIES": BUILD / "oom"}
        if s.path.suffix == ".c":
            return recording.run(BUILD / "oom" / name, check=False, **more)
        return recording.python(str(s.path), check=False, **more)
    return make


def program(name, *arguments):
    return lambda recording: recording.run(PROGRAMS / name, *arguments, check=False)


def python(script, *arguments, **more):
    return lambda recording: recording.python(script, *arguments, check=False, **more)


RUNS = {
    **{f"oom/{name}": scenario(name) for name in SCENARIOS},
    "runs out of memory": python("train_leak.py", SIMCUDA_MEMORY="2GiB"),
    "frees at the end": python("train_leak.py", 60, SIMCUDA_MEMORY="24GiB"),
    "exits without freeing": python(SCRIPT, SIMCUDA_MEMORY="2GiB"),
    "a short program": python(PROGRAM),
    "a C program": program("runtime_calls"),
    "driver calls": program("driver_calls"),
    "a loop in C": program("rounds", 30, "keep"),
    "rows of PyTorch": lambda recording: torch_run(recording.database, leaks=True),
    "rows of an OOM": lambda recording: torch_run(recording.database, leaks=True, asked=8 << 30),
}


class Views:
    """The output of each view for one recording; each runs once."""

    def __init__(self, recording):
        self.recording, self.known = recording, {}

    def json(self, *command):
        key = ("--json", *command)
        if key not in self.known:
            done = self.recording.gpuspy(command[0], "--json", *command[1:], self.recording.database)
            assert done.returncode == 0 or EMPTY.search(done.stderr), (command, done.stderr)
            self.known[key] = json.loads(done.stdout or '{"total": 0}')
        return self.known[key]

    def text(self, *command, codes=(0,)):
        if command not in self.known:
            done = self.recording.gpuspy(*command, self.recording.database)
            assert done.returncode in codes, (command, done.stderr)
            self.known[command] = done.stdout
        return self.known[command]

    @property
    def report(self):
        return self.json("report", "--top", "10000")

    def sql(self, query):
        done = self.recording.gpuspy("sql", "--json", self.recording.database, query)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @property
    def has_words(self):
        """False for rows made by hand: the SQL views need the tables of words."""
        return self.sql("select count(*) as n from layer")[0]["n"] > 0

    def is_listed(self, peak):
        """If a GPU has tensors, lists contain only them: docs/export.md."""
        return peak["layer"] in MEMORY and not (peak["layer"] == "device" and any(
            other["layer"] == "tensor" and device_of(other) == device_of(peak) for other in self.report["peak"]))

    def table(self, name):
        done = self.recording.gpuspy("export", "-f", "ndjson", "--tables", name, "-o", "-", self.recording.database)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def metrics(self):
        if "metrics" not in self.known:
            found = Counter()
            text = self.text("export", "-f", "openmetrics", "-o", "-")
            for name, labels, value in re.findall(r"^(gpuspy_\w+)\{(.*)\} (\S+)$", text, re.M):
                labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels))
                found[(name, labels.get("layer") or labels.get("direction") or labels.get("kind"),
                       int(labels.get("device", -1)))] += float(value)
            self.known["metrics"] = found
        return self.known["metrics"]

    def page(self):
        if "page" not in self.known:
            done = self.recording.gpuspy("report", "--html", "-", self.recording.database)
            assert done.returncode == 0, done.stderr
            self.known["page"] = Page(done.stdout).data()
        return self.known["page"]


@pytest.fixture(scope="module", params=RUNS)
def views(request, once):
    recording = once(request.param, RUNS[request.param])
    assert recording.database.exists()
    return Views(recording)


def device_of(entry):
    return -1 if entry["device"] is None else entry["device"]


def size_text(count):
    """As analyzer/base/units.c writes it."""
    value, units = float(count), iter(["B", "KiB", "MiB", "GiB", "TiB"])
    unit = next(units)
    while value >= (1024 if unit == "B" else 1023.995):
        value, unit = value / 1024, next(units)
    return f"{value:.0f} B" if unit == "B" else f"{value:.2f} {unit}"


def place(site):
    return (site["file"], site["line"] or None, site["function"]) if site else None


# ---------------------------------------------------------------- bytes and times

def test_the_peak(views):
    page = {(p["layer"], device_of(p)): p for p in views.page()["report"]["peak"]}
    lines = {(s["layer"], device_of(s)): s for s in views.json("timeline", "--host")["series"]}
    peaks = {(p["layer"], device_of(p)): p for p in views.table("peaks")}
    for peak in views.report["peak"]:
        if peak["layer"] not in MEMORY:
            continue
        layer, device = key = (peak["layer"], device_of(peak))
        figure = {
            "page": page[key]["bytes"], "timeline": lines[key]["peak_bytes"], "table": peaks[key]["bytes"],
            "metrics": views.metrics()[("gpuspy_peak_bytes", layer, device)],
            "by stack": sum(s["bytes"] for s in peak["by_stack"]), "by line": sum(s["bytes"] for s in peak["by_site"]),
        }
        if layer != "tensor" and device >= 0:
            figure["tree"] = views.json("tree", "--layer", layer, "--device", str(device))["total"]
            figure["list"] = views.json("table", "--layer", layer, "--device", str(device))["total"]
        assert set(figure.values()) == {peak["bytes"]}, (key, figure)
        if peak["bytes"] and layer != "host":
            assert size_text(peak["bytes"]) in views.text("report", "--full"), key
        times = {lines[key]["peak_time_s"], peaks[key]["time_ns"] / 1e9, peak["time_s"], page[key]["time_s"]}
        assert max(times) - min(times) < 1e-6, (key, times)
        counts = {peak["count"], peaks[key]["count"], sum(s["count"] for s in peak["by_stack"]),
                  sum(s["count"] for s in peak["by_site"])}
        assert len(counts) == 1, (key, counts)


def test_what_is_live_at_the_end(views):
    leaks, ends = Counter(), {}
    lines = {(s["layer"], device_of(s)): s for s in views.json("timeline", "--host")["series"]}
    peaks = {(p["layer"], device_of(p)): p for p in views.table("peaks")}
    stats = views.json("stats")["layers"]
    sql = {(r["layer"], r["device"] if r["layer"] != "pinned" else -1): r["bytes"] for r in views.sql(
        "select case when layer = 'device' and space = 'pinned' then 'pinned' else layer end as layer, device, "
        "sum(bytes) as bytes from leaks group by 1, 2")}
    for leak in views.json("leaks")["leaks"]:
        leaks[(leak["layer"], device_of(leak))] += leak["bytes"]
    for peak in views.report["peak"]:
        key = (peak["layer"], device_of(peak))
        if peak["layer"] not in MEMORY:
            continue
        ends[peak["layer"]] = ends.get(peak["layer"], 0) + peak["end_bytes"]
        figure = {"timeline": lines[key]["end_bytes"], "table": peaks[key]["end_bytes"],
                  "metrics": views.metrics()[("gpuspy_end_bytes", *key)]}
        if views.is_listed(peak):
            figure["leaks"] = leaks[key]
        if peak["layer"] in ("device", "tensor") and views.has_words:
            figure["sql"] = sql.get(key, 0)
        assert set(figure.values()) == {peak["end_bytes"]}, (key, figure)
    for layer, end in ends.items():
        assert stats[layer]["not_freed"]["bytes"] == end, layer
    assert views.json("leaks")["bytes"] == sum(leaks.values())


def test_counts_of_allocations(views):
    stats = views.json("stats")["layers"]
    made, freed = Counter(), Counter()
    for peak in views.report["peak"]:
        if peak["layer"] in MEMORY:
            made[peak["layer"]] += peak["allocations"]
            freed[peak["layer"]] += peak["frees"]
            assert views.metrics()[("gpuspy_allocations", peak["layer"], device_of(peak))] == peak["allocations"]
    assert {k: (v["allocations"], v["frees"]) for k, v in stats.items() if k in made} == {
        k: (made[k], freed[k]) for k in made}


def test_waits_and_copies(views):
    report, metrics = views.report, views.metrics()
    waits = sum(s["count"] for s in report["sync"])
    assert waits == sum(v for k, v in metrics.items() if k[0] == "gpuspy_waits")
    blocked = sum(s["blocked_s"] for s in report["sync"])
    assert blocked == pytest.approx(sum(v for k, v in metrics.items() if k[0] == "gpuspy_wait_seconds"), abs=1e-6)
    assert views.json("table", "--what", "waits")["total"] == pytest.approx(blocked, abs=1e-6)
    copies = Counter()
    for t in report["transfers"]:
        copies["count"] += t["count"]
        copies["bytes"] += t["bytes"]
    rows = views.sql("select count(*) as count, coalesce(sum(bytes), 0) as bytes from copies")[0]
    listed = views.table("copies")
    assert rows == {"count": copies["count"], "bytes": copies["bytes"]}
    assert (sum(r["count"] for r in listed), sum(r["bytes"] for r in listed)) == (copies["count"], copies["bytes"])
    assert copies["count"] == sum(v for k, v in metrics.items() if k[0] == "gpuspy_copies")
    assert views.json("table", "--what", "copies")["total"] == copies["bytes"]


def test_a_recording_differs_in_nothing_from_itself(views):
    done = views.recording.gpuspy("diff", "--json", views.recording.database, views.recording.database)
    assert done.returncode == 0, done.stderr
    diff = json.loads(done.stdout)
    assert not diff["rows"] and not diff["total"]["change"]
    assert all(not figure["change"] for figure in diff["figures"].values())


@pytest.mark.parametrize("sections", ["run", "oom", "ranks", "peak", "budget", "growth", "fragmentation", "leaks", "churn",
                                      "retries", "flushes", "sync", "transfers", "marks", "marks,leaks"])
def test_a_section_with_few_questions_equals_the_whole_report(views, sections):
    part = views.json("report", "--only", sections, "--top", "10000")
    assert len(part) > 1 and part == {key: views.report[key] for key in part}


def test_where_the_run_ends(views):
    """The end of the process in every view; a failure is a separate moment."""
    report = views.report
    ends = {"report": report["run"]["duration_s"], "stats": views.json("stats")["duration_s"],
            "timeline": views.json("timeline")["to_s"], "page": views.page()["report"]["run"]["duration_s"],
            "metrics": views.metrics()[("gpuspy_duration_seconds", None, -1)],
            "table": views.table("processes")[0]["duration_ns"] / 1e9}
    assert max(ends.values()) - min(ends.values()) < 1e-6, ends


def test_failures(views):
    report = views.report
    failed = [(o["requested_bytes"], o["device"], o["fatal"]) for o in report["oom"]]
    assert sorted(failed) == sorted((o["requested_bytes"], o["device"], o["fatal"]) for o in views.table("ooms"))
    assert sorted(failed) == sorted((o["requested_bytes"], o["device"], o["fatal"]) for o in views.page()["report"]["oom"])
    check = views.text("check", "--no-oom", codes=(0, 1))
    assert ("out of memory" in check) == any(fatal for _, _, fatal in failed)


# ---------------------------------------------------------------- lines

def lines_of(entries, value, site=lambda entry: entry["site"]):
    found = Counter()
    for entry in entries:
        found[place(site(entry))] += value(entry)
    return +found


def row_place(row):
    return (row["file"], row["line"], row["function"])


def test_lines_at_the_peak(views):
    """By line, whatever called it: in the tables of the exports and on the page."""
    rows = Counter()
    for row in views.table("sites"):
        rows[(row["layer"], device_of(row), *row_place(row))] += row["peak_bytes"]
    want = Counter()
    for peak in views.report["peak"]:
        if views.is_listed(peak):
            for site in peak["by_site"]:
                want[(peak["layer"], device_of(peak), *(place(site["site"]) or (None, None, None)))] += site["bytes"]
    assert +rows == +want


def test_lines_of_what_was_never_freed(views):
    if not views.has_words:
        pytest.skip("rows made by hand have no words")
    want = Counter()
    for leak in views.json("leaks")["leaks"]:
        if leak["layer"] in ("device", "tensor"):
            want[place(leak["site"])] += leak["bytes"]
    got = Counter()
    for row in views.sql("select * from leaks where layer in ('device', 'tensor') and space <> 'pinned'"):
        got[row_place(row)] += row["bytes"]
    assert got == want


def test_lines_of_waits_and_copies(views):
    report = views.report
    waits = lines_of(report["sync"], lambda s: s["count"])
    assert waits == sum((Counter({row_place(r): r["count"]}) for r in views.table("waits")), Counter())
    listed = {row_place(row) for row in views.sql("select * from sync_sites")}
    assert listed <= set(waits), listed - set(waits)
    copies = lines_of(report["transfers"], lambda t: t["count"])
    assert copies == sum((Counter({row_place(r): r["count"]}) for r in views.table("copies")), Counter())
    assert copies == sum((Counter({row_place(r): r["count"]}) for r in views.sql("select * from copy_sites")), Counter())


def test_the_report_and_the_command_that_it_names_agree_on_growth(views):
    """A growth or leak in the report is also found by the command that the report suggests."""
    growth, text = views.report["growth"], views.text("leaks")
    assert views.json("leaks")["growth"] == growth
    assert ("Keeps growing" in text) == bool(growth)
    for line in growth:
        assert size_text(line["bytes"]) in text
    if views.report["oom"] and views.report["oom"][0]["cause"] == "leak":
        assert views.report["oom"][0]["evidence"].get("growing_bytes") is None or growth


def test_top_names_the_same_lines(views):
    top = views.json("top", "--once")
    waits = {place(s["site"]) for s in views.report["sync"]}
    for process in top["processes"]:
        assert {place(w["site"]) for w in process["last_waits"]} <= waits


# ---------------------------------------------------------------- a row is a line

def two_paths(path):
    """Two lines call a third one that allocates, waits and copies."""
    with Rows(path) as r:
        r.device()
        ways = [r.stack(f"/home/me/train.py:{line} <module>", "/home/me/model.py:5 step") for line in (9, 12)]
        for k in range(400):
            r.block(.1 + k * .02, MIB, .001, ways[k % 4 == 0])
            r.sync(.11 + k * .02, .002, ways[k % 4 == 0])


def lists_of_lines(report):
    """By name: rows by line, rows by call path, and what distinguishes the rows of one line."""
    for peak in report["peak"]:
        yield f"peak {peak['layer']}", peak["by_line"], peak["by_site"], ()
    for oom in report["oom"]:
        yield "live", oom["live_lines"], oom["live"], ()
    yield "leaks", report["leak_lines"], report["leaks"], ("device", "pid", "layer", "growing")
    yield "churn", report["churn_lines"], report["churn"], ("pattern",)
    yield "retries", report["retry_lines"], [{"count": 1}] * len(report["retries"]), ()
    yield "sync", report["sync_lines"], report["sync"], ("kind", "pattern", "api")
    yield "transfers", report["transfer_lines"], report["transfers"], ("direction", "host_memory")


def row_per_line(report):
    for name, lines, paths, kind in lists_of_lines(report):
        for figure in ("bytes", "count"):
            if lines and figure in lines[0]:
                assert sum(row[figure] for row in lines) == sum(row[figure] for row in paths), (name, figure)
        keys = Counter((place(row["site"]) if not row["site"] or not row["site"]["at_exit"] else "exit",
                        *(row[k] for k in kind if k != "api" or not row["pattern"])) for row in lines)
        twice = [key for key, n in keys.items() if n > 1 and key[0] and key[0] != "exit" and key[0][1]]
        assert not twice, (name, twice)
        for row in lines:
            assert row["paths_total"] >= 1 and (row["paths_total"] > 1) == (len(row["paths"]) > 1), name
            if 1 < row["paths_total"] == len(row["paths"]):
                assert sum(p["count"] for p in row["paths"]) == row["count"], name


def test_a_row_is_a_line(views):
    row_per_line(views.report)


def test_call_paths_are_below_their_line(recording):
    two_paths(recording.database)
    report = recording.report()
    row_per_line(report)
    (waits,), (churn,) = report["sync_lines"], report["churn_lines"]
    for line in waits, churn:
        assert (line["site"]["line"], line["paths_total"]) == (5, 2)
        assert [p["site"]["caller"]["line"] for p in line["paths"]] == [9, 12]
    assert [p["count"] for p in waits["paths"]] == [300, 100] and churn["count"] < waits["count"] == 400
    assert len(report["churn"]) == len(report["sync"]) == 2
    text = recording.gpuspy("report", "--only", "churn,sync", recording.database).stdout
    assert text.count("model.py:5") == 2 and text.count("(2 call paths)") == 2 and "train.py" not in text
    text = recording.gpuspy("report", "--paths", "--only", "churn,sync", recording.database).stdout
    assert text.count("model.py:5") == 2 and text.count("← train.py:9") == text.count("← train.py:12") == 2


def test_what_is_live_at_the_end_has_a_row_for_each_line(recording):
    with Rows(recording.database) as r:
        r.device()
        for k, line in enumerate((9, 12, 9)):
            r.block(.1 + k, MIB, None, r.stack(f"/home/me/train.py:{line} <module>", "/home/me/model.py:5 step"))
    for command in "leaks", "report":
        text = recording.gpuspy(command, recording.database).stdout
        row = re.search(r"^ *3\.00 MiB +3 .*model\.py:5.*$", text, re.M)
        assert row and "(2 call paths)" in row[0], text
