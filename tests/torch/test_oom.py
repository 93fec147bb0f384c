"""Training scripts that run out of memory, each for a known reason at a known line (fixtures/oom)."""
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import BUILD

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from oom import scenarios  # noqa: E402

SCENARIOS = {s.name: s for s in scenarios(torch=True)}


@pytest.fixture(scope="session")
def recorded(record, request):
    """Those that are wanted, two at a time: they mostly wait for PyTorch to be imported."""
    wanted = dict.fromkeys(i.callspec.params["name"] for i in request.session.items
                           if "recorded" in getattr(i, "fixturenames", ()) and hasattr(i, "callspec"))
    with ThreadPoolExecutor(2) as pool:
        def start(name):
            s = SCENARIOS[name]
            return record(s.path, **s.environment, OOM_LIBRARIES=BUILD / "oom")
        yield {name: pool.submit(start, name) for name in wanted}


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(recorded, name):
    done = recorded[name].result()
    assert SCENARIOS[name].differs(done.report()) == [], done.stderr[-1500:]
