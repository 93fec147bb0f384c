"""What-ifs of recordings made on real GPUs: what PyTorch's allocator did there is the reference for its replay. Other
settings than the recorded ones are compared in tests/torch/test_whatif.py."""
import json
import os
import re
import subprocess

import pytest

from conftest import BUILD
from test_import import MIB, REAL, Run, gpuspy, usual_run, write

# Its layout at the first event does not follow from the one at its end.
UNDONE_OTHERWISE = "61dcd14d"
WITHOUT_HISTORY = "001e30bf", "bdf4fe2e"


def asked(file, *words):
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", *words, file], capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert done.returncode == (1 if len(answer["whatif"]) == 1 and not answer["whatif"][0]["fits"] else 0), done.stderr
    return answer


@pytest.mark.skipif(not REAL, reason="no recordings of real GPUs here")
@pytest.mark.parametrize("file", REAL, ids=lambda p: p.name[:8])
def test_the_replay_gives_every_segment_and_address_of_a_real_gpu(file):
    if file.name.startswith(WITHOUT_HISTORY):
        assert "nothing can be replayed" in gpuspy("whatif", file, code=3).stderr
        return
    replay = asked(file, "--set", "max_split_size_mb:512")["replay"]
    assert replay["segments_as_recorded"] == replay["segments"]
    if file.name.startswith(UNDONE_OTHERWISE):
        assert not replay["exact"] and replay["parted_at_event"] and replay["reason"]
        assert replay["allocations_at_recorded_address"] > 0.8 * replay["allocations"]
    else:
        assert replay["allocations_at_recorded_address"] == replay["allocations"]
        assert replay["parted_at_event"] is None and replay["exact"] and replay["allocations"]


@pytest.mark.skipif(not REAL, reason="no recordings of real GPUs here")
def test_a_real_out_of_memory_stays_one_where_nothing_was_wasted():
    file = next(p for p in REAL if p.name.startswith("b5ef67ce"))
    done = asked(file, "--set", "expandable_segments:True")
    recorded, other = done["recorded"], done["whatif"][0]
    assert not recorded["fits"] and recorded["oom"]["requested_bytes"] == 5308694528
    assert recorded["peak_reserved_bytes"] >= 84202749952
    assert not other["fits"] and other["oom"]["site"]["line"] == 181
    larger = asked(file, "--limit", "200GiB")["whatif"][0]
    assert larger["fits"] and larger["request_fits"] and larger["device_bytes"] == 200 << 30


def test_a_history_that_the_allocator_cannot_have_made_is_inexact(tmp_path):
    run = Run()
    run.event(0, "segment_alloc", 1 << 40, 20 * MIB, 7)
    run.event(0, "alloc", (1 << 40) + 4 * MIB, 2 * MIB, 7)  # the allocator uses a segment from its beginning
    run.event(0, "free_requested", (1 << 40) + 4 * MIB, 2 * MIB, 7)
    run.event(0, "free_completed", (1 << 40) + 4 * MIB, 2 * MIB, 7)
    snapshot = {"segments": [{"device": 0, "address": 1 << 40, "total_size": 20 * MIB, "allocated_size": 0, "active_size": 0,
                              "requested_size": 0, "stream": 0, "segment_type": "large", "frames": [],
                              "blocks": [{"address": 1 << 40, "size": 20 * MIB, "requested_size": 0, "state": "inactive",
                                          "frames": []}]}],
                "device_traces": [list(run.traces[0])]}
    file = write(tmp_path / "s.pickle", snapshot)
    replay = asked(file, "--set", "max_split_size_mb:512")["replay"]
    assert not replay["exact"] and replay["parted_at_event"] == 1 and "address" in replay["reason"]
    text = gpuspy("whatif", "--set", "max_split_size_mb:512", file).stdout
    assert "inexact" in text and "from event 1" in " ".join(text.split())


