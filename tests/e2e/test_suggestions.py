"""What other tools call an option or a command, and what gpuspy suggests instead."""
import re

import pytest

from conftest import ROOT
from test_cli import gpuspy, one_line

SYNONYMS = {command: re.findall(r'\{\s*((?:"[^"]*"\s*)+),\s*"(--[^"]*)"\}', text.split(".synonyms")[1].split("};")[0])
            for command in ("estimate", "report", "whatif")
            for text in [(ROOT / f"analyzer/command/cmd_{command}.c").read_text()]}
VALUES = {"--lora-rank": "8", "--weights": "nf4", "--precision": "bf16", "--batch": "2", "--seq": "128", "--gpus": "2",
          "--accumulation": "2", "--optimizer": "sgd", "--tp": "2", "--pp": "2", "--cp": "2", "--ep": "2", "--model": "gpt2",
          "--params": "1e9", "--memory": "8GiB", "--image": "512", "--serve": "vllm", "--set": "expandable_segments:True",
          "--limit": "8GiB", "--without": "a.py:1", "--device": "0", "--top": "3"}


@pytest.mark.parametrize("command", SYNONYMS)
def test_what_other_tools_call_an_option(command):
    """One word of each suggestion is refused with it; what it suggests is accepted."""
    assert len(SYNONYMS[command]) > 8
    for words, meaning in SYNONYMS[command]:
        word = "".join(re.findall(r'"([^"]*)"', words)).split("|")[-1]
        assert f"did you mean '{meaning}'?" in one_line(gpuspy(command, ("-" if len(word) == 1 else "--") + word), 2)
        option, _, choices = meaning.partition(" ")
        for choice in choices.split("|") if choices else [VALUES.get(option)]:
            typed = gpuspy(command, *([option] if choice is None else [f"{option}={choice}"]), "--json")
            assert "unknown" not in typed.stderr and "needs a value" not in typed.stderr, typed.stderr


def test_a_file_for_the_page():
    """`--html` is given already: the suggestion shows where the file goes."""
    assert "did you mean '--html=FILE'?" in one_line(gpuspy("report", "--html", "-o", "page.html", "run.db"), 2)


@pytest.mark.parametrize("typed, meant", [
    (["summary", "run.db"], "report"), (["view", "run.db"], "report"), (["record"], "run --"), (["watch", "run.db"], "top"),
    (["compare", "a.db", "b.db"], "diff"), (["models"], "estimate --models"), (["what-if", "run.db"], "whatif")])
def test_what_other_tools_call_a_command(typed, meant):
    assert f"did you mean 'gpuspy {meant}'?" in one_line(gpuspy(*typed), 2)


@pytest.mark.parametrize("typed, meant", [
    ("--model 7b", "--params 7b"), ("--model llama 3 8b", "--model llama-3-8b"), ("--model llama-3-8b --gpu a100 80gb", "--gpu a100-80gb"),
    ("--model gpt2 24gb", "--memory 24gb"), ("--model gpt2 4090", "--gpu 4090"), ("--model gpt2 --gpu 2x4090", "--gpu 4090 --gpus 2"),
    ("--model gpt2 --gpu H100x8", "--gpu H100 --gpus 8"), ("--model gpt2 --gpu 4090x2", "--gpu 4090 --gpus 2"), ("--model gpt2 --gpus 4090", "--gpu 4090"),
    ("train.sh", "--config train.sh"), ("7b", "--params 7b")])
def test_values_that_are_another_options(typed, meant):
    assert f"did you mean {meant}?" in one_line(gpuspy("estimate", *typed.split()), 2)


def test_a_word_that_is_no_options_value():
    assert "each value follows an option" in one_line(gpuspy("estimate", "--model", "gpt2", "--gpu", "h100", "max"), 2)


@pytest.mark.parametrize("name", ["https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json", "https://huggingface.co/meta-llama/Llama-3.1-8B/",
                                  "hf.co/meta-llama/Llama-3.1-8B?a=1", "meta-llama/Llama-3.1-8B@main"])
def test_addresses_of_models(name):
    assert '"name": "llama-3.1-8b"' in gpuspy("estimate", "--model", name, "--json").stdout
