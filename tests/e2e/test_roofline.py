"""gpuspy roofline and gpuspy transfer: known figures, text and JSON that agree, and bad input."""
import json
import os
import re
import subprocess

import pytest

from conftest import BUILD, SECONDS

GPUSPY = str(BUILD / "gpuspy")
MATMUL = ["roofline", "--op", "matmul", "--m", "4096", "--n", "4096", "--k", "4096"]
ATTENTION = ["roofline", "--op", "attention", "--heads", "16", "--seq", "1024", "--head-dim", "64", "--batch", "2"]


def gpuspy(*words, columns=80, locale="C.UTF-8"):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUSPY_")}
    env.update(COLUMNS=str(columns), LC_ALL=locale)
    return subprocess.run([GPUSPY, *map(str, words)], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                          timeout=SECONDS)


def text(*words, **more):
    done = gpuspy(*words, **more)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def answer(*words):
    return json.loads(text(*words, "--json"))


# ---------------------------------------------------------------- transfer

def test_the_tutorials_transfer():
    """28 GB over PCIe 4.0 and over A100's NVLink: 875 and 93.3 ms; in a ring of 8 GPUs 1531 and 163.3."""
    for rate, once, ring in (("32GB/s", 875, 1531.25), ("300GB/s", 93.3333333, 163.333333)):
        link, = answer("transfer", "--params", "7e9", "--gpus", "8", "--bandwidth", rate)["links"]
        assert link["one_pass_s"] * 1e3 == pytest.approx(once)
        assert link["all_reduce"]["time_s"] * 1e3 == pytest.approx(ring)
        assert link["reduce_scatter"]["time_s"] * 2 == pytest.approx(link["all_reduce"]["time_s"])
    listed = text("transfer", "--bytes", "28GB", "--gpus", "8")
    assert re.search(r"32.0 GB/s +875 ms +1.53 s +766 ms +PCIe 4.0", listed)
    assert re.search(r"300 GB/s +93.3 ms +163 ms +81.7 ms +NVLink 3", listed)


def test_bits_are_not_bytes():
    bits, nbytes = (answer("transfer", "--bytes", "1GB", "--bandwidth", rate)["links"][0] for rate in ("400Gb/s", "50GB/s"))
    assert bits["one_pass_s"] == nbytes["one_pass_s"] == 0.02


def test_links_of_a_gpu_and_across_machines():
    one = answer("transfer", "--bytes", "16GB", "--gpus", "8", "--gpu", "a100")["links"]
    assert [link["name"] for link in one] == ["NVLink", "host, pinned memory", "host, pageable memory"]
    assert one[0]["all_reduce"]["time_s"] == pytest.approx(1.75 * 16 / 300) and one[0]["all_reduce"]["machines"] == 1
    assert one[2]["one_pass_most_s"] > one[2]["one_pass_s"] > one[1]["one_pass_s"]
    two = answer("transfer", "--bytes", "16GB", "--gpus", "16", "--gpu", "a100", "--network", "25GB/s")["links"][0]
    assert two["all_reduce"]["machines"] == 2
    assert two["all_reduce"]["time_s"] == pytest.approx(2 * (7 / 8 * 16 / 300 + 1 / 2 * 2 / 25))


@pytest.mark.parametrize("words, says", [
    ("--gpus 8", "A ring of 8 takes 2(n-1)/n = 1.75 of that for an all-reduce, (n-1)/n = 0.875"),
    ("--gpus 60 --gpu h100", "m = 8 machines of g = 7 GPUs or one more"), ("--gpus 16 --gpus-per-node 1", "A ring of 16"),
    ("--gpus 12 --gpus-per-node 8 --bandwidth 300GB/s", "m = 2 machines of g = 6 GPUs,")])
def test_what_a_pass_is_and_what_a_ring_takes(words, says):
    """One pass over the network can take longer than the collective: the output explains why."""
    shown = text("transfer", "--params", "7e9", *words.split())
    assert "One pass is S/B" in shown and says in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80
    link = answer("transfer", "--params", "7e9", *words.split())["links"][0]
    if link["all_reduce"]["machines"] == 1:
        assert link["all_reduce"]["time_s"] == pytest.approx(link["all_reduce"]["factor"] * link["one_pass_s"])