@pytest.mark.parametrize("waits", ["no", "without effect", "with effect"])
def test_frees_that_wait_for_other_streams_are_assumed_to_take_as_long(tmp_path, waits):
    """If the first block did not wait, it would serve the third request, which otherwise needs a second segment of 20 MiB."""
    run, at, size = Run(), 1 << 40, (9 if waits == "with effect" else 2) * MIB
    run.segment(0, at, 20 * MIB, line=5)
    run.alloc(0, at, size, line=6)
    run.request_free(0, at)
    if waits == "no":
        run.complete_free(0, at)
    run.alloc(0, at + (0 if waits == "no" else size), size, line=7)
    third = at + (size if waits == "no" else 2 * size)
    if waits == "with effect":
        third = 1 << 41
        run.segment(0, third, 20 * MIB, line=8)
    run.alloc(0, third, size, line=8)
    if waits != "no":
        run.complete_free(0, at)
    file = write(tmp_path / "s.pickle", run.snapshot())
    done = asked(file, "--set", "max_split_size_mb:512")
    assert done["replay"]["exact"] and done["whatif"][0]["exact"] != (waits == "with effect"), done
    text = gpuspy("whatif", "--set", "max_split_size_mb:512", file).stdout
    assert ("Other streams used some blocks" in text) == (waits == "with effect")


def test_a_retry_waits_for_other_streams_after_it_has_found_no_memory(tmp_path):
    run, at, other = Run(), 1 << 40, 1 << 41
    run.segment(0, at, 20 * MIB, line=5)
    run.alloc(0, at, 4 * MIB, line=6)
    run.segment(0, at + 20 * MIB, 2 * MIB, line=6)
    run.request_free(0, at)
    run.alloc(0, at + 20 * MIB, 512, line=6)
    run.complete_free(0, at)  # by the next request, which then frees the segment
    del run.segments[0, at]
    run.event(0, "segment_free", at, 20 * MIB)
    run.segment(0, other, 18 * MIB, line=7)
    run.alloc(0, other, 18 * MIB, line=7)
    done = asked(write(tmp_path / "s.pickle", run.snapshot()), "--set", "max_split_size_mb:512")
    assert done["replay"]["exact"] and done["recorded"]["retries"] == 1, done["replay"]


def test_words_that_make_no_sense_are_refused(tmp_path):
    file = write(tmp_path / "s.pickle", usual_run().snapshot())
    for words, part in [(("--set", "max_split_size_mb:4"), "at least 20"), (("--set", "expandable_segments:maybe"), "True or False"),
                        (("--set", "expandible_segments:True"), "did you mean 'expandable_segments'?"),
                        (("--set", "no_such_thing:1"), "'gpuspy whatif --help' lists them"), (("--set", "expandable_segments"), "key:value"),
                        (("--set", "backend:cudaMallocAsync"), "native"), (("--limit", "quantum-gpu"), "quantum-gpu"), (("--limit", "24"), "'24' has no unit"),
                        (("--without", "train.py"), "train.py:42"), (("--without", "train.py:999"), "in no call path"),
                        (("--scale", "activations"), "CATEGORY=FACTOR"),
                        (("--scale", "tensors=2"), "optimizer_state"), (("--scale", "inputs=-1"), "from 0 to 1000"),
                        (("--scale", "inputs=nan"), "from 0 to 1000"),
                        (("--scale", "batch=2,inputs=2", "--scale", "batch=3"), "--scale batch is given twice")]:
        done = gpuspy("whatif", *words, file, code=2)
        assert part in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr


def test_search_ranks_settings_and_names_a_gpu(tmp_path):
    file = write(tmp_path / "s.pickle", usual_run().snapshot())
    names = [x["name"] for x in asked(file, "--search")["whatif"]]
    assert "expandable_segments:True" in names and "max_split_size_mb:256,roundup_power2_divisions:8" in names
    assert names == [x["name"] for x in asked(file)["whatif"]]
    text = subprocess.run([BUILD / "gpuspy", "whatif", file], capture_output=True, text=True).stdout
    assert "as recorded" in text and "Replay" in text
    result, gpu, replay = (re.search(rf"^  {label} .*", text, re.M) for label in ("Result", "GPU", "Replay"))
    assert re.search("settings tried|needs the least memory", result[0]) and "is the smallest GPU tried" in gpu[0], text
    assert result.start() < replay.start() < text.index("as recorded"), text


