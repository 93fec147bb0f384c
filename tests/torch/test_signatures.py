"""Each line of signatures.py is named as its comment states, with the same number per step; nothing in innocent.py is
reported."""
import re

import pytest
from conftest import HERE

SCRIPT, INNOCENT = HERE / "signatures.py", HERE / "innocent.py"
LINES = dict(enumerate(SCRIPT.read_text().splitlines(), 1))
KINDS = {n: found[0] for n, line in LINES.items() if line.startswith("    ") and (found := re.findall(r"# (?:says|names) (.*)$", line))}
TIME = ("sync", "transfer", "churn")


def kind_of(comment):
    return sorted(re.findall(r"(.+?) × (\d+)(?:, |$)", comment))


@pytest.fixture(scope="module", params=["both", "python"])
def seen(once, request):
    settings = {"both": {}, "python": {"GPUSPY_STACKS": "python"}}  # the usual setting needs no new process
    done = once(f"signatures {request.param}", SCRIPT, **settings[request.param])
    assert done.code == 0, done.stderr
    return request.param, done.report()


def by_line(report, script):
    lines = {}
    for s in report["sync"]:
        if s["site"]["file"] == str(script):
            lines.setdefault(s["site"]["line"], []).append(s)
    return lines


def test_patterns_and_calls(seen):
    stacks, report = seen
    lines = by_line(report, SCRIPT)
    found = {n: sorted((s["pattern"], f"{s['calls_per_step']:g}") for s in here) for n, here in lines.items()
             if any(s["phase"] == "step" for s in here)}
    if stacks == "both":
        assert found == {n: kind_of(comment) for n, comment in KINDS.items()}
    else: # from the calls only: the number is known, and what Python's own frames show
        times = {n: sum(int(c) for _, c in here) for n, here in found.items()}
        assert times == {n: sum(int(c) for _, c in kind_of(comment)) for n, comment in KINDS.items()}
        frames = ("print", "torch.cuda.synchronize()", "stream.synchronize()", "clip_grad", "GradScaler")
        for n, comment in KINDS.items():
            if comment.startswith(frames):
                assert found[n] == kind_of(comment)


def test_reported_lines(seen):
    stacks, report = seen
    accused = {n for n, here in by_line(report, SCRIPT).items() if any(s["matters"] for s in here)}
    wanted = {n for n in KINDS if "# says" in LINES[n]}
    assert accused == wanted if stacks == "both" else accused <= wanted
    for s in report["sync"]:
        assert (s["advice"] is not None) == s["matters"] and (s["phase"] == "step" or not s["matters"]), s


def test_one_thing_to_do_each(seen):
    stacks, report = seen
    if stacks == "both":
        todo = {s["site"]["line"]: s["advice"] for s in report["sync"] if s["advice"]}
        line = {text: next(n for n in KINDS if text in LINES[n]) for text in ("value.to(dev)", "for v in losses", "if flag", "x[mask]  #", "pinned.to(dev)  #", "x[i] for", "x[x.argmax",
                                                                          "table.sum()", "value = flag", "action =", "flag.item()  #", "end.sync", "any(v < 0", "most = max", "top if", "scaler.step", "x[index] = 1", "square[0, 1]", "n = mask.sum")}
        assert "one buffer" in todo[line["value.to(dev)"]] and "torch.stack" in todo[line["for v in losses"]]
        assert "torch.where" in todo[line["if flag"]] and "torch.where(mask" in todo[line["x[mask]  #"]]
        assert "index_select" in todo[line["x[x.argmax"]] and "not one element at a time" in todo[line["x[i] for"]]
        assert "as a size" in todo[line["table.sum()"]] and "torch.where" in todo[line["value = flag"]]
        assert "several environments" in todo[line["action ="]]
        assert "accumulate" in todo[line["flag.item()  #"]] and "every N steps" in todo[line["end.sync"]]
        assert "one read" in todo[line["any(v < 0"]] and "use the tensor itself" in todo[line["n = mask.sum"]]
        assert "torch.maximum" in todo[line["most = max"]] and "torch.maximum" not in todo[line["top if"]]
        assert "fused=True" in todo[line["scaler.step"]]
        assert "fill_" in todo[line["square[0, 1]"]] and "fill_" not in todo[line["x[index] = 1"]] # it would fill a copy
        assert todo[line["pinned.to(dev)  #"]].startswith("the memory is pinned already")
    for a in report["advice"]:
        assert a["topic"] not in TIME or re.match(r"signatures\.py:\d+.*per step", a["text"]), a["text"]


