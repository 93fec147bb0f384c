"""Runs scripts with a CUDA build of PyTorch (TORCH_PYTHON) on the simulated GPU, recorded; each run once. With
REAL_GPU=1 on the GPU of this machine instead: then a simulated GPU's size becomes a limit (GPUSPY_LIMIT), and what only
the simulator can do (several devices, memory of other processes, a small context) is skipped."""
import atexit
import fcntl
import functools
import hashlib
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from prepared_python import PreparedPythons, settings_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from collecting import pytest_collection  # noqa: E402, F401

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
SECONDS = 300  # long, so that a busy machine does not fail the test
# Tests must not use the developer's own settings: what `gpuspy calibrate` stored would change every estimate.
CONFIG = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = CONFIG.name
os.environ.pop("GPUSPY_CALIBRATION", None)
# Scripts that start processes with multiprocessing or load their own allocator: a script, or a word of its command
# line.
FRESH = {HERE / "pluggable.py", HERE / "sharing.py", HERE / "sleeping.py", ROOT / "fixtures" / "oom" / "other_rank.py",
         ROOT / "fixtures" / "oom" / "worker_spawn.py",
         ROOT / "fixtures" / "oom" / "leak_spawned_outputs.py", "spawn", "spawned_workers", "ddp"}
REAL = bool(os.environ.get("REAL_GPU"))
CUDA = {k: os.environ[k] for k in ("LD_LIBRARY_PATH",) if k in os.environ} if REAL else {
    "SIMCUDA_UNKNOWN": "zero", "SIMCUDA_CONTENTS": "1MiB",  # large copies would take as long as the rest of a script
    "LD_LIBRARY_PATH": f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}"}
prepared = PreparedPythons()
atexit.register(prepared.end)


def is_forked(command, environment, usual):
    """A script runs in a fork, except the first run with each combination of settings that is not the usual one: it runs in
    a new process like a user's, because most of these are used only once."""
    is_script = isinstance(command[0], Path) or command[0] == "-c"
    return is_script and not FRESH.intersection(command) and (settings_of(environment) == usual or prepared.have_seen(environment))


# The longest ones start first, so that no worker of pytest-xdist still runs one when the others have finished.
LONG = ("test_oom", "test_estimate_sharded", "test_simulate_loops", "test_figures", "test_allocator", "test_whatif_programs", "test_whatif",
        "test_promises", "test_ranks", "test_categories", "test_signatures", "test_uses", "test_limit")


def pytest_collection_modifyitems(items):
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


def size_of(text):
    """The number of bytes of a text like that of SIMCUDA_MEMORY."""
    number = re.match(r"[0-9.]+", str(text))[0]
    return int(float(number) * {"": 1, "MiB": 1 << 20, "GiB": 1 << 30}[str(text)[len(number):]])


@functools.cache
def real_context():
    """What CUDA and its libraries use outside of PyTorch's allocator after multiplying matrices."""
    script = """import torch
x = torch.rand(256, 256, device="cuda", requires_grad=True)
(x @ x).sum().backward()
free, total = torch.cuda.mem_get_info()
print(total - free - torch.cuda.memory_reserved())"""
    return int(subprocess.run([os.environ["TORCH_PYTHON"], "-c", script], text=True, stdout=subprocess.PIPE, check=True).stdout)


def limit_of(size, context="512MiB"):
    """The limit on this machine's GPU that leaves a program as much as a simulated GPU of that size and context."""
    return f"{size_of(size) - size_of(context) + real_context() >> 10}KiB" if REAL else size


def on_the_real_gpu(settings):
    """The same settings, without those of the simulator."""
    simulated = {name[8:]: settings[name] for name in settings if name.startswith("SIMCUDA_")}
    if simulated.keys() - {"MEMORY", "CAPABILITY", "UNKNOWN", "CONTENTS", "SMS", "CONTEXT", "CLOCK", "DEVICES"} or str(simulated.get("DEVICES", 1)) != "1":
        pytest.skip("only a simulated GPU can be like that")
    kept = {name: value for name, value in settings.items() if not name.startswith("SIMCUDA_")}
    if "MEMORY" in simulated:
        kept["GPUSPY_LIMIT"] = limit_of(kept.get("GPUSPY_LIMIT", simulated["MEMORY"]), simulated.get("CONTEXT", "512MiB"))
    return kept


def run_again(folder, start):
    """Runs it again, up to three times, if PyTorch 2.15 aborted: its autograd thread then released the last backward's
    graph after Python had begun to end (with or without recording, in 14 of 175 runs on a busy machine)."""
    for _ in range(3):
        done = start()
        if done.returncode != -signal.SIGABRT or "terminate called without an active exception" not in done.stderr:
            break
        for old in folder.glob("run*.db*"):
            old.unlink()
    return done


class Recorded:
    def __init__(self, folder, *command, fresh=None, **more):
        self.folder, self.database, self.moments = folder, folder / "run.db", folder / "moments"
        self.reports = {}
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
        env.update(CUDA, LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DB=self.database, MOMENTS=self.moments,
                   GPUSPY_MIN_FREE=0,  # tests must not depend on how full the disk is
                   PYTHONDONTWRITEBYTECODE=1, OMP_NUM_THREADS=1)  # several threads would mostly wait for each other on a busy machine
        if "newest" in os.environ["TORCH_PYTHON"]:  # may import functions that the simulated CUDA lacks, as with --simulate
            env.update(LD_AUDIT=BUILD / "sim" / "libsimcuda-redirect.so", SIMCUDA_LIBRARIES=env.pop("LD_LIBRARY_PATH"))
        more, python = on_the_real_gpu(more) if REAL else more, os.environ["TORCH_PYTHON"]
        usual, env = ({k: str(v) for k, v in settings.items()} for settings in (env, {**env, **more}))
        forked = is_forked(command, env, settings_of(usual)) if fresh is None else not fresh

        def start():
            if forked:
                return prepared.run(python, folder, command, env, SECONDS)
            return subprocess.run([python, *map(str, command)], env=env, cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, timeout=SECONDS)
        done = run_again(folder, start)
        self.code, self.stdout, self.stderr = done.returncode, done.stdout, done.stderr

    def report(self, database=None):
        database = database or self.database
        if database not in self.reports:
            self.reports[database] = report_of(database)
        report = json.loads(self.reports[database])
        for oom in report["oom"]:  # the parts add up to the device, and none is larger than it
            parts = oom["waterfall"]
            assert not parts or sum(part["bytes"] for part in parts) == oom["total_bytes"], parts
            for part in parts:
                assert sum(line["bytes"] or 0 for line in part["detail"]) <= part["bytes"], part
        return report


def report_of(database):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([BUILD / "gpuspy", "report", "--json", "--top", "1000", database], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    def start(*command, **more):
        return Recorded(tmp_path_factory.mktemp("torch"), *command, **more)
    return start


@pytest.fixture(scope="session")
def once(record, tmp_path_factory):
    """The run of that name. The first worker of pytest-xdist that needs it makes it."""
    folder, kept = tmp_path_factory.getbasetemp(), {}
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    def get(name, *command, **more):
        if name not in kept:
            path = folder / hashlib.sha256(name.encode()).hexdigest()
            with open(path.with_suffix(".lock"), "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    path.write_bytes(pickle.dumps(record(*command, **more)))
            kept[name] = pickle.loads(path.read_bytes())
        return kept[name]
    return get
