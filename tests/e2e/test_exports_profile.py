"""Folded stacks, speedscope and pprof: flamegraph.pl and `go tool pprof` read them, and their weights are those of the
report."""
import json
import re

import pytest

import readers
from exports import export, made, one, usual_peaks  # noqa: F401

WHATS = ["peak", "oom", "end", "allocated", "waits", "copies"]


def expected(report):
    """By weight: the total in bytes or ns."""
    peaks = usual_peaks(report)
    return {"peak": sum(p["bytes"] for p in peaks), "end": sum(p["end_bytes"] for p in peaks),
            "allocated": sum(p["allocated_bytes"] for p in peaks),
            "copies": sum(t["bytes"] for t in report["transfers"]),
            "waits": sum(round(s["blocked_s"] * 1e9) for s in report["sync"])}


def folded(path):
    """Frames and weight of each line."""
    lines = [line.rsplit(" ", 1) for line in path.read_text().splitlines()]
    return [(stack.split(";"), int(weight)) for stack, weight in lines]


def test_folded_sums_to_the_report(made):
    report = made.report()
    for what, total in expected(report).items():
        stacks = folded(export(made, "folded", "--what", what, code=0 if total else 1)) if total else []
        assert sum(weight for _, weight in stacks) == total, what
        assert all(weight > 0 and all(stack) for stack, weight in stacks)
        assert len({tuple(stack) for stack, _ in stacks}) == len(stacks)


def test_flamegraph_draws_it(made):
    total = expected(made.report())["peak"]
    picture = readers.flamegraph(export(made, "folded"), "--countname=bytes")
    assert int(re.search(r"<title>all \(([\d,]+) bytes, 100%\)", picture)[1].replace(",", "")) == total


def test_folded_of_a_hostile_recording_is_text(tmp_path_factory):
    recording = one("hostile", tmp_path_factory)
    text = export(recording, "folded", "--native", "--what", "allocated").read_bytes().decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    assert all(re.fullmatch(r".* \d+", line) for line in text.split("\n")[:-1])


def test_native_frames(tmp_path_factory):
    recording = one("sound", tmp_path_factory)
    without, both = folded(export(recording, "folded")), folded(export(recording, "folded", "--native"))
    assert not any("libtorch" in frame for stack, _ in without for frame in stack)
    assert any(stack[-1].startswith("libtorch.so+0x1000") for stack, _ in both)
    assert sum(w for _, w in without) == sum(w for _, w in both)
    assert ["main (train.py:40)", "step (train.py:12)"] in [stack for stack, _ in without]


def test_a_moment_and_one_rank(tmp_path_factory):
    recording = one("ranks", tmp_path_factory)
    live = recording.sql("select sum(bytes) from allocation_row where kind & 3 = 1 and alloc_ns <= 1000000000 and "
                         "coalesce(alloc_ns + life_ns, 1 << 62) > 1000000000")[0][0]
    assert sum(w for _, w in folded(export(recording, "folded", "--at", "1", "--rank", "0"))) == live
    assert sum(w for _, w in folded(export(recording, "folded", "--rank", "1"))) < \
        sum(w for _, w in folded(export(recording, "folded")))
    assert "such process" in recording.gpuspy("export", "-f", "folded", "--rank", "7", recording.database).stderr


def test_there_is_nothing(tmp_path_factory):
    recording = one("ranks", tmp_path_factory)
    for form in "folded", "speedscope", "pprof":
        path = export(recording, form, "--what", "oom", code=1)
        assert not path.exists() and recording.reported.count("\n") == 1, recording.reported


@pytest.mark.parametrize("words", [["--what", "peak"], ["-f", "folded", "--what", "x"], ["-f", "csv", "--what", "peak"],
                                   ["-f", "folded", "--what", "peak", "--at", "1"], ["-f", "folded", "--tables", "sites"],
                                   ["-f", "csv", "--tables", "nothing"], ["-f", "folded", "--at", "soon"]])
