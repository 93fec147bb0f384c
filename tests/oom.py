"""The scenarios in fixtures/oom: what each one's first lines say of it, how it is run, and whether an answer agrees.

    # cause: leak  line: 17|21  fatal: yes      cause `none`: memory was given back and the request served
    # gpu: 4GiB           the device's memory          # devices: 2      how many there are
    # conf: …             PYTORCH_CUDA_ALLOC_CONF      # env: A=B C=D    more of the environment
    # device: 1           on which it fails            # torch: no       runs without PyTorch
    # advice: a|b         some advice must have one    # not: c          and none may have this
    # says: a|b            what the verdict must say
    # step: 1            the step in which it fails
    # holder: 17         the statement that keeps what grows, as a guess; none: there must be no guess
    # outcome: unknown    whether it was handled: retried, handled, ended_run, unknown
A line may be `folder/file.py:17`; without a file it is the scenario's own. Of several, each would do.
"""
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "oom"


class Scenario:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        reported = {}
        for line in path.read_text().splitlines():
            if not re.match(r"(#|/?) ?\*? ?\w+: ", line):
                break
            reported.update(re.findall(r"(\w+): +(.+?)(?=  +\w+: |$)", line))
        self.cause, self.fatal = reported["cause"], reported["fatal"] == "yes"
        self.lines = {tuple(at.rsplit(":", 1)) if ":" in at else (path.name, at) for at in reported["line"].split("|")}
        self.torch = path.suffix == ".py" and reported.get("torch") != "no"
        self.device = int(reported.get("device", 0))
        self.advice, self.never, self.outcome = reported.get("advice"), reported.get("not"), reported.get("outcome")
        self.says, self.step = reported.get("says"), reported.get("step")
        self.holder = reported.get("holder")
        self.environment = {"SIMCUDA_MEMORY": reported.get("gpu", "4GiB"), "SIMCUDA_DEVICES": reported.get("devices", "1"),
                            "SIMCUDA_CLOCK": "real"}
        if "conf" in reported:
            self.environment["PYTORCH_CUDA_ALLOC_CONF"] = reported["conf"]
        self.environment.update(pair.split("=", 1) for pair in reported.get("env", "").split())

    def differs(self, report):
        """The errors of the answer, a line each."""
        untrue = [line for oom in report["oom"] for line in claims(oom)]
        if untrue:
            return untrue
        if self.cause == "none":
            ooms, retries = report["oom"], report["retries"]
            return [] if retries and len(ooms) == len(retries) and not any(o["fatal"] for o in ooms) else [f"{ooms}"]
        if not report["oom"]:
            return ["no OOM"]
        if self.outcome and report["oom"][0]["outcome"] not in self.outcome.split("|"):
            return [f"{report['oom'][0]['outcome']}: {report['oom'][0]['outcome_why']}"]
        oom, wrong = report["oom"][0], []
        if oom["cause"] not in self.cause.split("|"):
            wrong.append(f"{oom['cause']} instead of {self.cause}: {oom['verdict']}; {oom['evidence']}")
        blame = oom["blame"] or {}
        at = blame.get("file") or "", str(blame.get("line"))
        if not any(f"/{at[0]}".endswith(f"/{file}") and at[1] == line for file, line in self.lines):
            wrong.append(f"{at[0]}:{at[1]} ({blame.get('role')}) instead of {sorted(self.lines)}: {oom['verdict']}")
        if oom["fatal"] != self.fatal or oom["device"] != self.device:
            wrong.append(f"fatal {oom['fatal']} on device {oom['device']}")
        if self.step and oom["step"] != int(self.step):
            wrong.append(f"step {oom['step']} instead of {self.step}")
        if self.says and not re.search(self.says, oom["verdict"]):
            wrong.append(f"nothing of {self.says} in: {oom['verdict']}")
        kept = [f"{h['file']}:{h['line']}" for h in oom["holders"]]
        holder = None if self.holder in (None, "none") else self.holder if ":" in self.holder else f"{self.path.name}:{self.holder}"
        if self.holder and [k[-len(holder or ""):] for k in kept] != ([holder] if holder else []):
            wrong.append(f"kept by {kept} instead of {self.holder}")
        advice = " | ".join(oom["advice"])
        if self.advice and not re.search(self.advice, advice, re.I):
            wrong.append(f"nothing of {self.advice} in: {advice}")
        if self.never and re.search(self.never, advice, re.I):
            wrong.append(f"{self.never} in: {advice}")
        return wrong


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
SIZE = r"([\d.]+) (B|KiB|MiB|GiB)"
# words in a capacity's sentence, and the parts of the waterfall that they mean
BESIDE = {"that PyTorch caches": "cached", "in allocations from CUDA's pools": "pools", "that CUDA's pools keep": "pools_free",
          "in CUDA allocations of other code": "direct", "held for CUDA graphs": "graphs",
          "for the CUDA context and libraries": "context", "in use from the beginning": "before",
          "held by other processes": "other_processes",
          "in use outside the recording (libraries, other processes)": "unaccounted"}


