"""Training scripts that run out of memory, each for a known reason at a known line (fixtures/oom)."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, CUDA
from pause import with_pause

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=True)}
TYPED = {"leak_callback", "capacity_backward", "frag_lengths", "recovered_retry", "cap_fraction"}


def type_what_it_suggests(folder):
    """Each command below "Next" works as printed, in the folder where the user is."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))} | {"COLUMNS": "100"}
    env["PATH"] = f"{BUILD}:{env['PATH']}"

    def typed(command):
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and (done.stdout or done.stderr), (command, done.stderr)
        return done.stdout
    suggested = set()
    for view in "report", "report --full", "whatif":
        after = re.sub(r" \\\n *", " ", typed(f"gpuspy {view} run.db").split("\nNext\n")[1])
        named = "".join(re.findall(r"^  (run=.*\n)", after, re.M))
        suggested |= {named + command for command in re.findall(r"^  (gpuspy .*?)(?:  +[a-z].*)?$", after, re.M)}
    assert len(suggested) > 4
    for command in sorted(suggested):
        typed(command)


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(record, name):
    s = SCENARIOS[name]
    done = record(s.path, **s.environment, OOM_LIBRARIES=BUILD / "oom")
    assert s.differs(done.report()) == [], done.stderr[-1500:]
    if name in TYPED:
        type_what_it_suggests(done.folder)
    if len(list(done.folder.glob("run*.db"))) == 1:
        assert s.differs(done.report(with_pause(done.database, done.folder / "paused.db", .97))) == []


def test_a_pause_does_not_hide_what_a_collection_of_garbage_freed(record):
    """What was live when the growth began is found by the order of allocations."""
    s = SCENARIOS["leak_ctx_output"]
    done = record(s.path, **s.environment | {"SIMCUDA_MEMORY": "950MiB"})
    assert s.differs(done.report()) == []
    for share in .1, .3, .9:
        assert s.differs(done.report(with_pause(done.database, done.folder / "paused.db", share))) == [], share


@pytest.mark.parametrize("name, stacks", [("capacity_embeddings", "native"), ("capacity_script_layers", "native"), ("capacity_script_layers", "python"),
                                          ("near_lengths_concatenated", "native")])
def test_fewer_frames_make_no_leak(record, name, stacks):
    """Without Python frames, all layers of a pass share their call paths; without native ones, the statement shows where
    data enters."""
    s = SCENARIOS[name]
    report = record(s.path, **s.environment | {"GPUSPY_STACKS": stacks}).report()
    assert report["oom"][0]["cause"] == "capacity" and (stacks == "python" or report["growth"] == []), report["oom"][0]["verdict"]


@pytest.mark.parametrize("name", ["capacity_first_pass_nested", "capacity_first_pass_of_layers", "capacity_script_layers"])
def test_layers_of_one_pass_are_not_growth(record, name):
    """Neither 'leaks' nor 'check --no-leaks' blames a program for a pass that does not fit."""
    assert record(SCENARIOS[name].path, **SCENARIOS[name].environment).report()["growth"] == []


def test_the_summary_at_the_end_gives_the_reports_verdict(tmp_path):
    """It can name a leak's graph only by native frames, as the report does."""
    database = tmp_path / "run.db"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
    env.update(SCENARIOS["leak_validation_losses"].environment, **CUDA)
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", database, "--", os.environ["TORCH_PYTHON"],
                           SCENARIOS["leak_validation_losses"].path], env=env, capture_output=True, text=True)
    report = json.loads(subprocess.run([BUILD / "gpuspy", "report", "--json", database], capture_output=True, text=True).stdout)
    assert report["oom"][0]["cause"] == "leak" and report["oom"][0]["verdict"] in " ".join(done.stderr.split())


EVALUATED = """import torch
from contextlib import ExitStack, nullcontext
from torch import nn
net = nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(1024, 1024), nn.ReLU())]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    net(torch.randn(64, 1024, device="cuda")).mean().backward()
    optimizer.step()
def evaluate(x):
    BODY
    return net(x)
"""


@pytest.mark.parametrize("body, rows, advised", [
    # a context in a variable; detectron2's evaluator; a mode that nothing takes back
    ("context = torch.no_grad()\n    with context: return net(x)", 60000, False),
    ("with ExitStack() as stack:\n        stack.enter_context(torch.no_grad())\n        return net(x)", 60000, False),
    ("torch.set_grad_enabled(False)", 60000, False),
    # look-alikes
    ("context = torch.no_grad()\n    context = nullcontext()\n    with context: return net(x)", 16000, True),
    ("with ExitStack() as stack:\n        stack.enter_context(nullcontext())\n        return net(x)", 16000, True),
    ("torch.set_grad_enabled(False)\n    net(x[:4])\n    torch.set_grad_enabled(True)", 16000, True)])