def test_formulas_of_the_wires_are_explained():
    plan = ["estimate", "--model", "llama-3-8b", "--gpus", "16", "--gpu", "b200", "--batch", "1", "--seq", "2048"]
    shown, whole = " ".join(gpuspy(*plan, "--explain").stdout.split()), json.loads(gpuspy(*plan, "--json").stdout)["wires"]
    assert "S/B: all bytes once over one GPU's link." in shown
    for row in whole:
        assert " ".join(row["formula"].split()) in shown and f"x{row['factor']:.3g}" in shown
        assert row["ring_s"] == pytest.approx(row["factor"] * row["one_pass_s"])


def test_a_plans_traffic_is_in_the_estimate():
    """FSDP of 8 GPUs gathers the weights twice and scatters the gradients: 3 · 7/8 · 16-bit weights."""
    plan = ["estimate", "--model", "llama-3-8b", "--precision", "bf16", "--gpus", "8", "--sharding", "zero3", "--gpu", "h100"]
    done = gpuspy(*plan, "--json")
    found = json.loads(done.stdout)
    assert sum(row["ring_s"] for row in found["wires"]) == pytest.approx(found["wires_s"])
    assert found["wires_s"] == pytest.approx(3 * 7 / 8 * 2 * 8030261248 / 450e9)
    assert "Transfers per step" in gpuspy(*plan).stdout


# ---------------------------------------------------------------- roofline

def test_matmul_of_4096_on_an_a100():
    way = answer(*MATMUL, "--gpu", "a100")["ways"][-1]
    assert way["flops"] == 2 * 4096**3 and way["bytes"] == 3 * 2 * 4096**2
    assert way["intensity"] == pytest.approx(1365.333333) and way["ridge"] == pytest.approx(312e12 / 2039e9)
    assert way["bound_by"] == "compute" and way["least_s"] == pytest.approx(2 * 4096**3 / 312e12)
    shown = text(*MATMUL, "--gpu", "a100")
    assert "137.4 GFLOP" in shown and "100.7 MB" in shown and "441 us" in shown
    assert "77.6" in shown  # which figure that is
    assert answer(*MATMUL, "--gpu", "a100", "--dtype", "fp16-plain")["ways"][-1]["peak_flops_per_s"] == 78e12
    assert answer(*MATMUL, "--gpu", "a100", "--dtype", "tf32")["ways"][-1]["bytes"] == 3 * 4 * 4096**2


def test_attention_naive_and_flash():
    both = answer(*ATTENTION, "--gpu", "h100")["ways"]
    assert [way["name"] for way in both] == ["naive", "flash, no L2", "flash"]
    assert both[0]["flops"] == both[2]["flops"] == 4 * 2 * 16 * 1024**2 * 64
    assert both[0]["bytes"] > both[1]["bytes"] > both[2]["bytes"] == 4 * 2 * 2 * 16 * 1024 * 64
    assert [way["name"] for way in answer(*ATTENTION, "--flash")["ways"]] == ["flash, no L2", "flash"]
    assert [way["name"] for way in answer(*ATTENTION, "--naive")["ways"]] == ["naive"]
    assert answer(*ATTENTION, "--causal")["ways"][2]["flops"] == 4 * 2 * 16 * 64 * 1024 * 1025 // 2


def test_operations_that_are_not_products_use_float32():
    found = answer("roofline", "--op", "layernorm", "--rows", "8192", "--cols", "4096", "--dtype", "bf16", "--gpu", "h100")
    assert found["dtype"] == "bf16" and found["computed_in"] == "fp32"
    assert found["ways"][-1]["bytes"] == 2 * (2 * 8192 * 4096 + 2 * 4096) and found["ways"][-1]["bound_by"] == "memory"


