"""Records a program and reads the recording: everything that the acceptance run needs from gpuspy."""
import json
import os
import sqlite3
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("GPUSPY_BUILD", ROOT / "build"))
DEVICE, TENSOR = 0, 1  # layers
OWN = "('device', 'managed', 'pool', 'vmm', 'array')"  # spaces whose bytes count for this process on the device


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUSPY_") and k != "LD_PRELOAD"}
    env.update({k: str(v) for k, v in more.items()})
    return env


class Recorded:
    """One run of a command under the recorder, and without it."""

    def __init__(self, folder, name, command, timeout=300, bare=False, simulate=None, **env):
        """simulate: the GPU that `gpuspy run --simulate` uses instead of the real one."""
        folder.mkdir(parents=True, exist_ok=True)
        self.name, self.database = name, folder / f"{name}.db"
        for old in folder.glob(f"{name}.*db*"):  # from an earlier run: gpuspy never overwrites a file
            old.unlink()
        if simulate:
            command = [BUILD / "gpuspy", "run", "--no-summary", "--simulate", simulate, "-o", self.database, "--", *command]
            # what the analyzer links to may travel beside it; the program's own libraries go first
            env["LD_LIBRARY_PATH"] = f"{os.environ.get('LD_LIBRARY_PATH', '')}:{BUILD / 'lib'}"
        elif not bare:
            env.update(LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DB=self.database)
        start = time.monotonic()
        done = subprocess.run([str(c) for c in command], env=environment(**env), cwd=folder, timeout=timeout, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.seconds = time.monotonic() - start
        self.stdout, self.stderr, self.code = done.stdout, done.stderr, done.returncode

    def reported(self):
        """The last line of stdout that is JSON: the program's own figures."""
        for line in reversed(self.stdout.splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError(f"{self.name} printed nothing (exit {self.code}): {self.stderr[-2000:]}")

    def sql(self, query, *arguments):
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as db:
            return db.execute(query, arguments).fetchall()

    def one(self, query, *arguments):
        return self.sql(query, *arguments)[0][0]

    def report(self, *options):
        # what the analyzer links to may travel beside it; no other program must see those
        env = environment(LD_LIBRARY_PATH=f"{os.environ.get('LD_LIBRARY_PATH', '')}:{BUILD / 'lib'}")
        done = subprocess.run([str(BUILD / "gpuspy"), "report", *options, str(self.database)], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self):
        return json.loads(self.report("--json"))

    # ------------------------------------------------------------ figures

    def peak(self, where):
        """Highest sum of live bytes over the rows of `allocations` that satisfy `where`."""
        live = peak = 0
        for change, in self.sql(
                "SELECT change FROM (SELECT alloc_ns AS at, 1 AS later, id, bytes AS change FROM allocations "
                f"WHERE {where} UNION ALL SELECT free_ns, 0, id, -bytes FROM allocations "
                f"WHERE {where} AND free_ns IS NOT NULL) ORDER BY at, later, id"):
            live += change
            peak = max(peak, live)
        return peak

    def live_at(self, time_ns, where="1"):
        return self.one("SELECT coalesce(sum(bytes), 0) FROM allocations WHERE alloc_ns <= ? "
                        f"AND (free_ns IS NULL OR free_ns > ?) AND {where}", time_ns, time_ns)

    def movements(self, device=0):
        """Between consecutive cudaMemGetInfo calls: the change of the device's used bytes, and of gpuspy's live
        bytes."""
        where = f"layer = 'device' AND space IN {OWN} AND device = {device}"
        samples = [(at, total - free, self.live_at(at, where)) for at, free, total in self.sql(
            "SELECT time_ns, free_bytes, total_bytes FROM sample WHERE device = ? AND source = 0 ORDER BY time_ns", device)]
        return [(b[1] - a[1], b[2] - a[2]) for a, b in zip(samples, samples[1:])]

    def lost(self):
        return self.one("SELECT lost_events FROM process")

    def tensor_mismatches(self):
        rows = self.sql("SELECT sum(events), sum(mismatches) FROM tensor_check WHERE layer = 1")
        return rows[0] if rows and rows[0][0] else (0, 0)
