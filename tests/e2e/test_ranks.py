"""Recordings of a job of many processes on several hosts: which ones the folder contains, and how much its ranks
differ."""
import json
import re
import socket
import sqlite3
import sys
import time

import pytest
from conftest import BUILD, ROOT
from rows import MIB, TENSOR, Rows
from test_import import Run, gpuspy, write


def rank_file(path, rank, world=None, mib=1000, waits=(10, 1.0), collective=True, sync_file="train.py:30 step", **more):
    """One rank: so many MiB of tensors, `waits` (number, total seconds), in torch.distributed or not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    env = {"CUDA_VISIBLE_DEVICES": (rank or 0) % 8} | ({"WORLD_SIZE": world} if world else {})
    with Rows(path, rank=rank, pid=1000 + (rank or 0), env=env, **more) as rows:
        rows.device()
        main = rows.stack("/home/me/train.py:9 <module>", "/home/me/train.py:12 build")
        rows.block(0.1, (mib + 24) * MIB, stack=main)
        rows.reserved(0.1, (mib + 24) * MIB)
        rows.block(0.2, mib * MIB, stack=main, layer=TENSOR, address=1 << 40)
        lines = ["/home/me/train.py:9 <module>", "/home/me/" + sync_file]
        if collective:
            lines.append("/v/lib/python3.11/site-packages/torch/distributed/c10d.py:100 all_reduce")
        wait = rows.stack(*lines)
        for i in range(waits[0]):
            rows.sync(1 + i * 0.8 * 9 / waits[0], waits[1] / waits[0], wait)
    return path


def report(recording, *paths):
    done = recording.gpuspy("report", "--json", *paths)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def findings(answer, kind):
    return [f for f in answer["rank_findings"] if f["kind"] == kind]


def test_a_folder_for_each_host(recording):
    for rank in range(4):
        rank_file(recording.folder / "runs" / f"node{rank // 2}" / f"run.{rank}.db", rank, 4, host=f"node{rank // 2}",
                  start=rank * 0.5)
    answer = report(recording, "runs")
    assert [r["rank"] for r in answer["ranks"]] == [0, 1, 2, 3]
    assert [r["host"] for r in answer["ranks"]] == ["node0", "node0", "node1", "node1"]
    assert [r["start_s"] for r in answer["ranks"]] == pytest.approx([0, 0.5, 1, 1.5])
    assert [r["peak_s"] for r in answer["ranks"]] == pytest.approx([0.2, 0.7, 1.2, 1.7])
    assert answer["rank_findings"] == []
    text = recording.gpuspy("report", "--only", "ranks", "runs").stdout
    assert "4 on 2 hosts" in text and "node1" in text


def test_hosts_with_run_ids_of_their_own(recording):
    """torchrun on two hosts without GPUSPY_RUN_ID: no rank is missing, and they ran at the same time."""
    for rank in range(4):
        rank_file(recording.folder / "runs" / f"n{rank // 2}.{rank}.db", rank, 4, run=f"id{rank // 2}")
    answer = report(recording, "runs")
    assert len(answer["ranks"]) == 4 and answer["rank_findings"] == []
    done = recording.gpuspy("report", "runs")
    assert "count as one job" in done.stdout and "GPUSPY_RUN_ID" in done.stdout.replace("\n", " ")


@pytest.mark.parametrize("why", ["one after another", "the same rank", "other worlds", "no world"])
def test_runs_that_are_not_one_job(recording, why):
    for i in range(2):
        rank_file(recording.folder / "runs" / f"{i}.db", 0 if why == "the same rank" else i,
                  None if why == "no world" else 2 + i if why == "other worlds" else 2, run=f"id{i}",
                  start=100 * i if why == "one after another" else 0)
    done = recording.gpuspy("report", "runs")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1
    assert "several runs ('runs/0.db' with 1 process of 2023-11-14 22:13:20 UTC, 'runs/1.db'" in done.stderr
    assert recording.gpuspy("report", "runs/0.db").returncode == 0


def test_an_empty_folder(recording):
    (recording.folder / "runs" / "node0").mkdir(parents=True)
    done = recording.gpuspy("report", "runs")
    assert done.returncode == 3 and "no database" in done.stderr


def test_missing_ranks(recording):
    for rank in 0, 1, 2, 4, 6, 7:
        rank_file(recording.folder / "runs" / f"run.{rank}.db", rank, 8)
    (missing,) = findings(report(recording, "runs"), "missing")
    assert missing["ranks"] == 2 and missing["text"].startswith("of 8 ranks (WORLD_SIZE) 6 are here; missing: 3, 5")


def test_a_gap_shows_missing_ranks_too(recording):
    for rank in 0, 2:
        rank_file(recording.folder / "runs" / f"run.{rank}.db", rank)
    (missing,) = findings(report(recording, "runs"), "missing")
    assert missing["text"].startswith("of 3 ranks at least 2 are here; missing: 1")


def test_started_again(recording):
    """Like torchrun with --max-restarts: all ranks start again in new processes; the last ones count."""
    for attempt in range(2):
        for rank in range(2):
            rank_file(recording.folder / "runs" / f"run.{attempt}{rank}.db", rank, 2, start=100 * attempt,
                      mib=5000 if attempt == 0 and rank == 0 else 1000, complete=attempt)
    answer = report(recording, "runs")
    (again,) = findings(answer, "started_again")
    assert again["ranks"] == 2 and "rank 0 and rank 1 were started more than once" in again["text"]
    assert [(r["rank"], r["started_again"]) for r in answer["ranks"]] == [(0, True), (0, False), (1, True), (1, False)]
    assert not findings(answer, "imbalance") and answer["rank_spread"]["tensor_peak_bytes"]["max"] == 1000 * MIB


def test_a_child_of_a_rank_is_not_a_rank(recording):
    for rank in range(2):
        rank_file(recording.folder / "runs" / f"run.{rank}.db", rank, 2)
    rank_file(recording.folder / "runs" / "run.9.db", 1, 2, mib=4000, ppid=1001)
    with Rows(recording.folder / "runs" / "run.10.db", rank=1, pid=77, ppid=1001, env={"WORLD_SIZE": 2}) as rows:
        rows.device()
        rows.block(1, 9000 * MIB)
    answer = report(recording, "runs")
    assert sum(r["child"] for r in answer["ranks"]) >= 1 and not findings(answer, "started_again")


# --- who waits for whom

def test_a_straggler(recording):
    for rank in range(8):
        rank_file(recording.folder / "runs" / f"run.{rank}.db", rank, 8, waits=(20, 0.2 if rank == 5 else 3 + rank * 0.1))
    answer = report(recording, "runs")
    (late,) = findings(answer, "straggler")
    assert late["rank"] == 5 and "inferred" in late["text"] and "torch.distributed" in late["text"]
    assert "2.0 % of the time, the others 30 % to 37 %" in late["text"]
    assert answer["rank_spread"]["waited_s"]["min_rank"] == 5
    assert answer["ranks"][3]["collective_waited_s"] == pytest.approx(3.3)


def test_a_host_that_is_late(recording):
    for rank in range(8):
        rank_file(recording.folder / "runs" / f"run.{rank}.db", rank, 8, host=f"node{rank // 4}",
                  waits=(20, 0.3 if rank >= 4 else 3))
    (late,) = findings(report(recording, "runs"), "straggler")
    assert late["ranks"] == 4 and "the ranks of host node1" in late["text"] and "clocks" in late["advice"]


@pytest.mark.parametrize("why", ["alike", "fewer waits", "short", "not at one time", "simulated"])
def test_no_straggler(recording, why):
    for rank in range(4):
        odd = rank == 2
        waits = {"alike": (20, 3), "fewer waits": (2 if odd else 20, 0.1 if odd else 3), "short": (20, 0.1 if odd else 0.4),
                 }.get(why, (20, 0.2 if odd else 3))
        path = rank_file(recording.folder / "runs" / f"run.{rank}.db", rank, 4, waits=waits,
                         start=100 * rank if why == "not at one time" else 0)
        if why == "simulated":
            import sqlite3
            with sqlite3.connect(path) as db:
                db.execute("UPDATE device SET name='Simulated GPU'")
    assert not findings(report(recording, "runs"), "straggler")


# --- how launchers' variables are read

@pytest.mark.parametrize("env, rank", [
    ({"RANK": 5, "LOCAL_RANK": 1}, 5), ({"OMPI_COMM_WORLD_RANK": 3, "OMPI_COMM_WORLD_SIZE": 4}, 3), ({"PMI_RANK": 2}, 2),
    ({"SLURM_PROCID": 6, "SLURM_STEP_NUM_TASKS": 8}, 6), ({"SLURM_PROCID": 0, "SLURM_NTASKS": 8}, None),
    ({"LOCAL_RANK": 1}, 1), ({"RANK": "x"}, None), ({}, None)])
def test_ranks_of_launchers(recording, env, rank):
    none = dict.fromkeys(["RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"], "")
    recording.python("from minicuda import Runtime, Tensor\nTensor(Runtime(), 1 << 20)\n", **(none | env))
    assert recording.sql("SELECT rank FROM process") == [(rank,)]
    size = recording.sql("SELECT value FROM meta WHERE key='env.OMPI_COMM_WORLD_SIZE'")
    assert size == ([("4",)] if "OMPI_COMM_WORLD_SIZE" in env else [])


def test_a_folder_for_each_host_is_made(recording):
    script = recording.folder / "s.py"
    script.write_text("from minicuda import Runtime, Tensor\nTensor(Runtime(), 1 << 20)\n")
    done = recording.run(BUILD / "gpuspy", "run", "--simulate", "t4-16g", "-o", "runs/%h/run.db", "--", sys.executable,
                         script, LD_PRELOAD="", GPUSPY_DB="", PYTHONPATH=ROOT / "fixtures" / "python")
    (database,) = (recording.folder / "runs").glob("*/*.db")
    assert database.parent.name == socket.gethostname() and str(database.relative_to(recording.folder)) in done.stderr
    assert report(recording, "runs")["peak"][0]["bytes"] == 1 << 20


def test_the_page_on_launchers_uses_what_there_is(recording):
    """Every gpuspy command in docs/launchers.md has the options used there."""
    page = (ROOT / "docs" / "launchers.md").read_text().replace("\\\n", " ")
    used = re.findall(r"^\s+(?:srun |mpirun )?.*?gpuspy (run|report|diff)\b(.*)$", page, re.M)
    assert len(used) >= 10
    for command, rest in used:
        known = recording.gpuspy(command, "--help").stdout
        for option in re.findall(r"(?<= )--?[a-z][a-z-]*", " " + rest.split(" -- ")[0]):
            assert re.search(rf"(?<![\w-]){re.escape(option)}\b", known), (command, option)


# --- many

def test_64_ranks_are_readable_and_fast(recording):
    for rank in range(64):
        rank_file(recording.folder / "runs" / f"node{rank // 8}" / f"run.{rank}.db", rank, 64, host=f"node{rank // 8}",
                  mib=4000 if rank == 17 else 2000 + rank, waits=(20, 0.1 if rank == 40 else 3))
    start = time.monotonic()
    done = recording.gpuspy("report", "runs")
    assert time.monotonic() - start < 20
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("Ranks", 1)[1].split("\n\n")
    assert "64 on 8 hosts" in done.stdout
    spread, far = lines[0], lines[1]
    assert "rank 17" in spread and "rank 40" in spread and "3.91 GiB" in spread
    assert far.splitlines()[0].strip() == "Farthest from the median:"
    assert {"rank 17", "rank 40"} == {" ".join(line.split()[:2]) for line in far.splitlines()[2:4]}
    answer = report(recording, "runs")
    (imbalance,), (late,) = findings(answer, "imbalance"), findings(answer, "straggler")
    assert imbalance["rank"] == 17 and late["rank"] == 40
    assert len(answer["ranks"]) == 64 and answer["rank_spread"]["tensor_peak_bytes"]["median"] == 2032.5 * MIB


def test_two_folders_of_ranks_compared(recording):
    for name, more in ("a", 0), ("b", 500):
        for rank in range(64):
            rank_file(recording.folder / name / f"node{rank // 8}" / f"run.{rank}.db", rank, 64, host=f"node{rank // 8}",
                      mib=1000 + (more if rank == 9 else 0), run=name)
    done = recording.gpuspy("diff", "--json", "a", "b")
    answer = json.loads(done.stdout)
    assert answer["total"]["change"] == 500 * MIB and answer["paired_by"] == "rank"
    assert answer["rows"][0]["changed_in"] == 1 and len(answer["by_process"]) == 64
    text = recording.gpuspy("diff", "a", "b").stdout
    assert "rank 9, GPU 0" in text and len(text.splitlines()) < 60 and "(in 1 of 64 peaks)" in text


def test_private_pools_of_each_rank_are_known(tmp_path):
    """A recording of gpuspy states them as facts beside the blocks; the ranks' facts are in one list"""
    for rank, blocks in enumerate((20, 4, 12)):
        run = Run()
        for i in range(blocks):
            run.segment(0, (1 << 40) + i * 64 * MIB, 60 * MIB, 1)
            run.alloc(0, (1 << 40) + i * 64 * MIB, 60 * MIB, 1)
        for i in range(blocks):
            run.free(0, (1 << 40) + i * 64 * MIB, 2)
        run.segment(0, 1 << 42, 60 * MIB, 3)
        run.alloc(0, 1 << 42, 30 * MIB, 3)
        run.oom(0, 90 * MIB, 10 * MIB, 9)
        snapshot = run.snapshot()
        for event in snapshot["device_traces"][0]:
            event["pool_id"] = (0, 1) if event["addr"] < 1 << 41 else (0, 0)
        for segment in snapshot["segments"]:
            segment["segment_pool_id"] = (0, 1) if segment["address"] < 1 << 41 else (0, 0)
        write(tmp_path / f"rank{rank}.pickle", snapshot)
        gpuspy("import", f"rank{rank}.pickle", "-o", f"rank{rank}.db", cwd=tmp_path)
        with sqlite3.connect(tmp_path / f"rank{rank}.db") as rows:
            rows.execute("UPDATE allocation_row SET kind = kind & ~(7 << 2) WHERE kind & 3 = 1")
        rows.close()
    answer = json.loads(gpuspy("report", "--json", *sorted(tmp_path.glob("*.db")), cwd=tmp_path).stdout)
    assert ["private" in json.dumps(o["advice"]) for o in answer["oom"]] == [True] * 3, answer["oom"]
