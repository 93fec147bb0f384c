"""The README's second recording: a leak on a small simulated GPU, and a verdict with its line."""
import re
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "fixtures" / "python" / "train_leak.py"


def line_of(text):
    return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


def leak(recording, **more):
    done = recording.python("train_leak.py", SIMCUDA_MEMORY="2GiB", check=False, **more)
    assert done.returncode == 1 and "CUDA out of memory" in done.stderr
    return done


def test_verdict_names_the_leaking_line(recording):
    leak(recording)
    report = recording.report()
    fatal = [o for o in report["oom"] if o["fatal"]]
    assert len(fatal) == 1 and fatal[0]["cause"] == "leak", fatal
    assert [h["line"] for h in fatal[0]["holders"]] == [line_of("history.append(output)")]
    assert fatal[0]["free_bytes"] < fatal[0]["requested_bytes"] and fatal[0]["advice"]
    growing = str(report["growth"][0]["stack"])
    assert "train_leak.py" in growing and str(line_of("output = Tensor")) in growing
    text = recording.gpuspy("report", "--full", recording.database)
    assert text.returncode == 0
    assert re.search(rf"train_leak\.py:{line_of('output = Tensor')}\b", text.stdout), text.stdout


def test_what_was_live_adds_up(recording):
    leak(recording)
    report = recording.report("--top", "1000")
    device = next(p for p in report["peak"] if p["layer"] == "device")
    assert sum(s["bytes"] for s in device["by_stack"]) == device["bytes"]
    assert sum(s["count"] for s in device["by_stack"]) == device["count"]
    assert device["bytes"] <= 2 << 30


def test_the_synchronising_line_is_found(recording):
    leak(recording)
    sites = [(s["site"]["file"], s["site"]["line"]) for s in recording.report()["sync"]]
    assert any(file.endswith(("train_leak.py", "minicuda.py")) for file, _ in sites), sites


def test_a_free_at_interpreter_exit_is_named_so(recording):
    """Its share of the waits depends on the machine's load, so the table has every row here, and the GPU is slow."""
    leak(recording, SIMCUDA_HBM="5e8")
    assert [s["api"] for s in recording.report()["sync"] if s["site"]["at_exit"]] == ["cudaFree"]
    assert "at interpreter exit" in recording.gpuspy("report", "--full", "--top", "1000", recording.database).stdout


def test_pageable_uploads_are_found(recording):
    leak(recording)
    uploads = [t for t in recording.report()["transfers"] if t["direction"] == "h2d"]
    assert uploads and not uploads[0]["pinned"] and uploads[0]["bytes"] >= 4 << 20


def test_the_verdict_reads_well(recording):
    """Each of these is there once: what was requested and free, the cause with its line, the advice, the parts of the
    device. The lines are the script's, not those of the framework's helpers that it calls."""
    leak(recording)
    brief = recording.gpuspy("report", recording.database).stdout
    out = recording.gpuspy("report", "--full", recording.database).stdout
    line = line_of("output = Tensor")
    assert brief.count("\n") <= 40 and brief.index("Cause") < brief.index("To do") < brief.index("Of the GPU's")
    verdict = out[out.index("OUT OF MEMORY"):out.index("\nAlso to do")]
    assert re.search(r"Request +16\.00 MiB, with \S+ MiB of 2\.00 GiB free, at train_leak\.py:\d+ in Model\.", verdict)
    assert f"a leak: CUDA allocations at train_leak.py:{line} in Model.forward stay live, 6.00 MiB per step" in " ".join(verdict.split())
    assert f"To do   train_leak.py:{line}: " in verdict
    assert re.search(r"512\.00 MiB +25 % .* context", verdict) and re.search(r"14\.00 MiB +0\.7 % .* free", verdict)
    assert "Evidence" not in out and "Keeps growing" not in out and " ".join(out.split()).count("6.00 MiB per step") == 2  # verdict, source
    assert f"train_leak.py:{line}  Model.forward  → " in out and "libffi" not in out
    advice = out[out.index("Also to do"):out.index("\nGPU 0\n")].count("•")
    assert 1 <= advice <= 5
    assert max(map(len, out.splitlines())) <= 100 or str(recording.database) in max(out.splitlines(), key=len)


def test_the_step_in_which_the_gpu_will_be_full(recording):
    """A run that ended before says after how many more steps memory runs out; the whole run shows it."""
    done = recording.python("train_leak.py", "150", SIMCUDA_MEMORY="2GiB")
    assert done.returncode == 0
    (advice,) = [a["text"] for a in recording.report()["advice"] if a["topic"] == "leak"]
    more = int(re.search(r"more per step, .* in total, GPU 0 full after about (\d+) more steps: kept by", advice)[1])
    recording.database.unlink()
    leak(recording)
    (steps,) = recording.report()["steps"]
    assert abs(150 + more - steps["n"]) <= 0.1 * more, (more, steps["n"])
