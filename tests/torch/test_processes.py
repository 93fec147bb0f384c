"""Several processes, and an allocator of somebody's own."""
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
    said = [(what, int(n)) for what, n in (line.split()[1:] for line in done.stdout.splitlines() if line.startswith("held"))]
    run = Compared.__new__(Compared)
    run.db = sqlite3.connect(f"file:{done.database}?mode=ro", uri=True)
    assert len(said) == 3
    for what, expected in said:
        at = run.one("SELECT start_ns FROM marks WHERE name = ?", what)
        assert run.one("SELECT sum(bytes) FROM allocations WHERE layer = 'device' AND alloc_ns <= ? "
                       "AND (free_ns IS NULL OR free_ns > ?)", at, at) == expected, what
