"""The steps of programs without PyTorch: found from events that repeat."""
import pytest
from conftest import BUILD
from fixture_trace import compiled

ROUNDS = BUILD / "programs" / "rounds"
LOOP = """
from minicuda import Runtime, Tensor
runtime = Runtime()
weights = [Tensor(runtime, 1 << 20) for _ in range(6)]
kept = []
for i in range(60):
    x = Tensor(runtime, 4096)
    y = Tensor(runtime, 8192)
    x.copy_from(bytes(4096))
    if i % 3 == 0:
        kept.append(Tensor(runtime, 65536))
"""


@pytest.mark.parametrize("way", ["keep", "return", "copies"])
def test_rounds_of_a_solver(recording, way):
    recording.run(ROUNDS, "80", way)
    report = recording.report()
    steps, = report["steps"]
    assert (steps["source"], steps["n"]) == ("period", 80), steps
    assert steps["evidence"].endswith(", 80 times")
    if way != "keep":
        assert report["growth"] == []
        return
    growth, = report["growth"]
    assert (growth["step"], growth["count"], growth["bytes"]) == ("step", 16, 16 * 65536)
    assert growth["steps"] == 76  # from the fifth round on, the first one that kept a block
    assert "snapshot" in str(growth["site"])


def test_rounds_of_a_script(recording):
    recording.python(LOOP)
    report = recording.report()
    steps, = report["steps"]
    assert (steps["source"], steps["n"]) == ("period", 60), steps
    growth, = report["growth"]
    assert (growth["step"], growth["count"], growth["steps"], growth["site"]["line"]) == ("step", 20, 60, 11), growth
    text = recording.gpuspy("report", recording.database).stdout
    assert "\n60 steps of " in text and "by the loop at script.py:7" in text


def test_a_last_step_that_took_long_is_one_step(recording):
    """It runs out of memory so late in its last round that, judging from the others' length, another one would have
    begun."""
    recording.python(LOOP.replace("if i % 3 == 0:\n        kept.append(Tensor(runtime, 65536))", '''kept.append(Tensor(runtime, 65536))
    if i == 59:
        import time
        time.sleep(0.5)
        Tensor(runtime, 1 << 40)'''), check=False)
    report = recording.report()
    assert report["steps"][0]["n"] == 60 and len(report["oom"]) == 1
    growth, = report["growth"]
    assert (growth["step"], growth["count"], growth["steps"], growth["bytes_per_step"]) == ("step", 60, 60, 65536)


def test_loading_is_not_a_loop(recording):
    recording.python(LOOP.replace("range(60)", "range(2)"))
    assert recording.report()["steps"] == []


LOOPS = """
from minicuda import Runtime, Tensor
runtime = Runtime()
kept = []
EVERY = 20
def make(n):
    return Tensor(runtime, n)
def train():
    x = make(4096)
    y = make(8192)
    return y
def evaluate():
    for _ in range(30):
        p = make(512)
        q = make(1024)
def log(i):
    if i % 10:
        return
    kept.append(make(256))
def generate():
    for _ in range(20):
        t = make(512)
    return t
"""
KEEPS = "kept.append(make(256))"
SELDOM = {  # the body of a loop of 600 iterations, whose only line in each is followed by work in some
    "two in a line": f"a = make(4096 + i % 7); b = make(99); del a\nif i % 100 == 0: {KEEPS}\ndel b",
    "logging": f"a = make(4096)\nif i % 10 == 0:\n    {KEEPS}",
    "every third": f"a = make(4096)\nif i % 3 == 0:\n    {KEEPS}",
    "named": f"a = make(4096); b = make(99)\nif (i + 1) % EVERY == 0:\n    {KEEPS}",
    "function": f"out = train()\nif i % 20 == 0:\n    {KEEPS}",
    "evaluation": "out = train()\nif i % 20 == 19:\n    evaluate()",
    "evaluation of a line": "out = make(4096)\nif i % 20 == 19:\n    evaluate()",
    "batches": "out = make(4096)\nif i % 50 == 0:\n    for _ in range(20):\n        v = make(512)",
    "checkpoint": f"a = make(4096)\nif i % 10 == 0:\n    {KEEPS}\nif i % 50 == 0:\n    c = [make(1024) for _ in range(7)]",
    "continue": f"a = make(4096)\nif i % 10: continue\n{KEEPS}",
    "method": "a = make(4096)\nlog(i)",
    "list": f"a = [make(512) for _ in range(80)]\nif i % 12 == 0:\n    {KEEPS}",
    "tokens": f"out = generate()\nif i % 50 == 0:\n    {KEEPS}",
    "micro-batches": f"for _ in range(6):\n    m = make(512)\nif i % 20 == 0:\n    {KEEPS}",
    "micro-batches and devices": f"for d in range(2):\n    for _ in range(3):\n        m = make(512)\nif i % EVERY == 0:\n    {KEEPS}",
}
RIGHT = {  # what must not become the step, or must stay one
    "logging": f"a = make(4096)\nb = make(99)\nif i % 10 == 0:\n    {KEEPS}",
    "micro-batches": "g = make(4096)\nfor _ in range(8):\n    m = make(512)\no = make(256)",
    "micro-batches and a condition": f"for _ in range(8):\n    m = make(512)\nif len(kept) < 1e9:\n    {KEEPS}",
    "layers": "x = make(4096)\nfor _ in range(12):\n    x = make(512)\nloss = make(4)",
    "every third layer": "x = make(4096)\nfor l in range(12):\n    x = make(512)\n    if l % 3 == 0:\n        y = make(99)\nloss = make(4)",
    "tokens": f"out = generate()\nif out is not None:\n    {KEEPS}",
    "tokens after a prompt": "for t in range(32):\n    if t == 0:\n        c = make(4096)\n    token = make(512)",
    "chunks": "data = make(4096)\nfor _ in range(25):\n    y = make(512)\nif i % 1 == 0:\n    s = make(4)",
    "list": "xs = [make(512) for _ in range(80)]\ns = make(4)",
    "always": f"a = make(512), make(99), make(4), make(8)\nif a is not None:\n    {KEEPS}",
}