def test_search_ends_with_commands_to_type(tmp_path):
    file = write(tmp_path / "s.pickle", usual_run().snapshot())
    text = subprocess.run([BUILD / "gpuspy", "whatif", "--search", file], capture_output=True, text=True).stdout
    after = re.sub(r" \\\n *", " ", text[text.index("\nNext"):])  # as a shell joins the lines of a long command
    commands = re.findall(r"^  (gpuspy .*?)(?:  +[a-z].*)?$", after, re.M)
    assert len(commands) >= 2 and any("whatif --limit" in command for command in commands), text
    named = "".join(re.findall(r"^  (export run=.*\n)", after, re.M))
    for command in commands:
        done = subprocess.run(["sh", "-c", named + command], cwd=tmp_path, capture_output=True, text=True,
                              env=dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}"))
        assert done.returncode == 0, (command, done.stderr)


def wasteful_run(first, second):
    """640 MiB in blocks of 30 MiB, freed, then 640 MiB in larger blocks: on stream `first`, then on `second`"""
    run, address = Run(), 0x7f0000000000
    for stream, size, count in ((first, 30 * MIB, 21), (second, 32 * MIB, 20)):
        for _ in range(count):
            address += 64 * MIB
            run.segments[0, address] = size, run.event(0, "segment_alloc", address, size, 5, stream=stream)
            run.event(0, "alloc", address, size, 10, stream=stream)
        for back in range(count):
            for action in ("free_requested", "free_completed"):
                run.event(0, action, address - back * 64 * MIB, size, 20, stream=stream)
    snapshot = run.snapshot()
    for segment in snapshot["segments"]:
        segment["stream"] = first if segment["total_size"] == 30 * MIB else second
    return snapshot


def fragmentation_advice(file):
    report = json.loads(gpuspy("report", "--json", file).stdout)
    return [a["text"] for a in report["advice"] if "of what it reserved" in a["text"]], report


def test_advice_for_fragmentation_states_what_the_replay_reserves(tmp_path):
    file = write(tmp_path / "s.pickle", wasteful_run(0, 0))
    (text,), _ = fragmentation_advice(file)
    peak = asked(file, "--set", "expandable_segments:True")["whatif"][0]["peak_reserved_bytes"]
    assert peak == 640 * MIB and "reserves at most 640.00 MiB instead of 1.24 GiB" in text


def test_advice_that_the_replay_refutes_is_not_given(tmp_path):
    """Pages of one stream cannot be used by another: expandable segments save nothing here"""
    texts, report = fragmentation_advice(write(tmp_path / "s.pickle", wasteful_run(0, 7)))
    assert report["fragmentation"][0]["utilisation"] < 0.6 and not texts


def test_a_category_has_another_size(tmp_path):
    file = write(tmp_path / "s.pickle", wasteful_run(0, 0))
    words = ["parameters", "gradients", "optimizer_state", "activations", "inputs", "temporaries", "workspaces", "unknown"]
    scale = ",".join(f"{word}=0.5" for word in words)
    same, half, pages = (asked(file, *more)["whatif"][0] for more in (
        ["--scale", "activations=1"], ["--scale", scale], ["--scale", scale, "--set", "expandable_segments:True"]))
    assert (same["peak_allocated_bytes"], half["peak_allocated_bytes"]) == (640 * MIB, 336 * MIB)  # 21 whole segments of 16 MiB
    assert half["settings"]["scale"] == {word: 0.5 for word in words} and not half["exact"]
    assert half["peak_reserved_bytes"] > pages["peak_reserved_bytes"] == 320 * MIB


