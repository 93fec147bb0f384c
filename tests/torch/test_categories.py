"""Categories of tensors: the report's, compared with figures that the model itself gives
(fixtures/python/train_kinds.py)."""
import json

import pytest

from conftest import HERE, ROOT

SCRIPT = ROOT / "fixtures" / "python" / "train_kinds.py"
AT_PEAK = """mlp sgd foreach single fused amsgrad rmsprop adagrad adafactor lbfgs conv amp bf16 half masters ckpt ckpt_re keep
accumulate noopt direct context to_empty loaded assigned lora bare trainer clipped ema ema_by_hand gan in_backward loader
ddp ddp_views fsdp fsdp2 sparse evaluated forward forward_amp forward_ckpt forward_ckpt_re forward_lora forward_bare""".split()
FAILING = """fails_forward fails_forward_first fails_backward fails_backward_first fails_accumulating fails_step
fails_step_late""".split()


def equal(found, own):
    assert sum(found["by_category"].values()) == found["bytes"] if "bytes" in found else True
    for category, bytes_ in own.items():
        assert found["by_category"].get(category, 0) == pytest.approx(bytes_, rel=0.01), category


def says(run):
    assert run.code == 0, run.stderr
    return json.loads(run.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("kind", AT_PEAK)
def test_at_the_peak(record, kind):
    run = record(SCRIPT, kind, "cuda")
    [peak] = [p for p in run.report()["peak"] if p["layer"] == "tensor"]
    equal(peak, says(run))


@pytest.mark.parametrize("kind", FAILING)
def test_at_a_failure(record, kind):
    run = record(SCRIPT, kind, "cuda")
    own = says(run)
    assert own.pop("failed")
    equal(max(run.report()["oom"], key=lambda o: o["time_s"]), own)


def test_outputs_kept_over_steps_are_reported(record):
    run = record(HERE / "keeps.py")
    own = says(run)
    [peak] = [p for p in run.report()["peak"] if p["layer"] == "tensor"]
    kept = sum(c["bytes"] for c in peak["categories"] if "kept for several steps" in c["evidence"])
    assert own["kept"] * 0.6 <= kept <= own["kept"]
    assert peak["by_category"]["parameters"] == pytest.approx(own["parameters"], rel=0.01)
