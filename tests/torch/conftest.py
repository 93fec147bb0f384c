"""Runs scripts with a CUDA build of PyTorch (TORCH_PYTHON) on the simulated GPU, recorded; each run once."""
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
SECONDS = 300  # a laden machine is no failure
# Nothing of the developer's own: what `gpuspy calibrate` once learned would change every estimate.
CONFIG = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = CONFIG.name
os.environ.pop("GPUSPY_CALIBRATION", None)


class Recorded:
    def __init__(self, folder, *command, **more):
        self.folder, self.database, self.moments = folder, folder / "run.db", folder / "moments"
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
        env.update(SIMCUDA_UNKNOWN="zero", LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DB=self.database, MOMENTS=self.moments,
                   LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}", PYTHONDONTWRITEBYTECODE=1,
                   OMP_NUM_THREADS=2)
        env.update(more)
        done = subprocess.run([os.environ["TORCH_PYTHON"], *map(str, command)], env={k: str(v) for k, v in env.items()},
                              cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    def report(self, database=None):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        done = subprocess.run([BUILD / "gpuspy", "report", "--json", "--top", "1000", database or self.database], env=env,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        for oom in report["oom"]:  # the parts are all of the device, and none holds more than it is
            parts = oom["waterfall"]
            assert not parts or sum(part["bytes"] for part in parts) == oom["total_bytes"], parts
            for part in parts:
                assert sum(line["bytes"] or 0 for line in part["detail"]) <= part["bytes"], part
        return report


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    def start(*command, **more):
        return Recorded(tmp_path_factory.mktemp("torch"), *command, **more)
    return start


@pytest.fixture(scope="session")
def once(record):
    """The run of that name, made at its first use."""
    kept = {}
    def get(name, *command, **more):
        if name not in kept:
            kept[name] = record(*command, **more)
        return kept[name]
    return get