def test_what_cannot_be_replayed_is_not_answered(tmp_path):
    """A snapshot without a history, and a recording without PyTorch: no figure, but a line that states why"""
    bare = usual_run().snapshot()
    bare["device_traces"] = [[]]
    for words in ((), ("--json",), ("--limit", "1GiB")):
        done = gpuspy("whatif", *words, write(tmp_path / "bare.pickle", bare), code=3)
        assert "nothing can be replayed" in done.stderr and len(done.stderr.splitlines()) == 1 and not done.stdout


def test_where_a_step_of_a_snapshot_ends_is_an_inference(tmp_path):
    run, at = Run(), 1 << 40
    run.segment(0, at, 20 * MIB, line=5)
    for _ in range(20):
        for part, line in enumerate((6, 7, 8)):
            run.alloc(0, at + part * 2 * MIB, 2 * MIB, line=line)
        for part in range(3):
            run.request_free(0, at + part * 2 * MIB)
            run.complete_free(0, at + part * 2 * MIB)
    file = write(tmp_path / "s.pickle", run.snapshot())
    sure, other = (asked(file, *words)["whatif"][0] for words in (("--limit", "8GiB"), ("--empty-cache-every", "2")))
    assert sure["exact"] and not other["exact"] and "infers where a step" in other["doubts"][0], (sure, other)


@pytest.mark.parametrize("size, keeps, depends", [
    (lambda kept, step: kept, True, True),  # torch.cat of the list
    (lambda kept, step: kept - 2, True, True),  # before the list gets the newest
    (lambda kept, step: kept + 4, True, True),  # of the list and another tensor
    (lambda kept, step: 8, True, False),
    (lambda kept, step: 3 + step, True, False),  # batches that grow
    (lambda kept, step: kept, False, False),  # of the step's own tensors
], ids=["sum", "sum before", "more", "fixed", "growing", "not kept"])
def test_sizes_that_follow_what_a_line_keeps_make_a_what_if_inexact(tmp_path, size, keeps, depends):
    run, at, kept = Run(), 1 << 40, []
    run.segment(0, at, 2000 * MIB, line=5)
    for step in range(16):
        kept.append(at := at + 2 * MIB)
        run.alloc(0, at, 2 * MIB, line=6)
        if step > 1:
            run.alloc(0, (1 << 40) + 1000 * MIB, size(2 * len(kept), step) * MIB, line=7)
            run.free(0, (1 << 40) + 1000 * MIB)
        while kept and not keeps:
            run.free(0, kept.pop())
    ours = asked(write(tmp_path / "s.pickle", run.snapshot()), "--without", "train.py:6")["whatif"][0]
    assert any("depend on how much this line keeps" in doubt for doubt in ours["doubts"]) is depends, ours


def test_a_tensor_that_replaces_itself_by_a_larger_one_makes_a_what_if_inexact(tmp_path):
    run, last = Run(), None
    run.segment(0, 1 << 40, 2000 * MIB, line=5)
    for step in range(16):
        at = (1 << 40) + (500 * (step % 2) + 100) * MIB
        run.alloc(0, at, (4 + 2 * step) * MIB, line=6)
        if last:
            run.free(0, last)
        run.alloc(0, (1 << 40) + 1200 * MIB, 2 * MIB, line=7)
        run.free(0, (1 << 40) + 1200 * MIB)
        last = at
    ours = asked(write(tmp_path / "s.pickle", run.snapshot()), "--without", "train.py:6")["whatif"][0]
    assert any("depend on how much this line keeps" in doubt for doubt in ours["doubts"]), ours


def test_a_question_about_steps_of_a_run_without_any(tmp_path):
    file = write(tmp_path / "s.pickle", wasteful_run(0, 0))
    for words in (("--empty-cache-every", "5"), ("--without", "train.py:10")):
        assert "no steps were found" in gpuspy("whatif", *words, file, code=3).stderr


