"""Jobs started like launchers start them (docs/launchers.md): torchrun, with restarts; DataLoader workers; mp.spawn."""
import pytest

RANK = """\
import os, sys, time
import torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
kept = torch.empty((1 + int(os.environ["RANK"])) << 20, device="cuda")
torch.cuda.synchronize()
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
open(f"uses.{restart}.{os.environ['RANK']}", "w").close()
while not all(os.path.exists(f"uses.{restart}.{rank}") for rank in range(int(os.environ["WORLD_SIZE"]))):
    time.sleep(0.01)
if sys.argv[1:] == ["fail"] and restart == "0" and os.environ["RANK"] == "1":
    sys.exit(3)
time.sleep(0.5)
"""
LOADER = """\
import torch

class Zeros(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        return torch.zeros(1024)

if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Zeros(), batch_size=8, num_workers=2, pin_memory=True):
        batch.cuda(non_blocking=True)
    torch.cuda.synchronize()
"""


@pytest.fixture
def script(tmp_path):
    def write(source):
        path = tmp_path / "job.py"
        path.write_text(source)
        return path
    return write


def torchrun(record, script, *arguments, options=()):
    done = record("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options, script(RANK), *arguments,
                  SIMCUDA_DEVICES=2)
    assert done.code == 0, done.stderr[-3000:]
    return done


def test_torchrun(record, script):
    done = torchrun(record, script)
    assert len(list(done.folder.glob("run*.db"))) == 2  # the launcher itself never uses CUDA
    for answer in done.report(), done.report(done.folder):
        assert [(r["rank"], r["gpu"], r["tensor_peak_bytes"]) for r in answer["ranks"]] == [(0, "0", 4 << 20), (1, "1", 8 << 20)]
        assert answer["rank_findings"] == []


def test_torchrun_that_starts_its_ranks_again(record, script):
    done = torchrun(record, script, "fail", options=["--max-restarts", "1"])
    answer = done.report(done.folder)
    (again,) = [f for f in answer["rank_findings"] if f["kind"] == "started_again"]
    assert again["ranks"] == 2
    assert [(r["rank"], r["started_again"]) for r in answer["ranks"]] == [(0, True), (0, False), (1, True), (1, False)]


def test_one_file_of_a_job_is_missing(record, script):
    done = record("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", script(RANK), SIMCUDA_DEVICES=3)
    assert done.code == 0, done.stderr[-3000:]
    for path in done.folder.glob("run*.db"):
        import sqlite3
        with sqlite3.connect(path) as db:
            (rank,) = db.execute("SELECT rank FROM process").fetchone()
        if rank == 1:
            path.unlink()
    (missing,) = [f for f in done.report(done.folder)["rank_findings"] if f["kind"] == "missing"]
    assert missing["text"].startswith("of 3 ranks (WORLD_SIZE) 2 are here; missing: 1")


def test_loader_workers_write_nothing(record, script):
    done = record(script(LOADER))
    assert done.code == 0, done.stderr[-3000:]
    assert [p.name for p in done.folder.glob("*.db")] == ["run.db"] and not list(done.folder.glob("*.spool"))
