"""Recordings of other tools that are odd, damaged or given by mistake: right figures or one line of error."""
import copy
import json
import subprocess
import sys

from test_import import BASE, MIB, TOOL, Run, frame, gpuspy, imported, write


def peak_kib(*words):
    """The most memory that a program had. One in between starts it: a child counts what its parent had."""
    between = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    return int(subprocess.run([sys.executable, "-c", between, *words], stdout=subprocess.PIPE, check=True).stdout)


# ---------------------------------------------------------------- snapshots

def test_frames_of_their_own_are_kept_once(tmp_path):
    """Written by something that copies (copy.deepcopy, JSON and back): no event shares its frames with another."""
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    stacks = [[frame(100 * k + i + 1, f"f{i}", f"/home/u/{k}.py") for i in range(30)] for k in range(5)]
    for k in range(20_000):
        run.alloc(0, BASE, MIB, line=1)
        run.traces[0][-1]["frames"] = copy.deepcopy(stacks[k % 5])
        run.free(0, BASE, line=1)
        run.traces[0][-2]["frames"] = json.loads(json.dumps(stacks[k % 5]))
    file = write(tmp_path / "own.pickle", run.snapshot())
    load = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    assert peak_kib(TOOL, "report", file) < 0.5 * peak_kib(sys.executable, "-c", load, file)
    rows = dict(imported(file, tmp_path).execute(
        "SELECT f.file || ':' || f.line, count(*) FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN frame f ON f.id = s.frame_id "
        "WHERE layer = 1 GROUP BY 1"))
    assert rows == {f"/home/u/{k}.py:{100 * k + 1}": 4000 for k in range(5)}


def test_an_event_of_more_members_than_there_can_be(tmp_path):
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    run.alloc(0, BASE, MIB, line=1)
    run.traces[0][-1].update({f"k{i}": i for i in range(60)})
    text = gpuspy("report", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "1 record was invalid and left out" in text
