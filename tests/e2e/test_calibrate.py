"""gpuspy calibrate: what it learns from recordings, where it stores that, and how the next estimate uses it."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, SECONDS
from rows import GIB, MIB, TENSOR, Rows


def gpuspy(*words, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    return subprocess.run([str(BUILD / "gpuspy"), *map(str, words)], env={**env, **{k: str(v) for k, v in more.items()}},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)


def record(path, context=500 * MIB, name="NVIDIA A100-SXM4-80GB", hole=64 * MIB, **more):
    """Tensors of 1 GiB in a segment with a hole, and NVML's figure for the process."""
    with Rows(path, seconds=10, **more) as r:
        r.device(total=80 * GIB, free=79 * GIB, name=name)
        keep = r.stack("/home/me/train.py:4 main")
        r.block(0.1, GIB + hole, None, keep, address=1 << 30)
        r.reserved(0.1, GIB + hole)
        r.block(0.2, GIB - MIB, None, keep, layer=TENSOR, address=1 << 30)
        r.block(0.3, MIB, None, keep, layer=TENSOR, address=(1 << 30) + GIB + hole - MIB)
        for at in (1, 2, 3):
            r.db.execute("INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source,own_bytes,other_bytes) "
                         "VALUES(1,0,?,?,?,2,?,0)",
                         (at * 10**9, 78 * GIB, 80 * GIB, GIB + hole + context))
    return path


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "kept" / "calibration.json"


def known(kept):
    return {row["what"]: row for row in json.loads(gpuspy("calibrate", "--show", "--json", GPUSPY_CALIBRATION=kept).stdout)["known"]}


def test_context_and_fragmentation(tmp_path, kept):
    for n, context in enumerate((400 * MIB, 600 * MIB)):
        done = gpuspy("calibrate", record(tmp_path / f"{n}.db", context, run=f"r{n}"), GPUSPY_CALIBRATION=kept)
        assert done.returncode == 0, done.stderr
    found = known(kept)
    assert [found["context_bytes"][key] for key in ("runs", "least", "mean", "most")] == [2, 400 * MIB, 500 * MIB, 600 * MIB]
    assert found["fragmentation"]["mean"] == pytest.approx(64 / 1024, rel=0.001)
    assert "A100" in done.stdout and "600.00 MiB" in done.stdout


def test_a_recording_counts_once(tmp_path, kept):
    run = record(tmp_path / "run.db")
    for _ in range(3):
        assert gpuspy("calibrate", run, GPUSPY_CALIBRATION=kept).returncode == 0
    assert known(kept)["context_bytes"]["runs"] == 1


