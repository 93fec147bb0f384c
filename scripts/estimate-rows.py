#!/usr/bin/env python3
"""How near `gpuspy estimate` comes to published figures of real GPUs: reads a table of them and prints the distribution of
errors, by source.

  scripts/estimate-rows.py ROWS.tsv [-v]      -v: each row; columns are named in the table's first line
  scripts/estimate-rows.py scripts/estimate-rows/xmem-validation.tsv

scripts/estimate-rows/ has runs of xMem's repository (plot/data/002-Monte Carlo/*/001, commit d61e0764). Those whose name's
SHA-256 begins with a byte below 128 are for validation: no formula was written with them at hand. The others are for
development, 14 of them are here, and 13 of the folder 002. Runs that ended out of memory are left out. Other tools' estimates of a row are in its notes.

diffusion-*.tsv: figures of diffusion models from blogs, READMEs and issues, divided by the SHA-256 of the whole row in the same way
before anything was written.

A row is translated into options of `gpuspy estimate` by the tables below; one that they cannot translate is counted as
skipped, with the reason. h200.tsv: measured by this project; half of its trainings are for validation. published.tsv: figures of
other sources. fresh*.tsv: figures found later, whose options were written before their first run; *-validation.tsv of fresh-4,
fresh-8, fresh-9, serving and pipelines are the halves of them, fresh-5-validation.tsv the third, drawn by a SHA-256, that no
formula was written with. Rows whose lengths vary get --varying-lengths. What a row's counter counts is compared: allocated memory without CUDA's context and what the allocator caches,
reserved memory with that, and the driver's figure with both. xMem subtracts a first sample of NVML. Its FastRunner sets a memory
fraction, which makes the context, and then starts the thread that samples: the loop for images moves the model to the GPU at
the same time, that for text two seconds later (exp/trainer/__init__.py, train_loop.py). So of image models the figure is what is
reserved less the weights. It also has the kernels that CUDA loads later, 50 to 90 MiB, which gpuspy counts with the context. GPTQ-for-LLaMa's is
memory_allocated() between two tokens, when no temporary is live. serving-*.tsv: what vLLM
subtracted from its share of the GPU, which is the share less the available KV cache."""
import csv
import functools
import hashlib
import io
import json
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOL = os.path.join(ROOT, os.environ.get("O", "build"), "gpuspy")
GIB, GB = 2**30, 10**9
GPUS = {"RTX 3060 12GB": "rtx3060-12g", "RTX 4060 8GB": "rtx4060-8g", "A100-SXM4-40GB": "a100-40g", "A100-SXM4-80GB": "a100-80g",
        "H20 96GB": "h20-96g", "A100 80GB": "a100-80g", "A100": "a100-80g", "RTX 4090": "rtx4090-24g", "H100 96GB": "h100-96g", "H100": "h100-80g",
        "T4": "t4-16g", "B200": "b200-180g", "H200": "h200-141g", "4070 Ti SUPER": "rtx4070ti-super-16g", "A6000": "a6000-48g"}
NAMES = {"qwen-1.8b-chat": "qwen-1.8b", "qwen-7b-chat": "qwen-7b", "qwen-14b-chat": "qwen-14b", "qwen-72b-chat": "qwen-72b",
         "llama 2 7 b": "llama-2-7b", "llama 2 13 b": "llama-2-13b", "phi-1.5 1.3 b": "phi-1.5", "stablelm alpha 3 b": "stablelm-base-alpha-3b",
         "llama 3.1 8b": "llama-3.1-8b", "llama 3.1 70b": "llama-3.1-70b", "llama 3.1 405b": "llama-3.1-405b", "llama 3 8b": "llama-3-8b",
         "stablelm alpha 3 b": "stablelm-base-alpha-3b", "llama 2 7b": "llama-2-7b", "t5-small (t5)": "t5-small", "llama 2 1b (tinyllama-size)": "tinyllama-1.1b", "t0_3b": "t5-v1.1-xl"}
OPTIMIZERS = {"adamw": "adamw", "adam": "adam", "sgd": "sgd", "adafactor": "adafactor", "sgd momentum": "sgd-momentum", "adagrad": "adagrad", "rmsprop": "rmsprop",
              "adamw fused": "adamw", "bnb adamw8bit": "adamw8bit", "torchao adamw8bit": "adamw8bit",
              "adamw8bit": "adamw8bit"}
