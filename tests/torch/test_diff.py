"""gpuspy diff on PyTorch's own runs: a model that was edited between two recordings."""
import json
import os
import subprocess

import pytest
from conftest import BUILD

BEFORE = """\
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        h = torch.relu(self.up(x))  # UP
        return x + self.down(h)  # DOWN

def main():
    model = nn.Sequential(*[Block(256) for _ in range(4)]).cuda()  # MODEL
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    for _ in range(4):
        x = torch.empty(512, 256, device="cuda")  # X
        loss = model(x).sum()  # LOSS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # STEP

main()
"""
AFTER = (BEFORE.replace("import torch\n", '"""Notes\n\nthat push all down."""\nimport torch\n', 1)
         .replace("    for _ in range(4):\n", "    cache = torch.empty(1 << 20, device='cuda')  # CACHE\n    for _ in range(4):\n")
         .replace("torch.relu(self.up(x))", "nn.functional.gelu(self.up(x)) * 1.0"))


def lines_of(source):
    return {line.split("  # ")[1]: n for n, line in enumerate(source.splitlines(), 1) if "  # " in line}


@pytest.fixture(scope="module")
def versions(record, tmp_path_factory):
    runs = []
    for name, source in ("before", BEFORE), ("after", AFTER):
        script = tmp_path_factory.mktemp(name) / "train.py"
        script.write_text(source)
        runs.append(record(script))
        assert runs[-1].code == 0, runs[-1].stderr[-3000:]
    return [run.database for run in runs]


def diff(*arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([BUILD / "gpuspy", "diff", "--json", *map(str, arguments)], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rests = [answer[k] for k in ("smaller_shrunk", "smaller_grown", "unchanged")]
    assert sum(r["change"] for r in answer["rows"] + rests) == answer["total"]["change"]
    return answer


def test_what_was_edited_is_named(versions):
    answer = diff(*versions)
    old, new = lines_of(BEFORE), lines_of(AFTER)
    rows = {(r["site_before"] and r["site_before"]["line"], r["site_after"] and r["site_after"]["line"]): r
            for r in answer["rows"]}
    # gelu keeps its input and makes one more result; the cache is new; everything else moved by three or four lines
    assert rows[old["UP"], new["UP"]]["change"] > 0 and rows[old["UP"], new["UP"]]["category"] == "activations"
    assert rows[None, new["CACHE"]]["after"] == 4 << 20
    for a, b in rows:
        assert a is None or b is None or (a, b) in {(old[k], new[k]) for k in old} or b - a in (3, 4), (a, b)
    assert not [r for r in answer["rows"] if r["status"] == "gone"], answer["rows"]
    kept = {c["category"]: c["change"] for c in answer["by_category"]}
    assert kept["parameters"] == 0 and kept["optimizer_state"] == 0


def test_the_other_way_round(versions):
    there, back = diff(*versions), diff(*reversed(versions))
    assert [-r["change"] for r in there["rows"]] == [r["change"] for r in back["rows"]]
    assert [r["site_before"] for r in there["rows"]] == [r["site_after"] for r in back["rows"]]


def test_the_same_twice(versions):
    answer = diff(versions[0], versions[0])
    assert answer["rows"] == [] and answer["total"]["change"] == 0


def test_waits_and_copies(versions):
    for what in "waits", "copies", "allocated", "end":
        answer = diff("--what", what, *versions)
        for row in answer["rows"]:  # relu's gradient is really gone
            assert row["status"] != "gone" or row["site_before"]["operation"] == "ReluBackward0", row
