"""A what-if of a run under default settings against a run recorded under those settings, which is the oracle.

WHATIF_MATRIX=all compares every program of whatif_programs.py under 8 settings on 3 GPUs; without it, three of these
for each program, others for the next."""
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD

SCRIPT = Path(__file__).resolve().parent / "whatif.py"
PROGRAMS = SCRIPT.with_name("whatif_programs.py")
NAMES = re.findall(r"@program\ndef (\w+)", PROGRAMS.read_text())
SEGMENT = 20 << 20
MIB = 1 << 20
CONTEXT = 100 * MIB
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:21", "max_split_size_mb:64,roundup_power2_divisions:8",
            "roundup_power2_divisions:4", "roundup_power2_divisions:[1:2,4:8,>:4]", "garbage_collection_threshold:0.6",
            "expandable_segments:True,roundup_power2_divisions:8"]


def asked(database, *words):
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", *words, database], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def figures(x):
    oom = x["oom"] or {"event": None, "requested_bytes": None, "site": {"line": None}}
    return x["fits"], oom["event"], oom["site"]["line"], x["retries"], x["segments"]


@pytest.mark.parametrize("limit", ["2GiB", "228MiB", "188MiB"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_what_if_is_what_a_run_under_these_settings_is(once, settings, limit):
    first = once("whatif", SCRIPT, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="8GiB")
    real = once(f"whatif {settings} {limit}", SCRIPT, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="8GiB", GPUSPY_LIMIT=limit,
                PYTORCH_CUDA_ALLOC_CONF=settings)
    theirs = asked(real.database, "--set", "max_split_size_mb:512")
    assert theirs["replay"]["exact"], theirs["replay"]
    assert theirs["recorded"]["peak_reserved_bytes"] == int(re.findall(r"^\d+$", real.stdout, re.M)[-1])
    assert theirs["recorded"]["fits"] == (real.code == 0)
    ours = asked(first.database, "--limit", limit, *(["--set", settings] if settings else []))["whatif"][0]
    assert ours["exact"], ours
    assert ours["peak_reserved_bytes"] == theirs["recorded"]["peak_reserved_bytes"], (ours, theirs)
    assert figures(ours) == figures(theirs["recorded"]), (ours, theirs)


# Of programs: a threshold without a fraction does nothing.
MATRIX = [s.replace("garbage", "per_process_memory_fraction:0.9,garbage") for s in SETTINGS]


def run_program(once, name, settings, size):
    done = once(f"{name} {settings} {size}", PROGRAMS, name, settings, SIMCUDA_CONTEXT=CONTEXT, SIMCUDA_MEMORY=size,
                SIMCUDA_CLOCK="virtual")
    return done, json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


def cells_of(name, peak):
    """(settings, bytes of the GPU): ample, one segment too small, smaller than what the tensors need."""
    sizes = 8 << 30, CONTEXT + peak["peak_reserved_bytes"] - 12 * MIB, CONTEXT + peak["peak_allocated_bytes"] * 17 // 20 // MIB * MIB
    cells = [(settings, size) for settings in MATRIX for size in sizes]
    if os.environ.get("WHATIF_MATRIX") == "all":
        return cells
    return [cells[(7 * NAMES.index(name) + k) % len(cells)] for k in (0, 8, 16)]


def lines_of(oom):
    return oom["site"]["line"], (oom["site"]["caller"] or {}).get("line")


def fatal_oom(done):
    return [oom for oom in done.report()["oom"] if oom["fatal"]][-1]


def largest_segment(database):
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        return max(SEGMENT, *db.execute("SELECT max(bytes) FROM allocations WHERE layer = 'device'").fetchone())


@pytest.mark.parametrize("name", NAMES)
def test_programs_under_other_settings_and_on_other_gpus(once, name):
    first, peak = run_program(once, name, "", 8 << 30)
    assert first.code == 0, first.stderr
    wrong = []
    for settings, size in cells_of(name, peak):
        done, real = run_program(once, name, settings, size)
        x = asked(first.database, "--limit", f"{size // MIB}MiB", *(["--set", settings] if settings else []))["whatif"][0]
        if not agree(x, real, done):
            wrong.append((settings, size, real, x))
    assert not wrong, wrong


def agree(x, real, done):
    """A what-if ends at the first request that fails; the program may handle it and go on. If sizes of requests are
    unknown (not exact), a segment more or less decides a verdict."""
    fits = real["ooms"] == 0
    if x["fits"] == fits and not fits and real["fits"]:
        return True
    if abs(x["peak_reserved_bytes"] - real["peak_reserved_bytes"]) > largest_segment(done.database):
        return False
    if not x["exact"]:
        return x["fits"] == fits or x["device_bytes"] < 8 << 30
    return (x["fits"] == fits and x["peak_reserved_bytes"] == real["peak_reserved_bytes"] and
            (fits or lines_of(x["oom"]) == lines_of(fatal_oom(done))))


def answers(file):
    """What a recording and PyTorch's own snapshot of the same run must agree on."""
    done = subprocess.run([BUILD / "gpuspy", "report", "--json", file], capture_output=True, text=True)
    report = json.loads(done.stdout)
    x = asked(file, "--set", "expandable_segments:True")
    return {"exact": x["replay"]["exact"], "segments": x["replay"]["segments"], "allocations": x["replay"]["allocations"],
            "reserved": x["recorded"]["peak_reserved_bytes"], "fits": x["recorded"]["fits"],
            "oom": [lines_of(oom) for oom in report["oom"] if oom["fatal"]],
            "expandable": x["whatif"][0]["fits"] or lines_of(x["whatif"][0]["oom"])}


@pytest.mark.parametrize("size", [8 << 30, 300 * MIB])
@pytest.mark.parametrize("name", ["variable_batches", "fragmentation", "small_and_large"])
def test_a_snapshot_and_a_recording_of_one_run_give_the_same_answers(record, name, size):
    snapshot = "snapshot.pickle"
    done = record(PROGRAMS, name, "", snapshot, SIMCUDA_CONTEXT=CONTEXT, SIMCUDA_MEMORY=size, SIMCUDA_CLOCK="virtual")
    ours = answers(done.database)
    assert answers(done.folder / snapshot) == ours
    assert ours["exact"] and (size > 1 << 30 or name == "variable_batches" or not ours["fits"])
