"""The version of PyTorch: in the recording, in the outputs, and in the rules of a what-if."""
import json
import subprocess

from conftest import BUILD

SCRIPT = """import os, sys, time, torch
print(torch.__version__)
sys.stdout.flush()
kept = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (5, 7)]
if "kill" in sys.argv:
    time.sleep(2)
    os.kill(os.getpid(), 9)
"""


def asked(*words):
    done = subprocess.run([BUILD / "gpuspy", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_a_recording_has_the_version(record, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = record(script)
    version = run.stdout.strip()
    assert version and run.report()["run"]["processes"][0]["torch_version"] == version
    assert f"PyTorch {version}" in asked("report", run.database)[1]
    assert f"PyTorch {version}" in asked("stats", run.database)[1]
    assert json.loads(asked("stats", "--json", run.database)[1])["torch_version"] == version
    major, minor = (int(part) for part in version.split(".")[:2])
    for setting, since in ("expandable_segments:True", (2, 1)), ("max_split_size_mb:20", (2, 9)), ("large_segment_size_mb:40", (2, 11)):
        code, printed, complaint = asked("whatif", "--json", "--set", setting, run.database)
        assert code == (0 if (major, minor) >= since else 2), complaint
        assert code or json.loads(printed)["replay"]["torch_version"] == version


def test_a_process_whose_first_request_fails_has_it(record, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\nprint(torch.__version__)\ntorch.empty(1 << 31, device='cuda')\n")
    run = record(script, SIMCUDA_MEMORY="1GiB")
    assert "out of memory" in run.stderr
    assert run.report()["run"]["processes"][0]["torch_version"] == run.stdout.strip()


def test_a_killed_process_has_it_too(record, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    run = record(script, "kill")
    assert run.code == -9
    assert run.report()["run"]["processes"][0]["torch_version"] == run.stdout.strip()
