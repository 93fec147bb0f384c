"""`gpuspy report --html` without a browser: the file, its content policy, and its data, read by an independent decoder
and compared with plain SQL on the database and with the JSON report. How the page shows it: tests/browser."""
import base64
import bisect
import hashlib
import os
import pty
import random
import re
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
from conftest import BUILD, sanitized
from page import Page, agrees, each_sums, numbers, restored, sums
from rows import GIB, MIB, TENSOR, Rows
from test_reports import torch_run

LAYERS = {"device": 0, "tensor": 1}


def page_of(recording, *arguments, of=None):
    out = recording.folder / "out.html"
    done = recording.gpuspy("report", "--html", out, *arguments, of or recording.database)
    assert done.returncode == 0 and not done.stdout, done.stderr
    assert re.fullmatch(rf"gpuspy: report: wrote {re.escape(str(out))}\b.*browser.*\n", done.stderr), done.stderr
    return Page(out.read_text(encoding="utf-8"))


RUNS = {"oom": lambda recording: recording.python("train_leak.py", SIMCUDA_MEMORY="2GiB", check=False),
        "leaks": lambda recording: torch_run(recording.database, leaks=True, asked=8 * GIB),
        "clean": lambda recording: torch_run(recording.database, leaks=False, asked=0)}


@pytest.fixture(scope="module", params=RUNS)
def run(once, request):
    return once(f"html {request.param}", RUNS[request.param])


