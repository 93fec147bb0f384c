"""The scenarios in fixtures/oom: what each one's first lines say of it, how it is run, and whether an answer agrees.

    # cause: leak  line: 17|21  fatal: yes      cause `none`: memory was given back and the request served
    # gpu: 4GiB           the device's memory          # devices: 2      how many there are
    # conf: …             PYTORCH_CUDA_ALLOC_CONF      # env: A=B C=D    more of the environment
    # device: 1           on which it fails            # torch: no       runs without PyTorch
    # advice: a|b         some advice must have one    # not: c          and none may have this
A line may be `folder/file.py:17`; without a file it is the scenario's own. Of several, each would do.
"""
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "oom"


class Scenario:
    def __init__(self, path):
        self.path, self.name = path, path.stem
        said = {}
        for line in path.read_text().splitlines():
            if not re.match(r"(#|/?) ?\*? ?\w+: ", line):
                break
            said.update(re.findall(r"(\w+): +(.+?)(?=  +\w+: |$)", line))
        self.cause, self.fatal = said["cause"], said["fatal"] == "yes"
        self.lines = {tuple(at.rsplit(":", 1)) if ":" in at else (path.name, at) for at in said["line"].split("|")}
        self.torch = path.suffix == ".py" and said.get("torch") != "no"
        self.device = int(said.get("device", 0))
        self.advice, self.never = said.get("advice"), said.get("not")
        self.environment = {"SIMCUDA_MEMORY": said.get("gpu", "4GiB"), "SIMCUDA_DEVICES": said.get("devices", "1"),
                            "SIMCUDA_CLOCK": "real"}
        if "conf" in said:
            self.environment["PYTORCH_CUDA_ALLOC_CONF"] = said["conf"]
        self.environment.update(pair.split("=", 1) for pair in said.get("env", "").split())

    def differs(self, report):
        """What is wrong with the answer, a line each."""
        if self.cause == "none":
            ooms, retries = report["oom"], report["retries"]
            return [] if retries and len(ooms) == len(retries) and not any(o["fatal"] for o in ooms) else [f"{ooms}"]
        if not report["oom"]:
            return ["no OOM"]
        oom, wrong = report["oom"][0], []
        if oom["cause"] != self.cause:
            wrong.append(f"{oom['cause']} instead of {self.cause}: {oom['verdict']}; {oom['evidence']}")
        blame = oom["blame"] or {}
        at = blame.get("file") or "", str(blame.get("line"))
        if not any(at[0].endswith(f"/{file}") and at[1] == line for file, line in self.lines):
            wrong.append(f"{at[0]}:{at[1]} ({blame.get('role')}) instead of {sorted(self.lines)}: {oom['verdict']}")
        if oom["fatal"] != self.fatal or oom["device"] != self.device:
            wrong.append(f"fatal {oom['fatal']} on device {oom['device']}")
        advice = " | ".join(oom["advice"])
        if self.advice and not re.search(self.advice, advice, re.I):
            wrong.append(f"nothing of {self.advice} in: {advice}")
        if self.never and re.search(self.never, advice, re.I):
            wrong.append(f"{self.never} in: {advice}")
        return wrong


def scenarios(torch):
    every = [Scenario(p) for p in sorted(FOLDER.glob("*.py")) + sorted(FOLDER.glob("*.c"))]
    return [s for s in every if s.torch == torch]