def test_a_measured_time():
    words = ["roofline", "--op", "softmax", "--rows", "8192", "--cols", "8192", "--dtype", "fp16", "--gpu", "a100"]
    least = answer(*words)["ways"][-1]["least_s"]
    assert answer(*words, "--time", "1ms")["ways"][-1]["measured"]["share_of_roof"] == pytest.approx(least / 1e-3)
    assert "13 % of the roof of fused" in text(*words, "--time", "1ms")
    assert "above the roof" in text(*words, "--time", "10us")


def test_a_gpu_that_is_described():
    """The A100 of tutorials: 77.6 TFLOPS over 1555 GB/s, a ridge of 49.9."""
    words = MATMUL + ["--peak", "77.6T", "--bandwidth", "1555GB/s"]
    found = answer(*words)
    assert found["ways"][-1]["ridge"] == pytest.approx(49.9, abs=0.01) and len(found["gpu"]["rates"]) == 1
    assert "77.6" in text(*words) and text(*words).count("bf16") == text(*words, "--time", "2ms").count("bf16")


def test_the_list_of_gpus():
    gpus = answer("estimate", "--gpus")["gpus"]
    assert len(gpus) > 30 and len({gpu["key"] for gpu in gpus}) == len(gpus)
    listed = text("estimate", "--gpus")
    assert all(re.search(rf"^{re.escape(gpu['key'])} ", listed, re.M) for gpu in gpus) and max(map(len, listed.splitlines())) <= 80
    a100 = next(gpu for gpu in gpus if gpu["key"] == "a100-80g")
    assert a100["tflops"]["fp16"] == 312 and a100["tflops"]["fp8"] is None and a100["link_bytes_per_s"] == 300e9
    assert all(gpu["source"] and gpu["total_known_from"] for gpu in gpus)


def test_any_kernel_on_every_gpu():
    found = answer("roofline", "--flops", "2e12", "--bytes", "40GB", "--dtype", "fp32")
    assert found["ways"][0]["intensity"] == 50
    gpus = {gpu["gpu"]: gpu for gpu in found["gpus"]}
    assert gpus["a100-80g"]["bound_by"] == "compute" and gpus["l4-24g"]["bound_by"] == "memory"
    for key, gpu in gpus.items():
        assert gpu["least_s"] == pytest.approx(max(gpu["compute_s"], gpu["memory_s"])), key
    assert set(gpus) <= set(re.findall(r"^  (\S+-\d+g) ", text("roofline", "--flops", "2e12", "--bytes", "40GB", "--dtype",
                                                                "fp32"), re.M))


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_the_drawing(columns, locale):
    shown = text(*ATTENTION, "--gpu", "rtx4090", columns=columns, locale=locale)
    chart = re.findall(r"^.*[│|].*$", shown, re.M)
    assert len(chart) == 14 and max(map(len, chart)) <= columns
    assert columns < 80 or max(map(len, shown.splitlines())) <= columns
    assert "\x1b" not in shown and (locale != "C" or shown.isascii())
    assert all(any(mark in line[9:] for line in chart) for mark in "ABC")


# ---------------------------------------------------------------- bad input

