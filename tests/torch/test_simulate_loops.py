"""gpuspy run --simulate: loops that wait for values which are not computed are stopped; all others end by
themselves."""
import json
import os
import subprocess
from types import SimpleNamespace

import pytest
from conftest import BUILD, HERE, SECONDS

ENDLESS = HERE / "simulate_endless.py"
ENDING = ("ranged whiled nanogpt derived trainer evaluation server env gpuenv small iterated decay timed scaler "
          "generator infinite event signaled prefetch listpop patience epochs").split()
WAITS = "waits for values that a simulated GPU does not compute"


@pytest.fixture
def simulate(tmp_path):
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")

    def start(*words, options=()):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
        done = subprocess.run([BUILD / "gpuspy", "run", "-q", "--simulate", "t4-16g", *options, "--",
                               os.environ["TORCH_PYTHON"], *map(str, words)], cwd=tmp_path, text=True,
                              env=dict(clean, PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1"),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
        return SimpleNamespace(code=done.returncode, out=done.stdout, err=done.stderr)
    return start


@pytest.fixture
def gpuspy(tmp_path):
    def ask(*words):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        return subprocess.run([BUILD / "gpuspy", *words], cwd=tmp_path, env=env, text=True, check=True,
                              stdout=subprocess.PIPE, timeout=SECONDS).stdout
    return ask


def loop_line(name):
    """Of the first marked loop after the beginning of the function or class."""
    lines = ENDLESS.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith((f"def {name}(", f"class {name.title()}")))
    return next(i + 1 for i, line in enumerate(lines) if i >= start and line.endswith("# the loop"))


def test_endless_loops_are_stopped(simulate):
    names = "converge", "accuracy", "collect", "reject", "listed", "counted", "search"
    done = simulate(ENDLESS, *names)
    assert done.out.splitlines() == [f"{name} 124" for name in names], done.err
    for name in names:
        assert f"a loop at {ENDLESS}:{loop_line(name)} {WAITS}" in done.err


def test_a_loop_around_a_for_is_stopped_later(simulate):
    done = simulate(ENDLESS, "inner", options=("--simulate-loops", "100"))
    assert done.code == 124 and f":{loop_line('inner')} {WAITS}" in done.err


def test_the_report_states_the_loop(simulate, gpuspy):
    done = simulate(ENDLESS, "generate")
    assert done.code == 124 and f":{loop_line('generate')} {WAITS}" in done.err and "ended" not in done.out
    text = gpuspy("report", "run.db")
    assert " ".join(text.split()).startswith("! a loop at ")  # a long path has its own line
    assert "killed" not in text.splitlines()[0]
    report = json.loads(gpuspy("report", "--json", "run.db"))
    assert report["run"]["loop"].endswith(WAITS) and f":{loop_line('generate')} " in report["run"]["loop"]
    assert report["growth"] == [] and [a["topic"] for a in report["advice"]] == ["loop"]


def test_memory_that_such_a_loop_collects_is_not_a_leak(simulate, gpuspy):
    done = simulate(ENDLESS, "grows")
    assert done.code == 1 and "OutOfMemoryError" in done.err and WAITS in done.err
    assert gpuspy("report", "run.db").startswith(f"! a loop at {ENDLESS}:{loop_line('grows')} ")
    oom = json.loads(gpuspy("report", "--json", "run.db"))["oom"][0]
    assert oom["cause"] == "capacity" and oom["verdict"].startswith("a loop at ") and "inferred" in oom["verdict"]


def test_other_loops_end(simulate):
    """A process starts for longer than all of them take, so they share one, and the limit is lower than its default."""
    done = simulate(HERE / "simulate_ending.py", *ENDING, options=("--simulate-loops", "100"))
    assert done.code == 0, done.err
    assert done.out.split() == [word for name in ENDING for word in (name, "ended")]


def test_a_higher_number_lets_it_run_longer(simulate, gpuspy):
    events = []
    for most in ("100", "3000"):
        assert simulate(ENDLESS, "collect", options=("--simulate-loops", most, "-o", f"{most}.db")).code == 124
        events.append(json.loads(gpuspy("report", "--json", f"{most}.db"))["run"]["events"])
    assert events[1] > 10 * events[0]


def test_values_are_not_validated(simulate):
    done = simulate(HERE / "simulate_values.py", "distributions", "ppo", "vae")
    assert (done.code, done.out.split()[1::2]) == (0, ["ended"] * 3), done.err


@pytest.fixture
def transformers(simulate):
    if subprocess.run([os.environ["TORCH_PYTHON"], "-c", "import importlib.util as u; raise SystemExit(u.find_spec('transformers') is None)"]).returncode:
        pytest.skip("transformers is not installed beside PyTorch")


def test_generate_ends_after_its_tokens(simulate, transformers):
    ways = "greedy", "sample", "beam", "beam_early", "beam_sample", "ends"
    done = simulate(HERE / "simulate_generate.py", *ways)
    assert (done.code, done.out.split()) == (0, [word for way in ways for word in (way, "20")]), done.err


def test_trainer_with_evaluation(simulate, transformers, tmp_path):
    done = simulate(HERE / "simulate_trainer.py", tmp_path / "out")
    assert done.code == 0 and "steps 4" in done.out, done.err
