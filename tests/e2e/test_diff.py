"""gpuspy diff: compares two recordings."""
import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT
from rows import GIB, MIB, TENSOR, Rows

BEFORE = """\
from minicuda import Runtime, Tensor
cuda = Runtime()
MIB = 1 << 20

def weights():
    return [Tensor(cuda, 4 * MIB) for _ in range(8)]  # WEIGHTS

def activations():
    a = Tensor(cuda, 16 * MIB)  # A
    b = Tensor(cuda, 17 * MIB)  # B
    c = Tensor(cuda, 24 * MIB)  # C
    return a, b, c

def scratch():
    return Tensor(cuda, 5 * MIB)  # SCRATCH

def main():
    kept = weights(), activations(), scratch()
    out = Tensor(cuda, 2 * MIB)  # OUT
    return kept, out

main()
"""
# Lines inserted above, a function moved below another, one more allocation between equal ones, one removed, one larger.
AFTER = '''\
"""What this is for, in a few lines
that were not there before."""
from minicuda import Runtime, Tensor

cuda = Runtime()
MIB = 1 << 20

def activations():
    a = Tensor(cuda, 16 * MIB)  # A
    d = Tensor(cuda, 3 * MIB)  # D
    b = Tensor(cuda, 17 * MIB)  # B
    # the classifier is larger now
    c = Tensor(cuda, 40 * MIB)  # C
    return a, b, c, d

def main():
    kept = weights(), activations()
    out = Tensor(cuda, 2 * MIB)  # OUT
    return kept, out

def weights():
    return [Tensor(cuda, 4 * MIB) for _ in range(8)]  # WEIGHTS

main()
'''


def lines_of(source):
    return {line.split("  # ")[1]: n for n, line in enumerate(source.splitlines(), 1) if "  # " in line}


