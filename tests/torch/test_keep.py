"""A recording of bounded size, compared with a full one of the same loop and with PyTorch's own peak."""
import json
import shutil
import sqlite3
import subprocess

import pytest
from conftest import BUILD, HERE


def recorded(once, **more):
    return once(f"lasting {sorted(more.items())}", HERE / "lasting.py", fresh=True, SIMCUDA_MEMORY="24GiB", **more)


def test_a_bounded_recording_has_the_answers_of_a_full_one(once):
    full, kept = recorded(once), recorded(once, GPUSPY_KEEP="32MiB")
    assert full.code == kept.code == 0, kept.stderr
    assert kept.database.stat().st_size < full.database.stat().st_size
    a, b = full.report(), kept.report()
    assert b["run"]["processes"][0]["kept_from_s"] > 0
    for x, y in zip(a["peak"], b["peak"], strict=True):
        assert [x[k] for k in ("layer", "bytes", "count", "allocations", "allocated_bytes")] == [
            y[k] for k in ("layer", "bytes", "count", "allocations", "allocated_bytes")]
        assert [(s["bytes"], s["count"]) for s in x["by_stack"]] == [(s["bytes"], s["count"]) for s in y["by_stack"]]
    tensors = next(peak for peak in b["peak"] if peak["layer"] == "tensor")
    assert tensors["bytes"] == int(kept.stdout.split()[-1])
    assert [(o["cause"], o["fatal"], o["requested_bytes"]) for o in a["oom"]] == [
        (o["cause"], o["fatal"], o["requested_bytes"]) for o in b["oom"]]
    assert [(x["bytes"], x["count"]) for x in a["leaks"]] == [(x["bytes"], x["count"]) for x in b["leaks"]]
    for name in ("sync", "transfers"):
        of = [sorted((x["count"], x["site"]["line"], x.get("pattern")) for x in r[name] if x["count"] > 1000) for r in (a, b)]
        assert of[0] == of[1] and of[0], name


def test_a_failed_limit_shows_all_lines_of_the_peak(once):
    """The tensors that were live at the device's peak, which is not their own, have their rows too."""
    limits = ["--max-peak", "1MiB", "--max-tensor-peak", "1MiB"]
    answers = []
    for run in recorded(once), recorded(once, GPUSPY_KEEP="32MiB"):
        done = subprocess.run([BUILD / "gpuspy", "check", "--json", "--all", *limits, run.database], capture_output=True, text=True)
        answers.append({c["check"]: [(line["amount"], line["line"]) for line in c["lines"]] for c in json.loads(done.stdout)["checks"]
                        if c["status"] == "failed"})
    assert answers[0] == answers[1] and len(answers[1]) == 2 and all(answers[1].values()), answers


def test_its_replay_begins_where_all_events_are_and_is_exact(once):
    kept = recorded(once, GPUSPY_KEEP="32MiB")
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", kept.database], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["replay"]["exact"] and answer["replay"]["begin_s"] > 0 and answer["recorded"]["fits"]
    assert answer["replay"]["allocations"] == answer["replay"]["allocations_at_recorded_address"] > 1000


@pytest.mark.parametrize("how", ["train", "infer"])
def test_steps_and_growth_are_those_of_a_full_recording(once, how):
    """Most of the rows that show what was freed in between are removed; the number of the removed steps is inferred."""
    full, kept = (once(f"growing {how} {more}", HERE / "growing.py", how, GPUSPY_STACKS="python", **more)
                  for more in ({}, {"GPUSPY_KEEP": "32MiB"}))
    a, b = full.report(), kept.report()
    assert b["run"]["processes"][0]["kept_from_s"] > 0
    (x,), (y,) = a["steps"], b["steps"]
    assert x["source"] == y["source"] == ("optimizer" if how == "train" else "period")
    off = int(how == "infer")  # the beginning of the kept part may cut a step of a loop in two
    assert x["n"] == pytest.approx(6000, abs=off) and y["n"] == pytest.approx(6000, abs=off)
    assert 0 < b["steps"][0]["removed"] < 6000 and "removed" not in a["steps"][0]
    of = [sorted((g["site"]["line"], g["bytes"], g["count"], g["steps"]) for g in r["growth"]) for r in (a, b)]
    assert [g[:3] for g in of[0]] == [g[:3] for g in of[1]] and len(of[0]) == 3, of
    assert [g[3] for g in of[1]] == pytest.approx([g[3] for g in of[0]], abs=off), of
    text = subprocess.run([BUILD / "gpuspy", "report", "--full", kept.database], capture_output=True, text=True).stdout
    assert " steps of " in text and " of them after " in text and "Keeps growing (inferred" in text


def test_a_leak_that_began_before_the_kept_rows_is_counted_by_its_blocks(once, tmp_path):
    """gpuspy does not know the steps before the kept rows, so it must not divide the live bytes by the steps that it knows."""
    whole = once("leak_callback", HERE.parent.parent / "fixtures" / "oom" / "leak_callback.py", SIMCUDA_MEMORY="2GiB")
    kept = tmp_path / "kept.db"
    shutil.copy(whole.database, kept)
    with sqlite3.connect(kept) as db:
        middle = db.execute("SELECT max(time_ns) * 3 / 4 FROM oom").fetchone()[0]
        db.execute("INSERT OR REPLACE INTO meta VALUES ('kept_from_ns', ?), ('keep', 33554432)", (middle,))
    db.close()
    verdicts = [json.loads(subprocess.run([BUILD / "gpuspy", "report", "--json", file], capture_output=True).stdout)["oom"][-1]["verdict"]
                for file in (whole.database, kept)]
    assert " per step, for " in verdicts[0] and " each time, " in verdicts[1], verdicts


