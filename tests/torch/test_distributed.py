"""Ranks that train together: the figures of each are PyTorch's own."""
import json

import pytest
from conftest import HERE, Recorded


@pytest.mark.parametrize("how", ["ddp", "fsdp", "fully_shard"])
def test_each_rank(tmp_path, how):
    done = Recorded(tmp_path, HERE / "distributed.py", how, tmp_path, SIMCUDA_DEVICES=2)
    assert done.code == 0, done.stderr[-3000:]
    answer = done.report()
    peaks = {(p["device"], p["layer"]): p["bytes"] for p in answer["peak"]}
    for rank in range(2):
        reported = json.loads((tmp_path / f"reported.{rank}").read_text())
        assert peaks[rank, "tensor"] == reported["allocated"]
        assert peaks[rank, "device"] == reported["reserved"]
    assert answer["run"]["lost_events"] == 0