def diff(recording, *arguments):
    done = recording.gpuspy("diff", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    check(answer)
    return answer


def check(answer):
    """The listed differences add up to the totals."""
    rests = [answer[k] for k in ("smaller_shrunk", "smaller_grown", "unchanged")]
    for key in ("before", "after", "change"):
        total = answer["total"][key]
        assert sum(r[key] for r in answer["rows"]) + sum(r[key] for r in rests) == pytest.approx(total, abs=1e-6)
        assert sum(u[key] for u in answer["by_process"]) == pytest.approx(total, abs=1e-6)
        if answer["by_category"]:
            assert sum(c[key] for c in answer["by_category"]) == total
    assert answer["total"]["change"] == answer["total"]["after"] - answer["total"]["before"]
    changes = [abs(r["change"]) for r in answer["rows"]]
    assert changes == sorted(changes, reverse=True)


def turned(answer):
    """diff(b, a), which diff(a, b) should equal."""
    swap = lambda row: {"change": -row["change"], "before": row["after"], "after": row["before"],
                        "sites": (row["site_after"], row["site_before"]), "category": row["category"]}
    return [swap(r) for r in answer["rows"]], -answer["total"]["change"]


def plain(answer):
    return [{"change": r["change"], "before": r["before"], "after": r["after"],
             "sites": (r["site_before"], r["site_after"]), "category": r["category"]} for r in answer["rows"]
            ], answer["total"]["change"]


@pytest.fixture
def versions(recording):
    for name, source in ("before", BEFORE), ("after", AFTER):
        folder = recording.folder / name
        folder.mkdir()
        (folder / "train.py").write_text(source)
        recording.run(sys.executable, folder / "train.py", GPUSPY_DB=f"{name}.db", SIMCUDA_MEMORY="1GiB",
                      PYTHONPATH=ROOT / "fixtures" / "python")
    return recording


def test_an_edited_script(versions):
    answer = diff(versions, "before.db", "after.db")
    old, new = lines_of(BEFORE), lines_of(AFTER)
    found = {(r["site_before"] and r["site_before"]["line"], r["site_after"] and r["site_after"]["line"]): r
             for r in answer["rows"]}
    assert set(found) == {(old["C"], new["C"]), (None, new["D"]), (old["SCRATCH"], None)}
    assert found[old["C"], new["C"]]["change"] == 16 * MIB and found[old["C"], new["C"]]["inferred"]
    assert found[None, new["D"]]["status"] == "new" and found[None, new["D"]]["after"] == 3 * MIB
    assert found[old["SCRATCH"], None]["status"] == "gone" and found[old["SCRATCH"], None]["before"] == 5 * MIB
    assert answer["unchanged"]["rows"] == 4 and answer["unchanged"]["after"] == (8 * 4 + 16 + 17 + 2) * MIB
    assert answer["total"]["change"] == 14 * MIB
    (file,) = answer["files"]
    assert file["before"].endswith("before/train.py") and file["paired_by"] == "path_end"
    assert answer["verdict"] == ("The peak of GPU memory grew by 14.00 MiB (+15 %), from 96.00 MiB to 110.00 MiB: "
                                 f"train.py:{new['C']} in activations (+16.00 MiB)")


def test_text(versions):
    old, new = lines_of(BEFORE), lines_of(AFTER)
    for columns in (60, 80, 200):
        done = versions.run("env", f"COLUMNS={columns}", versions_gpuspy(), "diff", "before.db", "after.db", LD_PRELOAD="")
        assert done.returncode == 0 and "\x1b" not in done.stdout
        lines = done.stdout.splitlines()
        paths = [line for line in lines if line.strip().startswith("/")]  # paths are not shortened
        assert all(len(line) <= columns for line in lines if line not in paths), max(lines, key=len)
        assert lines[0].startswith("The peak of GPU memory grew by 14.00 MiB")
        text = done.stdout
        assert f":{old['C']} → {new['C']}" in text.replace("->", "→") or columns < 80
        assert "4 unchanged" in text and " total" in text


def versions_gpuspy():
    from conftest import BUILD
    return BUILD / "gpuspy"


def test_turned(versions):
    for by in ("line", "function", "file", "category", "owner"):
        there = diff(versions, "--by", by, "before.db", "after.db")
        back = diff(versions, "--by", by, "after.db", "before.db")
        assert turned(there) == plain(back)
    same = diff(versions, "before.db", "before.db")
    assert same["rows"] == [] and same["total"]["change"] == 0 and "is the same" in same["verdict"]


def test_thresholds(versions):
    assert [r["change"] for r in diff(versions, "--min", "10MiB", "before.db", "after.db")["rows"]] == [16 * MIB]
    assert len(diff(versions, "--min", "4%", "before.db", "after.db")["rows"]) == 2
    assert len(diff(versions, "--top", "1", "before.db", "after.db")["rows"]) == 1
    for wrong in ("x", "-1", "1parsec", "10ms"):
        done = versions.gpuspy("diff", f"--min={wrong}", "before.db", "after.db")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_usage(recording):
    for arguments in ([], ["a.db"], ["a.db", "b.db", "c.db"], ["--what", "waits", "--by", "category", "a", "b"],
                      ["--by", "owner", "--what", "end", "a", "b"], ["--what", "waits", "--layer", "tensor", "a", "b"]):
        done = recording.gpuspy("diff", *arguments)
        assert done.returncode == 2 and done.stderr.startswith("gpuspy: diff: "), done.stderr
    done = recording.gpuspy("diff", "nothing.db", "nothing.db")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 1


# --- runs made row by row

MODEL = "/home/a/repo/model.py"


def job(folder, name, ranks, sizes, root="/home/a/repo", run="r", oom=None, tensors=True):
    """`sizes`: {(line, function): MiB}, the same in each rank, except that `ranks` adds to the first of them."""
    folder = folder / name
    folder.mkdir()
    for i, (rank, more) in enumerate(ranks.items()):
        with Rows(folder / (f"run.{100 + i}.db" if i else "run.db"), run=run + name, pid=100 + i, rank=rank) as rows:
            rows.device(rank or 0)
            for number, ((line, function), mib) in enumerate(sizes.items()):
                stack = rows.stack(f"{root}/train.py:5 <module>", f"{root}/model.py:{line} {function}")
                extra = more if number == 0 else 0
                rows.block(1 + number * 0.01, (mib + extra) * MIB, stack=stack, device=rank or 0,
                           layer=TENSOR if tensors else 0, address=number << 40)
            if oom:
                rows.oom(5, GIB, 0, 24 * GIB)
    return folder


def test_ranks_are_paired_by_rank(recording):
    sizes = {(10, "f"): 100, (20, "g"): 50}
    job(recording.folder, "a", {1: 0, 0: 0}, sizes)
    job(recording.folder, "b", {0: 0, 1: 30, 2: 0}, sizes)
    answer = diff(recording, "a", "b")
    assert answer["paired_by"] == "rank"
    by = {(u["rank_before"], u["rank_after"]): u["change"] for u in answer["by_process"]}
    assert by == {(0, 0): 0, (1, 1): 30 * MIB, (None, 2): 150 * MIB}
    (first, second) = answer["rows"]
    assert first["change"] == 130 * MIB and first["changed_in"] == 2 and second["change"] == 50 * MIB
    only = diff(recording, "--rank", "1", "a", "b")
    assert only["total"]["change"] == 30 * MIB and [u["rank_after"] for u in only["by_process"]] == [1]
    text = recording.gpuspy("diff", "a", "b").stdout
    assert "By process, paired by rank" in text and "rank 2" in text
    for option, words in [("--rank", "neither recording has a rank 7"), ("--device", "neither recording has a GPU 7")]:
        done = recording.gpuspy("diff", option, "7", "a", "b")
        assert done.returncode == 1 and words in done.stderr and not done.stdout


@pytest.mark.parametrize("columns", [60, 80, 100, 132])
def test_a_note_on_ranks_is_whole_or_absent(recording, columns):
    sizes = {(10, "f"): 100, (20, "a_function_with_a_rather_long_name"): 50}
    job(recording.folder, "a", {0: 0, 1: 0}, sizes)
    job(recording.folder, "b", {0: 0, 1: 30, 2: 0}, sizes)
    text = recording.gpuspy("diff", "a", "b", env={"COLUMNS": str(columns)}).stdout
    rows = [line for line in text.partition("By line")[2].splitlines() if "model.py:" in line]
    assert rows and all(line.endswith(" of 3 peaks)") == ("peaks" in line) and len(line) <= columns for line in rows)
    assert columns < 132 or all("  (in " in line for line in rows[:2])


def test_processes_without_ranks_are_paired_in_order(recording):
    sizes = {(10, "f"): 100}
    job(recording.folder, "a", {None: 0}, sizes)
    job(recording.folder, "b", {None: 7}, sizes)
    answer = diff(recording, "a", "b")
    assert answer["paired_by"] == "order" and answer["by_process"][0]["change"] == 7 * MIB


def test_another_checkout_with_moved_lines(recording):
    job(recording.folder, "a", {0: 0}, {(10, "f"): 100, (20, "g"): 50, (21, "g"): 51})
    job(recording.folder, "b", {0: 0}, {(13, "f"): 100, (25, "g"): 50, (26, "g"): 60}, root="/data/x/repo")
    answer = diff(recording, "a", "b")
    (row,) = answer["rows"]
    assert (row["site_before"]["line"], row["site_after"]["line"], row["change"]) == (21, 26, 9 * MIB)


def test_nothing_in_common(recording):
    job(recording.folder, "a", {0: 0}, {(10, "f"): 100})
    with Rows(recording.folder / "c.db", rank=0) as rows:
        rows.device()
        rows.block(1, 40 * MIB, stack=rows.stack("/x/other.py:3 serve"), layer=TENSOR)
        rows.block(2, 2 * MIB, layer=TENSOR, address=1 << 40)  # has no stack: is never hidden
    answer = diff(recording, "a", "c.db")
    assert any("no line in common" in note for note in answer["notes"])
    assert sorted(r["status"] for r in answer["rows"]) == ["gone", "new", "new"]
    assert answer["total"]["change"] == -58 * MIB
    assert "(no stack recorded)" in recording.gpuspy("diff", "a", "c.db").stdout


def test_tensors_in_only_one_of_two_recordings(recording):
    job(recording.folder, "a", {0: 0}, {(10, "f"): 100}, tensors=False)
    with Rows(recording.folder / "c.db", rank=0) as rows:
        rows.device()
        stack = rows.stack("/home/a/repo/train.py:5 <module>", f"{MODEL}:10 f")
        rows.block(1, 128 * MIB, stack=stack)
        rows.block(1.5, 90 * MIB, stack=stack, layer=TENSOR)
    answer = diff(recording, "a", "c.db")
    assert answer["total"] | {"before": 100 * MIB, "after": 128 * MIB} == answer["total"]
    assert any("no PyTorch tensors" in note for note in answer["notes"])


def test_what_else_became_more_is_a_command_to_type(recording):
    program = """import ctypes
lib = ctypes.CDLL("libcudart.so.13")
def pin():
    p = ctypes.c_void_p()
    lib.cudaMallocHost(ctypes.byref(p), ctypes.c_size_t(8 << 20))
for i in range(N):
    pin()
device = ctypes.c_void_p()
lib.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(4 << 20))
"""
    for name, n in ("a b", 1), ("c", 3):
        recording.python(program.replace("N", str(n)), GPUSPY_DB=f"{name}.db")
    text = recording.gpuspy("diff", "a b.db", "c.db").stdout
    command = text.split("\nNext\n")[1].strip()
    assert command == "gpuspy diff --layer pinned 'a b.db' c.db"
    by_line = recording.gpuspy("diff", "--layer", "pinned", "a b.db", "c.db").stdout
    assert "grew by 16.00 MiB" in " ".join(by_line.split()) and ":5" in by_line and "Next" not in by_line
    assert "Next" not in recording.gpuspy("diff", "c.db", "a b.db").stdout


def test_long_names_are_printed_once(recording):
    program = """import ctypes
lib = ctypes.CDLL("libcudart.so.13")
def allocate(call, size):
    p = ctypes.c_void_p()
    call(ctypes.byref(p), ctypes.c_size_t(size))
    return p
def step(device):
    p = allocate(lib.cudaMalloc, 1 << 20)
    for i in range(N):
        lib.cudaMemcpy(device, pinned, ctypes.c_size_t(1 << 20), 1)
    lib.cudaDeviceSynchronize()
    lib.cudaFree(p)
def main():
    for i in range(60):
        step(device)
pinned = [allocate(lib.cudaMallocHost, 8 << 20) for i in range(N)][0]
device = allocate(lib.cudaMalloc, 8 << 20)
main()
"""
    names = "a name with spaces.db", "b" * 60 + ".db"
    for name, n in zip(names, (1, 3)):
        recording.python(program.replace("N", str(n)), GPUSPY_DB=name)
    variables, commands = [], []
    for line in recording.gpuspy("diff", *names).stdout.split("\nNext\n")[1].splitlines():
        (commands if "gpuspy" in line else variables).append(line.strip())
    assert variables == ["export before='a name with spaces.db'", f"export after={names[1]}"]
    assert len(commands) > 1 and 'gpuspy diff --layer pinned "$before" $after' in commands
    for shell in filter(shutil.which, ("sh", "fish")):
        done = subprocess.run([shell, "-c", "\n".join((*variables, commands[0]))], capture_output=True, text=True,
                              cwd=recording.folder, env=dict(os.environ, PATH=f"{BUILD}:{os.environ['PATH']}"))
        assert done.returncode == 0 and "grew by 16.00 MiB" in " ".join(done.stdout.split()), (shell, done)


def test_one_ran_out_of_memory(recording):
    sizes = {(10, "f"): 100}
    job(recording.folder, "a", {0: 0}, sizes)
    job(recording.folder, "b", {0: 0}, sizes, oom=True)
    answer = diff(recording, "a", "b")
    assert answer["oom_verdict"].startswith("The second ran out of memory")
    assert (answer["figures"]["oom"]["before"], answer["figures"]["oom"]["after"]) == (0, 1)
    assert diff(recording, "--what", "oom", "a", "a")["verdict"] == "Neither run ran out of memory"
    assert diff(recording, "--what", "oom", "a", "b")["verdict"].startswith("Only the second run ran out of memory")


def test_hostile_names(recording):
    name = "/x/\x1b[31m\u202e<script>" + "a" * 100_000 + ".py"
    for database, mib in ("a.db", 5), ("b.db", 6):
        with Rows(recording.folder / database, command="\x1b]0;x\x07") as rows:
            rows.device()
            frame = rows.db.execute("INSERT INTO frame(kind,function,file,line) VALUES(0,?,?,-7)",
                                    ("\x1b[2J\x00f", name)).lastrowid
            stack = rows.db.execute("INSERT INTO stack(parent_id,frame_id,depth) VALUES(NULL,?,1)", (frame,)).lastrowid
            rows.block(1, mib * MIB, stack=stack)
    for by in ("line", "function", "file", "category", "owner"):
        done = recording.gpuspy("diff", "--by", by, "a.db", "b.db")
        assert done.returncode == 0 and "\x1b" not in done.stdout and "\u202e" not in done.stdout
        assert len(done.stdout) < 20_000
        diff(recording, "--by", by, "a.db", "b.db")