@pytest.mark.parametrize("what", ["epochs", "warmup", "amp", "later", "once", "beside"])
def test_nothing_is_accused(once, what):
    done = once(f"innocent {what}", INNOCENT, what)
    assert done.code == 0, done.stderr
    report = done.report()
    assert not [s for s in report["sync"] if s["matters"] or s["advice"]]
    assert not [x for x in report["transfers"] + report["churn"] if x["advice"]]
    assert not [a for a in report["advice"] if a["topic"] in TIME]


def test_lines_that_must_not_be_reported(once):
    report = once("innocent epochs", INNOCENT, "epochs").report()
    source = INNOCENT.read_text().splitlines()
    phases = {source[s["site"]["line"] - 1].strip(): s for s in report["sync"] if s["phase"] != "end"}
    assert phases["right += (net(x).argmax(1) == y).sum().item()"]["phase"] == "evaluation"
    assert phases[next(line.strip() for line in source if "return nn.Sequential(" in line)]["phase"] == "startup"
    (log,) = [s for line, s in phases.items() if "running.item()" in line]
    assert (log["phase"], log["every_steps"]) == ("logging", 10)
    assert [s for s in report["sync"] if s["phase"] == "end"]


CHURN = """
import torch
from torch import nn
net = nn.Linear(64, 64).cuda()
opt = torch.optim.Adam(net.parameters())
for _ in range(40):
    big = torch.zeros(8 << 20, device="cuda")
    net(torch.zeros(8, 64, device="cuda")).sum().backward()
    opt.step()
    del big
    torch.cuda.empty_cache()
"""


def test_empty_cache_in_the_loop(record):
    done = record("-c", CHURN)
    report = done.report()
    (churn,) = [c for c in report["churn"] if c["pattern"] == "empty_cache"]
    # blocks that were allocated during the warm-up do not count, and a slow start makes it longer
    assert .9 <= churn["calls_per_step"] <= 1 and churn["phase"] == "step" and churn["freed_at"]["line"] == 11
    assert [a for a in report["advice"] if a["text"].startswith("<string>:11: ") and "empty_cache()" in a["text"]]


ANOMALY = """
import torch
from torch import nn
net = nn.Linear(64, 64).cuda()
opt = torch.optim.Adam(net.parameters())
torch.autograd.set_detect_anomaly(True)
for _ in range(30):
    net(torch.zeros(8, 64, device="cuda")).sum().backward()
    opt.step()
"""


def test_detect_anomaly(record):
    report = record("-c", ANOMALY).report()
    (found,) = [s for s in report["sync"] if s["matters"]]
    assert (found["pattern"], found["site"]["line"]) == ("detect_anomaly", 8) and found["calls_per_step"] >= 2


def test_without_the_cache(record):
    report = record("-c", CHURN, PYTORCH_NO_CUDA_MEMORY_CACHING=1).report()
    (advice,) = [a for a in report["advice"] if a["topic"] in ("sync", "churn")]
    assert "unset it" in advice["text"] and re.match(r"<string>:\d+", advice["text"])
    assert {c["pattern"] for c in report["churn"]} <= {"PyTorch without its cache", "PyTorch's allocator"}


TQDM = """
import sys, torch
from torch import nn
sys.path.insert(0, "site-packages")
from tqdm import tqdm
net = nn.Linear(64, 64).cuda()
opt = torch.optim.Adam(net.parameters())
bar = tqdm(range(30))
for _ in bar:
    loss = net(torch.zeros(8, 64, device="cuda")).sum()
    loss.backward()
    opt.step()
    opt.zero_grad()
    bar.set_postfix(loss=loss)
"""


