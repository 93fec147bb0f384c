"""One browser for the whole session; recordings of real programs on the simulated CUDA, each made once."""
import importlib.util
import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
import chromium  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent


def of_e2e():
    """tests/e2e contains the code that records."""
    spec = importlib.util.spec_from_file_location("e2e_conftest", ROOT / "tests" / "e2e" / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


e2e = of_e2e()


class Run(e2e.Recording):
    def html(self, *arguments):
        out = self.folder / f"{self.database.stem}.html"
        done = self.gpuspy("report", "--html", out, *arguments, self.database)
        assert done.returncode == 0, done.stderr
        return out

    def json(self):
        done = self.gpuspy("report", "--json", "--top", "1000", self.database)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def changed(self, name, *statements):
        """A copy of the recording in which SQL changed something."""
        other = Run(self.folder / name)
        other.folder.mkdir()
        with sqlite3.connect(self.database) as source, sqlite3.connect(other.database) as copy:
            source.backup(copy)
            for statement, *values in statements:
                copy.execute(statement, values)
        copy.close()
        return other


@pytest.fixture(scope="session")
def driver():
    if chromium.MISSING:
        pytest.skip(chromium.MISSING)
    driver = chromium.start()
    yield driver
    driver.quit()


@pytest.fixture
def page(driver):
    """Opens a file; whatever the test does, the browser must report nothing."""
    opened = []

    def start(path, fragment="", **screen):
        opened.append(chromium.Page(driver, path))
        return opened[-1].open(fragment, **screen)
    yield start
    for one in opened[-1:]:
        assert one.complaints() == []


def made(name, record):
    @pytest.fixture(scope="session", name=name)
    def run(tmp_path_factory):
        if chromium.MISSING:
            pytest.skip(chromium.MISSING)
        run = Run(tmp_path_factory.mktemp(name))
        record(run)
        run.page, run.report_ = run.html(), run.json()
        return run
    return run


KEPT = """import os
from minicuda import Runtime, Tensor
runtime = Runtime()
def take(n):
    return [Tensor(runtime, n << 20) for _ in range(4)]
kept = take(8), take(16), Tensor(runtime, 1 << 20)
os._exit(0)
"""

TWO = """from minicuda import Runtime, Tensor
runtime = Runtime()
kept = []
for step in range(12):
    for device in 0, 1:
        runtime.lib.cudaSetDevice(device)
        kept.append(Tensor(runtime, (4 << 20) << device))
        Tensor(runtime, 1 << 20)
kept.clear()
"""

# few lines that allocate, reached by thousands of call paths
PATHS = """from minicuda import Runtime, Tensor
runtime, kept = Runtime(), []
def a(path): visit(path)
def b(path): visit(path)
def c(path): visit(path)
def d(path): visit(path)
def visit(path):
    if len(path) == 5: leave(path)
    else: [f(path + [n]) for n, f in enumerate((a, b, c, d))]
def leave(path):
    if path[0] == 0: kept.append(Tensor(runtime, 1 << 12))
    elif path[0] == 1: kept.append(Tensor(runtime, 2 << 12))
    elif path[0] == 2: kept.append(Tensor(runtime, 3 << 12))
    else: kept.append(Tensor(runtime, 4 << 12))
for n in range(4):
    for f in (a, b, c, d):
        f([n])
        kept[:len(kept) // 2] = []
"""

# out of memory by a leak; waits and copies in every step
leak = made("leak", lambda run: run.python("train_leak.py", SIMCUDA_MEMORY="2GiB", check=False))
# an ordinary training loop of PyTorch: tensors, with their categories
train = made("train", lambda run: run.python("train_torch.py", 40, GPUSPY_TORCH_CPU=1))
# a process that allocates nothing
nothing = made("nothing", lambda run: run.python("import ctypes\nctypes.CDLL('libcudart.so.13').cudaFree(None)\n"))
# it ends without freeing anything
kept = made("kept", lambda run: run.python(KEPT))
# on two devices, more on the second
two = made("two", lambda run: run.python(TWO, SIMCUDA_DEVICES=2))
# everything happens at the beginning
early = made("early", lambda run: run.python("import time\nfrom minicuda import Runtime, Tensor\nruntime = Runtime()\n"
                                             "kept = [Tensor(runtime, 1 << 20) for _ in range(20)]\ntime.sleep(0.6)\n"
                                             "Tensor.__del__ = lambda self: None\n"))
# many call paths, few lines
paths = made("paths", lambda run: run.python(PATHS))
# no stacks at all
bare = made("bare", lambda run: run.python("train_leak.py", 20, GPUSPY_STACKS="none"))