def test_where_gradients_are_off(record, tmp_path, body, rows, advised):
    script = tmp_path / "evaluated.py"
    script.write_text(EVALUATED.replace("BODY", body) + "".join(f"evaluate(torch.empty({n}, 1024, device='cuda'))\n" for n in (rows, 3 * rows)))
    oom = record(script, SIMCUDA_MEMORY="2GiB").report()["oom"][0]
    assert ("no_grad" in str(oom["advice"])) == advised, oom["advice"]


NOTEBOOK = '''
import sys, torch
from IPython.core.displayhook import DisplayHook
Out, names = {}, {"torch": torch}
sys.displayhook = DisplayHook(Out)
def run(n, cell):
    *body, last = cell.split("; ")
    file = f"/tmp/ipython-input-{n}-{n}7.py" if "colab" in sys.argv else f"/tmp/ipykernel_7/{n}.py"
    for line in body:
        exec(compile(line, file, "exec"), names)
    exec(compile(last, file, "single"), names)
run(0, "model = torch.nn.Linear(1024, 4096).cuda(); kept = []")
for n in range(1, 100):
    run(n, CELL)
    if "reset" in sys.argv:
        Out.clear()
'''
HOOK = '''
class DisplayHook:
    def __init__(self, out):
        self.out = out
    def __call__(self, value):
        if value is not None:
            repr(value)
            self.out[len(self.out)] = value
'''


@pytest.mark.parametrize("cell, displayed", [("model(torch.randn(2048, 1024, device='cuda'))", True), ("y = 1; torch.zeros(4 << 20, device='cuda')", True),
                                             ("kept.append(torch.zeros(4 << 20, device='cuda'))", False)])
