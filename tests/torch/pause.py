"""A recording as it would be if the machine had stood still once: verdicts are about memory, so they must not change."""
import shutil
import sqlite3


def with_pause(database, to, share):
    """Copies the recording; after that share of its allocations, everything comes three times its duration later."""
    shutil.copy(database, to)
    with sqlite3.connect(to) as copy:
        times = [row[0] for row in copy.execute("SELECT alloc_ns FROM allocation_row ORDER BY id")]
        (end,) = copy.execute("SELECT max(end_ns) FROM process").fetchone()
        start = times[int(len(times) * share)] + 1
        copy.create_function("later", 1, lambda ns: ns if ns is None or ns < start else ns + 3 * end, deterministic=True)
        for table, in copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [row[1] for row in copy.execute(f"PRAGMA table_info({table})") if row[1].endswith("_ns")]
            begin = "alloc_ns" if "alloc_ns" in columns else "start_ns"
            moved = [f"{c} = later({begin} + {c}) - later({begin})" if c == "life_ns" else f"{c} = later({c})"
                     for c in columns if c not in ("blocked_ns", "start_real_ns")]
            if moved:
                copy.execute(f"UPDATE {table} SET {', '.join(moved)}")
        copy.execute("UPDATE meta SET value = later(value) WHERE key = 'kept_from_ns'")
    copy.close()
    return to
