"""What-ifs that change the program (--without, --empty-cache-every, --scale) or are found by --search, compared with runs
of the changed program, with that setting, on that GPU. CHANGED_ALL=1 runs every change of each program."""
import json
import os
import re
import subprocess
import zlib

import pytest
from conftest import BUILD, HERE, REAL, limit_of

SCRIPT = HERE / "changed.py"
LINES = {}
for number, text in enumerate(SCRIPT.read_text().splitlines(), 1):
    LINES["def"] = (re.match(r"def (\w+)\(\):", text) or [0, LINES.get("def")])[1]
    if text.endswith("# --without"):
        LINES[LINES["def"]] = number
PROGRAMS = [name for name in LINES if name != "def"]
INFERRED = ("inference", "generation")  # loops without an optimizer
CONTEXT, LARGE, MIB = 100 << 20, 64 << 30, 1 << 20
ALL = bool(os.environ.get("CHANGED_ALL"))


def asked(file, *words):
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", *words, file], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def run_of(once, program, size=LARGE, **more):
    return once(f"changed {program} {size} {more}", SCRIPT, program, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY=size,
                SIMCUDA_DEVICES=2 if program == "two_devices" else 1, **more)


def figures(x):
    site = (x["oom"] or {}).get("site") or {}
    return x["fits"], x["peak_allocated_bytes"], x["peak_reserved_bytes"], site.get("line"), (x["oom"] or {}).get("requested_bytes")


def recorded_of(run):
    assert run.code == 0 or "out of memory" in run.stderr, run.stderr[-2000:]
    answer = asked(run.database, "--limit", "64GiB")
    assert answer["replay"]["exact"], answer["replay"]
    return answer["recorded"]


