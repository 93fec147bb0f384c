"""gpuspy's figures equal PyTorch's own, to the byte, at every moment of training scripts."""
import os
import subprocess

import pytest
from compare import Compared, differences
from conftest import BUILD, HERE, REAL

EVERYWHERE = ["adamw", "amp", "other_streams", "several_threads", "emptied", "raw_allocations", "crumbs", "graphs"]
CONF = "PYTORCH_CUDA_ALLOC_CONF"
RUNS = {  # name: (situations, environment, how it is compared)
    "plain": (["plain_sgd", "sgd_with_momentum", "adamw", "adamw_fused", "amp", "recomputed", "accumulated",
               "saved_on_the_host", "convolutions", "recurrent", "spectra",
               "sizes_that_kernels_compute", "scripted", "compile_disabled", "other_streams", "several_threads",
               "emptied", "raw_allocations", "memory_pool", "no_workers", "pinned", "crumbs"], {}, {}),
    "graphs": (["graphs", "graphed_callables"], {}, {}),
    "compiled": (["compiled"], {"TRITON_LIBCUDA_PATH": BUILD / "sim", "TRITON_CACHE_DIR": "triton",
                                "TORCHINDUCTOR_CACHE_DIR": "inductor"}, {}),
    "workers": (["forked_workers", "spawned_workers"], {}, {}),
    "expandable": ([*EVERYWHERE, "memory_pool"], {CONF: "expandable_segments:True"}, {"expandable": True}),
    "tuned": ([*EVERYWHERE, "halve_the_batch", "retries", "fails_in_backward", "limited_by_fraction"],
              {CONF: "max_split_size_mb:32,garbage_collection_threshold:0.6,roundup_power2_divisions:4",
               "SIMCUDA_MEMORY": "1GiB"}, {}),
    "asynchronous": (EVERYWHERE, {CONF: "backend:cudaMallocAsync"}, {"asynchronous": True}),
    "little memory": (["halve_the_batch", "retries", "fails_in_backward", "limited_by_fraction", "crumbs"],
                      {"SIMCUDA_MEMORY": "2GiB"}, {}),
    "little expandable memory": (["halve_the_batch", "retries", "fails_in_backward", "limited_by_fraction"],
                                 {"SIMCUDA_MEMORY": "2GiB", CONF: "expandable_segments:True"}, {"expandable": True}),
    "two devices": (["two_devices", "data_parallel"], {"SIMCUDA_DEVICES": "2"}, {}),
}


@pytest.fixture
def run(once, request):
    name = request.param
    if name == "compiled" and subprocess.run([os.environ["TORCH_PYTHON"], "-c", "import triton"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no Triton beside this PyTorch")
    situations, environment, _ = RUNS[name]
    done = once(name, HERE / "situations.py", *situations, **environment)
    if not hasattr(done, "compared"):
        done.compared = Compared(done.database, done.moments)
        done.differences = differences(done.compared, **RUNS[name][2])
    return done


@pytest.mark.parametrize("run,situation", [(r, s) for r, (names, _, _) in RUNS.items() for s in names], indirect=["run"])
def test_every_moment(run, situation):
    assert f"failed {situation}\n" not in run.stdout, run.stderr[-3000:]
    assert any(s["situation"] == situation for s in run.compared.reported), run.stderr[-3000:]
    assert [d for d in run.differences if d[0] == situation] == []


@pytest.mark.parametrize("run", RUNS, indirect=True)
def test_nothing_is_lost(run):
    assert run.code == 0, run.stderr[-3000:]
    assert run.compared.one("SELECT lost_events FROM process") == 0
    assert run.compared.sql("SELECT * FROM tensor_check WHERE mismatches > 0") == []


@pytest.mark.parametrize("run", [r for r in RUNS if r != "asynchronous"], indirect=True)
def test_the_report_agrees(run):
    answer = run.report()
    peaks = {(p["device"], p["layer"]): p["bytes"] for p in answer["peak"]}
    for device in range(len(run.compared.reported[0]["devices"])):
        theirs = [s["devices"][device] for s in run.compared.reported]
        assert peaks[device, "tensor"] == max(t["allocated_bytes"]["peak"] for t in theirs)
        reserved = max(t["reserved_bytes"]["peak"] for t in theirs)
        assert peaks[device, "device"] >= reserved if REAL else peaks[device, "device"] == reserved
        failed = [o for o in answer["oom"] if o["device"] == device]
        retries = [o for o in answer["retries"] if o["device"] == device]
        assert len(failed) - len(retries) == theirs[-1]["ooms"], (failed, retries)  # all other requests succeeded in the end


@pytest.mark.parametrize("run", ["little memory", "little expandable memory"], indirect=True)
def test_retries_that_were_served(run):
    last = run.compared.reported[-1]["devices"][0]
    assert last["retries"] >= last["ooms"] > 0
    assert len(run.report()["retries"]) == last["retries"] - last["ooms"]


@pytest.mark.parametrize("run", ["little memory", "tuned", "little expandable memory"], indirect=True)
def test_backward_fails_in_its_own_thread(run):
    failed = [s for s in run.compared.reported if s["situation"] == "fails_in_backward" and s["name"] == "failed"]
    if REAL and not failed:
        pytest.skip("with a real context beside it this pass does not fail")
    assert len(failed) == 1
    at = run.compared.at(failed[0])
    threads = [thread for _, thread in run.compared.sql(
        "SELECT time_ns, thread_id FROM ooms WHERE layer = 'tensor' AND time_ns < ? ORDER BY time_ns DESC LIMIT 2", at)]
    assert threads[0] != threads[1], "the first was the script's own, which filled the memory"
    text = subprocess.run([BUILD / "gpuspy", "report", "--top", "1000", run.database], text=True, stdout=subprocess.PIPE).stdout
    assert "alloc_found_block" not in text
    assert any("Backward0" in (f["function"] or "") for oom in run.report()["oom"] for f in oom["stack"])


@pytest.mark.parametrize("run", ["little memory"], indirect=True)
def test_every_failure_has_its_line(run):
    text = (HERE / "situations.py").read_text().splitlines()
    for oom in run.report()["oom"]:
        if not any(f["kind"] == "python" for f in oom["stack"]):
            continue  # autograd's own thread: it runs no Python
        lines = [text[f["line"] - 1] for f in oom["stack"] if (f.get("file") or "").endswith("situations.py")]
        assert any("device=\"cuda\"" in line or "* 2" in line or "backward()" in line for line in lines), oom


def test_the_comparison_can_fail(once, tmp_path):
    """One row less or one byte more is found."""
    import shutil
    import sqlite3
    done = once("plain", HERE / "situations.py", *RUNS["plain"][0])
    for change in ("DELETE FROM allocation_row WHERE id = (SELECT min(id) FROM allocation WHERE layer = 1)",
                   "UPDATE allocation_row SET bytes = bytes + 1 WHERE id = (SELECT min(id) FROM allocation WHERE layer = 0)",
                   "UPDATE sample SET free_bytes = free_bytes - 1"):
        shutil.copy(done.database, tmp_path / "changed.db")
        with sqlite3.connect(tmp_path / "changed.db") as db:
            db.execute(change)
        assert differences(Compared(tmp_path / "changed.db", done.moments)), change
