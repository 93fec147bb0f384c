"""docs/accuracy.md states how accurate estimates are: the tables there must be what the command gives today."""
import re

import pytest

import estimate_runs


@pytest.mark.parametrize("name", estimate_runs.TABLES)
def test_the_docs_agree_with_the_command(name):
    assert estimate_runs.written(estimate_runs.DOCS.read_text(), name) == estimate_runs.TABLES[name](), \
        "python3 tests/e2e/estimate_runs.py writes the tables anew"


def test_every_published_run_is_there():
    assert [run for run in "ABCDE" if not any(row[0] == run for row in estimate_runs.RUNS)] == []


def test_recorded_runs_are_near():
    text = "\n".join(estimate_runs.written(estimate_runs.DOCS.read_text(), "recorded"))
    median = float(re.search(r"median error ([\d.]+) %", text).group(1))
    assert median <= 5