def test_nothing_is_fetched_and_nothing_else_can_run(run):
    page = page_of(run)
    (policy,) = [a["content"] for tag, a in page.elements if tag == "meta" and
                 a.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'"
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    for tag, attributes, text in page.texts:
        if tag != "title" and attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in rules[f"{tag}-src"], tag
    assert rules["script-src"].count("sha256") == sum(tag == "script" for tag, _, _ in page.texts) - 1
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base", "form"), tag
        assert not any(name.startswith("on") or name in ("src", "style") for name in attributes), (tag, attributes)


def test_the_report_inside_is_the_report(run):
    data = page_of(run, "--top", "40").data()
    expected = run.report("--top", "40")
    assert restored(data) == expected
    assert data["categories"][-1] == "unknown" and data["source"] == "run.db"


def test_moments_agree_with_sql(run):
    data = page_of(run).data()
    serieses = each_sums(data)
    agrees(run.report("--top", "200"), data, serieses)
    chance = random.Random(1)
    compared = 0
    for s in serieses:
        if s.given["layer"] not in LAYERS:
            continue
        for i in chance.sample(range(len(s.time)), min(40, len(s.time))):
            # several events may have the same nanosecond: the moment may be between them
            ((same,),) = run.sql("SELECT count(*) FROM allocation_row WHERE alloc_ns = ?1 OR alloc_ns + life_ns = ?1", s.time[i])
            if same > 1:
                continue
            # an allocation that is freed at the moment itself does not count as live
            ((live, count),) = run.sql(
                "SELECT coalesce(sum(bytes), 0), count(*) FROM allocation WHERE layer = ? AND space NOT IN (2, 6, 7) AND "
                "device = ? AND alloc_ns <= ? AND (free_ns IS NULL OR free_ns > ?)",
                LAYERS[s.given["layer"]], s.given["device"], s.time[i], s.time[i])
            assert s.high[i] == live and sum(n for _, n in s.states[i].values()) == count
            compared += 1
    assert compared > 10


def compare_single_allocations(run):
    """Each line lists its largest allocations, twelve at most, and they are those of the database. Returns how many lines
    and moments were compared."""
    compared = 0
    for s in each_sums(page_of(run).data()):
        if s.given["layer"] not in LAYERS:
            continue
        known = set(run.sql("SELECT alloc_ns, free_ns, bytes FROM allocation WHERE layer = ? AND device = ?",
                            LAYERS[s.given["layer"]], s.given["device"]))
        singles = s.singles()
        assert all(one[:3] in known for ones in singles.values() for one in ones)
        for i in range(0, len(s.time), max(1, len(s.time) // 40)):
            ((same,),) = run.sql("SELECT count(*) FROM allocation_row WHERE alloc_ns = ?1 OR alloc_ns + life_ns = ?1", s.time[i])
            if same > 1:
                continue
            for number, (nbytes, count) in s.states[i].items():
                live = [b for at, freed, b, _ in singles[number] if at <= s.time[i] and (freed is None or freed > s.time[i])]
                assert len(live) >= min(12, count) and sum(live) <= nbytes and (len(live) < count or sum(live) == nbytes)
                compared += 1
    assert "ingle allocations" not in page_of(run).data()["resolution"]["text"]
    return compared


def test_single_allocations_at_every_moment(run):
    assert compare_single_allocations(run) > 20


def test_a_block_that_outlives_many_as_large_is_listed(recording):
    """Within one bucket of the page, a line frees more blocks than it has candidates, and keeps one as large or smaller."""
    with Rows(recording.database, seconds=40) as r:
        r.device()
        stack = r.stack("/home/me/train.py:9 <module>")
        for i in range(120000):
            size, life = ((1 << 20) - i % 3 * 512, .1) if i % 50 == 49 else (1 << 20, 1e-4)
            r.block(i * 3e-4, size, life, stack, TENSOR, address=(i + 1) << 20)
    assert compare_single_allocations(recording) > 20


def test_single_allocations_of_many_paths_are_those_of_the_largest(recording):
    """Their part of the page is bounded: the call paths that hold most keep theirs, and the page states the rest."""
    with Rows(recording.database, seconds=40) as r:
        r.device()
        stacks = [r.stack("/home/me/train.py:9 <module>", f"/home/me/model.py:{i + 1} layer{i}") for i in range(300)]
        for i in range(120000):  # the size of a stack's blocks is its number
            r.block(i * 3e-4, (i % 300 + 1) * 512, .3, stacks[i % 300], TENSOR, address=(i + 1) << 20)
    data = page_of(recording).data()
    (s,) = each_sums(data)
    assert sum(len(s.given["singles"][key]) for key in ("line", "at", "lived", "bytes", "stack")) <= 3 << 19
    listed = {ones[0][2] // 512 for ones in s.singles().values()}
    assert 20 < len(listed) < 300 and max(listed) == 300 and min(sorted(listed)[-20:]) == 281
    assert " Single allocations of smaller call paths are shown only at the peak and at failures." in data["resolution"]["text"]


def test_a_moment_at_the_failure(recording):
    torch_run(recording.database, leaks=True, asked=8 * GIB)
    data = page_of(recording).data()
    report = restored(data)
    (oom,) = report["oom"]
    (event,) = [e for e in data["events"] if e["kind"] == "oom"]
    assert event["time"] == oom["time_s"] and event["text"] == oom["verdict"] and event["fatal"]
    (tensors,) = [s for s in each_sums(data) if s.given["layer"] == "tensor"]
    assert int(oom["time_s"] * 1e9) in tensors.time
    at = bisect.bisect_right(tensors.time, int(oom["time_s"] * 1e9)) - 1
    assert tensors.high[at] == oom["tensor_allocated_bytes"]
    (steps,) = data["steps"]
    assert len(numbers(steps["starts"])) == steps["n"] + 1


def test_a_long_run_is_thinned_and_states_so(recording):
    with Rows(recording.database) as r:
        r.device()
        stacks = [r.stack("/home/me/train.py:9 <module>", f"/home/me/model.py:{i + 1} layer{i}") for i in range(300)]
        chance = random.Random(2)
        for i in range(60000):
            r.block(i * 1e-4, chance.randrange(1, 64) * 512, chance.random() * .5, stacks[chance.randrange(300)], TENSOR,
                    address=(i + 1) << 20)
    page = page_of(recording)
    data = page.data()
    (series,) = each_sums(data)
    agrees(recording.report("--top", "200"), data, [series])
    assert 1000 < len(series.time) < 3000 and "120,000 allocations and frees" in data["resolution"]["text"]
    assert "peaks are exact" in data["resolution"]["text"]
    peak, gaps = series.given["peak"], [b - a for a, b in zip(series.time, series.time[1:])]
    near = sorted(gaps[peak - 20:peak + 20])[20]
    assert near < sorted(gaps)[len(gaps) // 2] / 5  # sampled more densely


def test_marks_and_calls(recording):
    recording.python("""
from minicuda import Runtime, Tensor
runtime = Runtime()
for i in range(50):
    t = Tensor(runtime, 1 << 20)
    t.copy_from(bytes(4096))
    t.item()
""")
    data = page_of(recording).data()
    report = restored(data)
    waits = [c for c in data["calls"] if c["kind"] == "sync"]
    copies = [c for c in data["calls"] if c["kind"] == "copy"]
    assert sum(c["count"] for c in waits) == sum(s["count"] for s in report["sync"])
    assert abs(sum(c["ns"] for c in waits) / 1e9 - sum(s["blocked_s"] for s in report["sync"])) < 1e-6
    assert sum(c["bytes"] for c in copies) == sum(t["bytes"] for t in report["transfers"])
    for c in data["calls"]:
        assert sum(numbers(c["counts"])) == c["count"] and sum(numbers(c["blocked"])) == c["ns"]
        assert data["strings"][c["site"] - 1].startswith(("script.py:", "minicuda.py:", "at interpreter exit"))


def test_calls_of_a_bounded_recording_have_times_that_fit(recording):
    """Copies were removed whose waits are recorded: the waits are known to be whole only at the end."""
    recording.python("""
import time
from minicuda import Runtime, Tensor
runtime = Runtime()
t = Tensor(runtime, 1 << 20)
for i in range(60):
    t.item()
    time.sleep(.002)
""")
    db = sqlite3.connect(recording.database)
    db.executescript((Path(__file__).parents[2] / "schema" / "keep.sql").read_text())
    db.execute("UPDATE copy_row SET stack_id = (SELECT stack_id FROM sync ORDER BY id DESC LIMIT 1)")  # one line does both
    (border, last), = db.execute("SELECT start_ns, id FROM copy_row ORDER BY id LIMIT 1 OFFSET 30")
    db.execute(f"""INSERT INTO removed SELECT 1, (kind & 16777215) + ((bytes > 16) + (bytes > 65536) << 24), stack_id,
                   count(*), sum(bytes), sum(blocked_ns), 0 FROM copy_row WHERE id < {last} GROUP BY 2, 3""")
    db.execute(f"DELETE FROM copy_row WHERE id < {last}")
    db.execute(f"INSERT INTO meta VALUES('kept_from_ns', {border}), ('keep', 33554432)")
    db.commit()
    db.close()
    data = page_of(recording).data()
    (waits,) = (c for c in data["calls"] if c["kind"] == "sync" and c["count"] == 60)
    assert min(numbers(waits["length"])) >= 0 and len(numbers(waits["first"])) > 30
    starts = sums(waits["first"])
    assert starts == sorted(starts)


def test_ranks_have_series_of_their_own(recording):
    for i in range(3):
        with Rows(recording.folder / f"run.{i}.db", pid=100 + i, rank=i) as r:
            r.device(i)
            at = r.stack("/home/me/train.py:9 <module>")
            for k in range(20):
                r.block(k * .1, (i + 1) * MIB, .25, at, device=i)
    data = page_of(recording, of=recording.folder).data()
    assert sorted(s["label"] for s in data["series"]) == [f"rank {i}, GPU {i}, CUDA allocations" for i in range(3)]
    for s in each_sums(data):
        assert max(s.high) == (s.given["rank"] + 1) * 3 * MIB
    assert len(data["maps"]) == 3
    only = page_of(recording, "--device", "1", of=recording.folder).data()
    assert [s["device"] for s in only["series"]] == [1]
    budget = restored(page_of(recording, "--params", "1e6", of=recording.folder).data())["budget"]
    assert budget["estimate"]["total_bytes"] == 16e6


def test_the_same_twice_and_through_a_pipe(run):
    out = run.folder / "out.html"
    page_of(run)
    first = out.read_bytes()
    page_of(run)
    assert out.read_bytes() == first
    piped = run.gpuspy("report", "--html", "-", run.database)
    assert piped.returncode == 0 and piped.stdout.encode() == first and not piped.stderr


def test_refusals(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(.1, MIB)
    before = recording.database.read_bytes()
    for arguments, code, reported in [
            (("--html", recording.database), 3, "is the recording itself"),
            (("--html", recording.folder / "none" / "x.html"), 3, "cannot write"),
            (("--html", recording.folder), 3, "cannot write"),
            (("--html", "x.html", "--json"), 2, "not both"),
            (("--html", "x.html", "--only", "peak"), 2, "contains all sections"),
            (("--html", ""), 2, "--html")]:
        done = recording.gpuspy("report", *arguments, recording.database)
        assert done.returncode == code and reported in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert not done.stdout
    done = recording.gpuspy("report", "--html", "run.db", "out.html")
    assert (done.returncode, done.stderr) == (2, "gpuspy: report: 'run.db' is a recording; type: gpuspy report --html out.html run.db\n")
    for typo in "--opne", "-q":  # not the page's file
        done = recording.gpuspy("report", "--html", typo, recording.database)
        assert done.returncode == 2 and f"unknown option '{typo}'" in done.stderr, done.stderr
    assert recording.database.read_bytes() == before
    assert [p.name for p in recording.folder.iterdir()] == ["run.db"]
    broken = recording.folder / "broken.db"
    broken.write_bytes(before[:5000])
    done = recording.gpuspy("report", "--html", "x.html", broken)
    assert done.returncode == 3 and not (recording.folder / "x.html").exists()


@sanitized("a terminal of its own")
def test_a_terminal_gets_no_page(recording):
    with Rows(recording.database) as r:
        r.block(.1, MIB)
    pid, fd = pty.fork()
    if pid == 0:
        from conftest import BUILD
        os.execv(str(BUILD / "gpuspy"), ["gpuspy", "report", "--html", "-", str(recording.database)])
    reported = b""
    try:
        while part := os.read(fd, 4096):
            reported += part
    except OSError:
        pass
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
    assert b"not for a terminal" in reported and b"<html" not in reported


def test_names_cannot_leave_the_data(recording):
    evil = "</script><script>alert(1)</script><!--\u2028\x1b[31m"
    with Rows(recording.database, command=evil) as r:
        r.device(name=evil)
        r.block(.1, MIB, None, r.stack(f"/x/{evil}.py:1 {evil}", f"/y.py:2 {'A' * 1000000}"))
    page = page_of(recording)
    data = page.data()
    assert len([1 for tag, a, t in page.texts if a.get("type") == "application/json"]) == 1
    assert restored(data)["run"]["command"] == evil
    assert re.search(r"\b(One long text is|\d+ long texts are) cut\.", data["resolution"]["text"])
    text = (recording.folder / "out.html").read_text()
    start = text.index('id="gpuspy-data">') + 17
    assert not set(text[start:text.index("</script>", start)]) & set("<>\u2028\x1b")
    assert len(text) < 2 << 20


@pytest.mark.parametrize("depth, size, letter", [(2, 60, "<"), (2, 1000, '"'), (30, 10, "\u4e2d")])
def test_a_page_of_long_names_stays_small(recording, depth, size, letter):
    with Rows(recording.database, command=letter * 5000) as r:
        r.device()
        for i in range(6000):
            at = r.stack(*(f"/x/{letter * size}{i}_{d}.py:{d + 1} f{letter * size}{i}_{d}" for d in range(depth)))
            r.block(i * 1e-4, (i % 50 + 1) * 512, None if i % 2 else .1, at, TENSOR, address=(i + 1) << 20)
            r.sync(i * 1e-4, 1e-5, at)
            if i < 300:
                r.oom(i * 1e-4, 8 * GIB, GIB, 24 * GIB, stack=at)
    data = page_of(recording).data()
    assert (recording.folder / "out.html").stat().st_size < 10_000_000
    reported = data["resolution"]["text"]
    assert " long texts are cut." in reported if depth == 2 else "only their innermost calls." in reported
    assert len(set(data["strings"])) == len(data["strings"]) > 1000  # the parts by which they differ are kept
    agrees(recording.report("--top", "200"), data, each_sums(data))


@pytest.mark.parametrize("blocks, reported", [(0, None), (1, "1 allocation."),
                                          (2, "2 allocations and frees, each drawn as a separate moment.")])
def test_the_resolution_can_count(recording, blocks, reported):
    with Rows(recording.database) as r:
        r.device()
        for i in range(blocks):
            r.block(i * .1 + .1, MIB, None, r.stack(f"/y.py:2 {'A' * 3000}" if blocks == 2 else "/y.py:2 f"))
    text = page_of(recording).data()["resolution"]["text"]
    assert reported is None or text.startswith(reported)
    assert blocks != 2 or not re.search(r"\b1 long", text)


def test_call_paths_without_room_are_merged_by_line_of_code(recording):
    """2,000 call paths of three lines, all of which change at every moment: none is missing from the series."""
    random.seed(7)
    lines = [f"/home/me/train.py:{n} step" for n in (11, 22, 33)]
    with Rows(recording.database, seconds=40) as r:
        r.device()
        at = [r.stack("/home/me/train.py:60 main", line) for line in lines]
        stacks = [r.stack(f"/usr/lib/python3/dist-packages/torch/nn/functional.py:{n} linear") for n in range(2000)]
        for i, stack in enumerate(stacks):
            r.db.execute("UPDATE stack SET parent_id = ?, depth = 3 WHERE id = ?", (at[i % 3], stack))
        for i in range(250000):
            r.block(i / 8000, 512 * random.randrange(1, 4000), random.random() / 4, random.choice(stacks))
    page = page_of(recording)
    data = page.data()
    (series,) = each_sums(data)
    agrees(recording.report("--top", "5000"), data, [series])
    named = {place for place in series.places if place}
    assert named == {f"train.py:{n} in step" for n in (11, 22, 33)}
    assert data["resolution"]["merged_lines"] == 0 and data["resolution"]["merged_by_line"] > 100
    assert re.search(r"[0-9,]+ call paths that held no more than [0-9.]+ MiB at any of these moments are merged, by line of code",
                     data["resolution"]["text"])
    for (stack, _, merged), place in zip(series.lines, series.places):
        assert not place or (stack >= 0 and merged > 1)


@pytest.mark.parametrize("browser, found", [("echo \"$1\" >opened; echo noise; echo noise >&2", True), ("exit 3", False), (None, False),
                                            ("echo \"$1\" >opened; exec sleep 30", True)])
def test_the_page_is_opened(recording, browser, found):
    """xdg-open runs the browser itself without a desktop: gpuspy does not wait until the user closes it."""
    with Rows(recording.database) as r:
        r.device()
        r.block(.1, MIB, None, r.stack("/y.py:2 f"))
    programs = recording.folder / "bin"
    programs.mkdir()
    if browser:
        (programs / "xdg-open").write_text("#!/bin/sh\n" + browser + "\n")
        (programs / "xdg-open").chmod(0o755)
    (programs / "sleep").symlink_to("/bin/sleep")
    start = time.monotonic()
    done = subprocess.run([BUILD / "gpuspy", "report", "--open", recording.database], cwd=recording.folder, capture_output=True,
                          text=True, env={"PATH": str(programs)})
    assert done.returncode == 0 and time.monotonic() - start < 25 and done.stdout == "" and "noise" not in done.stderr
    page = recording.database.with_suffix(".html")
    assert page.exists() and ("found no browser here" in done.stderr) != found
    assert not found or (recording.folder / "opened").read_text() == f"{page}\n"