def test_two_at_once_lose_nothing(tmp_path, kept):
    """Both are learned, even if one process reads the file before the other has written it."""
    runs = [record(tmp_path / f"{n}.db", run=f"r{n}") for n in range(6)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    for done in [subprocess.Popen([BUILD / "gpuspy", "calibrate", run], env={**env, "GPUSPY_CALIBRATION": str(kept)},
                                  stdout=subprocess.DEVNULL) for run in runs]:
        assert done.wait(60) == 0
    assert known(kept)["context_bytes"]["runs"] == 6
    assert os.listdir(kept.parent) == [kept.name]


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for words in (("estimate", "--params", "1e9"), ("calibrate", "--show")):
        done = gpuspy(*words, GPUSPY_CALIBRATION=tmp_path / "pipe")
        assert done.returncode == 3 and "it is not a regular file" in done.stderr and done.stderr.count("\n") == 1


def test_no_home_means_no_calibration(tmp_path):
    for home in ("/dev/null", tmp_path / "missing", "/" + "a" * 300):
        done = gpuspy("estimate", "--params", "1e9", HOME=home, XDG_CONFIG_HOME="")
        assert done.returncode == 0 and done.stderr == "" and "14.90 GiB" in done.stdout


def test_a_simulated_gpu_states_nothing_about_contexts(tmp_path, kept):
    done = gpuspy("calibrate", "--json", record(tmp_path / "run.db", name="NVIDIA A100-SXM4-80GB (simulated)"), GPUSPY_CALIBRATION=kept)
    [learned] = json.loads(done.stdout)["learned"]
    assert learned["context_bytes"] is None and "simulated" in learned["not_learned"]["context"]
    assert learned["fragmentation"] == pytest.approx(64 / 1024, rel=0.001)


def test_nothing_to_learn_is_an_error(tmp_path, kept):
    with Rows(tmp_path / "run.db") as r:
        r.device()
        r.block(0.1, MIB, None)
    done = gpuspy("calibrate", tmp_path / "run.db", GPUSPY_CALIBRATION=kept)
    assert done.returncode == 1 and "Nothing has been learned yet" in done.stdout
    assert "learns from a recording" not in done.stdout  # that is what was typed
    assert not kept.exists()
    done = gpuspy("calibrate", "--optimizer", "x", tmp_path / "run.db", GPUSPY_CALIBRATION=kept)
    assert done.returncode == 2 and "add --model" in done.stderr


def test_the_next_estimate_uses_it_and_states_so(tmp_path, kept):
    gpuspy("calibrate", record(tmp_path / "run.db"), GPUSPY_CALIBRATION=kept)
    words = ("estimate", "--model", "gpt2", "--batch", 4, "--seq", 256, "--gpu", "a100-80g")
    with_it, without = gpuspy(*words, GPUSPY_CALIBRATION=kept), gpuspy(*words, "--no-calibration", GPUSPY_CALIBRATION=kept)
    reported = " ".join(with_it.stdout.split())
    assert "alibrated with your own recordings" in reported and "fragmentation (1 run)" in reported
    assert "alibrated" not in without.stdout
    plain = json.loads(gpuspy(*words, "--json").stdout)  # as if there were no file
    assert json.loads(gpuspy(*words, "--json", "--no-calibration", GPUSPY_CALIBRATION=kept).stdout)["lines"] == plain["lines"]


def test_where_it_is_kept(tmp_path):
    run = record(tmp_path / "run.db")
    assert gpuspy("calibrate", run, XDG_CONFIG_HOME=tmp_path / "config").returncode == 0
    assert (tmp_path / "config/gpuspy/calibration.json").exists()
    home = tmp_path / "home"
    done = gpuspy("calibrate", run, XDG_CONFIG_HOME="", HOME=home)
    assert done.returncode == 3 and str(home) in done.stderr and not home.exists()  # a service's user may have none
    home.mkdir()
    assert gpuspy("calibrate", run, XDG_CONFIG_HOME="", HOME=home).returncode == 0
    assert (tmp_path / "home/.config/gpuspy/calibration.json").exists()
    assert gpuspy("calibrate", "--output", tmp_path / "own.json", run, HOME="", XDG_CONFIG_HOME="").returncode == 0
    assert json.loads((tmp_path / "own.json").read_text())["kind"] == "gpuspy calibration"
    done = gpuspy("calibrate", run, HOME="", XDG_CONFIG_HOME="")
    assert done.returncode == 3 and "GPUSPY_CALIBRATION" in done.stderr


def test_forget(tmp_path, kept):
    gpuspy("calibrate", record(tmp_path / "run.db"), GPUSPY_CALIBRATION=kept)
    kept.write_text(kept.read_text()[:80])  # damaged, but written by gpuspy
    assert gpuspy("calibrate", "--forget", GPUSPY_CALIBRATION=kept).returncode == 0
    assert not kept.exists()
    assert gpuspy("calibrate", "--forget", GPUSPY_CALIBRATION=kept).returncode == 0
    other = tmp_path / "notes.txt"
    other.write_text("dear diary")
    done = gpuspy("calibrate", "--forget", GPUSPY_CALIBRATION=other)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and other.read_text() == "dear diary"


@pytest.mark.parametrize("text, says", [
    ("", "damaged"), ("{", "damaged"), ("dear diary", "damaged"), ("[]", "not a calibration file"), ("\x00\xff", "damaged"),
    ('{"kind": "gpuspy calibration", "schema": 9, "runs": []}', "version 9"),
    ('{"kind": "gpuspy calibration", "schema": 1, "runs": [{"context_bytes": "\\u001b[2J"}]}', "context_bytes"),
    ('{"kind": "gpuspy calibration", "schema": 1, "runs": [{"activations_bytes": 1e18, "activations_predicted_bytes": 1}]}', "apart"),
    pytest.param("[" * 100000, "damaged", id="deep")])
@pytest.mark.parametrize("words", [("calibrate", "--show"), ("estimate", "--params", "1e9"), ("calibrate", "run.db")])
def test_files_of_another_kind(tmp_path, kept, text, says, words):
    kept.parent.mkdir()
    kept.write_text(text, errors="surrogateescape", encoding="latin-1")
    words = [record(tmp_path / word) if word == "run.db" else word for word in words]
    done = gpuspy(*words, GPUSPY_CALIBRATION=kept)
    assert done.returncode == 3 and done.stdout == "" and says in done.stderr
    assert done.stderr.count("\n") == 1 and "\x1b" not in done.stderr
    assert kept.read_text(encoding="latin-1") == text  # the file is not changed


def test_a_folder_that_does_not_exist_is_not_created(tmp_path):
    run = record(tmp_path / "run.db")
    done = gpuspy("calibrate", "-o", tmp_path / "mistyped/learned.json", run)
    assert done.returncode == 3 and f"the folder '{tmp_path}/mistyped' does not exist" in done.stderr
    assert not (tmp_path / "mistyped").exists()


def test_a_folder_in_its_place(tmp_path):
    run = record(tmp_path / "run.db")
    assert gpuspy("estimate", "--params", "1e9", GPUSPY_CALIBRATION=tmp_path).returncode == 3
    assert gpuspy("calibrate", run, GPUSPY_CALIBRATION=tmp_path).returncode == 3
    (tmp_path / "file").write_text("")
    done = gpuspy("calibrate", run, GPUSPY_CALIBRATION=tmp_path / "file/calibration.json")
    assert done.returncode == 3 and done.stderr.count("\n") == 1


@pytest.mark.parametrize("words, says", [
    ((), "no recording given"), (("--show", "run.db"), "take no recording"), (("--show", "--forget"), "take no recording"),
    (("--batch", "4", "run.db"), "--model"), (("--model", "gpt2", "run.db"), "--batch"),
    (("--params", "1e9", "--batch", "4", "run.db"), "--model"), (("--model", "gtp2", "--batch", "4", "run.db"), "gpt2")])
def test_words_that_do_not_go_together(tmp_path, kept, words, says):
    record(tmp_path / "run.db")
    done = gpuspy("calibrate", *[tmp_path / word if word == "run.db" else word for word in words], GPUSPY_CALIBRATION=kept)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
    assert not kept.exists()


@pytest.mark.parametrize("words, says", [
    (("--batch", "4"), "--model"), (("--model", "gpt2", "--batch", "4"), "--seq"), (("--params", "1e9", "--batch", "4"), "--model")])
def test_a_report_requires_the_options_that_activations_need(tmp_path, words, says):
    done = gpuspy("report", *words, record(tmp_path / "run.db"))
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""
