"""A what-if of a run with default settings, compared with a run recorded with those settings."""
import json
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, limit_of

SCRIPT = Path(__file__).resolve().parent / "whatif.py"
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:21", "max_split_size_mb:64,roundup_power2_divisions:8",
            "roundup_power2_divisions:4", "roundup_power2_divisions:[1:2,4:8,>:4]", "garbage_collection_threshold:0.6",
            "expandable_segments:True,roundup_power2_divisions:8"]


def asked(database, *words):
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", *words, database], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def figures(x):
    oom = x["oom"] or {"event": None, "requested_bytes": None, "site": {"line": None}}
    return x["fits"], oom["event"], oom["site"]["line"], x["retries"], x["segments"]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("limit", ["2GiB", "228MiB", "188MiB"])
def test_a_what_if_is_what_a_run_under_these_settings_is(once, settings, limit):
    first = once("whatif", SCRIPT, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="8GiB")
    real = once(f"whatif {settings} {limit}", SCRIPT, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY=limit,
                PYTORCH_CUDA_ALLOC_CONF=settings)
    theirs = asked(real.database, "--set", "max_split_size_mb:512")
    assert theirs["replay"]["exact"], theirs["replay"]
    assert theirs["recorded"]["peak_reserved_bytes"] == int(re.findall(r"^\d+$", real.stdout, re.M)[-1])
    assert theirs["recorded"]["fits"] == (real.code == 0)
    answer = asked(first.database, "--limit", limit_of(limit, "100MiB"), *(["--set", settings] if settings else []))
    ours = answer["whatif"][0]
    assert answer["replay"]["exact"] and all("lowest address" in doubt for doubt in ours["doubts"]), ours  # the simulated driver chooses as the replay assumes
    assert ours["peak_reserved_bytes"] == theirs["recorded"]["peak_reserved_bytes"], (ours, theirs)
    assert figures(ours) == figures(theirs["recorded"]), (ours, theirs)