def test_a_leak_of_some_steps_is_counted_by_its_blocks(once):
    """Of the time whose rows were removed, nothing shows in which step a block was made, and what was freed between two."""
    full, kept = (once(f"leaking {more}", HERE / "leaking.py", SIMCUDA_MEMORY="1500MiB", **more)
                  for more in ({}, {"GPUSPY_KEEP": "32MiB"}))
    a, b = full.report()["oom"][0]["verdict"], kept.report()["oom"][0]["verdict"]
    assert kept.report()["run"]["processes"][0]["kept_from_s"] > 0
    assert " 1.00 MiB each time, " in a and a == b


SIDE = """import torch
side = torch.cuda.Stream()
keep = torch.empty(100, device="cuda")
for i in range(200):
    a = torch.empty(1000, device="cuda")
    with torch.cuda.stream(side):
        b = torch.empty(1000, device="cuda")
    del a, b
"""


def test_a_segment_that_is_empty_when_the_rows_begin_has_its_stream(once, tmp_path):
    """A side stream has a segment of its own, which has no tensor between two rounds of the loop."""
    script = tmp_path / "side.py"
    script.write_text(SIDE)
    whole = once("side", script)
    kept = tmp_path / "kept.db"
    shutil.copy(whole.database, kept)
    with sqlite3.connect(kept) as db:
        freed = [at for (at,) in db.execute("SELECT free_ns FROM allocation WHERE layer = 1 AND bytes = 4096 ORDER BY free_ns")]
        db.execute("INSERT OR REPLACE INTO meta VALUES ('kept_from_ns', ?), ('keep', 33554432)", (freed[199] + 1,))
    db.close()
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", kept], capture_output=True, text=True)
    answer = json.loads(done.stdout)["replay"]
    assert answer["exact"] and answer["allocations"] == 200, answer


@pytest.mark.parametrize("program", ["graphs", "streams", "ended_pool", "mixed", "captured_by_hand"])
def test_a_replay_can_begin_at_any_moment(once, tmp_path, program):
    """Its segments are in private pools, of several streams, some of which never use theirs again, and were requested in an
    order that is not that of their addresses. A setting would have changed them before."""
    whole = once(f"begins {program}", HERE / "allocations.py", program, SIMCUDA_MEMORY="8GiB")
    with sqlite3.connect(whole.database) as db:
        times = [at for (at,) in db.execute("SELECT alloc_ns FROM allocation WHERE layer = 1 ORDER BY 1")]
    db.close()
    for part in range(2, 9):
        kept = tmp_path / "kept.db"
        shutil.copy(whole.database, kept)
        with sqlite3.connect(kept) as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('kept_from_ns', ?), ('keep', 33554432)", (times[len(times) * part // 10],))
        db.close()
        done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", "--set", "max_split_size_mb:64", kept], capture_output=True, text=True)
        answer = json.loads(done.stdout)
        assert answer["replay"]["exact"], (part, answer["replay"])
        (ours,) = answer["whatif"]
        assert not ours["exact"] and "begins in the middle of the run" in "".join(ours["doubts"])


def test_facts_about_segments_that_others_have_replaced_are_removed(once, tmp_path):
    """A loop that empties the cache: each new segment has a fact, and each time the cache was emptied another."""
    script = tmp_path / "empties.py"
    script.write_text("""import torch
kept = torch.empty(1 << 20, device="cuda")
for i in range(600_000):
    torch.empty(1 << 18, device="cuda")
    if i < 5_000:
        torch.cuda.empty_cache()
""")
    kept = once("empties", script, GPUSPY_KEEP="32MiB")
    assert kept.report()["run"]["processes"][0]["kept_from_s"] > 0
    with sqlite3.connect(kept.database) as db:
        facts = dict(db.execute("SELECT k.word, count(*) FROM allocator_fact f JOIN allocator_fact_kind k ON k.id = f.kind GROUP BY 1"))
        assert db.execute("SELECT max(value) FROM allocator_fact WHERE kind = 3").fetchone()[0] == 5000
    assert facts["pool"] <= 10 and facts["synced"] <= 3, facts  # the last one, and those that a kept moment needs


def test_facts_about_private_pools_that_have_ended_are_removed(once, tmp_path):
    """Each pool has a fact for its segment and one for its end; the pool that is still in use keeps its facts."""
    script = tmp_path / "pools.py"
    script.write_text("""import torch
used = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(used):
    held = torch.empty(5 << 20, device="cuda")
kept = torch.empty(1 << 20, device="cuda")
for i in range(600_000):
    torch.empty(1 << 18, device="cuda")
    if i < 2_000:
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(1 << 20, device="cuda")
        del x, pool
with torch.cuda.use_mem_pool(used):
    more = torch.empty(5 << 20, device="cuda")
""")
    kept = once("ended pools", script, GPUSPY_KEEP="32MiB")
    assert kept.code == 0 and kept.report()["run"]["processes"][0]["kept_from_s"] > 0, kept.stderr[-2000:]
    with sqlite3.connect(kept.database) as db:
        facts = db.execute("SELECT k.word, value FROM allocator_fact f JOIN allocator_fact_kind k ON k.id = f.kind ORDER BY f.id").fetchall()
    assert len(facts) <= 20 and len({value for word, value in facts if word == "pool" and value > 0}) >= 1, facts
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", "--limit", "4GiB", kept.database], capture_output=True, text=True)
    assert json.loads(done.stdout)["replay"]["exact"], done.stdout