CHANGES = [({"DROP": 1}, "large"), ({"DROP": 1, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "large"),
           ({"DROP": 1, "EMPTY": 2}, "large"), ({"DROP": 1}, "small"), ({"EMPTY": 3}, "small")]


@pytest.mark.parametrize("program, change, size", [(program, *change) for row, program in enumerate(PROGRAMS)
                                                   for column, change in enumerate(CHANGES) if ALL or row % len(CHANGES) == column])
def test_a_changed_program_needs_what_the_what_if_states(once, program, change, size):
    first = run_of(once, program)
    bytes_ = LARGE if size == "large" else (CONTEXT + recorded_of(first)["peak_allocated_bytes"] * 7 // 8) >> 21 << 21
    setting = change.get("PYTORCH_CUDA_ALLOC_CONF")
    words = ["--limit", limit_of(f"{bytes_ // MIB}MiB", "100MiB"), *(["--set", setting] if setting else []),
             *(["--without", f"changed.py:{LINES[program]}"] if "DROP" in change else []),
             *(["--empty-cache-every", str(change["EMPTY"])] if "EMPTY" in change else [])]
    ours, real = asked(first.database, *words)["whatif"][0], recorded_of(run_of(once, program, bytes_, **change))
    assert figures(ours) == figures(real), (ours, real)
    sure = all("lowest address" in doubt for doubt in ours["doubts"])  # the simulated driver chooses as the replay assumes
    assert sure != (program in INFERRED), ours["doubts"]


@pytest.mark.skipif(REAL, reason="the sizes of GPUs are simulated")
@pytest.mark.parametrize("program", PROGRAMS if ALL else ["mixed"])
def test_what_a_search_finds_is_what_happens(once, program):
    """Each setting that it ranks, the smallest GPU on which the program completes and the next smaller one."""
    first = run_of(once, program, FACTOR=40)
    for found in asked(first.database, "--search")["whatif"]:
        setting = found["settings"].get("allocator")
        real = recorded_of(run_of(once, program, found["settings"].get("limit_bytes", LARGE), FACTOR=40,
                                  **({"PYTORCH_CUDA_ALLOC_CONF": setting} if setting else {})))
        assert all("lowest address" in doubt for doubt in found["doubts"]) and figures(found) == figures(real), (found, real)


# Half and twice the batch: sizes that do not follow it, or follow it otherwise, make a difference.
SCALES = [(program, base, factor) for row, program in enumerate(PROGRAMS) for column, (base, factor) in enumerate(((1, 0.5), (1, 2), (16, 0.5), (16, 2)))
          if ALL or row % 8 == column]


@pytest.mark.parametrize("program, base, factor", SCALES)
def test_another_batch_needs_about_what_the_what_if_states(once, program, base, factor):
    ours = asked(run_of(once, program, FACTOR=base).database, "--scale", f"batch={factor}")["whatif"][0]
    real = recorded_of(run_of(once, program, FACTOR=base * factor))
    allocated, reserved = (0.4, 0.4) if program == "contrast" else (0.07, 0.25)  # its queue does not follow the batch
    assert abs(ours["peak_allocated_bytes"] / real["peak_allocated_bytes"] - 1) <= allocated, (ours, real)
    assert abs(ours["peak_reserved_bytes"] / real["peak_reserved_bytes"] - 1) <= reserved, (ours, real)
    assert not ours["exact"] and "infers" in ours["doubts"][0] and ours["settings"]["scale"] == {"batch": factor}


HANDWRITTEN = """import sys, torch
def batch(n): return int(n * FACTOR)
weights = [(torch.randn(1200, 1200, device="cuda") / 40).requires_grad_() for _ in range(6)]
momentum = [torch.zeros_like(w) for w in weights]
for step in range(6):
    x = torch.randn(batch(500 + 64 * (step % 5)), 1200, device="cuda")
    for w in weights:
        x = torch.tanh(x @ w)
    gradients = torch.autograd.grad(x.square().mean(), weights)
    for i, g in enumerate(gradients):
        momentum[i] = 0.9 * momentum[i] + g
        weights[i] = (weights[i] - 0.01 * momentum[i]).detach().requires_grad_()
"""
# For a batch of 800, an activation has the size of a weight.
COINCIDENCE = """import sys, torch
def batch(n): return int(n * FACTOR)
model = torch.nn.Sequential(torch.nn.Linear(800, 1600), torch.nn.ReLU(), torch.nn.Linear(1600, 1600), torch.nn.ReLU(), torch.nn.Linear(1600, 800)).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []
for step in range(9):
    x = torch.rand(batch(650 + 50 * (step % 4)), 800, device="cuda")
    y = model(x * 2)
    kept.append(torch.cat([x, y.detach()], 1))
    y.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# The last backward pass makes the last allocations: what it frees after them must not count as gradients that are kept to the end.
LAST = """import torch
def batch(n): return int(n * FACTOR)
model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
for step in range(4):
    x = torch.randn(batch(6400), 512).cuda()
    loss = (model(torch.nn.functional.layer_norm(x, (512,))) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del loss
"""


@pytest.mark.parametrize("text, factor", [(HANDWRITTEN, 0.5), (HANDWRITTEN, 2), (COINCIDENCE, 0.5), (COINCIDENCE, 2), (LAST, 0.5)],
                         ids=["handwritten-0.5", "handwritten-2", "coincidence-0.5", "coincidence-2", "last-0.5"])
def test_what_is_as_large_as_a_weight(once, tmp_path_factory, text, factor):
    """Weights of no module keep their size; an activation that once has the size of a weight follows the batch."""
    runs = []
    for part in (1, factor):
        script = tmp_path_factory.getbasetemp() / f"as_large_{part}_{zlib.crc32(text.encode())}.py"
        script.write_text(text.replace("FACTOR", str(part)))
        runs.append(once(f"as large as a weight {zlib.crc32(text.encode())} {part}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="8GiB"))
        assert runs[-1].code == 0, runs[-1].stderr[-2000:]
    ours, real = asked(runs[0].database, "--scale", f"batch={factor}")["whatif"][0], recorded_of(runs[1])
    for figure in ("peak_allocated_bytes", "peak_reserved_bytes"):
        assert abs(ours[figure] / real[figure] - 1) <= {HANDWRITTEN: 0.05, COINCIDENCE: 0.1, LAST: 0.01}[text], (figure, ours, real)


LATER = """import torch
def batch(n): return torch.randn(n, 512).cuda()
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.Adam(model.parameters())
ahead = batch(2048)
x = loss = None
for step in range(6):
    if KIND == "prefetch":
        x = ahead
    else:
        x = batch(2048)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if KIND == "prefetch":
        ahead = batch(2048)
"""


@pytest.mark.parametrize("kind, line, doubt", [("prefetch", "    ahead = ", "which may use them"),
                                               ("batch", "x = batch", None)])
def test_tensors_of_a_line_that_a_later_step_uses(once, tmp_path_factory, kind, line, doubt):
    script = tmp_path_factory.getbasetemp() / f"later_{kind}.py"
    script.write_text(f"KIND = {kind!r}\n{LATER}")
    at = next(i for i, text in enumerate(script.read_text().splitlines(), 1) if line in text)
    run = once(f"later {kind}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="8GiB")
    doubts = asked(run.database, "--without", f"{script.name}:{at}")["whatif"][0]["doubts"]
    rest = [text for text in doubts if "lowest address" not in text]
    assert len(rest) == (doubt is not None) and all(doubt in text for text in rest), doubts


LOOP = """import queue, threading, torch
model, kept, seen, ready = torch.nn.Linear(512, 512), [], [], queue.Queue(1)
model.cuda()  # weights
optimizer = torch.optim.Adam(model.parameters())
def load():
    for _ in range(6):
        ready.put(torch.randn(2000, 512, device="cuda"))
THREAD
for _ in range(6):
    x = BATCH
    y = model(x)  # outputs
    kept.append(KEPT)
    y.mean().backward()
    optimizer.step()  # state
    optimizer.zero_grad()
"""
ALONE = {"BATCH": "torch.randn(2000, 512, device='cuda')", "KEPT": "y.detach() + 1", "THREAD": ""}


@pytest.mark.parametrize("line, changed, doubt", [
    ("# weights", {}, "later steps need"), ("# state", {}, "later steps need"), ("kept.append", {}, ""), ("# outputs", {}, ""),
    ("# outputs", {"KEPT": "y"}, ""), ("kept.append", {"KEPT": "model(x)"}, "the graph of an output"),
    ("kept.append", {"KEPT": "(x * 2, y.detach())"}, "the graph of an output"), ("kept.append", {"KEPT": "(model(x).detach() + 1, x)"}, "the graph of an output"),
    ("kept.append", {"BATCH": "torch.randn(2000, 512, device='cuda'); seen.append(x)", "KEPT": "(y.detach() + 1).half()"}, ""),
    ("kept.append", {"BATCH": "torch.randn(2000, 512, device='cuda'); seen.append(x)", "KEPT": "{k: y.detach() + k for k in (1, 2)}"}, ""),
    ("kept.append", {"BATCH": "torch.randn(2000, 512, device='cuda'); seen.append(x)", "KEPT": "y.softmax(-1)"}, "the graph of an output"),
    ("kept.append", {"BATCH": "ready.get()", "THREAD": "threading.Thread(target=load).start()"}, "threads allocate")])
def test_why_a_line_cannot_be_left_out_exactly(once, tmp_path_factory, line, changed, doubt):
    """The loss of an output that is kept outlives its step only with that output; a graph keeps what other lines made."""
    text = LOOP
    for word, code in {**ALONE, **changed}.items():
        text = text.replace(word, code)
    script = tmp_path_factory.getbasetemp() / f"left_out_{zlib.crc32(text.encode())}.py"
    script.write_text(text)
    number = next(n for n, text in enumerate(text.splitlines(), 1) if line in text)
    run = once(f"left out {changed}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    assert run.code == 0, run.stderr[-2000:]
    ours = asked(run.database, "--without", f"{script.name}:{number}")["whatif"][0]
    assert ours["exact"] is not bool(doubt) and doubt in "".join(ours["doubts"]), ours


SAVED = """import torch
w = torch.nn.Parameter(torch.rand(3000, 512, device="cuda"))
optimizer, kept = torch.optim.SGD([w], 0.1), []
for step in range(8):
    optimizer.zero_grad()
    w.square().mean().backward()
    optimizer.step()
    y = torch.tanh(w)
    z = OUTPUT
    kept.append([y, z])
"""


@pytest.mark.parametrize("output, keeps", [
    ("y * y", True), ("(y * y).sum()", True), ("(y * y).detach()", False), ("torch.rand(3000, 512, device='cuda')", False),
    ("torch.rand_like(y)", False), ("y.new_zeros(8, 512)", False), ("torch.rand_like(y) * y", True), ("torch.rand(8, 3000, device='cuda') @ y", True),
    ("torch.zeros_like(y)\n    z[:9] = y[:9]", True), ("y.detach() * 0\n    z += y", True), ("torch.empty_like(y)\n    z.copy_(y)", True),
    ("torch.zeros_like(y)\n    z[:9] = 1\n    z.copy_(y.detach())\n    z.zero_()", False)])
def test_a_later_tensor_of_the_step_may_keep_what_the_line_makes(once, tmp_path, output, keeps):
    """Its graph saves y: dropping y at the end of the step frees nothing."""
    script = tmp_path / "later.py"
    script.write_text(SAVED.replace("OUTPUT", output))
    ours = asked(once(f"later {output}", script).database, "--without", "later.py:8")["whatif"][0]
    assert any("later in the step" in doubt for doubt in ours["doubts"]) == keeps and (keeps <= (not ours["exact"])), ours


PARTS = """import torch
nets, kept = [torch.nn.Linear(512, 512).cuda() for _ in range(2)], []
for turn in range(8):
    for net in nets:
        net(torch.randn(2000, 512, device="cuda")).mean().backward()
    OUTER
"""


@pytest.mark.parametrize("outer, exact", [("kept.append(torch.randn(900, 512, device='cuda'))", False), ("pass", True)])
def test_backward_passes_of_one_step_may_be_in_a_loop(once, tmp_path, outer, exact):
    """Without an optimizer, whether the step is a turn of the inner or of the outer loop is an inference."""
    script = tmp_path / "parts.py"
    script.write_text(PARTS.replace("OUTER", outer))
    run = once(f"parts {outer}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    assert run.code == 0, run.stderr[-2000:]
    ours = asked(run.database, "--empty-cache-every", "1")["whatif"][0]
    assert ours["exact"] is exact, ours