def test_a_tensor_in_a_progress_bar(record, tmp_path):
    package = tmp_path / "site-packages" / "tqdm"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("class tqdm:\n    def __init__(self, items): self.items = items\n"
                                         "    def __iter__(self): return iter(self.items)\n"
                                         "    def set_postfix(self, **k): return {a: f'{b:.3g}' for a, b in k.items()}\n")
    report = record("-c", TQDM.replace('"site-packages"', repr(str(tmp_path / "site-packages")))).report()
    (bar,) = [s for s in report["sync"] if s["matters"]]
    assert (bar["pattern"], bar["site"]["line"], bar["calls_per_step"]) == ("tensor in a tqdm bar", 14, 1)


LIBRARIES = r"""
import sys
sys.path.insert(0, FOLDER)
import torch
from trl.trainer.some_trainer import compute_metrics
from somelib.helpers import watch
from transformers.trainer import _run_epoch
from somelib.helpers import collate, constant
from transformers.trainer_loop import next_batch
from accelerate.utils.operations import send_to_device
from lightning.pytorch.loops.prediction_loop import store_predictions
from lightning.pytorch.loops.fit_loop import log_metrics
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    loss = model(torch.randn(8, 64, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    compute_metrics(loss)
    watch(loss)
    _run_epoch(loss)
    collate(torch.randn(8, 64))
    constant()
    next_batch(torch.randn(8, 64))
    send_to_device(torch.randn(8, 64))
    store_predictions(loss)
    log_metrics(loss)
    own = loss.item()
"""
LIBRARY_FILES = {
    "trl/trainer/some_trainer.py": "def compute_metrics(loss):\n    return loss.item()\n",
    "somelib/helpers.py": "def watch(loss):\n    if loss > 5:\n        pass\n"
                          "def collate(x):\n    return x.to('cuda')\n"
                          "def constant():\n    import torch\n    return torch.tensor([1., 2.], device='cuda')\n",
    "accelerate/utils/operations.py": "def send_to_device(x):\n    return x.to('cuda')\n",
    "transformers/trainer_loop.py": "from accelerate.utils.operations import send_to_device\n"
                                    "def next_batch(x):\n    return send_to_device(x)\n",
    "lightning/fabric/utilities/apply_func.py": "def move_data_to_device(x):\n    return x.to('cpu')\n",
    "lightning/pytorch/loops/prediction_loop.py": "from lightning.fabric.utilities.apply_func import move_data_to_device\n"
                                                  "def store_predictions(x):\n    return move_data_to_device(x)\n",
    "lightning/pytorch/loops/fit_loop.py": "from lightning.fabric.utilities.apply_func import move_data_to_device\n"
                                           "def log_metrics(x):\n    return move_data_to_device(x)\n",
    "transformers/trainer.py": "import torch\ndef _run_epoch(loss):\n    if torch.isnan(loss):\n        pass\n",
}


def test_a_wait_inside_a_library_names_the_users_call_and_the_librarys_setting(record, tmp_path):
    packages = tmp_path / "site-packages"
    for name, text in LIBRARY_FILES.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    script = LIBRARIES.replace("FOLDER", repr(str(packages)))
    (tmp_path / "loop.py").write_text(script)
    report = record(tmp_path / "loop.py").report()
    lines = script.splitlines()
    advice = {lines[s["site"]["line"] - 1].strip(): s["advice"] for s in report["sync"]
              if s["site"]["file"].endswith("loop.py") and s["advice"]}
    assert "has no setting" in advice["compute_metrics(loss)"]
    assert "inside a library" in advice["watch(loss)"]
    assert "logging_nan_inf_filter=False" in advice["_run_epoch(loss)"]
    copies = {lines[t["site"]["line"] - 1].strip(): t["advice"] for t in report["transfers"] if t["advice"]} | advice
    assert "pin_memory=True" in copies["collate(torch.randn(8, 64))"]
    assert "find its setting" in copies["constant()"]
    assert "return_predictions=False" in advice["store_predictions(loss)"]
    assert "log_every_n_steps" in advice["log_metrics(loss)"]
    assert "Accelerator(" in copies["send_to_device(torch.randn(8, 64))"]
    trainer = copies["next_batch(torch.randn(8, 64))"]  # a Trainer's Accelerator takes its settings from the Trainer's
    assert "TrainingArguments(accelerator_config=" in trainer and "Accelerator(" not in trainer
    assert "every N steps" in advice["own = loss.item()"] and "library" not in advice["own = loss.item()"]
