#!/usr/bin/env python3
"""The tables of measured runs in docs/accuracy.md, and their sum in docs/estimate.md: what was measured, what
`gpuspy estimate` says, how far apart.

  python3 tests/e2e/estimate_runs.py    writes them anew, after a change of the formulas
"""
import functools
import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS, USERS = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "estimate.md"
MEASURED = Path(__file__).resolve().parent / "estimate_runs.json"
SHARDED = Path(__file__).resolve().parent / "estimate_sharded.json"
MIB, GIB = 1 << 20, 1 << 30

# What each counter counts, as parts of an estimate that it does not.
ALLOCATED = ("context", "communication", "allocator")  # torch.cuda.max_memory_allocated, active bytes
RESERVED = ("context", "communication")  # NVML's figure, minus its figure before the model was loaded
# PyTorch's reserved bytes are cached for each stream apart, and FSDP2 makes the shards of gradients on the one of its
# reduce-scatters: those of the step before are there, cached, whatever the moment at which the other streams need most.
STREAMS = "reserved"
COUNTERS = {"allocated": ALLOCATED, "NVML less context": RESERVED, "llm.c's own": ALLOCATED, STREAMS: RESERVED}

BERT = "--model bert-large-uncased --seq 512 --attention eager --optimizer adamw --step loop --torch 1.10"
GPT2 = "--model gpt2 --precision bf16 --master-weights --batch 56 --seq 1024 --step fused --fused-layers --chunked-loss"
LLAMA2 = "--params 6738415616 --precision bf16 --step fused"
LLAMA32 = "--model llama-3.2-3b --precision bf16 --batch 2 --seq 4096 --optimizer adamw --step fused"
LLAMA31 = ("--model llama-3.1-8b --precision bf16 --master-weights --optimizer adamw --sharding zero3 --batch 2 --seq 8192 "
           "--checkpointing selective-op")

# (run, what, settings, what of the estimate, counter, measured GiB). What: a part's name, "peak", or other settings,
# which are subtracted.
RUNS = [
    ("A", "weights of bert-large", BERT + " --batch 4", "weights", "NVML less context", (2631 - 1343) / 1024),
    ("A", "batch 4", BERT + " --batch 4", "peak", "NVML less context", (14949 - 1343) / 1024),
    ("A", "batch 1, 4 micro-batches", BERT + " --batch 1 --accumulation 4", "peak", "NVML less context",
     (8681 - 1343) / 1024),
    ("A", "the same, checkpointing", BERT + " --batch 1 --accumulation 4 --checkpointing full", "peak",
     "NVML less context", (6775 - 1343) / 1024),
    ("A", "saved by 8-bit Adam", BERT + " --batch 4", "--optimizer adamw8bit", "NVML less context", 1912 / 1024),
    ("B", "weights", GPT2, "weights", "llm.c's own", 237 / 1024),
    ("B", "gradients", GPT2, "gradients", "llm.c's own", 237 / 1024),
    ("B", "m and v", GPT2, "optimizer_states", "llm.c's own", 948 / 1024),
    ("B", "master weights", GPT2, "master_weights", "llm.c's own", 474 / 1024),
    ("B", "activations and logits", GPT2, "activations", "llm.c's own", 18564 / 1024),
    ("C", "saved by 8-bit AdamW", LLAMA2 + " --optimizer adamw", "--optimizer adamw8bit", "allocated", 51.6 - 39.1),
    ("C", "saved by 4-bit AdamW", LLAMA2 + " --optimizer adamw", "--optimizer adamw4bit", "allocated", 51.6 - 33.2),
    ("D", "packed sequences", LLAMA32, "peak", "allocated", 60.0),
    ("D", "compiled, chunked loss", LLAMA32 + " --chunked-loss --fused-layers", "peak", "allocated", 42.9),
    ("D", "the same, checkpointing", LLAMA32 + " --chunked-loss --fused-layers --checkpointing full", "peak", "allocated",
     24.9),
    ("E", "8 GPUs", LLAMA31 + " --gpus 8", "peak", STREAMS, 82.4),
    ("E", "128 GPUs", LLAMA31 + " --gpus 128", "peak", STREAMS, 67.0),
    ("E", "saved by 128 GPUs, not 8", LLAMA31 + " --gpus 8", "--gpus 128", STREAMS, 82.4 - 67.0),
]


