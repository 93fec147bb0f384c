"""The estimates of `gpuspy estimate --inference`, compared with PyTorch's counters in serve.py."""
import json
import os
import subprocess

import pytest
from conftest import BUILD, HERE

MIB = 1 << 20
SHAPES = {
    "wide mlp": dict(layers=8, hidden=2048, heads=16, kv_heads=4, ffn=8192, vocab=32000, batch=4, seq=2048),
    "narrow mlp": dict(layers=4, hidden=2048, heads=16, kv_heads=4, ffn=1024, vocab=32000, batch=4, seq=4096),
    "all heads": dict(layers=4, hidden=2048, heads=16, kv_heads=16, ffn=1024, vocab=32000, batch=4, seq=4096),
    "eager": dict(layers=4, hidden=2048, heads=16, kv_heads=4, ffn=8192, vocab=32000, batch=4, seq=4096,
                  attention="eager"),
    "as Llama-2-7B": dict(layers=32, hidden=4096, heads=32, kv_heads=32, ffn=11008, vocab=32000, batch=2, seq=4096),
    "as Llama-3-8B": dict(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, batch=8, seq=2048),
}


def estimate(shape):
    options = [word for key, value in shape.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--json", "--inference", *options], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def phase(reported, word, parts):
    return {end: sum(line[end] for line in reported["lines"] if word in line["phases"] and line["part"] in parts)
            for end in ("low_bytes", "bytes", "high_bytes")}


TENSORS = ("weights", "kv_cache", "activations", "logits", "temporaries")


@pytest.mark.parametrize("name", SHAPES)
def test_stated_figures_are_pytorchs(once, name):
    shape = SHAPES[name]
    run = once("serve " + name, HERE / "serve.py", json.dumps({**shape, "new": 8}), SIMCUDA_MEMORY="200GiB",
               GPUSPY_DISABLE="1", fresh=False)
    assert run.code == 0, run.stderr
    counted, reported = json.loads(run.stdout), estimate(shape)
    assert reported["params"] == counted["params"]
    # the caching allocator gives a whole block if its rest is too small to use: up to 1 MiB for each
    assert 0 <= counted["weights"] - phase(reported, "prefill", ("weights",))["bytes"] <= 0.002 * counted["weights"] + 4 * MIB
    assert phase(reported, "prefill", ("kv_cache",))["bytes"] == counted["cache"]
    for word in ("prefill", "decode"):
        peak, measured = phase(reported, word, TENSORS), counted[word + "_peak"]
        print(f"{name}: {word}: estimated {peak['bytes'] / MIB:.0f} MiB, counted {measured / MIB:.0f} MiB")
        assert abs(peak["bytes"] - measured) <= 0.02 * measured, word
        working = measured - counted["weights"] - counted["cache"]
        if word == "prefill":
            assert abs(peak["bytes"] - counted["weights"] - counted["cache"] - working) <= 0.06 * working
            assert peak["low_bytes"] <= measured * 1.01 and measured <= peak["high_bytes"] * 1.01


def test_the_caches_of_servers_are_a_category(once):
    run = once("kv cache", HERE / "kv_cache.py")
    assert run.code == 0, run.stderr
    peak = next(peak for peak in run.report()["peak"] if peak["layer"] == "tensor")
    assert peak["by_category"]["kv_cache"] == int(run.stdout.split()[-1])
    assert peak["by_category"]["parameters"] == 256 * 256 * 4 + 1024


@pytest.fixture
def sleeping(record, tmp_path):
    def start(*words, **more):
        library = tmp_path / "libown.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "sleeping.c"], check=True)
        return record(HERE / "sleeping.py", library, *words, SIMCUDA_CONTEXT="512MiB", **more)
    return start


def test_what_remains_while_a_server_sleeps(sleeping):
    """Its tensors are live for PyTorch, but have no memory: they count again when they are mapped again."""
    run = sleeping()
    assert run.code == 0, run.stderr
    report = run.report()
    scopes = {(scope["layer"], scope["name"]): scope for scope in report["scopes"]}
    last = {name: int(used) - 512 * MIB for name, used, _ in (line.split()[1:] for line in run.stdout.splitlines())}
    for name, used in last.items():
        if name not in ("start", "rollout"):  # which later ones exceed
            assert scopes["device", name]["exit_bytes"] == used, name
        for end in ("peak_bytes", "exit_bytes"):
            assert scopes["tensor", name][end] <= scopes["device", name][end], (name, end)
    cache = 512 * MIB
    assert scopes["tensor", "sleep"]["entry_bytes"] - scopes["tensor", "sleep"]["exit_bytes"] > cache
    assert scopes["tensor", "wake"]["exit_bytes"] == scopes["tensor", "sleep"]["entry_bytes"]
    peak = {peak["layer"]: peak for peak in report["peak"]}
    assert peak["tensor"]["bytes"] <= peak["device"]["bytes"] and peak["tensor"]["by_category"]["kv_cache"] == cache
    assert not any("empty_cache" in advice["text"] for advice in report["advice"]), "it makes room for the server"
    answer = subprocess.run([BUILD / "gpuspy", "whatif", run.database, "--json"], stdout=subprocess.PIPE, text=True)
    assert json.loads(answer.stdout)["recorded"]["peak_allocated_bytes"] >= int(run.stdout.split()[-1])


def test_an_oom_while_a_server_sleeps_does_not_count_its_tensors(sleeping):
    run = sleeping("oom", SIMCUDA_MEMORY="1638MiB")
    assert run.code == 1 and "OutOfMemoryError" in run.stderr
    ooms = run.report()["oom"]
    (oom,) = [oom for oom in ooms if oom["fatal"]]
    assert oom["cause"] == "capacity" and oom["blame"]["function"] == "<listcomp>", oom["verdict"]
    for oom in ooms:
        assert oom["tensor_allocated_bytes"] <= oom["tensor_reserved_bytes"] <= oom["total_bytes"] - 512 * MIB
