"""Training scripts that run out of memory, each for a known reason at a known line (fixtures/oom)."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, CUDA
from pause import with_pause

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=True)}
TYPED = {"leak_callback", "capacity_backward", "frag_lengths", "recovered_retry", "cap_fraction"}


def type_what_it_suggests(folder):
    """Each command below "Next" works as printed, in the folder where the user is."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))} | {"COLUMNS": "100"}
    env["PATH"] = f"{BUILD}:{env['PATH']}"

    def typed(command):
        done = subprocess.run(["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and (done.stdout or done.stderr), (command, done.stderr)
        return done.stdout
    suggested = set()
    for view in "report", "report --full", "whatif":
        after = re.sub(r" \\\n *", " ", typed(f"gpuspy {view} run.db").split("\nNext\n")[1])
        suggested |= set(re.findall(r"^  (gpuspy .*?)(?:  +[a-z].*)?$", after, re.M))
    assert len(suggested) > 4
    for command in sorted(suggested):
        typed(command)


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(record, name):
    s = SCENARIOS[name]
    done = record(s.path, **s.environment, OOM_LIBRARIES=BUILD / "oom")
    assert s.differs(done.report()) == [], done.stderr[-1500:]
    if name in TYPED:
        type_what_it_suggests(done.folder)
    if len(list(done.folder.glob("run*.db"))) == 1:
        assert s.differs(done.report(with_pause(done.database, done.folder / "paused.db", .97))) == []


def test_the_summary_at_the_end_gives_the_reports_verdict(tmp_path):
    """It can name a leak's graph only by native frames, as the report does."""
    database = tmp_path / "run.db"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
    env.update(SCENARIOS["leak_validation_losses"].environment, **CUDA)
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", database, "--", os.environ["TORCH_PYTHON"],
                           SCENARIOS["leak_validation_losses"].path], env=env, capture_output=True, text=True)
    report = json.loads(subprocess.run([BUILD / "gpuspy", "report", "--json", database], capture_output=True, text=True).stdout)
    assert report["oom"][0]["cause"] == "leak" and report["oom"][0]["verdict"] in " ".join(done.stderr.split())
