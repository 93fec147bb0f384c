"""gpuspy attach to a training loop: what is recorded from then on is what PyTorch counts from then on."""
import json
import os
import sqlite3
import subprocess

import pytest

from conftest import BUILD, CUDA, HERE


class Training:
    def __init__(self, folder, **more):
        if not os.environ.get("TORCH_PYTHON"):
            pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
        env.update(CUDA, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="2", **more)
        self.folder = folder
        self.process = subprocess.Popen([os.environ["TORCH_PYTHON"], HERE / "attached.py"], env=env, cwd=folder, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def steps(self, n):
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def gpuspy(self, command, *words):
        done = subprocess.run([BUILD / "gpuspy", command, str(self.process.pid), *words], cwd=self.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        assert done.returncode == 0, done.stderr

    def end(self):
        out, err = self.process.communicate(timeout=120)
        assert (self.process.returncode, out, err) == (0, "end\n", "")


def sql(path, query):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return db.execute(query).fetchall()


@pytest.mark.parametrize("settings", [{}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}], ids=["", "expandable"])
def test_the_events_are_those_that_pytorch_counts(tmp_path, settings):
    training = Training(tmp_path, **settings)
    before = training.steps(2)
    for name in "first.db", "second.db":
        training.gpuspy("attach", "--db", name)
        after = training.steps(20)
        training.gpuspy("detach")
        path = tmp_path / name
        assert sql(path, "SELECT lost_events, complete FROM process") == [(0, 1)]
        made, live = sql(path, "SELECT count(*), sum(free_ns IS NULL) FROM allocations WHERE layer = 'tensor'")[0]
        freed_before = sql(path, "SELECT value FROM meta WHERE key = 'unknown_frees'")[0][0]
        assert made == after["made"] - before["made"] > 100
        assert made - live + int(freed_before) == after["freed"] - before["freed"]
        # PyTorch's own total, at every event
        assert sql(path, "SELECT events, mismatches FROM tensor_check") == [
            (made + after["freed"] - before["freed"], 0)]
        device = sql(path, "SELECT sum(bytes) FROM allocations WHERE layer = 'device'")[0][0]
        assert device == after["mapped"] - before["mapped"] >= 32 << 20
        lines = sql(path, "SELECT DISTINCT line FROM frames WHERE kind = 'python' AND function = 'step' AND file LIKE '%attached.py'")
        assert len(lines) >= 3
        before = training.steps(1)  # not recorded
    training.end()
    report = subprocess.run([BUILD / "gpuspy", "report", "--json", tmp_path / "first.db"], text=True, stdout=subprocess.PIPE)
    process, = json.loads(report.stdout)["run"]["processes"]
    assert process["attached_after_s"] > 0 and process["stopped"] == "detach"
