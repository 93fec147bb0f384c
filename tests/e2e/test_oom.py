"""Programs that run out of memory, each for a known reason at a known line (fixtures/oom), without PyTorch; those with
PyTorch are in tests/torch."""
import sys
from pathlib import Path

import pytest
from conftest import BUILD

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=False)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(recording, name):
    scenario = SCENARIOS[name]
    more = {**scenario.environment, "OOM_LIBRARIES": BUILD / "oom"}
    if scenario.path.suffix == ".c":
        recording.run(BUILD / "oom" / name, check=False, **more)
    else:
        recording.python(str(scenario.path), check=False, **more)
    assert scenario.differs(recording.report()) == []
