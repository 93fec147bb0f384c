"""Each line of waits.py leaves exactly the copies and waits that its comment states."""
import re
import sqlite3

import pytest
from conftest import HERE

SCRIPT = HERE / "waits.py"
LINES = {n: line for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if line.startswith("    ")}


def innermost(db):
    """For every stack, the innermost line of the script itself."""
    frames = {i: line for i, line, file in db.execute("SELECT id, line, file FROM frames WHERE kind = 'python'")
              if file.endswith("/waits.py")}
    stacks = {i: (parent, frame) for i, parent, frame in db.execute("SELECT id, parent_id, frame_id FROM stack")}
    def find(stack):
        while stack is not None:
            parent, frame = stacks[stack]
            if frame in frames:
                return frames[frame]
            stack = parent
        return None
    return find


@pytest.fixture(scope="module")
def seen(once):
    done = once("waits", SCRIPT)
    assert done.code == 0, done.stderr
    left = {}
    with sqlite3.connect(f"file:{done.database}?mode=ro", uri=True) as db:
        find = innermost(db)
        for stack, direction, memory, size in db.execute("SELECT stack_id, direction, host_memory, bytes FROM copies ORDER BY id"):
            left.setdefault(find(stack), []).append(f"{direction} {memory} {size}" if memory != "none" else f"{direction} {size}")
        for stack, kind in db.execute("SELECT stack_id, kind FROM syncs ORDER BY id"):
            left.setdefault(find(stack), []).append(f"wait {kind}")
    return done, left


@pytest.mark.parametrize("line", LINES)
def test_line(seen, line):
    expected = re.findall(r"# leaves (.*)$", LINES[line])
    assert sorted(seen[1].get(line, [])) == sorted(expected[0].split(", ") if expected else []), LINES[line]


def test_nothing_comes_from_elsewhere(seen):
    assert set(seen[1]) <= set(LINES)


def test_the_report_points_at_the_script(seen):
    done, left = seen
    sites = {s["site"]["line"]: s["count"] for s in done.report()["sync"] if s["site"]["file"].endswith("waits.py")}
    waits = {line: sum(w.startswith("wait") for w in what) for line, what in left.items()}
    assert {line: n for line, n in sites.items() if waits[line]} == {line: n for line, n in waits.items() if n}
    # an asynchronous copy that waits nevertheless, because the host's memory is pageable
    assert [LINES[line].split("#")[0].strip() for line in sites if not waits[line]] == ["host.to(dev, non_blocking=True)"]
