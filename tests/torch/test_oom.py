"""Training scripts that run out of memory, each for a known reason at a known line (fixtures/oom)."""
import sys
from pathlib import Path

import pytest
from conftest import BUILD

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=True)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(record, name):
    s = SCENARIOS[name]
    done = record(s.path, **s.environment, OOM_LIBRARIES=BUILD / "oom")
    assert s.differs(done.report()) == [], done.stderr[-1500:]