def test_impossible_input(words, tmp_path_factory):
    recording = one("ranks", tmp_path_factory)
    done = recording.gpuspy("export", *words, recording.database)
    assert done.returncode == 2 and done.stderr.startswith("gpuspy: export: ") and done.stderr.count("\n") == 1


def test_speedscope(made):
    """Its importer assigns a sample's weight to the last frame; see its file-format-spec.ts."""
    report = made.report()
    want = {k: v for k, v in expected(report).items() if v}
    file = json.loads(export(made, "speedscope").read_text())
    assert file["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    assert set(file) == {"$schema", "exporter", "name", "activeProfileIndex", "profiles", "shared"}
    frames = file["shared"]["frames"]
    assert all(isinstance(f["name"], str) and f["name"] and set(f) <= {"name", "file", "line"} for f in frames)
    titles = {"peak": "live at the peak", "end": "live at the end", "allocated": "allocated over the whole run",
              "waits": "waited for the GPU", "copies": "copied"}
    found = {}
    for p in file["profiles"]:
        assert p["type"] == "sampled" and p["startValue"] == 0 and p["endValue"] == sum(p["weights"])
        assert p["unit"] == ("nanoseconds" if p["name"].startswith("waited") else "bytes")
        assert len(p["samples"]) == len(p["weights"]) and min(p["weights"]) > 0
        assert all(s and max(s) < len(frames) and min(s) >= 0 for s in p["samples"])
        found[p["name"]] = p["endValue"]
    several = len(report["run"]["processes"]) > 1
    for what, total in want.items():
        assert found[titles[what] + (", all processes" if several else "")] == total
        if several:
            assert sum(v for k, v in found.items() if k.startswith(titles[what] + ", rank")) == total


def raw(text):
    """Sample types and the sums of their values, and the labels, of `pprof -raw`."""
    samples = text.split("Samples:\n")[1].split("Locations\n")[0].splitlines()
    types = [t.split("[")[0] for t in samples[0].split()]
    sums, labels = dict.fromkeys(types, 0), []
    for line in samples[1:]:
        values = re.match(r"\s*((?:\d+\s+)*\d+): ", line)
        if values:
            for name, value in zip(types, values[1].split(), strict=True):
                sums[name] += int(value)
        else:
            labels.append(line)
    return sums, labels


def test_pprof(made):
    report = made.report()
    want = expected(report)
    sums, labels = raw(readers.pprof(export(made, "pprof"), "-raw"))
    assert sums["inuse_space/bytes"] == want["peak"] and sums["alloc_space/bytes"] == want["allocated"]
    assert sums["inuse_objects/count"] == sum(p["count"] for p in usual_peaks(report))
    assert sums["alloc_objects/count"] == sum(p["allocations"] for p in usual_peaks(report))
    assert all("device:[" in label and "category:[" in label for label in labels)
    top = readers.pprof(export(made, "pprof"), "-top", "-unit=B")
    assert f"of {want['peak']}B total" in top and "Type: inuse_space" in top
    if want["waits"]:
        assert raw(readers.pprof(export(made, "pprof", "--what", "waits"), "-raw"))[0]["delay/nanoseconds"] == want["waits"]
    if want["copies"]:
        assert raw(readers.pprof(export(made, "pprof", "--what", "copies"), "-raw"))[0]["copied/bytes"] == want["copies"]


def test_pprof_names_lines_modules_and_categories(tmp_path_factory):
    recording = one("sound", tmp_path_factory)
    text = readers.pprof(export(recording, "pprof", "--native"), "-raw")
    assert "step /home/me/train.py:12" in text and "/usr/lib/libtorch.so 00ff" in text
    assert "rank:[0]" in text and "live at the peak" in text
    tags = readers.pprof(export(recording, "pprof"), "-tags", "-unit=B")
    peak = usual_peaks(recording.report())[0]
    found = dict((name, int(size)) for size, name in re.findall(r"(\d+)(?:\.\d)?B \([\s\d.]+%\): (\w+)", tags))
    for category, size in peak["by_category"].items():
        assert not size or found[category] == size
