"""The peak within NVTX ranges, compared with PyTorch's own statistics over the same time."""
import json
import subprocess

from conftest import BUILD, HERE


def test_peaks_are_those_that_pytorch_counts(record):
    run = record(HERE / "scopes.py")
    assert run.code == 0, run.stderr
    wanted = json.loads(run.stdout)
    rows = {(s["name"], s["layer"]): s for s in run.report()["scopes"]}
    for name, of in wanted.items():
        tensors, device = rows[name, "tensor"], rows[name, "device"]
        assert (tensors["peak_bytes"], tensors["entry_bytes"], tensors["exit_bytes"]) == (of["peak"], of["entry"], of["exit"]), name
        assert device["peak_bytes"] >= of["reserved"], name
    peak = wanted["forward"]["peak"]
    for limit, code in ((peak, 0), (peak - 1, 1)):
        done = subprocess.run([BUILD / "gpuspy", "check", run.database, "--max-tensor-peak", f"scope:forward={limit}B"],
                              stdout=subprocess.PIPE, text=True)
        assert done.returncode == code, done.stdout