def looped(body, head="for i in range(600):\n"):
    return LOOPS + head + "".join(f"    {line}\n" for line in body.split("\n"))


@pytest.mark.parametrize("body", [pytest.param(b, id=n) for n, b in [*SELDOM.items(), *RIGHT.items()]])
def test_what_an_iteration_does_now_and_then_is_not_the_step(recording, body):
    recording.python(looped(body))
    steps, = recording.report()["steps"]
    assert (steps["source"], steps["n"]) == ("period", 600), steps


@pytest.mark.parametrize("body", [pytest.param(RIGHT["logging"], id="two lines"), pytest.param(SELDOM["logging"], id="a line")])
def test_epochs_are_not_the_steps(recording, body):
    inner = "\n".join("    " + line for line in body.split("\n"))
    recording.python(looped(f"for i in range(120):\n{inner}\n{KEEPS}", "for epoch in range(5):\n"))
    steps, = recording.report()["steps"]
    assert (steps["source"], steps["n"]) == ("period", 600), steps


def test_micro_batches_of_varying_number_beside_a_condition_give_no_steps(recording):
    recording.python(looped(f"for _ in range(3 + i % 4):\n    m = make(512)\nif i % 20 == 0:\n    {KEEPS}"))
    assert recording.report()["steps"] == []


def test_a_condition_that_says_not_how_often_gives_no_steps(recording):
    recording.python(looped(f"a = make(4096)\nif due(i):\n    {KEEPS}").replace("def log", "def due(i): return i % 30 == 7\ndef log"))
    assert recording.report()["steps"] == []


@pytest.mark.parametrize("braces", ["same line", "own line", "none"])
def test_what_a_loop_in_c_does_now_and_then_is_not_the_step(recording, braces):
    block = "if (i % 100 == 0) {\n            cudaMalloc(&kept, 4096);\n        }"
    block = {"same line": block, "own line": block.replace(" {", "\n        {"),
             "none": block.replace(" {", "").replace("\n        }", "")}[braces]
    recording.run(compiled(recording, f"""
#include <cuda_runtime.h>
int main(void)
{{
    void *block, *kept;
    for (int i = 0; i < 3000; i++) {{
        cudaSetDevice(i % 2);
        cudaMalloc(&block, 65536 + i % 7 * 512);
        {block}
        cudaFree(block);
    }}
}}
"""), SIMCUDA_DEVICES="2")
    report = recording.report()
    steps, = report["steps"]
    assert (steps["source"], steps["n"]) == ("period", 3000), steps
    growth, = report["growth"]
    assert growth["bytes_per_step"] == pytest.approx(40.96, rel=0.01)
