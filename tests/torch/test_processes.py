"""Several processes, and a custom allocator."""
import sqlite3
import subprocess

from compare import Compared, differences
from conftest import HERE


def test_fork_after_use(record):
    done = record(HERE / "sharing.py", "forked")
    assert done.code == 0 and "child 0\n" in done.stdout, done.stderr[-3000:]
    assert differences(Compared(done.database, done.moments)) == []
    assert [p.name for p in done.folder.glob("*.db")] == ["run.db"], "the child made no CUDA call that succeeded"


def test_allocator_of_its_own(record, tmp_path):
    library = tmp_path / "libown.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "pluggable.c"], check=True)
    done = record(HERE / "pluggable.py", library)
    assert done.code == 0, done.stderr[-3000:]
    reported = [(what, int(n)) for what, n in (line.split()[1:] for line in done.stdout.splitlines() if line.startswith("held"))]
    run = Compared.__new__(Compared)
    run.db = sqlite3.connect(f"file:{done.database}?mode=ro", uri=True)
    assert len(reported) == 3
    for what, expected in reported:
        at = run.one("SELECT start_ns FROM marks WHERE name = ?", what)
        assert run.one("SELECT sum(bytes) FROM allocations WHERE layer = 'device' AND alloc_ns <= ? "
                       "AND (free_ns IS NULL OR free_ns > ?)", at, at) == expected, what


def test_a_tensor_that_is_sent(record):
    """It counts for the sender; the receiver has its own memory, and the shared memory separately."""
    done = record(HERE / "sharing.py", "sent")
    assert done.code == 0 and "exit 0\n" in done.stdout, done.stderr[-3000:]
    pid, size = (int(word) for word in next(x for x in done.stdout.splitlines() if x.startswith("child")).split()[1:])
    child = Compared(done.folder / f"run.{pid}.db", f"{done.moments}.child")
    sender = Compared(done.database, done.moments)
    for run, moments in ((sender, 3), (child, 3)):
        assert len(run.reported) == moments and differences(run) == []
    shared = child.sql("SELECT bytes, alloc_ns, free_ns FROM allocations WHERE space = 'shared'")
    assert len(shared) == 1 and shared[0][0] >= size and shared[0][2] is not None, shared
    answer = done.report()
    assert len(answer["run"]["processes"]) == 2