@functools.cache
def rows_script():
    spec = importlib.util.spec_from_file_location("estimate_rows", ROOT / "scripts" / "estimate-rows.py")
    rows = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rows)
    return rows


def estimate(settings):
    return rows_script().lines_of(*settings.split())


def add_up(lines):
    return [sum(line[key] for line in lines) for key in ("low_bytes", "bytes", "high_bytes")]


def peak(lines, without, cached=()):
    """Low, likely and high of the phase that has most of what a counter counts. `cached`: parts that it counts always."""
    lines = [line for line in lines if not line["host"] and line["part"] not in without]
    return max((add_up([line for line in lines if phase in line["phases"] or line["part"] in cached])
                for phase in rows_script().phases_of(lines)), key=lambda sums: sums[1])


def counted(lines, counter):
    return peak(lines, COUNTERS[counter], ("gradients",) if counter == STREAMS else ())


def part(lines, name):
    names = ("activations", "logits") if name == "activations" else (name,)
    return add_up([line for line in lines if line["part"] in names and not line["host"]])


def predict(settings, what, counter):
    answer = estimate(settings)
    if what == "peak":
        return counted(answer, counter)
    if not what.startswith("--"):
        return part(answer, what)
    words = settings.split()
    option = what.split()[0]
    if option in words:
        at = words.index(option)
        del words[at:at + 2]
    before, after = counted(answer, counter), counted(estimate(" ".join(words) + " " + what), counter)
    return [before[1] - after[1]] * 3


def error(predicted, measured):
    return 100 * (predicted / measured - 1)


def inside(low, high, measured):
    return low * 0.98 <= measured <= high * 1.02


def published():
    """The first table, and its last line."""
    lines = ["| run | what | counter | measured | predicted | low – high | error |", "|---|---|---|--:|--:|--:|--:|"]
    errors, whole = [], []
    for run, what, settings, of, counter, measured in RUNS:
        low, likely, high = (x / GIB for x in predict(settings, of, counter))
        errors.append((abs(error(likely, measured)), f"{run}, {what}"))
        if of in ("peak", "activations"):
            whole.append(errors[-1][0])
        lines.append(f"| {run} | {what} | {counter} | {measured:.2f} | {likely:.2f} | "
                     f"{f'{low:.2f} – {high:.2f}' if high > low else ''} | {error(likely, measured):+.1f} % |")
    lines += ["", f"Sizes in GiB. Median error {statistics.median(e for e, _ in errors):.1f} %, for the {len(whole)} rows of "
              f"peaks and activations {statistics.median(whole):.1f} %; the worst is {max(errors)[0]:.1f} % "
              f"({max(errors)[1]})."]
    return lines


def recorded():
    """The second: PyTorch's own counters, by model."""
    models = {}
    for run in json.loads(MEASURED.read_text()):
        low, likely, high = peak(estimate(run["settings"]), ALLOCATED)
        models.setdefault(run["settings"].split()[1], []).append(
            (error(likely, run["peak_bytes"]), inside(low, high, run["peak_bytes"]), run["settings"]))
    lines = ["| model | runs | median error | worst | within low – high |", "|---|--:|--:|--:|--:|"]
    rows = [row for found in models.values() for row in found]
    for model, found in sorted(models.items()):
        worst = max(found, key=lambda row: abs(row[0]))
        lines.append(f"| {model} | {len(found)} | {statistics.median(abs(e) for e, _, _ in found):.1f} % | {worst[0]:+.1f} % | "
                     f"{sum(ok for _, ok, _ in found)} of {len(found)} |")
    worst = max(rows, key=lambda row: abs(row[0]))
    lines += ["", f"All {len(rows)}: median error {statistics.median(abs(e) for e, _, _ in rows):.1f} %; the worst is "
              f"{worst[0]:+.1f} % (`{worst[2]}`); {sum(ok for _, ok, _ in rows)} are between low and high."]
    return lines


