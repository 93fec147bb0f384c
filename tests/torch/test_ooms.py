"""The advice after an OOM (ooms.py). Advice that was followed is not given again, and if the advice states that it is
enough, the run completes after it was followed."""
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("ooms.py")
MIB = 1 << 20
EXPANDABLE = "expandable_segments:True"


@pytest.fixture
def fails(once):
    """Runs it, which must fail; the report's entry on the failure. A measure called enough or not has its amount."""
    def run(how, *options, **more):
        done = end(once, how, *options, **more)
        assert done.code and "OutOfMemoryError" in done.stderr, done.stderr
        oom = done.report()["oom"][0]
        assert oom["fatal"] and oom["advice"] == [m["text"] for m in oom["measures"]] and len(oom["measures"]) <= 4
        assert sum(part["bytes"] for part in oom["waterfall"]) == oom["total_bytes"] == 1024 * MIB
        for m in oom["measures"]:
            assert m["enough"] is None or m["frees_bytes"] is not None, m
        return oom
    return run


def end(once, how, *options, **more):
    more = dict(SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB") | more
    return once(" ".join(("ooms", how, *options, *map(str, more.values()))), SCRIPT, how, *options, **more)


def measure(oom, words):
    found = [m for m in oom["measures"] if words in m["text"]]
    assert len(found) <= 1, found
    return found[0] if found else None


def parts(oom):
    return {part["category"] or part["what"]: part["bytes"] for part in oom["waterfall"]}


def test_a_batch_too_large(fails, once):
    oom = fails("capacity")
    held = parts(oom)
    assert oom["cause"] == "capacity" and held["context"] == 100 * MIB and held["free"] == oom["free_bytes"]
    parameters = 8 * (2 * 4 * 512 * 512 + 5 * 512) * 4
    for category, copies in ("parameters", 1), ("gradients", 1), ("optimizer_state", 2):
        assert copies * parameters <= held[category] <= 1.02 * copies * parameters, category
    batch = measure(oom, "halve this batch")
    grows = held["activations"] + held["inputs"]
    assert batch["enough"] is None  # the pass that is larger than all before has not ended
    assert grows / 2 <= batch["frees_bytes"] <= (grows + held.get("temporaries", 0)) / 2
    gradients = measure(oom, "zero_grad(set_to_none=True)")
    assert gradients["enough"] and gradients["frees_bytes"] == held["gradients"]
    checkpoint = measure(oom, "checkpoint")
    assert 0 < checkpoint["frees_bytes"] < held["activations"]
    assert end(once, "capacity", "checkpoint").code == 0


def test_what_is_done_is_not_recommended(fails):
    oom = fails("capacity", "early", "autocast")
    assert not measure(oom, "zero_grad") and not measure(oom, "autocast") and measure(oom, "checkpoint")
    oom = fails("capacity", "early", "checkpoint", SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="450MiB")
    assert not measure(oom, "checkpoint") and not measure(oom, "zero_grad")


def test_holes(fails, once):
    oom = fails("fragmentation")
    held = parts(oom)
    assert oom["cause"] == "fragmentation" and held["cached"] == 420 * MIB
    first = oom["measures"][0]
    assert first["text"].startswith("set PYTORCH_CUDA_ALLOC_CONF=" + EXPANDABLE)
    assert first["enough"] and 100 * MIB < first["frees_bytes"] <= held["cached"]
    assert "expandable_segments:True" in first["text"] and "replayed: fits with" in first["text"] and "to spare" in first["text"]
    assert end(once, "fragmentation", PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE).code == 0
    oom = fails("fragmentation", PYTORCH_CUDA_ALLOC_CONF="garbage_collection_threshold:0.9")
    assert "replayed" in measure(oom, f"add {EXPANDABLE} to PYTORCH_CUDA_ALLOC_CONF")["text"]
    for how in "capacity", "fragmentation full":
        oom = fails(*how.split(), PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE)
        assert not measure(oom, "expandable")


@pytest.mark.parametrize("how", ["forwards", "evaluation"])
def test_a_forward_pass_that_keeps_unneeded_activations(fails, once, how):
    oom = fails(how)
    first = oom["measures"][0]
    assert "torch.no_grad()" in first["text"] and first["enough"]
    assert first["text"].startswith("if no backward") == (how == "forwards")  # it might be the first step of a training
    assert first["frees_bytes"] > parts(oom)["activations"] / 2
    assert not measure(oom, "checkpoint") and not measure(oom, "accumulate gradients")
    assert end(once, how, "no_grad").code == 0


def test_the_first_step_of_an_optimizer(fails):
    oom = fails("first_step")
    held = parts(oom)
    optimizer = measure(oom, "8-bit optimizer")
    assert "first step" in optimizer["text"] and optimizer["enough"] is False
    assert .7 * held["optimizer_state"] < optimizer["frees_bytes"] < .75 * held["optimizer_state"]
    assert not measure(oom, "batch") and not measure(oom, "checkpoint") and not measure(oom, "zero_grad")


def test_an_optimizer_that_works_on_all_at_once(fails, once):
    oom = fails("in_foreach")
    foreach = oom["measures"][0]
    assert "foreach=False" in foreach["text"] and foreach["enough"]
    assert foreach["frees_bytes"] == parts(oom)["temporaries"]
    assert end(once, "in_foreach", "each").code == 0


def test_another_process(fails):
    oom = fails("capacity", SIMCUDA_OTHER="300MiB@4242")
    assert parts(oom)["other_processes"] == 300 * MIB
    other = measure(oom, "end process 4242 (other-process)")
    assert other and other["frees_bytes"] == 300 * MIB and other["enough"]


def test_gradients_that_graphed_modules_keep(record):
    """make_graphed_callables computes them while it captures; no optimizer can free them."""
    code = ("import torch\nfrom torch import nn\ndef part(n): return nn.Sequential(*[nn.Linear(512, 512) for _ in range(n)]).cuda()\n"
            "last, x = part(3), torch.randn(640, 512, device='cuda')\nh = torch.randn(640, 512, device='cuda', requires_grad=True)\n"
            "one = torch.cuda.make_graphed_callables(part(3), (x,))\ntwo = torch.cuda.make_graphed_callables(last, (h,))\n")
    run = record("-c", code, SIMCUDA_MEMORY="270MiB", SIMCUDA_CONTEXT="100MiB")
    assert run.code and "OutOfMemoryError" in run.stderr and "make_graphed_callables" in run.stderr, run.stderr
    assert not any("zero_grad" in text for oom in run.report()["oom"] for text in oom["advice"])
