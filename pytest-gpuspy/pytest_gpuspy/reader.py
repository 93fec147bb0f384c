"""Reads recordings while they are made. It is a program of its own, because a process that writes a database and closes
another handle of its file drops SQLite's locks. Needs nothing but the standard library.

It reads requests from stdin and answers on stdout, one JSON object per line:
  {"folder", "pid", "start": name or null, "end": name, "file"}  → what was done between the two marks
  {"folder", "all": prefix, "pid", "since": ns}          → the same of each test that left its marks
  {"folder", "remove": pid}                              → removes the folder when that process has ended
What is live is kept from one request to the next, so that each row is read once."""
from __future__ import annotations

import heapq
import json
import os
import shutil
import sqlite3
import sys
import time
from typing import Any, Iterator, List, Tuple

LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "/lib64/python3", "<frozen ", "<string>")
LINES = 10
Row = List[Any]  # layer, device, bytes, times of allocation and free, stack
Event = Tuple[int, int, int, int, int, bool]  # time, 1 for an allocation, id, device, change of bytes, the test's own
NEAR_NS = 100_000_000  # rows of several threads are about in order of time


def is_library(file: str) -> bool:
    return any(part in file for part in LIBRARIES)


class Database:
    def __init__(self, path: str) -> None:
        self.path = path
        self.db = sqlite3.connect(f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro",
                                  uri=True, timeout=10)
        self.pid, self.began = self.db.execute("SELECT pid, start_real_ns FROM process").fetchone()
        self.shared = {row[0] for row in self.db.execute("SELECT id FROM space WHERE word = 'shared'")}
        self.layers = dict(self.db.execute("SELECT word, id FROM layer"))
        self.kinds = dict(self.db.execute("SELECT word, id FROM sync_kind"))
        self.directions = dict(self.db.execute("SELECT word, id FROM direction"))
        self.host = dict(self.db.execute("SELECT word, id FROM host_memory"))
        self.rows: dict[int, Row] = {}  # by id, of what may still be asked for
        self.last = 0
        self.tensors: set[int] = set()  # devices with tensors
        self.sites: dict[int, str] = {}
        self.python_lines: dict[int, tuple[str, int] | None] = {}
        self.file: str | None = None  # of the test that is asked about

    # ---- allocations

    def refresh(self, since: int, until: int, final: bool) -> None:
        """Reads new rows, as far as they are needed; forgets what was freed before `since`. `final`: rows that were
        read do not change any more."""
        still = [] if final else [i for i, row in self.rows.items() if row[4] is None]
        for at in range(0, len(still), 500):
            some = still[at:at + 500]
            query = f"SELECT id, life_ns FROM allocation_row WHERE life_ns IS NOT NULL AND id IN ({','.join('?' * len(some))})"
            for i, life in self.db.execute(query, some):
                self.rows[i][4] = self.rows[i][3] + life
        for row in self.db.execute("SELECT id, kind, bytes, alloc_ns, life_ns, alloc_stack_id FROM allocation "
                                   "WHERE id > ? ORDER BY id", (self.last,)):
            i, kind, size, start, life, stack = row
            self.last = i
            enough = start > until + NEAR_NS
            layer, device = kind & 3, ((kind >> 5) & 127) - 1
            if device >= 0 and (kind >> 2) & 7 not in self.shared and layer in (self.layers["device"], self.layers["tensor"]):
                if layer == self.layers["tensor"]:
                    self.tensors.add(device)
                self.rows[i] = [layer, device, size, start, None if life is None else start + life, stack]
            if enough:
                break
        self.rows = {i: row for i, row in self.rows.items() if row[4] is None or row[4] >= since}

    def counts(self, row: Row) -> bool:
        return bool(row[0] == (self.layers["tensor"] if row[1] in self.tensors else self.layers["device"]))

    def memory(self, start: int, end: int, final: bool) -> dict[str, Any]:
        """The peak by GPU of the memory that was allocated in the window, and what of it is live at the end."""
        self.refresh(start, end, final)
        events: list[Event] = []
        all_live: dict[int, int] = {}
        for i, row in self.rows.items():
            _, device, size, alloc, free, _ = row
            if not self.counts(row) or alloc > end:
                continue
            own = alloc >= start
            if not own and (free is None or free >= start):
                all_live[device] = all_live.get(device, 0) + size
            if own:
                events.append((alloc, 1, i, device, size, True))
            if free is not None and start <= free <= end:
                events.append((free, 0, i, device, -size, own))
        return self.sweep(sorted(events), all_live)

    def sweep(self, events: list[Event], total: dict[int, int]) -> dict[str, Any]:
        live: dict[int, int] = {}
        most: dict[int, int] = {}
        at: dict[int, int] = {}
        whole = dict(total)
        for when, _, _, device, size, own in events:
            total[device] = total.get(device, 0) + size
            whole[device] = max(whole.get(device, 0), total[device])
            if own:
                live[device] = live.get(device, 0) + size
                if live[device] > most.get(device, 0):
                    most[device], at[device] = live[device], when
        first = max(most, key=lambda d: (most[d], -d)) if most else None
        return {"device": first, "peak": 0 if first is None else most[first], "peak_at": None if first is None else at[first],
                "all": max(whole.values(), default=0), "now": sum(total.values()),
                "left": sum(n for n in live.values() if n > 0)}

    def lines(self, start: int, moment: int, device: int | None = None) -> list[dict[str, Any]]:
        """The live memory by line at a moment, of allocations since `start`, largest first."""
        found: dict[str, list[int]] = {}
        for row in self.rows.values():
            _, gpu, size, alloc, free, stack = row
            if not self.counts(row) or not start <= alloc <= moment or (device is not None and gpu != device):
                continue
            if free is None or free > moment:
                entry = found.setdefault(self.site(stack), [0, 0])
                entry[0] += size
                entry[1] += 1
        return self.heaviest(found)

    def heaviest(self, found: dict[str, list[int]]) -> list[dict[str, Any]]:
        return [{"place": place, "amount": n, "count": count}
                for place, (n, count) in sorted(found.items(), key=lambda item: (-item[1][0], item[0]))[:LINES]]

    # ---- places

    def ask_for(self, file: str | None) -> None:
        if file != self.file:
            self.file, self.sites = file, {}

    def site(self, stack: int) -> str:
        """"file.py:12 in step" of the innermost line that is no library's, with the test's own line if it is another."""
        if stack not in self.sites:
            self.sites[stack] = self.find_site(stack)
        return self.sites[stack]

    def frames(self, stack: int) -> Iterator[str | tuple[str, int, str]]:
        """Innermost first: Python's (file, line, function), else a text."""
        for _ in range(4096):
            row = stack is not None and self.db.execute(
                "SELECT s.parent_id, f.kind, f.function, f.file, f.line, m.path, f.offset FROM stack s "
                "JOIN frame f ON f.id = s.frame_id LEFT JOIN module m ON m.id = f.module_id WHERE s.id = ?",
                (stack,)).fetchone()
            if not row:
                return
            stack, kind, function, file, line, module, offset = row
            if kind == 0 and file:
                yield file, line, function
            elif module:
                yield f"{os.path.basename(module)}+{offset or 0:#x}"

    def find_site(self, stack: int) -> str:
        first: str | None = None
        native = own = test = first
        for frame in self.frames(stack):
            if isinstance(frame, str):
                native = native or frame
                continue
            place = f"{frame[0]}:{frame[1]} in {frame[2] or '?'}"
            first = first or place
            own = own or (None if is_library(frame[0]) else place)
            test = place if frame[0] == self.file else test  # the outermost: the test's function, not its helper
        place = own or first or native or "(no stack recorded)"
        return f"{place} < {test}" if test and test != place else place

    def python_line(self, stack: int) -> tuple[str, int] | None:
        if stack not in self.python_lines:
            self.python_lines[stack] = next((f[:2] for f in self.frames(stack) if not isinstance(f, str)), None)
        return self.python_lines[stack]

    # ---- waits

    def waits(self, start: int, end: int) -> tuple[int, list[dict[str, Any]]]:
        """As `gpuspy report` counts them: a copy back and the wait for it are one."""
        found: dict[str, list[int]] = {}
        opened: dict[int, dict[str, Any]] = {}

        def count(stack: int) -> None:
            entry = found.setdefault(self.site(stack), [0, 0])
            entry[0] += 1
            entry[1] += 1

        def settle(thread: int) -> None:
            copy = opened.pop(thread, None)
            if copy and self.holds(copy):
                count(copy["stack"])

        for call in self.calls(start, end):
            thread = call["thread"]
            if call["sync"]:
                copy = opened.get(thread)
                if copy and self.one_operation(copy, call):
                    del opened[thread]
                settle(thread)
                count(call["stack"])
                continue
            settle(thread)
            if call["async"]:
                opened[thread] = call
            elif self.holds(call):
                count(call["stack"])
        for thread in list(opened):
            settle(thread)
        return sum(n for n, _ in found.values()), self.heaviest(found)

    def one_operation(self, copy: dict[str, Any], sync: dict[str, Any]) -> bool:
        line = self.python_line(copy["stack"])
        return (sync["kind"] == self.kinds["stream"] and sync["handle"] == copy["stream"]
                and line == self.python_line(sync["stack"])
                and (copy["direction"] == self.directions["d2h"] or line is not None))

    def holds(self, copy: dict[str, Any]) -> bool:
        into, out = copy["direction"] == self.directions["h2d"], copy["direction"] == self.directions["d2h"]
        staged = into and copy["bytes"] <= 64 << 10
        return (into or out) and not staged and (not copy["async"] or copy["host"] == self.host["pageable"])

    def calls(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        syncs = self.db.execute("SELECT start_ns, thread_id, kind, handle, stack_id FROM sync "
                                "WHERE start_ns BETWEEN ? AND ? ORDER BY start_ns", (start, end))
        copies = self.db.execute("SELECT start_ns, thread_id, direction, host_memory, async, bytes, stream, stack_id "
                                 "FROM copy WHERE start_ns BETWEEN ? AND ? ORDER BY start_ns", (start, end))
        return heapq.merge(
            ({"at": r[0], "sync": False, "thread": r[1], "direction": r[2], "host": r[3], "async": r[4], "bytes": r[5],
              "stream": r[6], "stack": r[7]} for r in copies),
            ({"at": r[0], "sync": True, "thread": r[1], "kind": r[2], "handle": r[3], "stack": r[4]} for r in syncs),
            key=lambda call: call["at"])

    # ---- marks

    def when(self, name: str) -> int | None:
        row = self.db.execute("SELECT m.start_ns FROM mark m JOIN mark_name n ON n.id = m.name WHERE n.name = ? "
                              "ORDER BY m.id DESC LIMIT 1", (name,)).fetchone()
        return row[0] if row else None

    def window(self, start: str | None, end: str) -> tuple[int, int | None]:
        """A test in which the recording began has no mark where it started."""
        to = self.when(end)
        since = self.when(start) if start else 0
        return (since or 0), to

    def measure(self, since: int, to: int, lines: bool) -> dict[str, Any]:
        reported = self.memory(since, to, not lines)
        reported["waits"], wait_lines = self.waits(since, to)
        if lines:
            reported["peak_lines"] = self.lines(since, reported["peak_at"], reported["device"]) if reported["peak_at"] is not None else []
            reported["left_lines"] = self.lines(since, to)
            reported["wait_lines"] = wait_lines
        return reported

    def tests(self, prefix: str) -> Iterator[tuple[str, int, int]]:
        """Marks of tests: "PREFIXstart N NAME", "PREFIXend N NAME", in order of time."""
        begun: dict[str, int] = {}
        before = 0
        rows = self.db.execute("SELECT n.name, m.start_ns FROM mark m JOIN mark_name n ON n.id = m.name "
                               "WHERE substr(n.name, 1, ?) = ? ORDER BY m.start_ns, m.id", (len(prefix), prefix)).fetchall()
        for name, at in rows:
            word, _, rest = name[len(prefix):].partition(" ")
            if word == "start":
                begun[rest] = at
            elif word == "end":
                yield rest.partition(" ")[2], begun.pop(rest, before), at
                before = at


class Reader:
    def __init__(self) -> None:
        self.open: dict[str, Database] = {}  # by path
        self.removed: str | None = None

    def look(self, folder: str) -> list[Database]:
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            if not name.endswith(".db") or path in self.open:
                continue
            try:
                self.open[path] = Database(path)
            except (sqlite3.Error, TypeError):  # just begun
                continue
        return [db for path, db in self.open.items() if os.path.dirname(path) == folder]

    def one(self, request: dict[str, Any]) -> dict[str, Any]:
        mine = [db for db in self.look(request["folder"]) if db.pid == request["pid"]]
        if not mine:
            return {"found": False}
        db = mine[-1]
        db.ask_for(request.get("file"))
        since, to = db.window(request.get("start"), request["end"])
        if to is None:
            return {"found": True, "late": True}
        return {"found": True, **db.measure(since, to, True)}

    def all(self, request: dict[str, Any]) -> dict[str, Any]:
        tests: list[dict[str, Any]] = []
        self.open = {}  # from the beginning
        for db in self.look(request["folder"]):
            if db.pid != request["pid"] and (db.began or 0) < request["since"]:  # of an earlier session
                continue
            for name, since, to in db.tests(request["all"]):
                reported = db.measure(since, to, False)
                if reported["peak"] or reported["waits"]:
                    tests.append({"name": name, "pid": db.pid, **reported})
        return {"tests": tests}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "remove" in request:
            self.open, self.removed = {}, request["folder"]
            return {}
        try:
            return self.all(request) if "all" in request else self.one(request)
        except (sqlite3.Error, OSError) as error:
            return {"error": f"the recording could not be read: {error}"}


def wait_and_remove(folder: str, pid: int) -> None:
    """Waits until the process that asked, this one's parent, has ended."""
    while os.getppid() == pid:
        time.sleep(0.02)
    shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    reader = Reader()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(reader.answer(request)), flush=True)
        if reader.removed:
            wait_and_remove(reader.removed, request["remove"])
            return


if __name__ == "__main__":
    main()