@pytest.mark.parametrize("words, hint", [
    ("transfer", "no size given"), ("transfer --bytes 0", "out of range"), ("transfer --bytes -5GB", "is negative"),
    ("transfer --bytes nan", "not a number"), ("transfer --bytes 1e30GB", "too large"), ("transfer --bytes 9e18B", "out of range"),
    ("transfer --bytes 5GB --params 7B", "not both"), ("transfer --params 7B --gpu h10", "did you mean"),
    ("transfer --params 7B --gpu h100 --bandwidth 5GB/s", "not both"), ("transfer --params 7B --bandwidth 300", "has no unit"),
    ("transfer --params 7B --bandwidth 300GB/h", " unit"), ("transfer --params 7B --bandwidth 0", "out of range"),
    ("transfer --params 7B --gpus 0", "out of range"), ("transfer 28GB", "is unexpected"),
    ("transfer --params 7B --network 5GB/s", "--gpus-per-node"), ("transfer --params 7B --precision fp23", "fp32"),
    ("roofline", "no kernel given"), ("roofline --flops 5", "--bytes"), ("roofline --bytes 5B", "--flops"),
    ("roofline --flops 0 --bytes 5B", "out of range"), ("roofline --flops nan --bytes 5B", "not a number"),
    ("roofline --flops 1e99 --bytes 5B", "too large"), ("roofline --flops -1 --bytes 5B", "is negative"),
    ("roofline --op matmull", "did you mean 'matmul'"), ("roofline --op matmul --m 5 --n 5", "needs --k"),
    ("roofline --op matmul --m 5 --n 5 --k 5 --flops 5", "not both"), ("roofline --m 5", "add --op"),
    ("roofline --op softmax --rows 5 --cols 5 --causal", "no --causal"), ("roofline --op softmax --rows 5 --cols 5 --flash", "attention"),
    ("roofline --op reduce --size 5 --gpu h1000", "did you mean 'h100'"), ("roofline --op reduce --size 5 --gpu zzz", "lists them"),
    ("roofline --op matmul --m 1 --n 1 --k 1 --dtype fp8 --gpu a100", "no figure"),
    ("roofline --op matmul --m 1 --n 1 --k 1 --dtype fp17", "did you mean"), ("roofline --op reduce --size 5 --time 5ms", "needs --gpu"),
    ("roofline --op reduce --size 5 --gpu h100 --time 5", " unit"), ("roofline --op reduce --size 5 --gpu h100 --time 0ms", "out of range"),
    ("roofline --op reduce --size 5 --peak 5T", "add --bandwidth"), ("roofline --op reduce --size 5 --bandwidth 5GB/s", "add --peak"),
    ("roofline --op reduce --size 5 --peak 5T --bandwidth 5GB/s --gpu h100", "not both"),
    ("roofline --op matmul --m 1e12 --n 1e12 --k 1e12", "too large"), ("roofline matmul", "write --op before"),
    ("roofline --op attention --heads 6 --kv-heads 4 --seq 5 --head-dim 5", "do not divide"),
])
def test_bad_input_gets_one_line_and_2(words, hint):
    done = gpuspy(*words.split())
    if hint is None:
        assert done.returncode == 0  # 300 bytes a second: slow, but valid
        return
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(r"gpuspy: [^\n]+\n", done.stderr) and hint in done.stderr, done.stderr


def test_a_gpu_that_is_described_has_one_roof():
    shown = text("roofline", "--op", "elementwise", "--size", "1e6", "--peak", "77.6T", "--bandwidth", "1555GB/s")
    assert "The given GPU: 77.6 TFLOP/s, memory 1.555 TB/s; ridge 49.9 FLOP/B" in shown and "fp32" not in shown


def test_the_type_of_computation_is_stated():
    assert "a kernel, bf16, on" in text("roofline", "--flops", "1e12", "--bytes", "1GB", "--gpu", "h100")
    assert "bf16 computed in fp32" in text("roofline", "--op", "reduce", "--size", "1e6", "--gpu", "h100")


@pytest.mark.parametrize("words", ["--flops 1 --bytes 9e18B", "--flops 18e18 --bytes 1B --time 1ns", "--flops 1 --bytes 1B"])
@pytest.mark.parametrize("columns", [80, 200])
def test_odd_numbers_keep_to_their_lines(words, columns):
    shown = text("roofline", *words.split(), "--gpu", "h100", columns=columns).splitlines()
    assert len({line.index("│") for line in shown if "│" in line}) == 1
    assert max(map(len, shown)) <= columns


def test_the_largest_numbers_are_numbers():
    done = answer("roofline", "--flops", "18e18", "--bytes", "1B", "--gpu", "h100")
    assert done["ways"][0]["least_s"] > 0
    assert text("roofline", "--flops", "1", "--bytes", "9e18B", "--gpu", "h100", "--time", "1ns")
    assert text("transfer", "--bytes", "1e18B", "--gpus", "1000000", "--bandwidth", "1e6")
