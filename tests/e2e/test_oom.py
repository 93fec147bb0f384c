"""Programs that run out of memory, each for a known reason at a known line (fixtures/oom), without PyTorch; those with
PyTorch are in tests/torch."""
import sys

import pytest
from conftest import ROOT
from test_one_truth import SCENARIOS, scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(once, name):
    assert SCENARIOS[name].differs(once(f"oom/{name}", scenario(name)).report()) == []


FAILS = """import os, sys, minicuda
rt = minicuda.Runtime()
held = [minicuda.Tensor(rt, 1 << 20) for _ in range(4)]
try:
    minicuda.Tensor(rt, 64 << 30)
except minicuda.OutOfMemoryError as e:
    error = e
"""
AFTER = {  # the rest of the program: how the report states what followed the failure
    "raise error": "nothing was allocated after it; the program exited with status 1",
    "sys.exit(3)": "nothing was allocated after it; the program exited with status 3",
    "saved = minicuda.Tensor(rt, 1 << 20); sys.exit(3)":
        "1 allocation followed, the first at job.py:8 in <module>, none on earlier call paths; the program exited with status 3",
    "os._exit(3)": "nothing was allocated after it; the program was killed or called _exit",
    "os.kill(os.getpid(), 9)": "nothing was allocated after it; the program was killed or called _exit",
    "pass": "gpuspy does not know whether the program handled it: nothing was allocated after it; the program exited with status 0",
    "more = minicuda.Tensor(rt, 1 << 20)": "the program went on, and exited with status 0",
}


@pytest.mark.parametrize("end", AFTER)
def test_what_followed_is_stated(recording, end):
    (recording.folder / "job.py").write_text(FAILS + end + "\n")
    recording.run(sys.executable, recording.folder / "job.py", SIMCUDA_MEMORY="8GiB",
                  PYTHONPATH=str(ROOT / "fixtures" / "python"), check=False)
    assert recording.report()["oom"][0]["outcome_why"] == AFTER[end]
