"""gpuspy attach to a training loop: from then on, the recording agrees with PyTorch's counters."""
import json
import os
import random
import sqlite3
import subprocess
import threading
import time

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


BEFORE = ("alloc_stack_id IN (SELECT s.id FROM stack s JOIN frame f ON f.id = s.frame_id "
          "WHERE f.function = '(allocated before gpuspy attached)')")


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
        made, live = sql(path, f"SELECT count(*), sum(free_ns IS NULL) FROM allocations WHERE layer = 'tensor' AND NOT {BEFORE}")[0]
        freed_before = sql(path, f"SELECT count(free_ns) FROM allocations WHERE {BEFORE}")[0][0]
        assert sql(path, "SELECT value FROM meta WHERE key IN ('unknown_frees', 'implied_frees')") == []
        assert sql(path, f"SELECT count(*), sum(bytes) FROM allocations WHERE {BEFORE}") == [(before["live"], before["bytes"])]
        assert sql(path, "SELECT value FROM meta WHERE key = 'attached_tensor_bytes.0'") == [(str(before["bytes"]),)]
        assert made == after["made"] - before["made"] > 100
        assert made - live + freed_before == after["freed"] - before["freed"]
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
    text = subprocess.run([BUILD / "gpuspy", "report", tmp_path / "first.db"], text=True, stdout=subprocess.PIPE).stdout
    assert "blocks of tensors that PyTorch had allocated before" in " ".join(text.split()) and "(allocated before gpuspy attached)" in text


def test_an_out_of_memory_counts_them(tmp_path):
    """The parts of the device still add up to it, and its tensors are PyTorch's own total."""
    training = Training(tmp_path, SIMCUDA_MEMORY="2GiB")
    training.steps(2)
    training.gpuspy("attach", "--db", "run.db")
    own = training.steps("fill")["bytes"]
    training.end()
    report = subprocess.run([BUILD / "gpuspy", "report", "--json", tmp_path / "run.db"], text=True, stdout=subprocess.PIPE)
    oom = json.loads(report.stdout)["oom"][0]
    assert sum(part["bytes"] for part in oom["waterfall"]) == 2 << 30
    assert oom["evidence"]["live_bytes"] == own, oom["waterfall"]


def test_each_recording_has_the_state_of_the_allocator(tmp_path):
    """Also a second one, in which the cap does not change, and after the program has reset the statistics."""
    training = Training(tmp_path)
    training.steps(2)
    training.steps("cap")
    for name in "first.db", "second.db":
        training.gpuspy("attach", "--db", name)
        training.steps(2)
        training.steps("empty")
        training.gpuspy("detach")
        facts = sql(tmp_path / name, "SELECT k.word, value FROM allocator_fact f JOIN allocator_fact_kind k ON k.id = f.kind ORDER BY f.id")
        total, = sql(tmp_path / name, "SELECT total_bytes FROM device")[0]
        assert [value for word, value in facts if word == "cap"] == [total // 2], facts
        waits = [value for word, value in facts if word == "synced"]
        assert len(waits) == 2 and waits[1] == waits[0] + 1, facts
    training.end()


def test_a_list_with_the_history_is_not_requested(tmp_path):
    """PyTorch would look up the stacks of up to millions of events in the program's main thread."""
    training = Training(tmp_path)
    training.steps("history")
    training.gpuspy("attach", "--db", "run.db")
    training.steps(2)
    training.gpuspy("detach")
    training.end()
    assert sql(tmp_path / "run.db", "SELECT count(*) FROM meta WHERE key = 'attached_blocks'") == [(0,)]
    assert sql(tmp_path / "run.db", "SELECT mismatches FROM tensor_check") == [(0,)]


def test_a_restless_loop_does_not_notice(tmp_path):
    """Attached to and detached from at random moments, ATTACHES times: each round is that of an undisturbed run."""
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
    env.update(CUDA, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="2")
    def start():
        return subprocess.Popen([os.environ["TORCH_PYTHON"], HERE / "restless.py"], env=env, cwd=tmp_path, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    bare, none = start().communicate("stop\n", timeout=300)
    assert none == "" and bare.splitlines()[-1] == "end"
    target, lucky, lines = start(), random.Random(7), []
    lines.append(target.stdout.readline())
    reader = threading.Thread(target=lambda: lines.extend(target.stdout))
    reader.start()
    for i in range(int(os.environ.get("ATTACHES", 8))):
        for words in ["attach", str(target.pid), "--db", f"{i}.db"], ["detach", str(target.pid)]:
            done = subprocess.run([BUILD / "gpuspy", *words], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=120)
            assert done.returncode == 0, (i, done.stderr)
            time.sleep(lucky.random() / 20)
        assert sql(tmp_path / f"{i}.db", "SELECT lost_events, complete FROM process") == [(0, 1)]
        for path in tmp_path.glob(f"{i}.db*"):
            path.unlink()
    target.stdin.write("stop\n")
    target.stdin.close()
    reader.join()
    assert (target.wait(), target.stderr.read()) == (0, "")
    assert set(lines) == set(bare.splitlines(keepends=True)) and lines[-1] == "end\n"
