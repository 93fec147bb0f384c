"""GPUSPY_ON_OOM and gpuspy metrics count those failures of PyTorch's allocator that the program sees."""
import time

import pytest
from conftest import SECONDS

SCRIPT = """
import sys
import torch
for n in (1400, 1800, 2500, 3000, 3200):  # each is served after the allocator has freed its cache
    a = torch.empty(n << 20, dtype=torch.uint8, device="cuda")
    del a
if "handles" in sys.argv:
    try:
        torch.empty(8000 << 20, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass
    for _ in range(6):
        a = torch.empty(3000 << 20, dtype=torch.uint8, device="cuda")
        del a
if "dies" in sys.argv:
    torch.empty(8000 << 20, dtype=torch.uint8, device="cuda")
"""


@pytest.mark.parametrize("what, outcomes", [("retries", ""), ("handles", "handled\n"), ("dies", "not handled\n")])
def test_the_command_runs_for_failures_that_the_program_sees(record, tmp_path, what, outcomes):
    script, result = tmp_path / "script.py", tmp_path / "result.txt"
    script.write_text(SCRIPT.replace("torch.OutOfMemoryError", "torch.cuda.OutOfMemoryError"))
    run = record(script, what, fresh=True, SIMCUDA_MEMORY="4GiB", GPUSPY_ON_OOM=f"echo $GPUSPY_OOM >>{result}")
    assert run.code == (what == "dies"), run.stderr
    deadline = time.monotonic() + (SECONDS if outcomes else 3)
    while time.monotonic() < deadline and not result.exists():
        time.sleep(0.1)
    time.sleep(0.5)
    assert (result.read_text() if result.exists() else "") == outcomes
