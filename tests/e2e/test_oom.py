"""Programs that run out of memory, each for a known reason at a known line (fixtures/oom), without PyTorch; those with
PyTorch are in tests/torch."""
import pytest
from test_one_truth import SCENARIOS, scenario


@pytest.mark.parametrize("name", SCENARIOS)
def test_cause_and_line(once, name):
    assert SCENARIOS[name].differs(once(f"oom/{name}", scenario(name)).report()) == []
