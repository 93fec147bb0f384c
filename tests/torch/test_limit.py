"""GPUSPY_LIMIT with PyTorch: a script on a limited GPU, compared with the same script on a GPU of that size. PyTorch
gets its figures on other processes from NVML, which the limit does not change."""
import re
from pathlib import Path

import pytest
from conftest import REAL

if REAL:
    pytest.skip("a smaller GPU beside it can only be simulated", allow_module_level=True)
HERE = Path(__file__).resolve().parent
OOM = HERE.parent.parent / "fixtures" / "oom"
GIB = 1 << 30


def end(once, script, size, capped, *arguments, **more):
    memory = dict(SIMCUDA_MEMORY="80GiB", GPUSPY_LIMIT=size) if capped else dict(SIMCUDA_MEMORY=size)
    done = once(f"limit {script} {size} {capped} {arguments} {more}", script, *arguments, **memory, **more)
    return done, reported(done.stdout), reported("\n".join(line for line in done.stderr.splitlines() if not line.startswith("gpuspy:")))


def reported(text):
    text = re.sub(r'  File "<frozen runpy>".*\n', "", text)  # from a run in a fork
    text = re.sub(r"Process \d+ has [^.]*\.\d+ [GM]iB memory in use\. ", "", text)
    return re.sub(r"(Free \(according to CUDA\):) .*", r"\1 …", text)


def same(once, script, size, *arguments, **more):
    small, out, err = end(once, script, size, False, *arguments, **more)
    capped, its_out, its_err = end(once, script, size, True, *arguments, **more)
    assert (capped.code, its_out, its_err) == (small.code, out, err)
    return small, capped


@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_it_fails_where_a_smaller_one_does(once, settings):
    """At the same tensor, with the same counters; it recovers in the same way."""
    small, capped = same(once, HERE / "limit.py", "1GiB", PYTORCH_CUDA_ALLOC_CONF=settings, SIMCUDA_CONTEXT="100MiB")
    assert small.code == 1 and "OutOfMemoryError" in small.stderr
    theirs, ours = small.report(), capped.report()
    assert [o["requested_bytes"] for o in ours["oom"]] == [o["requested_bytes"] for o in theirs["oom"]]
    assert ours["devices"][0]["physical_bytes"] == 80 * GIB and ours["devices"][0]["total_bytes"] == GIB
    last = max(ours["oom"], key=lambda o: o["time_s"])
    assert last["fatal"] and not last["capped"]  # PyTorch's own fraction of it
    assert any(o["capped"] for o in ours["oom"]) and not any(o["capped"] for o in theirs["oom"])


def test_cudas_own_pool(once):
    """How much such a pool has free depends on the timing of streams: no two runs fail at the same tensor."""
    more = dict(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync", SIMCUDA_CONTEXT="100MiB")
    runs = [end(once, HERE / "limit.py", "1GiB", capped, **more)[0] for capped in (False, True)]
    count = [int(re.search(r"^(\d+) Allocation on device", run.stdout, re.M)[1]) for run in runs]
    assert abs(count[0] - count[1]) <= 8, count
    for run in runs:
        assert run.code == 1 and run.stdout.startswith("(968884224, 1073741824) 1073741824\n")
        assert "OutOfMemoryError" in run.stderr
    assert any(o["capped"] for o in runs[1].report()["oom"])


def failures(run):
    """The report's text on each failure, without the part on who refused."""
    return [(o["cause"], o["requested_bytes"], o["free_bytes"], o["total_bytes"], o["fatal"],
             o["verdict"].split("; GPUSPY_LIMIT")[0], [(p["what"], p["bytes"]) for p in o["waterfall"]])
            for o in run.report()["oom"]]


@pytest.mark.parametrize("script", ["capacity_adam.py", "frag_half.py", "leak_step_cache.py", "recovered_halving.py"])
def test_scenarios(once, script):
    """fixtures/oom: the reports of a failure differ only in who refused. On a busy machine, PyTorch's threads free a
    block sometimes before and sometimes after the next allocation: one of four pairs of runs must agree."""
    size = re.search(r"# gpu: (\S+)", (OOM / script).read_text())[1]
    for attempt in range(4):
        small, capped = same(once, OOM / script, size, ATTEMPT=str(attempt))
        theirs, ours = failures(small), failures(capped)
        assert theirs and ours
        if ours == theirs:
            break
    assert ours == theirs


def test_a_limit_without_effect_changes_nothing(once):
    """With the largest GPU that any of them needs: no failure, the same peak."""
    small, capped = same(once, OOM / "capacity_adam.py", "16GiB")
    assert small.code == 0 and "OutOfMemory" not in capped.stderr
    theirs, ours = small.report(), capped.report()
    assert not ours["oom"] and [p["bytes"] for p in ours["peak"]] == [p["bytes"] for p in theirs["peak"]]