def page_of(file):
    return json.loads(re.search(r'id="gpuspy-data">(.*?)</script>', file.read_text(), re.S)[1])


def test_a_page_has_the_replayed_curve(tmp_path):
    """Never above its peak, and without points after a failure."""
    file = write(tmp_path / "s.pickle", wasteful_run(0, 0))
    page = tmp_path / "w.html"
    gpuspy("whatif", "--set", "expandable_segments:True", "--html", page, file)
    (asked_for,) = asked(file, "--set", "expandable_segments:True")["whatif"]
    drawn = page_of(page)["whatif"]
    assert drawn["name"] == "expandable_segments:True" and drawn["fits"] == asked_for["fits"]
    assert max(v for v in drawn["reserved"] if v is not None) == asked_for["peak_reserved_bytes"] == drawn["peak_reserved_bytes"]
    gpuspy("whatif", "--limit", "64MiB", "--html", page, file, code=1)
    drawn = page_of(page)["whatif"]
    assert not drawn["fits"] and drawn["reserved"][-1] is None and drawn["oom_s"] >= 0
    assert "second curve" in gpuspy("whatif", "--help").stdout
    assert "--html shows one what-if" in gpuspy("whatif", "--html", page, file, code=2).stderr
    before = file.read_bytes()
    assert "is the recording itself" in gpuspy("whatif", "--limit", "64MiB", "--html", file, file, code=3).stderr
    assert file.read_bytes() == before


def refused_run(frees_by, stacks=True):
    """Two segments; the first is cached, and freed before the third request"""
    run = Run()
    run.segment(0, 1 << 40, 100 * MIB, 7)
    run.alloc(0, 1 << 40, 100 * MIB, 7)
    run.free(0, 1 << 40, 8)
    run.segment(0, 1 << 41, 200 * MIB, 9)
    run.alloc(0, 1 << 41, 200 * MIB, 9)
    frames = run.event(0, "segment_free", 1 << 40, 100 * MIB, 10)
    del run.segments[0, 1 << 40]
    if frees_by:
        frames.insert(2, {"filename": "/torch/cuda/memory.py", "name": frees_by, "line": 200})
    run.segment(0, 1 << 42, 300 * MIB, 10)
    run.alloc(0, 1 << 42, 300 * MIB, 10)
    if not stacks:
        for event in run.traces[0]:
            event["frames"] = []
    return run.snapshot()


def test_where_cuda_refused_memory_depends_on_the_size_of_the_gpu(tmp_path):
    """A snapshot that has a retry does not state at which size"""
    file = write(tmp_path / "s.pickle", refused_run(None))
    done = asked(file, "--set", "max_split_size_mb:9000")
    ours = done["whatif"][0]
    assert done["replay"]["exact"] and not ours["exact"] and "size of the GPU" in ours["doubts"][0], done
    assert ours["peak_reserved_bytes"] == 600 * MIB and done["recorded"]["peak_reserved_bytes"] == 500 * MIB
    limited = asked(file, "--limit", "550MiB")["whatif"][0]
    assert limited["exact"] and limited["retries"] == 1 and limited["peak_reserved_bytes"] == 500 * MIB, limited


def test_a_cache_that_the_program_emptied_is_emptied_in_what_ifs(tmp_path):
    for words in (("--set", "max_split_size_mb:9000"), ("--limit", "20GiB")):
        ours = asked(write(tmp_path / "s.pickle", refused_run("empty_cache")), *words)["whatif"][0]
        assert ours["exact"] and ours["peak_reserved_bytes"] == 500 * MIB and ours["retries"] == 0, ours


def test_without_stacks_a_retry_may_be_an_emptied_cache(tmp_path):
    for words in (("--set", "max_split_size_mb:9000"), ("--limit", "20GiB")):
        ours = asked(write(tmp_path / "s.pickle", refused_run(None, stacks=False)), *words)["whatif"][0]
        assert not ours["exact"] and "emptied the cache" in ours["doubts"][0], ours


