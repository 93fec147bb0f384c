"""gpuspy estimate: what it prints, as text, JSON, CSV and a page, and what it says to nonsense."""
import json
import re

import pytest

from test_cli import gpuspy, one_line


@pytest.mark.parametrize("words, total", [
    (["--params", "1e9"], "14.90 GiB"), (["--params", "1B", "--precision", "amp"], "14.90 GiB"),
    (["--params=1e9", "--precision=bf16"], "7.45 GiB"),
    (["--params=1e9", "--precision=bf16", "--master-weights"], "14.90 GiB"),
    (["--params=1e9", "--optimizer=sgd"], "7.45 GiB"), (["--params=1e9", "--optimizer", "sgd-momentum"], "11.18 GiB"),
    (["-p", "6738415616", "--optimizer", "adamw", "--precision", "bf16"], "50.21 GiB"),
])
def test_estimate(words, total):
    done = gpuspy("estimate", *words)
    assert done.returncode == 0 and not done.stderr
    assert re.search(rf"^  total +{re.escape(total)} ", done.stdout, re.M), done.stdout
    assert "Activations and temporary buffers come on top" in done.stdout


def test_estimate_of_a_model_by_name():
    named, counted = (json.loads(gpuspy("estimate", *words, "--json").stdout)
                      for words in (["--model", "gpt2"], ["--params", "124439808"]))
    assert named["estimate"] == counted["estimate"] and named["params"] == counted["params"]
    assert named["model"]["name"] == "gpt2" and counted["model"]["name"] is None
    assert "did you mean 'llama-3-8b'" in one_line(gpuspy("estimate", "--model", "llama-3-8"), 2)
    assert "or --params" in one_line(gpuspy("estimate", "--model", "gpt2", "--params", "1M"), 2)


def test_estimate_json_adds_up():
    done = gpuspy("estimate", "--params", "1e9", "--precision", "fp16", "--master-weights", "--json")
    answer = json.loads(done.stdout)
    bytes_ = answer["estimate"]
    assert bytes_ == {"weights_bytes": 2 * 10**9, "gradients_bytes": 2 * 10**9, "optimizer_bytes": 8 * 10**9,
                      "master_bytes": 4 * 10**9, "total_bytes": 16 * 10**9}
    assert answer["params"] == 10**9 and answer["bytes_per_parameter"] == 16


def test_estimate_says_whether_it_fits():
    assert gpuspy("estimate", "--params", "7B", "--memory", "24GiB").returncode == 1
    assert gpuspy("estimate", "--params", "1B", "--memory", "24GiB").returncode == 0


@pytest.mark.parametrize("params", ["0", "-1", "1e400", "abc", "1e30", "nan", "inf", "", "1e9x", "1.5", " 1", "1e",
                                    "0x10", "1e16", "9" * 400, "\x1b[2J", "--json"])
def test_bad_numbers_of_parameters(params):
    message = one_line(gpuspy("estimate", "--params", params), 2)
    assert "--params" in message and "\x1b" not in message


@pytest.mark.parametrize("words", [
    ["--optimizer", "adma"], ["--optimizer", ""], ["--optimizer", "soap"], ["--precision", "fp8"],
    ["--master-weights"], ["--memory", "24XB"], ["--memory", "0"], ["surplus"],
])
def test_bad_settings_of_estimate(words):
    one_line(gpuspy("estimate", "--params", "1e9", *words), 2)