# Their loops drop the model's outputs before backward: Hugging Face's Trainer (Qwen), `del pred` (torchtitan, torchtune),
# `model(...).loss` (this project). xMem's holds them.
DROPPED = ("QwenLM/Qwen README", "torchtitan", "torchtune", "this project")


class Skipped(Exception):
    pass


# QwenLM's table of generation has GiB: its 15.2 GB in units of 10^9 are less than the weights. Its table of fine-tuning is taken for
# nvidia-smi with the driver of CUDA 11.4, which its README names, and which is older than 510.
def is_of_qwen(row, inference):
    return "QwenLM/Qwen README" in row["source"] and ("inference" in row["task"]) == inference


def measured(row):
    text = row["measured_bytes_or_gib"]
    if is_of_qwen(row, True):
        text = text.replace("GB", "GiB")
    found = re.match(r"([0-9.]+) (B|GB|GiB|MB \(=MiB by script\))", text)
    if not found:
        raise Skipped("figure: " + text)
    return float(found[1]) * {"B": 1, "GB": GB, "GiB": GIB}.get(found[2], 2**20)


def counter(row):
    text = row["what_measure"]
    if "KV cache memory" in text:
        return "beside the cache"
    if "between two tokens" in text:
        return "between tokens"
    if "xMem" in row["source"] and "image" in row["task"]:
        return "after loading"
    if "NVML - reserved" in text:
        return "allocated and context"
    if "NVML" in text or text.startswith("GPU memory"):
        return "driver"
    return "reserved" if "reserved" in text else "allocated"


def counts_drivers_memory(row):
    """nvidia-smi before driver 510 counts what the driver keeps of an A100 with 80 GiB."""
    return "NVML - reserved" in row["what_measure"] or is_of_qwen(row, False)


def is_validation(row):
    """Of h200.tsv: half of the trainings, drawn by a hash."""
    key = "|".join(row[name] for name in ("model", "task", "precision", "batch", "seq", "optimizer", "checkpointing"))
    return hashlib.sha256(key.encode()).digest()[0] < 128


def model_of(row):
    name = re.sub(r"\s*\(v1\)", "", row["model"]).split("/")[-1].strip().lower()
    return NAMES.get(name, name)


def whole(text):
    found = re.search(r"\d+", text)
    if not found:
        raise Skipped("no number in " + repr(text))
    return found[0]


def diffusion(row):
    """Options of a diffusion model's row: those that no column has are in its notes."""
    if "quanto-diffusers" in row["source"]:
        raise Skipped("counter unknown: the same figure with batches of 1 and 4")
    if row["model"] == "cogvideox-5b" and "finetrainers" in row["source"] and "_legacy" not in row["source"]:
        raise Skipped("the maximum is of what came before the training")
    if "_legacy" in row["source"] and "LoRA" not in row["task"]:
        raise Skipped("the first step: its backward has no optimizer states yet")
    if "safety checker" in row["notes"]:
        raise Skipped("a pipeline with a safety checker")
    frames, height, width = (["1"] + row["seq"].split("x"))[-3:]
    precision, training = row["precision"], "inference" not in row["task"]
    out = ["--model", row["model"], "--batch", whole(row["batch"]), "--image", height] + (["--width", width] if width != height else [])
    out += ["--frames", frames] if frames != "1" else []
    out += ["--precision", "amp-fp16" if "autocast" in precision else precision.split(" ")[0]]
    if training:
        out += ["--optimizer", OPTIMIZERS[row["optimizer"].lower()]]
        out += ["--checkpointing", "full"] if row["checkpointing"] == "full" else []
        out += ["--step", "loop", "--torch", "1.13"] if "ShivamShrirao" in row["source"] else []
        out += ["--accumulation", re.search(r"accum (\d+)", row["batch"])[1]] if "accum" in row["batch"] else []
        out += ["--weights", "nf4"] if "nf4" in precision else []
        rank = re.search(r"r=(\d+)", row["notes"])
        out += ["--adapter", "lora", "--target", "attention", "--lora-rank", rank[1]] if rank else []
    else:
        out += ["--inference"]
    more = re.search(r"options: ([^;]*)", row["notes"])
    return out + (more[1].split() if more else [])


