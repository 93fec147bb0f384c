"""gpuspy check and pytest --gpuspy with PyTorch: a clean loop passes, a leaking one fails."""
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, CUDA, HERE, ROOT, SECONDS

SCRIPT = HERE / "checks.py"
LEAKS = {n: [i for i, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.endswith("# leak")][k]
         for k, n in enumerate(("outputs", "losses", "copies"))}


def check(recorded, *words, code=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "GITHUB_"))}
    done = subprocess.run([BUILD / "gpuspy", "check", "--json", "--no-config", *words, recorded.database], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode in (0, 1), done.stderr
    reported = json.loads(done.stdout)
    assert code is None or done.returncode == code, [c["text"] for c in reported["checks"] if c["status"] != "ok"]
    first = {}
    for one in reported["checks"]:
        first.setdefault(one["check"], one)
    return first


def test_the_lines_of_a_peak_sum_to_its_tensors(once):
    """Also with the tensor for which the CUDA allocation of the peak was made, which is allocated after it."""
    failed = check(once("check-ensemble-12", SCRIPT, "ensemble", 12), "--max-peak", "1KiB", "--all")["max-peak"]
    tensors = re.search(r"at that moment ([\d.]+) MiB in tensors", failed["text"])
    assert abs(sum(line["amount"] for line in failed["lines"]) / 2**20 - float(tensors[1])) < 0.01, failed["text"]


CLEAN = ["clean", "ema", "window", "cache", "late", "epochs", "infer", "ensemble"]


@pytest.mark.parametrize("steps", [12, 40])
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_loop_passes(once, name, steps):
    done = once(f"check-{name}-{steps}", SCRIPT, name, steps)
    assert done.code == 0, done.stderr
    check(done, "--no-leaks", "--max-growth", "0/step", "--no-oom", "--max-retries", "0", code=0)


@pytest.mark.parametrize("name", ["epochs", "warmup", "amp", "later"])
def test_innocent_training_passes(once, name):
    done = once(f"innocent {name}", HERE / "innocent.py", name)
    assert done.code == 0, done.stderr
    check(done, "--no-leaks", "--max-growth", "0/step", code=0)


@pytest.mark.parametrize("steps", [12, 40])
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_with_its_line(once, name, steps):
    done = once(f"check-{name}-{steps}", SCRIPT, name, steps)
    assert done.code == 0, done.stderr
    reported = check(done, "--no-leaks", "--max-growth", "0/step", code=1)
    lines = [line["line"] for line in reported["no-leaks"]["lines"]]
    assert reported["no-leaks"]["status"] == reported["max-growth"]["status"] == "failed"
    if name != "outputs":  # an output was allocated by the call of the model
        assert LEAKS[name] in lines


JOINS = """import torch
context = torch.zeros(1 << 20, 32, device="cuda")
for step in range(40):
    part = torch.ones(1 << 20, 32, device="cuda")
    context = torch.cat((context, part))
    (context @ torch.ones(32, 8, device="cuda")).sum().item()"""


def test_a_buffer_that_filled_the_gpu_in_few_steps_is_a_leak(record):
    """Too few for a list of what grows; the report's cause says it."""
    done = record("-c", JOINS, SIMCUDA_MEMORY="2GiB")
    assert done.report()["growth"] == [] and "grows without bound" in done.report()["oom"][0]["verdict"]
    reported = check(done, "--no-leaks", "--max-growth", "0/step", code=1)
    assert [reported[name]["status"] for name in ("no-leaks", "max-growth")] == ["failed", "unknown"]
    assert "grows without bound" in reported["no-leaks"]["text"]


def test_the_figures_are_pytorchs(once):
    done = once("check-clean-40", SCRIPT, "clean", 40)
    peak = [p for p in done.report()["peak"] if p["layer"] == "tensor"][0]["bytes"]
    assert check(done, "--max-tensor-peak", f"{peak}B", code=0)["max-tensor-peak"]["value"] == peak
    failed = check(done, "--max-tensor-peak", f"{peak - 512}B", code=1)["max-tensor-peak"]
    assert failed["over"] == 512 and failed["lines"]
    reported = check(done, "--max-syncs-per-step", "0", "--max-copies-per-step", "0", "--max-h2d-per-step", "0", code=0)
    assert reported["max-syncs-per-step"]["why"].startswith("over ")


def test_the_budget(once):
    done = once("check-clean-40", SCRIPT, "clean", 40)
    params = 2 * (256 * 256 + 256) + 256 * 8 + 8
    reported = check(done, "--budget", f"params={params},optimizer=adamw,tolerance=10%", code=0)
    assert reported["budget"]["status"] == "ok"
    check(done, "--budget", f"params={params},optimizer=adamw,activations=64MiB", code=0)
    failed = check(done, "--budget", f"params={params},optimizer=sgd,tolerance=10%", code=1)["budget"]
    assert failed["status"] == "failed" and failed["what"] in ("optimizer state", "all of the three")
    check(done, "--budget", f"params={params // 2},optimizer=adamw", code=1)


TESTS = """
import pytest
import torch

kept = []

@pytest.fixture(scope="module")
def net():
    return torch.nn.Linear(1024, 1024).cuda()

def step(net):
    net(torch.randn(8, 1024, device="cuda")).sum().backward()
    net.zero_grad(set_to_none=True)

@pytest.mark.limit_gpu_memory("64MiB")
@pytest.mark.limit_gpu_leaks("0")  # cuBLAS's workspace, made here, is none
def test_step(net):
    step(net)

@pytest.mark.limit_gpu_memory("64MiB")
@pytest.mark.limit_gpu_leaks("0")
@pytest.mark.limit_gpu_syncs(0)
def test_next_step(net):
    step(net)

@pytest.mark.limit_gpu_memory("16MiB")
def test_too_much(net):
    x = torch.zeros(8 << 20, device="cuda")  # much

@pytest.mark.limit_gpu_leaks("0")
def test_keeps(net):
    kept.append(net(torch.randn(8, 1024, device="cuda")))  # keeps

@pytest.mark.limit_gpu_syncs(1)
def test_waits(net):
    x = torch.zeros(4, device="cuda")
    for i in range(4):
        x[i].item()  # waits

def test_figures(net, gpuspy):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.zeros(1 << 20, device="cuda")
    y = x + 1
    del x
    assert gpuspy.current == torch.cuda.memory_allocated() - before
    assert gpuspy.peak == torch.cuda.max_memory_allocated() - before
"""


def test_the_plugin(tmp_path):
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    python = os.environ["TORCH_PYTHON"]
    (tmp_path / "test_it.py").write_text(TESTS)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "SIMCUDA_", "PYTORCH_"))}
    env.update(CUDA, OMP_NUM_THREADS="2",
               GPUSPY_LIB=str(BUILD / "libgpuspy.so"), TMPDIR=str(tmp_path), PYTHONPATH=str(ROOT / "pytest-gpuspy"))
    if subprocess.run([python, "-c", "import pytest"], env=env, stderr=subprocess.DEVNULL).returncode:
        borrowed = tmp_path / "borrowed"  # this pytest, without other packages in its folder
        borrowed.mkdir()
        beside = Path(pytest.__file__).resolve().parent.parent
        for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "attr", "attrs", "py.py", "pygments"):
            if (beside / name).exists():
                (borrowed / name).symlink_to(beside / name)
        env["PYTHONPATH"] += f":{borrowed}"
    if subprocess.run([python, "-c", "import pytest"], env=env, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("that Python has no pytest")
    done = subprocess.run([python, "-m", "pytest", "-p", "pytest_gpuspy.plugin", "-p", "no:cacheprovider", "--gpuspy", "-rA",
                           "test_it.py"], env=env, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=SECONDS)
    found = dict((name, word) for word, name in re.findall(r"^(PASSED|FAILED|ERROR) test_it\.py::(\w+)", done.stdout, re.M))
    assert found == {"test_step": "PASSED", "test_next_step": "PASSED", "test_too_much": "FAILED", "test_keeps": "FAILED",
                     "test_waits": "FAILED", "test_figures": "PASSED"}, done.stdout + done.stderr
    for comment, name in (("much", "too_much"), ("keeps", "keeps"), ("waits", "waits")):
        line = next(i for i, text in enumerate(TESTS.splitlines(), 1) if text.endswith("# " + comment))
        assert f"test_it.py:{line} in test_{name}" in done.stdout