def test_a_private_pool_that_ends_frees_its_segments_in_what_ifs(tmp_path):
    snapshot = refused_run(None, stacks=False)
    for event in snapshot["device_traces"][0]:
        event["pool_id"] = (0, 1) if event["addr"] < 1 << 41 else (0, 0)
    ours = asked(write(tmp_path / "s.pickle", snapshot), "--set", "max_split_size_mb:9000")["whatif"][0]
    assert ours["exact"] and ours["peak_reserved_bytes"] == 500 * MIB, ours


HANDLERS = {  # around the request; whether it handles the error
    "a base class": ("try:\n  f()\nexcept (ValueError, BaseException) as e:\n  pass\n", True),
    "a name that ends likewise": ("try:\n  f()\nexcept requests.RequestException:\n  pass\n", False),
    "brackets": ("with(contextlib.suppress(RuntimeError)):\n  f()\n", True),
    "the second in brackets": ("with (open('x') as f, contextlib.suppress(RuntimeError)):\n  f()\n", True),
    "no Python": ("class:\n  pass\ndef (\nwith x():\n  f()\n", False),
    "a variable of itself": ("x = x\n" * 300 + "with x:\n  f()\n", False),
    "a generator of itself": ("@contextlib.contextmanager\ndef x():\n" + "  with x(): yield\n" * 60 + "with x():\n  f()\n", False),
    "a loop in brackets": ("for(x) in torch.cuda.memory_reserved():\n  f()\n", False),
    "a figure in each line": ("x = torch.cuda.memory_reserved()\ndef g():\n" + "  print(x)\n" * 4000 + "  f()\n", False),
    "a long class": ("with x():\n  f()\nclass x:\n  def __exit__(self):\n" + "    a = b\n" * 50000, False),
}


@pytest.mark.parametrize("does", HANDLERS)
def test_any_source_tells_whether_an_error_is_handled(tmp_path, does):
    code, handles = HANDLERS[does]
    source = tmp_path / "train.py"
    source.write_text(code)
    os.utime(source, (1e9, 1e9))
    run = Run()
    for i in range(4):
        run.segment(0, (1 << 40) + i * 64 * MIB, 40 * MIB, 1)
        run.alloc(0, (1 << 40) + i * 64 * MIB, 40 * MIB, 1)
    for event in run.traces[0]:
        event["frames"] = [{"filename": str(source), "line": code[:code.index("f()\n")].count("\n") + 1, "name": "<module>"}]
    ours = asked(write(tmp_path / "s.pickle", run.snapshot()), "--limit", "100MiB")["whatif"][0]
    assert not ours["fits"] and ("handles the error" in "".join(ours["doubts"])) == handles, ours


def test_what_was_reserved_before_a_recording_does_not_fit_a_smaller_gpu(tmp_path):
    """100 MiB are live, 140 MiB reserved in two segments, and the history requests no other: without the unused segment
    it needs 120 MiB."""
    run, at = Run(), 1 << 40
    run.segment(0, at, 120 * MIB)
    run.segment(0, at + (1 << 30), 20 * MIB)
    run.alloc(0, at, 100 * MIB, line=5)
    for _ in range(4):
        run.alloc(0, at + 100 * MIB, 10 * MIB, line=6)
        run.free(0, at + 100 * MIB, line=7)
    file = write(tmp_path / "s.pickle", run.snapshot(last=12))
    large, small, none = (asked(file, "--limit", f"{size}MiB")["whatif"][0] for size in (160, 130, 110))
    assert (large["fits"], large["exact"], large["peak_reserved_bytes"]) == (True, True, 140 * MIB)
    assert (small["fits"], small["exact"], small["peak_reserved_bytes"]) == (True, False, 120 * MIB)
    assert any("When the recording began" in doubt for doubt in small["doubts"])
    assert not none["fits"] and not none["exact"] and none["oom"]["requested_bytes"] == 10 * MIB
    text = " ".join(gpuspy("whatif", "--limit", "110MiB", file, code=1).stdout.split())
    assert "out of memory when the recording begins: what is reserved then needs 10.00 MiB more" in text
    text = " ".join(gpuspy("whatif", "--search", file).stdout.split())
    assert "saves 1 % of the recorded 140.00 MiB, all of which was reserved before the recording began" in text