def options(row):
    if row["task"].startswith(("denoiser", "text to image", "text to video")):
        return diffusion(row)
    if row["task"] == "as in its options":
        return row["notes"].removeprefix("options: ").split() + (["--varying-lengths"] if "lengths vary" in row["what_measure"] else [])
    if "prototype/quantized_training" in row["source"]:
        raise Skipped("the data set is on the GPU (pretrain_llama2.py)")
    task, precision, model = row["task"].lower(), row["precision"].lower(), model_of(row)
    out = ["--model", model]
    out += ["--masked-lm"] if task.startswith("masked") else []
    if "inference" in task:
        prompt, _, new = row["seq"].replace("~", "").partition("+")
        length = int(prompt) + int(new or 0)
        if not new and "generate" in task and whole(task) != prompt:  # where they are equal, the prompt is counted in
            length += int(whole(task))
        out += ["--inference", "--batch", whole(row["batch"]), "--seq", str(length)]
        if new:
            out += ["--prompt", prompt] if PROMPT else []
        weights = {"bf16": "bf16", "fp8": "fp8-block", "gptq-int8": "gptq-8bit", "gptq-int4": "gptq", "awq-int4": "awq"}.get(precision.split(" ")[0])
        if not weights:
            raise Skipped("weights: " + precision)
        out += ["--precision", "bf16", "--weights", weights] if weights != "bf16" else ["--precision", "bf16"]
        if "int8 kv" in precision:
            out += ["--kv-cache", "int8"]
        return out
    optimizer = OPTIMIZERS.get(row["optimizer"].split("?")[0].strip().lower())
    if not optimizer:
        raise Skipped("optimizer: " + row["optimizer"])
    out += ["--optimizer", optimizer, "--batch", whole(row["batch"])]
    if "x" in row["seq"] and re.match(r"\d+x\d+", row["seq"]):
        out += ["--image", whole(row["seq"])]
    else:
        out += ["--seq", whole(row["seq"])]
    if "fp32 shards" in precision or "autocast" in precision or "amp" in precision:
        out += ["--precision", "amp-fp16" if "fp16" in precision else "amp-bf16"]
    else:
        out += ["--precision", "fp32" if precision == "fp32" else "bf16"]
    if model.startswith("t5") and "xMem" in row["source"]:
        out += ["--attention", "eager"]  # its transformers had no scaled_dot_product_attention for T5
    if model.startswith("t5") and "this project" in row["source"]:
        out += ["--attention", "math"]  # transformers 5.17
    if any(word in row["source"] for word in DROPPED) or "torchtitan" in task:
        out += ["--drop-outputs"]
    if "adalora" not in task and ("lora" in task or "dora" in task):
        torchtune = "torchtune" in row["source"]  # prepares nothing; its recipes have ranks of 8 and, for 405B, 16
        out += ["--adapter", "qlora" if ("q-lora" in task or "qlora" in task) and not torchtune else "lora"]
        out += ["--weights", "nf4-double"] if torchtune else []
        rank = re.search(r"r=?(\d+)", row["notes"])
        out += ["--lora-rank", rank[1] if rank else "64" if not torchtune else "16" if "405" in model else "8"] + (["--target", "qv"] if "q,v" in row["notes"] or "'q_proj', 'v_proj'" in row["notes"] else [])
        if "nf4-dq" in precision or "nf4" in precision:
            out += ["--weights", "nf4-double" if "dq" in precision else "nf4"]
        if "gptq" in precision:
            out += ["--weights", "gptq", "--fused-loss"]  # QwenLM's, by DeepSpeed in float16, not under autocast
        out += ["--modules-to-save", "embeddings"] if "(emb)" in task else []
        # its pyproject.toml of 2023; the longest sample comes first, so that no pass before it is held (finetune/lora.py)
        out += ["--bitsandbytes", "0.41", "--drop-outputs"] if "litgpt" in row["source"] and "nf4" in precision else []
        out += ["--lora-dropout", "0.05"] if "QwenLM/Qwen" in row["source"] else []  # finetune.py's default
    elif "adapter" in task or any(word in task for word in ("ia3", "vera", "oft", "adalora", "trainable_tokens")):
        raise Skipped("adapter: " + task)
    if "optimizer in backward" in row["notes"]:
        out += ["--step", "in-backward"]
    if "8-bit paged AdamW" in row["notes"]:
        out[out.index("--optimizer") + 1] = "paged-adamw8bit"
    if "litgpt" in row["source"] and model.startswith("phi"):
        out += ["--one-kernel-gelu"]  # litgpt's GptNeoxMLP
    if "full-parameter" in task:  # QwenLM's, by DeepSpeed
        out += ["--master-weights"]
    if row["checkpointing"] == "recipe default":  # torchtune's
        out += ["--checkpointing", "full", "--chunked-loss"]
    if "torchtitan" in row["source"] + task:  # its script since October 2024
        out += ["--expandable-segments"]
    if "compile" in row["notes"] + task and "eager" not in task:
        out += ["--fused-layers"] + (["--fused-loss"] if "torch 2.9" in row["notes"] else [])  # torchtitan compiles it since 2025
    if "full" in row["checkpointing"] and not ("1 GPU" in row["checkpointing"] and row["gpus"] == "1"):
        out += ["--checkpointing", "full"]
    elif "selective op" in row["checkpointing"]:
        out += ["--checkpointing", "selective-op"]
    elif "every" in row["checkpointing"]:
        out += ["--checkpointing", "full", "--checkpoint-every", whole(row["checkpointing"])]
    if "accum" in row["batch"]:
        out += ["--accumulation", re.search(r"accum (\d+)", row["batch"])[1]]
    if int(row["gpus"]) > 1:
        sharding = row["sharding"]
        if any(word in sharding for word in ("tp", "pp", "cp")):
            for word in ("tp", "pp", "cp"):
                found = re.search(word + r" (\d+)", sharding)
                out += [f"--{word}", found[1]] if found and found[1] != "1" else []
        stages = re.search(r"pp (\d+)", sharding)
        if stages and "torchtitan" in row["source"]:  # as many micro-batches as stages
            at = out.index("--batch") + 1
            out[at] = str(int(out[at]) // int(stages[1]))
            out += ["--accumulation", stages[1]]
        out += ["--interleave", "2"] if stages and "interleaved" in task else []  # torchtitan's default
        out += ["--sequence-parallel"] if "tp" in sharding and "torchtitan" in row["source"] else []
        out += ["--accumulation", "8", "--runtime", "litgpt"] if "litgpt" in row["source"] else []  # a step has 128 sequences
        out += ["--gpus", row["gpus"], "--sharding", "fsdp2" if "fsdp2" in sharding else "fsdp" if "fsdp" in sharding else "zero3" if "zero3" in sharding else "zero2" if "zero2" in sharding else "ddp"]
    return out


@functools.cache
def answered(form, *words):
    """What `gpuspy estimate` prints."""
    done = subprocess.run([TOOL, "estimate", form, "--no-calibration", *words], text=True, capture_output=True)
    if done.returncode > 1:
        raise Skipped(done.stderr.strip().split("\n")[-1].removeprefix("gpuspy: estimate: "))
    return done.stdout


def lines_of(*words):
    """The lines of an estimate, as in its JSON. As CSV, because for that no other settings are tried."""
    rows = csv.DictReader(io.StringIO(answered("--csv", *words)))
    return [{**row, **{key: int(row[key]) for key in ("low_bytes", "bytes", "high_bytes")}, "phases": row["phases"].split(),
             "host": row["host"] == "true"} for row in rows]


def phases_of(lines):
    return dict.fromkeys(phase for line in lines for phase in line["phases"])


def estimated(row):
    gpu = GPUS.get(row["gpu"])
    command = [*options(row)] + (["--gpu", gpu] if gpu else [])
    if counter(row) == "beside the cache":
        used = json.loads(answered("--json", *command))["gpus"][0]["server"]["used"]
        return [used[key] for key in ("low_bytes", "bytes", "high_bytes")], command
    lines = lines_of(*command)
    left = {"driver": (), "reserved": ("context", "communication"), "after loading": ("context", "weights"),
            "allocated and context": ("communication", "allocator"), "allocated": ("context", "communication", "allocator"),
            "between tokens": ("context", "communication", "allocator", "temporaries", "activations", "logits")}[counter(row)]
    if "paged" in " ".join(command) and counter(row) != "driver":
        left += ("optimizer_states",)  # in managed memory, which PyTorch does not count
    best = None
    # Qwen3's figures in 16 bits are weights, cache and 36 MiB for prompts of 6,144, 14,336 and 30,720 tokens: without the moment
    # at which the prompt is read.
    for name in set(phases_of(lines)) - ({"prefill"} if "QwenLM/Qwen3" in row["source"] else set()):
        parts = [line for line in lines if name in line["phases"] and not line["host"]
                 and (line["part"] not in left or (line["part"] == "allocator" and line["name"].startswith("blocks")))]
        sums = [sum(line[key] for line in parts) for key in ("low_bytes", "bytes", "high_bytes")]
        best = [max(pair) for pair in zip(best or sums, sums)]  # as gpuspy's own peak: the largest low, expected and high
    if counter(row) == "after loading":  # also kernels that CUDA loads later
        best[2] += 90 * 2**20
    if counts_drivers_memory(row):
        total = json.loads(answered("--json", *command))["gpus"][0]["total_bytes"]
        best = [x + 80 * GIB - total for x in best]
    return best, command


def judged(path, show=False):
    """(source, model, |error|, between low and high, above high, width, error, row) of each; other tools' errors; skipped rows."""
    found, skipped, others = [], defaultdict(int), defaultdict(list)
    for row in csv.DictReader((line for line in open(path) if not line.startswith("#")), delimiter="\t", quoting=csv.QUOTE_NONE):
        try:
            known = measured(row)
            (low, likely, high), command = estimated(row)
        except Skipped as why:
            skipped[str(why)[:100]] += 1
            continue
        for tool, bytes_ in re.findall(r"(xMem|DNNMem|SchedTune|LLMem) (\d+)", row["notes"]):
            others[tool].append(abs(int(bytes_) / known - 1))
        several = int(row["gpus"]) > 1 and "sum over GPUs" in row["what_measure"]
        scale = int(row["gpus"]) if several else 1
        low, likely, high = low * scale, likely * scale, high * scale
        error, source = likely / known - 1, re.split(r"[ @]", row["source"].removeprefix("github "))[0]
        if show:
            print(f"{error:+7.1%} {low / known - 1:+7.1%} {high / known - 1:+7.1%} {counter(row):9} {row['model'][:26]:26} {' '.join(command)}")
        found.append((source, row["model"], abs(error), low <= known <= high, known > high, (high - low) / likely, error, row))
    return found, others, skipped


def summed_up(rows):
    """Rows, median, 90th percentile, bias, share between low and high, share above, mean width."""
    errors, n = sorted(row[2] for row in rows), len(rows)
    return (n, statistics.median(errors), errors[min(n - 1, int(0.9 * n))], statistics.median(row[6] for row in rows),
            sum(row[3] for row in rows) / n, sum(row[4] for row in rows) / n, statistics.mean(row[5] for row in rows))


def main():
    found, others, skipped = judged(sys.argv[1], "-v" in sys.argv)
    for tool, errors in sorted(others.items()):
        print(f"{tool} on {len(errors)} of these rows: median {statistics.median(errors):.1%}, p90 {sorted(errors)[int(0.9 * len(errors))]:.1%}")
    print(f"{'':36}{'rows':>5}{'median':>8}{'p90':>8}{'bias':>8}{'inside':>8}{'above':>8}{'width':>8}")
    for name in ["all", *dict.fromkeys(row[0] for row in found)]:
        n, median, p90, bias, inside, above, width = summed_up([row for row in found if name in ("all", row[0])])
        print(f"{name:36}{n:5}{median:8.1%}{p90:8.1%}{bias:+8.1%}{inside:8.0%}{above:8.0%}{width:8.0%}")
    for why, n in sorted(skipped.items(), key=lambda item: -item[1]):
        print(f"skipped {n}: {why}")


PROMPT = "--prompt" in subprocess.run([TOOL, "estimate", "--help"], text=True, capture_output=True).stdout
if __name__ == "__main__":
    main()