def sharded():
    """The third: the fullest rank of a run on several GPUs."""
    lines = ["| run | GPUs | measured | predicted | low – high | error |", "|---|--:|--:|--:|--:|--:|"]
    errors = []
    for run in json.loads(SHARDED.read_text()):
        low, likely, high = peak(estimate(f"{run['model']} {run['settings']} --optimizer adamw --gpus {run['ranks']} "
                                          f"{run['divided']} --gpu h100-80g"), ALLOCATED)
        errors.append((abs(error(likely, run["peak_bytes"])), run["name"], inside(low, high, run["peak_bytes"])))
        lines.append(f"| {run['name']} | {run['ranks']} | {run['peak_bytes'] / MIB:.0f} | {likely / MIB:.0f} | "
                     f"{low / MIB:.0f} – {high / MIB:.0f} | {error(likely, run['peak_bytes']):+.1f} % |")
    lines += ["", f"Sizes in MiB. Median error {statistics.median(e for e, _, _ in errors):.1f} %, the worst {max(errors)[0]:.1f} % "
              f"({max(errors)[1]}); {sum(ok for _, _, ok in errors)} of {len(errors)} are between low and high."]
    return lines


ROWS = ROOT / "scripts" / "estimate-rows"
DISTRIBUTION = "median error | 90th percentile | between low and high | above high | mean width"


@functools.cache
def judged(path):
    return rows_script().judged(path)[0]


def distribution(rows, *names, more=()):
    """A line of a table."""
    n, median, p90, _, within, above, width = rows_script().summed_up(rows)
    cells = [*names[:1], n, *names[1:], f"{median:.1%}", f"{p90:.1%}", f"{within:.0%}", f"{above:.0%}", f"{width:.0%}", *more]
    return f"| {' | '.join(map(str, cells))} |".replace("%", " %")


def xmem():
    """The fourth: runs of xMem's repository, those that formulas were written with apart from those that they were not."""
    rows, tools = rows_script(), ("xMem", "DNNMem", "SchedTune", "LLMem")
    lines = [f"| which | rows | {DISTRIBUTION} | {' | '.join(tools)} |", "|---|" + "--:|" * 10]
    for name in ("development", "validation"):
        found, others, _ = rows.judged(ROWS / f"xmem-{name}.tsv")
        images = ("vgg", "resnet", "mobilenet", "mnasnet", "convnext", "regnet")
        if name == "validation":
            lines += [distribution([row for row in found if row[1].startswith(images)], "validation, convolutional networks", more=[""] * 4),
                      distribution([row for row in found if not row[1].startswith(images)], "validation, transformers", more=[""] * 4)]
        medians = [f"{statistics.median(others[tool]):.1%}" if others.get(tool) else "" for tool in tools]
        lines.append(distribution(found, f"{name}, all", more=medians))
    return lines


def h200():
    """The fifth: our own trainings on an H200."""
    rows = rows_script()
    found = judged(ROWS / "h200.tsv")
    lines = [f"| which | rows | counter | {DISTRIBUTION} |", "|---|--:|---|" + "--:|" * 5]
    kinds = {"language models, encoders": lambda row: "LoRA" not in row[7]["task"] and "image" not in row[7]["task"],
             "LoRA": lambda row: "LoRA" in row[7]["task"], "image models": lambda row: "image" in row[7]["task"], "all": lambda row: True}
    for which in ("development", "validation"):
        for kind, is_of in kinds.items():
            for counter in ("allocated", "reserved"):
                some = [row for row in found if is_of(row) and rows.counter(row[7]) == counter and rows.is_validation(row[7]) == (which == "validation")]
                if some and (which == "validation" or kind == "all"):
                    lines.append(distribution(some, f"{which}, {kind}", counter))
    return lines


