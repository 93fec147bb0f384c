"""The requested size of every tensor allocation, compared with PyTorch's own history, to the byte and in order."""
import json
import os
import sqlite3
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, SECONDS

SCRIPT = Path(__file__).resolve().parent / "requests.py"
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:21,roundup_power2_divisions:4"]


# With `gpuspy run --simulate`: the newest PyTorch needs libraries that the simulated GPU lacks.
def recorded(folder, settings, script, *words):
    python = os.environ.get("TORCH_PYTHON") or pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
    env.update(OMP_NUM_THREADS="2", PYTHONDONTWRITEBYTECODE="1", PYTORCH_CUDA_ALLOC_CONF=settings)
    done = subprocess.run([BUILD / "gpuspy", "run", "--simulate=24GiB", "--gpus=2", "-o", folder / "run.db", "--", python, script, *words],
                          env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return folder / "run.db", done.stdout


@pytest.mark.parametrize("settings", SETTINGS)
def test_every_request_is_known(tmp_path, settings):
    database, printed = recorded(tmp_path, settings, SCRIPT)
    theirs = json.loads(printed)
    assert theirs["retries"] > 0
    db = sqlite3.connect(database)
    for device, trace in enumerate(theirs["alloc"]):
        ours = db.execute("SELECT address, requested_bytes FROM allocation WHERE layer = 1 AND device = ? ORDER BY id", (device,))
        assert [list(row) for row in ours] == trace
        assert len(trace) > 500


def test_nothing_is_made_up(tmp_path):
    """Another backend, which does not report."""
    script = tmp_path / "train.py"
    script.write_text("import torch\nkept = [torch.empty(n * 7777, device='cuda') for n in range(1, 60)]\n")
    database, _ = recorded(tmp_path, "backend:cudaMallocAsync", script)
    db = sqlite3.connect(database)
    assert db.execute("SELECT count(*) FROM allocation WHERE requested_bytes IS NOT NULL").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM allocation WHERE layer = 0").fetchone() >= (59,)


def test_what_rounding_adds_is_computed_from_the_requests(record):
    """Many small tensors fill the GPU: blocks of 512 bytes for requests of 4."""
    code = ("import torch\nkept = []\ntry:\n    for i in range(40_000): kept.append(torch.empty(1, device='cuda'))\n"
            "    torch.empty(1 << 40, dtype=torch.uint8, device='cuda')\nexcept torch.OutOfMemoryError:\n    pass\n")
    run = record("-c", code, SIMCUDA_MEMORY="2GiB")
    assert run.report()["oom"][0]["rounding_most_bytes"] == 40_000 * 508
    text = subprocess.run([BUILD / "gpuspy", "report", run.database], text=True, stdout=subprocess.PIPE, check=True).stdout
    assert " ".join(text.split()).find("PyTorch's allocator rounds requests up: the tensors requested 19.38 MiB less.") > 0
    assert "requested sizes are unknown" not in text
