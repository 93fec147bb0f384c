"""The steps of programs without PyTorch: found from events that repeat."""
import pytest
from conftest import BUILD

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
