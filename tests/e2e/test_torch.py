"""Real PyTorch, through its own reporting functions. The reference is PyTorch: the total that it passes with every
event is compared with gpuspy's running total of the same events."""
import importlib.util
import re

import pytest

if not importlib.util.find_spec("torch"):  # an import takes each worker 2 s
    pytest.skip("no PyTorch in this Python", allow_module_level=True)

LINES = """import torch
torch.set_num_threads(1)
keep = torch.zeros(1000, 1000)          # 4,000,000 bytes, held to the end
def work():
    temporary = torch.empty(500, 500)   # 1,000,000 bytes, freed on return
    return temporary.shape
for _ in range(3):
    work()
print("done")
"""


def line_of(text):
    return next(n for n, line in enumerate(LINES.splitlines(), 1) if text in line)


def test_totals_equal_pytorchs_at_every_event(recording):
    done = recording.python("train_torch.py", 30, GPUSPY_TORCH_CPU=1)
    assert re.search(r"step 20 loss \d", done.stdout) or "step 20" in done.stdout
    rows = recording.sql("select layer, events, mismatches, first_difference from tensor_check")
    assert rows, "PyTorch reported nothing"
    (layer, events, mismatches, difference), = rows
    assert mismatches == 0, f"{mismatches} of {events} totals differ, first by {difference} bytes"
    lifetimes, freed = recording.sql("select count(*), count(free_ns) from allocation")[0]
    assert lifetimes + freed == events
    assert events > 2000


def test_each_tensor_has_its_line(recording):
    recording.python(LINES, GPUSPY_TORCH_CPU=1)
    rows = recording.sql("select a.bytes, s.line, s.file, a.layer from allocations a "
                         "join sites s on s.stack_id = a.alloc_stack_id where a.bytes in (4000000, 1000000)")
    script = str(recording.folder / "script.py")
    assert [r for r in rows if r[0] == 4000000] == [(4000000, line_of("keep ="), script, "host")]
    assert [r for r in rows if r[0] == 1000000] == [(1000000, line_of("temporary ="), script, "host")] * 3


def test_output_and_result_are_those_of_a_run_without(recording):
    with_gpuspy = recording.python("train_torch.py", 21, GPUSPY_TORCH_CPU=1)
    without = recording.python("train_torch.py", 21, LD_PRELOAD="")
    assert with_gpuspy.stdout == without.stdout
    assert with_gpuspy.stderr.count("\n") == 1 and with_gpuspy.stderr.startswith("gpuspy: ")


def test_report_names_the_line_that_holds_most(recording):
    recording.python(LINES, GPUSPY_TORCH_CPU=1)
    report = recording.report()
    host = next(p for p in report["peak"] if p["layer"] == "host")
    assert host["bytes"] >= 5_000_000
    top = host["by_stack"][0]
    assert top["bytes"] == 4_000_000 and top["count"] == 1
    python = next(f for f in top["frames"] if f["kind"] == "python")
    assert python["line"] == line_of("keep =") and python["file"].endswith("script.py")


def test_without_torch_cpu_a_cpu_run_leaves_no_file(recording):
    done = recording.python(LINES)
    assert done.stdout == "done\n" and done.stderr == ""
    assert sorted(p.name for p in recording.folder.iterdir()) == ["script.py"]


def test_the_profiler_still_gets_its_events(recording):
    """The real reporting functions are still called: torch.profiler depends on them."""
    script = """import torch
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    x = torch.ones(1 << 20)
print(sum(e.self_cpu_memory_usage for e in prof.key_averages()))
"""
    seen = recording.python(script, GPUSPY_TORCH_CPU=1).stdout
    assert seen == recording.python(script, LD_PRELOAD="").stdout
    assert int(seen) >= 4 << 20


LOADER = """import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.full((100, 100), float(index))
print(sum(int(batch.mean()) for batch in DataLoader(Numbers(), batch_size=8, num_workers=2)))
"""


def test_workers_of_a_data_loader(recording):
    """Forked processes that end with os._exit, and batches passed in shared memory, which PyTorch does not count in its
    own total."""
    done = recording.python(LOADER, GPUSPY_TORCH_CPU=1)
    assert done.stdout == "248\n"
    report = recording.report()
    assert len(report["run"]["processes"]) == 3
    assert report["run"]["lost_events"] == 0
    for path in recording.folder.glob("run*.db"):
        recording.database = path
        assert recording.sql("select mismatches from tensor_check") == [(0,)]
        assert recording.sql("select count(*) from allocations where space = 'shared' and bytes = 320000")[0][0] >= 3