@pytest.mark.parametrize("words, error", [
    (["--search", "--without", "train.py:1"], "leave out --set"), (["--search", "--limit", "24GiB"], "leave out --set"),
    (["--html", "x.html", "--json", "--limit", "24GiB"], "not both"), (["--html", "x.html"], "add one"), (["--search", "--html", "x.html"], "add one")])
def test_options_that_exclude_each_other_are_refused(tmp_path, words, error):
    file = write(tmp_path / "s.pickle", usual_run().snapshot())
    done = gpuspy("whatif", *words, file, code=2)
    assert error in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, done.stderr


@pytest.mark.parametrize("second", [1 << 43, 3 << 43])
def test_a_second_expandable_segment_below_or_above_the_first(tmp_path, second):
    """The snapshot is of a GPU of 80 GiB, whose segments reserve 90 GiB. A request that no longer fits into the first one gets a
    second one, and later requests get the one with the lower address."""
    first, page, run = 2 << 43, 20 * MIB, Run()

    def grow(at, start, pages):
        for number in range(pages):
            run.event(0, "segment_map", start + (at + number) * page, page)
            run.segments[0, start + (at + number) * page] = page, []
    grow(0, first, 3000)
    run.alloc(0, first, 3000 * page, 7)
    grow(0, second, 2000)
    run.alloc(0, second, 2000 * page, 8)
    lower = min((first, 3000), (second, 2000))
    grow(lower[1], lower[0], 4)
    run.alloc(0, lower[0] + lower[1] * page, 4 * page, 9)
    snapshot = run.snapshot(expandable=True)
    merged = {}
    for (device, address), (size, frames) in run.blocks.items():
        start = second if address >> 43 == second >> 43 else first
        merged.setdefault(start, []).append({"address": address, "size": size, "requested_size": size, "state": "active_allocated",
                                             "frames": frames})
    snapshot["segments"] = [{"device": 0, "address": start, "total_size": sum(b["size"] for b in blocks), "stream": 0,
                             "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": True, "frames": [], "blocks": blocks}
                            for start, blocks in merged.items()]
    snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    answer = asked(write(tmp_path / "s.pickle", snapshot), "--limit", "200GiB")
    assert answer["replay"]["exact"], answer["replay"]
    assert answer["replay"]["allocations_at_recorded_address"] == answer["replay"]["allocations"] == 3
    assert answer["whatif"][0]["peak_reserved_bytes"] == 5004 * page


@pytest.mark.parametrize("conf", ["new_key:1,roundup_power2_divisions:8", "roundup_power2_divisions:8,new_key:[1:2,3:4]",
                                  "new_key:[a:b,c:d],roundup_power2_divisions:8,other:2"])
def test_a_recorded_setting_that_gpuspy_does_not_know(tmp_path, conf):
    """The replay follows the settings beside it, and is inexact."""
    run = Run()
    run.segment(0, 1 << 40, 20 * MIB)
    run.alloc(0, 1 << 40, 1200 << 10, 5)
    answers = []
    for text in conf, "roundup_power2_divisions:8":
        snapshot = run.snapshot()
        snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": text}
        answers.append(asked(write(tmp_path / "s.pickle", snapshot), "--limit", "8GiB"))
    unknown, known = answers
    assert [a["whatif"][0]["peak_allocated_bytes"] for a in answers] == [1280 << 10] * 2
    assert known["replay"]["exact"] and known["whatif"][0]["exact"]
    assert not unknown["replay"]["exact"] and not unknown["whatif"][0]["exact"] and "'new_key' is not a setting" in unknown["replay"]["reason"]
