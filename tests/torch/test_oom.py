"""Training scripts that run out of memory, each for a known reason at a known line (fixtures/oom)."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BUILD, CUDA
from pause import with_pause

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=True)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(record, name):
    s = SCENARIOS[name]
    done = record(s.path, **s.environment, OOM_LIBRARIES=BUILD / "oom")
    assert s.differs(done.report()) == [], done.stderr[-1500:]
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