def sources():
    """The sixth: figures that others published."""
    names = {"Stone-ResearchLife/xMem": "xMem's results (training, driver's figure)", "QwenLM/Qwen3": "Qwen3's speed benchmark (inference, allocated)",
             "QwenLM/Qwen2.5": "Qwen2.5's speed benchmark (inference, allocated)",
             "Lightning-AI/litgpt": "litgpt's resource tables (LoRA, allocated)",
             "QwenLM/Qwen": "Qwen's profiling (fine-tuning and inference, tool not stated)",
             "pytorch/torchtitan": "torchtitan's benchmarks (8 to 512 GPUs, reserved)"}
    rows = rows_script()
    found = judged(ROWS / "published.tsv")
    lines = [f"| source | rows | {DISTRIBUTION} |", "|---|" + "--:|" * 6]
    lines += [distribution([row for row in found if row[0] == source], name) for source, name in names.items()]
    several = [row for row in found if int(row[7]["gpus"]) > 1]
    return lines + [distribution(several, "several GPUs, of all sources"), distribution(found, "all, with peft, torchtune and torchao")]


def diffusion():
    """The seventh: published figures of diffusion models."""
    rows = rows_script()
    lines = ["| rows | which | median error | 90th percentile | bias | between low and high | above high | mean width |",
             "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for name in ("development", "validation"):
        found = judged(ROWS / f"diffusion-{name}.tsv")
        groups = {f"{name}, all": found}
        if name == "validation":
            for source, _, _, *_ in found:
                groups.setdefault(source, [row for row in found if row[0] == source])
        for group, some in groups.items():
            n, median, p90, bias, within, above, width = rows.summed_up(some)
            lines.append(f"| {group} | {n} | {median:.1%} | {p90:.1%} | {bias:+.1%} | {within:.0%} | {above:.0%} | {width:.0%} |".replace("%", " %"))
    return lines


# Of each set: rows, and what its first run gave: median error, 90th percentile, between low and high, above high.
FIRST = {"same-sources": "139 | 2.0 % | 7.3 % | 95 % | 1 %", "fresh": "80 | 12.6 % | 26.9 % | 25 % | 63 %",
         "fresh-2": "92 | 8.7 % | 22.6 % | 39 % | 55 %", "fresh-3": "98 | 22.0 % | 45.1 % | 36 % | 64 %",
         "fresh-4": "97 | 2.9, 4.5 % |  |  | 9, 16 %", "fresh-5": "205 | 6.8, 10.8 % |  |  | 21, 19 %",
         "fresh-6": "41 | 8.0 % | 20.3 % | 54 % | 0 %", "fresh-7": "40 | 10.6 % | 48.5 % | 72 % | 3 %",
         "fresh-8": "78 | 12.8 % | 48.1 % | 69 % | 13 %", "fresh-9": "67 | 9.4, 10.9 % | 55, 34 % | 71, 75 % | 17, 12 %",
         "fresh-10": "12 | 9.0 % | 46.3 % | 81 % | 6 %", "fresh-11": "37 | 29.5, 22.8 % | 43, 59 % | 39, 37 % | 17, 16 %",
         "fresh-12": "35 | 2.9 % | 16.5 % | 76 % | 15 %", "fresh-13": "56 | 11.8 % | 37.6 % | 88 % | 9 %",
         "fresh-14": "49 | 4.1 % | 18.8 % | 76 % | 8 %", "fresh-15": "26 | 12.4 % | 21.0 % | 62 % | 12 %",
         "fresh-16": "17 | 8.8 % | 35.9 % | 71 % | 24 %", "fresh-17": "43 | 3.0 % | 15.6 % | 80 % | 3 %",
         "fresh-18": "38 | 8.0 % | 50.1 % | 74 % | 11 %", "fresh-19": "45 | 17.8 % | 67.8 % | 45 % | 38 %",
         "fresh-20": "41 | 10.8 % | 70.6 % | 63 % | 29 %", "fresh-21": "30 | 18.5 % | 67.6 % | 67 % | 22 %",
         "fresh-22": "24 | 6.9 % | 14.1 % | 79 % | 4 %"}


def sets():
    """The eighth: the sets of figures that were found after the formulas were written, at their first run and now."""
    lines = ["| set | rows | first run: median | 90th percentile | between | above high | now: median | 90th percentile | between "
             "| above high | mean width |", "|---|" + "--:|" * 10]
    for name, first in FIRST.items():
        found = [row for path in sorted(ROWS.glob("*.tsv")) if re.fullmatch(name + "(-development|-validation)?", path.stem)
                 for row in judged(path)]
        _, median, p90, _, within, above, width = rows_script().summed_up(found)
        lines.append(f"| {name} | {first} | {median:.1%} | {p90:.1%} | {within:.0%} | {above:.0%} | {width:.0%} |".replace("%", " %").replace("  %", " %"))
    return lines


def fresh_halves(name):
    """Figures that were divided by a hash before anything was changed."""
    rows = rows_script()
    lines = [f"| source | rows | {DISTRIBUTION} |", "|---|" + "--:|" * 6]
    for half in ("development", "validation"):
        found = judged(ROWS / f"{name}-{half}.tsv")
        sources = dict.fromkeys(row[0] for row in found) if half == "validation" else ()
        lines += [distribution([row for row in found if row[0] == source], source.removeprefix("https://").split(",")[0]) for source in sources]
        lines.append(distribution(found, f"{half}, all"))
    return lines


def kind_of(row):
    options = " ".join(rows_script().options(row))
    words = {"diffusion models": "--image" in options and ("denoiser" in row["task"] or "text to" in row["task"] or "--frames" in options or row["model"].startswith("flux")),
             "vLLM, beside the KV cache": "--serve" in options,
             "language models, served": "--inference" in options,
             "image models, trained": "--image" in options or row["model"].startswith(("vit", "resnet", "convnext")),
             "several GPUs, trained": int(row["gpus"]) > 1,
             "one GPU, samples of all lengths": "--varying-lengths" in options,
             "one GPU, LoRA or Q-LoRA": "--adapter" in options}
    return next((kind for kind, is_one in words.items() if is_one), "one GPU, all parameters")


def kinds():
    """A summary of all sets of published figures but xMem's and our own. Not compared by the tests, because it reads all of them."""
    found = [row for path in sorted(ROWS.glob("*.tsv")) if not path.name.startswith(("xmem", "h200")) for row in judged(path)]
    groups = {}
    for row in found:
        groups.setdefault(kind_of(row[7]), []).append(row)
    return [f"| what is estimated | figures | {DISTRIBUTION} |", "|---|" + "--:|" * 6] + \
        [distribution(groups[kind], kind) for kind in sorted(groups)] + [distribution(found, "all")]


TABLES = {"published": published, "recorded": recorded, "sharded": sharded, "xmem": xmem, "h200": h200, "sources": sources,
          "diffusion": diffusion, "sets": sets,
          "serving": lambda: fresh_halves("serving"), "pipelines": lambda: fresh_halves("pipelines")}
SUMMARY = {"kinds": kinds}


def between(text, name):
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    at = text.index(start) + len(start)
    return at, text.index(end, at)


def written(text, name):
    at, end = between(text, name)
    return text[at:end].strip("\n").split("\n")


if __name__ == "__main__":
    for page, tables in ((USERS, SUMMARY), (DOCS, TABLES)):
        docs = page.read_text()
        for each, table in tables.items():
            at, end = between(docs, each)
            docs = docs[:at] + "\n".join(table()) + "\n" + docs[end:]
        page.write_text(docs)
    print("\n".join(line for each in TABLES for line in written(docs, each)), file=sys.stderr)