def size(text):
    """Of the first size in the text: the smallest and largest number of bytes that print like it."""
    number, unit = re.search(SIZE, text).groups()
    grain = 10.0 ** -len(number.partition(".")[2]) * UNITS[unit] if unit != "B" else 0
    return float(number) * UNITS[unit] - grain, float(number) * UNITS[unit] + grain


def claims(oom):
    """Claims in an OOM's sentence that its numbers contradict, a line each."""
    reported, total, free, e = oom["verdict"], oom["total_bytes"], oom["free_bytes"], oom["evidence"]
    wrong, held = [], {}
    for part in oom["waterfall"]:
        held[part["what"]] = held.get(part["what"], 0) + part["bytes"]

    def must(holds, what):
        if not holds:
            wrong.append(f"{what}: {reported}; {held or e}")

    if oom["waterfall"]:
        must(sum(held.values()) == total, "the parts do not sum to the device")
    if reported.startswith("the live memory does not fit"):
        must(e["live_bytes"] + e["asked_bytes"] + e["context_bytes"] > total, "it would fit")
    elif re.match("the live memory, |the request does not fit", reported):
        named = re.findall(SIZE + " (" + "|".join(map(re.escape, BESIDE)) + ")", reported)
        must(named, "nothing is named")
        live = size(reported)[1] if reported.startswith("the live memory, ") else 0
        must(live + e["asked_bytes"] + sum(size(f"{n} {u}")[1] for n, u, _ in named) > total, "the sum would fit")
        must(e["live_bytes"] + e["asked_bytes"] + e["context_bytes"] <= total, "the live memory would not fit anyway")
        for number, unit, words in named:
            low, high = size(f"{number} {unit}")
            must(low <= held.get(BESIDE[words], -1) <= high, f"not {words}")
    elif reported.startswith("fragmentation: "):
        low, high = size(reported)
        cached = e["tensor_reserved_bytes"] - e["tensor_allocated_bytes"]
        must(low <= cached <= high, "not so much is cached")
        if "at most" in reported:
            must(e["largest_free_bytes"] < oom["requested_bytes"], "a hole would have served it")
    elif reported.startswith(("fragmentation, or a limit", "a limit on PyTorch")):
        must(free >= oom["requested_bytes"], "there was no room")
    elif reported.startswith("one request is larger"):
        must(oom["requested_bytes"] > total - e["context_bytes"], "it would fit")
    elif reported.startswith("one request is for most"):
        must(oom["requested_bytes"] >= total / 2 and oom["requested_bytes"] >= 2 * e["device_live_bytes"], "not most")
    elif oom["cause"] == "leak" and "growing_bytes" in e:
        must(e["growing_bytes"] <= e["live_bytes"], "more has grown than is live")
    elif oom["cause"] == "outside_allocator":
        must(2 * (total - free - e.get("tensor_reserved_bytes", 0)) >= total - e["context_bytes"], "not most of the GPU")
    outcome, fatal, handled = oom["outcome"], oom["fatal"], oom["handled"]
    must({"ended_run": fatal, "unknown": fatal, "handled": handled, "retried": not fatal and not handled}[outcome]
         and not (fatal and handled), f"{outcome} with fatal {fatal} and handled {handled}")
    return wrong


def scenarios(torch):
    every = [Scenario(p) for p in sorted(FOLDER.glob("*.py")) + sorted(FOLDER.glob("*.c"))]
    return [s for s in every if s.torch == torch]