def test_values_that_cells_displayed_are_named(record, tmp_path, cell, displayed):
    (tmp_path / "IPython" / "core").mkdir(parents=True)
    (tmp_path / "IPython" / "core" / "displayhook.py").write_text(HOOK)
    (tmp_path / "notebook.py").write_text(NOTEBOOK.replace("CELL", repr(cell)))
    run = record(tmp_path / "notebook.py", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB")
    oom = run.report()["oom"][0]
    assert run.code != 0 and any("Out[]" in advice for advice in oom["advice"]) is displayed, oom["advice"]
    if displayed:
        assert "Out[]" in oom["advice"][0] and oom["measures"][0]["enough"], oom["measures"]
        assert record(tmp_path / "notebook.py", "reset", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB").code == 0
        colab = record(tmp_path / "notebook.py", "colab", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB").report()["oom"][0]
        assert "Out[]" in colab["advice"][0], colab["advice"]


CAUGHT = '''
import torch
try:
    torch.empty(6 << 30, device="cuda")
except torch.OutOfMemoryError:
    pass
'''


@pytest.mark.parametrize("arguments", [[], ["-i", "images"], ["--config=kernel_launcher.yaml"]])
def test_a_programs_own_arguments_make_it_no_session(record, tmp_path, arguments):
    """Python's -i and a notebook's kernel go on after an exception, a program with an argument of such a name does not."""
    (tmp_path / "caught.py").write_text(CAUGHT)
    assert record(tmp_path / "caught.py", *arguments, SIMCUDA_MEMORY="1GiB").report()["oom"][0]["outcome"] == "handled"


PROBE = '''
import os, signal, sys, torch
try:
    torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
kept = []
for i in range(4000):
    x = torch.zeros(1000, device="cuda") + 1
    kept.append(x[:10].clone())
if "kill" in sys.argv:
    torch.cuda.synchronize()
    ctypes = __import__("ctypes")
    ctypes.CDLL(None).gpuspy_flush()
    os.kill(os.getpid(), signal.SIGKILL)
'''


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_growth_after_a_request_that_was_never_met_is_found(record, tmp_path, end):
    (tmp_path / "probe.py").write_text(PROBE)
    done = record(tmp_path / "probe.py", end, SIMCUDA_MEMORY="1GiB")
    report = done.report()
    assert (done.code == 0) is (end == "exit")
    assert [(oom["fatal"], oom["cause"]) for oom in report["oom"]] == [(False, "oversized_request")]
    (grew,) = report["growth"]
    assert grew["lines"][0]["site"]["line"] == 10 and grew["count"] > 3900


def test_without_source_the_keeping_line_is_unknown(record, tmp_path):
    """Code of exec() has no file: the line that made the graph's largest tensor is not called the one to edit."""
    script = tmp_path / "starts.py"
    script.write_text("import sys\nexec(open(sys.argv[1]).read())\n")
    s = SCENARIOS["leak_losses"]
    (oom,) = record(script, s.path, **s.environment).report()["oom"]
    assert oom["cause"] == "leak" and "autograd graph" in oom["verdict"] and oom["holders"] == []
    assert "the line that keeps a result of this pass is unknown; store " in oom["advice"][0]


def test_features_of_a_few_batches_before_and_after_a_pause(record):
    """Each keeps the graph of a library's deep network, and hardly anything is freed. gpuspy must not take that for loading data."""
    script = Path(__file__).with_name("few_batches.py")
    done = record(script, SIMCUDA_MEMORY="1GiB")
    oom = done.report(with_pause(done.database, done.folder / "paused.db", .6))["oom"][-1]
    line = next(i for i, text in enumerate(script.read_text().splitlines(), 1) if "features.append(" in text)
    assert (oom["cause"], [h["line"] for h in oom["holders"]]) == ("leak", [line]), oom["verdict"]


TWO_LEAKS = """
import sys, torch
weights = torch.empty(int(sys.argv[2]) << 20, dtype=torch.uint8, device="cuda")
del weights
torch.cuda.empty_cache()
net = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
outputs, inputs = [], []
for step in range(int(sys.argv[1])):
    x = torch.randn(1024, 256, device="cuda")
    y = net(x)
    optimizer.zero_grad()
    y.square().mean().backward()
    optimizer.step()
    outputs.append(y.detach().clone())
    inputs.append(x + 1)
"""


def test_the_steps_to_a_full_gpu_count_all_that_grows(record, tmp_path):
    (tmp_path / "leaks.py").write_text(TWO_LEAKS)
    gpu = {"SIMCUDA_MEMORY": "1GiB", "SIMCUDA_CONTEXT": "100MiB"}

    def texts(*words):
        done = record(tmp_path / "leaks.py", *words, **gpu)
        return done, [a["text"] for a in done.report()["advice"] if a["topic"] == "leak"]

    _, (first, second) = texts("150", "1")
    (steps,) = record(tmp_path / "leaks.py", "1000", "1", **gpu).report()["steps"]
    for text in first, second:
        more = int(re.search(r"GPU 0 full after about (\d+) more steps", text)[1])
        assert abs(150 + more - steps["n"]) <= .05 * more, (text, steps["n"])
    _, after_a_peak = texts("150", "700")
    assert len(after_a_peak) == 2 and "more steps" not in str(after_a_peak)


ROWS = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 4096)).cuda()
index, n = {}, 8
with torch.no_grad():
    for step in range(400):
        out = net(torch.rand(256 * n, 64, device="cuda"))
"""
ITEMS = {
    "rows": ("for k, row in enumerate(out):\n    index[step, k] = row[0]", True),
    "whole rows": ("for k, row in zip(range(n), out):\n    index[step, k] = row", True),
    "by index": ("for k in range(n):\n    index[step, k] = out[k]", True),
    "with its number": ("for k in range(n):\n    index[step, k] = (k, out[k].detach())", True),
    "parts made anew": ("for k in range(n):\n    index[step, k] = out[k::n] * 2", False),
    "list of tensors": ("for k, row in enumerate([out[k::n] + 1 for k in range(n)]):\n    index[step, k] = row", False),
    "levels": ("for k, row in enumerate((out, out + 1)):\n    index[step, k] = row", False),
    "dictionary": ("for k, row in {'a': out}.items():\n    index[step, k] = row", False),
    "whole": ("for k in range(n):\n    index[step, k] = out", False),
    "member of a tuple": ("out = (out, step)\nindex[step] = out[0]", False),
}


@pytest.mark.parametrize("name", ITEMS)
def test_a_row_keeps_the_whole_tensor(record, tmp_path, name):
    body, expected = ITEMS[name]
    (tmp_path / "rows.py").write_text(ROWS + "".join(f"        {line}\n" for line in body.split("\n")))
    oom = record(tmp_path / "rows.py", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB").report()["oom"][0]
    assert oom["cause"] == "leak" and ("a slice keeps the whole" in oom["advice"][0]) == expected, oom["advice"]
