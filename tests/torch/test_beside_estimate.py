"""What `gpuspy report --model --batch --seq` expects, compared with the measured use of a GPT in plain PyTorch; and how
`gpuspy calibrate` uses that."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, HERE

# Arguments of the script → options of the report, besides the model.
KINDS = {
    "plain": ("", ""),
    "eager": ("--attention eager --step fused", "--attention eager --step fused"),
    "amp": ("--precision amp", "--precision amp"),
    "bf16": ("--precision bf16 --batch 8", "--precision bf16 --batch 8"),
    "checkpointing": ("--checkpointing full --batch 16", "--checkpointing full --batch 16"),
    "operations": ("--checkpointing selective-op --batch 16", "--checkpointing selective-op --batch 16"),
    "sgd": ("--optimizer sgd --step loop", "--optimizer sgd --step loop"),
}


def read_json(words, database, *more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([BUILD / "gpuspy", *words, "--model", database.parent / "config.json", *more, database], env=env,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def settings(kind):
    words = f"--batch 4 --seq 256 --optimizer adamw {KINDS[kind][1]}".split()
    return [word for at, word in enumerate(words)  # the last of each applies, as on a command line
            if not any(word == later for later in words[at + 1:] if later.startswith("--"))
            and not (at and words[at - 1].startswith("--") and words[at - 1] in words[at + 1:])]


@pytest.fixture(params=KINDS)
def measured(request, once):
    run = once(f"gpt {request.param}", HERE / "gpt.py", *KINDS[request.param][0].split())
    assert run.code == 0, run.stderr
    return request.param, run, json.loads(run.stdout.strip().split("\n")[-1])


def test_each_category_is_where_it_is_expected(measured):
    kind, run, own = measured
    budget = read_json(["report", "--json"], run.database, *settings(kind))["budget"]
    rows = {row["category"]: row for row in budget["categories"]}
    levels = {row["level"]: row for row in budget["levels"]}
    assert levels["tensors"]["measured_bytes"] == pytest.approx(own["allocated"], rel=0.02)
    for name in ("parameters", "optimizer_state"):
        if name in rows:
            assert rows[name]["measured_bytes"] == pytest.approx(rows[name]["estimate_bytes"], rel=0.06), (kind, name)
    for name, measured_bytes in (("pass", levels["pass"]["measured_bytes"]), ("tensors", own["allocated"])):
        low, high = (levels[name][f"estimate_{end}_bytes"] for end in ("low", "high"))
        assert low * 0.98 <= measured_bytes <= high * 1.02, (kind, levels[name])
    assert budget["measured"]["phase"] == budget["estimate"]["phase"], kind
    assert budget["estimate"]["peak_low_bytes"] <= budget["estimate"]["peak_bytes"] <= budget["estimate"]["peak_high_bytes"]


def test_the_next_estimate_is_nearer(measured, tmp_path):
    kind, run, own = measured
    words, kept = settings(kind), tmp_path / "calibration.json"
    [learned] = read_json(["calibrate", "--json", "--output", kept], run.database, *words)["learned"]
    assert learned["activations_bytes"] > 0 and learned["not_learned"] == {"context": "the GPU is simulated"}

    def peak(**more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        done = subprocess.run([BUILD / "gpuspy", "estimate", "--json", "--model", run.folder / "config.json", *words],
                              env={**env, **more}, text=True, stdout=subprocess.PIPE, check=True)
        answer = json.loads(done.stdout)
        return max(sum(line["bytes"] for line in answer["lines"] if phase in line["phases"] and not line["host"]
                       and line["part"] not in ("context", "allocator", "communication")) for phase in answer["phases"])

    before, after = (abs(peak(**more) - own["allocated"]) for more in ({}, {"GPUSPY_CALIBRATION": str(kept)}))
    assert after <= before + 0.01 * own["allocated"], (kind, before, after, own)
    assert after <= 0.1 * own["allocated"], (kind, before, after, own)
