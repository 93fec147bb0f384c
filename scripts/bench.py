#!/usr/bin/env python3
"""Measures gpuspy beside its peers, in one run on one machine, and prints ratios.

The contestants take turns, and a ratio is the median of the ratios of each round's two, so that a
machine whose speed drifts does not favour one of them. Absolute times are this machine's; the
ratios are what to compare. A peer that is not installed is left out and named.

The cost of an event is measured in bursts that the spool holds, so that it is the cost while the
drain keeps up; how much it keeps up with is a figure of its own.

  scripts/bench.py [--quick] [--json FILE]
"""
import argparse
import json
import multiprocessing
import os
import pickle
import platform
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
LIBRARY = BUILD / "libgpuspy.so"
TOOL = BUILD / "gpuspy"
BENCH = BUILD / "bench"
PYTHON = os.environ.get("PYTHON") or ("/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable)
HEAPTRACK = shutil.which("heaptrack")
ROWS = []  # (what, figure, unit, budget or "", holds or None)


def run(command, environment=None, check=True):
    done = subprocess.run([str(c) for c in command], env=dict(os.environ, **(environment or {})), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    if check and done.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def recorded(command, database, **environment):
    for old in Path(database).parent.glob(Path(database).stem + "*"):
        old.unlink()
    settings = {"LD_PRELOAD": str(LIBRARY), "GPUSPY_DB": str(database), "GPUSPY_QUIET": "1", **environment}
    return run(command, settings)


def under_heaptrack(command, folder):
    text = run([HEAPTRACK, "-o", folder / "heaptrack", *command])
    for old in folder.glob("heaptrack*"):
        old.unlink()
    return text


def last_numbers(text, count):
    """The program's own figures: the last line with just that many numbers."""
    for line in reversed(text.splitlines()):
        parts = line.split()
        try:
            numbers = [float(p) for p in parts]
        except ValueError:
            continue
        if len(numbers) == count:
            return numbers
    sys.exit(f"bench: no {count} figures in:\n{text}")


def turns(contestants, times):
    """name → list of results; each round runs every contestant once."""
    results = {name: [] for name in contestants}
    for _ in range(times):
        for name, contestant in contestants.items():
            results[name].append(contestant())
    return results


def median(values):
    return statistics.median(values)


def ratio(results, over, under, number=0):
    """The median over the rounds of one contestant's figure to another's."""
    return median([a[number] / b[number] for a, b in zip(results[over], results[under])])


def row(what, figure, unit, budget="", holds=None):
    ROWS.append((what, figure, unit, budget, holds))
    mark = {None: "", True: "  ok", False: "  OVER"}[holds]
    print(f"  {what:<66} {figure:>9} {unit:<10} {budget}{mark}", flush=True)


def call_cost(folder, times, pairs):
    print("\nA pair of cudaMalloc and cudaFree in C, over a CUDA that does nothing (the median pair)")
    program = BENCH / "bench_call"
    for depth in (5, 20, 50):
        command = [program, "cuda", depth, pairs]
        contestants = {
            "gpuspy": lambda: last_numbers(recorded(command, folder / "c.db"), 2),
            "none": lambda: last_numbers(recorded(command, folder / "n.db", GPUSPY_STACKS="none"), 2),
        }
        if HEAPTRACK:
            contestants["heaptrack"] = lambda: last_numbers(
                under_heaptrack([program, "malloc", depth, pairs], folder), 2)
        results = turns(contestants, times)
        pair = {name: median([r[0] for r in rows]) for name, rows in results.items()}
        row(f"depth {depth}: gpuspy", f"{pair['gpuspy']:.0f}", "ns")
        row(f"depth {depth}: gpuspy without stacks", f"{pair['none']:.0f}", "ns")
        if HEAPTRACK:
            row(f"depth {depth}: heaptrack (malloc and free)", f"{pair['heaptrack']:.0f}", "ns")
            # gpuspy takes a stack at the free as well, heaptrack does not: one event against one stack.
            share = ratio(results, "gpuspy", "heaptrack") / 2
            row(f"depth {depth}: an event of gpuspy / an allocation of heaptrack", f"{share:.2f}", "×",
                "≤ 0.50" if depth == 20 else "", share <= 0.5 if depth == 20 else None)


def instructions(folder):
    """Unlike time, the same on a busy machine. qemu counts a system call as one instruction."""
    print("\nInstructions of an event in the calling thread, in C, 20 frames down, above bare (under qemu-user)")
    for machine in ("x86_64", "aarch64"):
        here = machine == platform.machine()
        build, root = (BUILD, Path("/")) if here else (BUILD / f"wheel-{machine}", BUILD / f"wheel-{machine}/root")
        program, qemu = build / "bench/bench_call", shutil.which(f"qemu-{machine}")
        if not qemu or not program.exists():
            print(f"  left out: {machine}, without", "qemu-user" if not qemu else program)
            continue

        def executed(pairs, *settings):
            for old in folder.glob("i.*"):
                old.unlink()
            run([qemu, "-L", root, "-plugin", f"{BENCH / 'count_instructions.so'},out={folder / 'i.txt'}", *settings,
                 program, "cuda", 20, pairs])
            return int((folder / "i.txt").read_text())

        recorder = [f"LD_PRELOAD={build / 'libgpuspy.so'}", f"GPUSPY_DB={folder / 'i.db'}", "GPUSPY_QUIET=1"]
        recorder = [word for setting in recorder for word in ("-E", setting)]
        # two lengths, so that the start of the program and of the recording do not count
        more, bare = (executed(3000, *settings) - executed(1000, *settings) for settings in (recorder, []))
        each = (more - bare) / 4000
        row(f"{machine}: an event", f"{each:.0f}", "", "≤ 1000", each <= 1000)


def python_cost(folder, times, pairs):
    print("\nThe same from Python by ctypes, 20 frames down (an event, above bare)")
    command = [PYTHON, "tests/bench/bench_call.py", BENCH / "libcudart.so.13", 20, pairs]
    results = turns({
        "bare": lambda: last_numbers(run(command), 2),
        "both": lambda: last_numbers(recorded(command, folder / "p.db"), 2),
        "python": lambda: last_numbers(recorded(command, folder / "q.db", GPUSPY_STACKS="python"), 2),
    }, times)
    for name, label in (("both", "Python and native frames"), ("python", "Python frames only")):
        cost = median([(a[0] - b[0]) / 2 for a, b in zip(results[name], results["bare"])])
        row(label, f"{cost:.0f}", "ns", "≤ 300" if name == "both" else "", cost <= 300 if name == "both" else None)


def torch_cost(folder, times, steps):
    print("\nPyTorch's micro training loop, CPU tensors")
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("  left out: no PyTorch for", PYTHON)
        return
    script = [PYTHON, "fixtures/python/micro_torch.py", steps]
    database = folder / "torch.db"

    def timed(go):
        """The loop's own seconds, and those of the process as a whole: the drain's remainder at
        exit belongs to the price."""
        start = time.perf_counter()
        seconds = last_numbers(go(), 1)[0]
        return seconds, time.perf_counter() - start

    contestants = {
        "bare": lambda: timed(lambda: run(script)),
        "gpuspy": lambda: timed(lambda: recorded(script, database, GPUSPY_TORCH_CPU="1")),
        "reports": lambda: timed(lambda: run(script, {"LD_PRELOAD": str(BENCH / "torch_reports.so")})),
    }
    if HEAPTRACK:
        contestants["heaptrack"] = lambda: timed(lambda: under_heaptrack(script, folder))
    results = turns(contestants, times)
    with sqlite3.connect(database) as db:
        events = db.execute("select count(*) + count(life_ns) from allocation").fetchone()[0]
    work = median([r[0] for r in results["bare"]]) / events * 1e6
    row("bare: work an event", f"{work:.2f}", "µs", f"{events:,} events; the budget is for 2.75 µs")
    for number, label in ((0, "the loop"), (1, "the whole process with the drain")):
        share = ratio(results, "gpuspy", "bare", number)
        row(f"gpuspy / bare, {label}", f"{share:.2f}", "×", "≤ 1.15", share <= 1.15)
    cost = median([a[0] - b[0] for a, b in zip(results["gpuspy"], results["bare"])]) / events * 1e9
    row("gpuspy: an event", f"{cost:.0f}", "ns")
    row("of it PyTorch's reports alone / bare", f"{ratio(results, 'reports', 'bare'):.2f}", "×")
    if HEAPTRACK:
        row("heaptrack / bare", f"{ratio(results, 'heaptrack', 'bare'):.2f}", "×")
    short = [*script[:2], max(steps // 10, 1)]
    peers = {"bare": lambda: timed(lambda: run(short)),
             "profile_memory": lambda: timed(lambda: run([*short, "profiler"])),
             "with_stack": lambda: timed(lambda: run([*short, "profiler-stack"]))}
    results = turns(peers, max(times // 3, 1))
    for name in ("profile_memory", "with_stack"):
        row(f"torch.profiler / bare ({name})", f"{ratio(results, name, 'bare'):.2f}", "×")
    size = database.stat().st_size
    row("database", f"{size / events:.1f}", "B/event", "≤ 20", size / events <= 20)


def bounded_cost(folder, times, steps):
    """Long enough to reach the bound, where each removal rewrites old rows while new ones come."""
    print("\nThe same loop in a recording of bounded size (GPUSPY_KEEP=32MiB), five times as long")
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("  left out: no PyTorch for", PYTHON)
        return
    script, database = [PYTHON, "fixtures/python/micro_torch.py", 5 * steps], folder / "kept.db"
    settings = {"full": {}, "bounded": {"GPUSPY_KEEP": "32MiB"}}
    contestants = {"bare": lambda: last_numbers(run(script), 1)}
    for name, more in settings.items():
        contestants[name] = lambda more=more: last_numbers(recorded(script, database, GPUSPY_TORCH_CPU="1", **more), 1)
    results = turns(contestants, times)
    with sqlite3.connect(database) as db:  # the last one
        removed = db.execute("select total(count) from removed").fetchone()[0]
    row("full / bare", f"{ratio(results, 'full', 'bare'):.2f}", "×")
    share = ratio(results, "bounded", "bare")
    row("bounded / bare", f"{share:.2f}", "×", f"≤ 1.15; {removed:,.0f} rows became totals", share <= 1.15)


def report_speed(folder, lifetimes):
    print("\nA long run, faster than the drain, and its report")
    database = folder / "big.db"
    start = time.perf_counter()
    recorded([BENCH / "bench_call", "cuda", 20, lifetimes], database)
    events = 2 * lifetimes
    row("the drain keeps up with", f"{events / (time.perf_counter() - start) / 1e6:.1f}", "M events/s")
    size = database.stat().st_size
    row(f"database of {events:,} events", f"{size / events:.1f}", "B/event", "≤ 20", size / events <= 20)
    best, peak = None, 0
    for _ in range(3):
        start = time.perf_counter()
        child = subprocess.Popen([str(TOOL), "report", "--json", str(database)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"bench: report ended with {child.returncode}")
        seconds, peak = time.perf_counter() - start, usage.ru_maxrss
        best = seconds if best is None else min(best, seconds)
    speed = events / best / 1e6
    row("gpuspy report --json", f"{speed:.1f}", "M events/s", "≥ 5", speed >= 5)
    row("its memory", f"{peak / 1024:.0f}", "MiB")


def spent(command):
    """Seconds and MiB of a command that must succeed."""
    start = time.perf_counter()
    child = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} ended with {child.returncode}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def fastest(command, times):
    """Seconds and MiB of the run that was disturbed least."""
    return min(spent(command) for _ in range(times))


def whatif_speed(folder, tensors):
    """Tensors of many sizes with 500 live on average, made up: the replay of their requests and frees. The command
    replays them twice: under the recorded settings and under others."""
    print("\nA what-if of a long training")
    database = folder / "tensors.db"
    recorded([BENCH / "bench_call", "cuda", 20, 10_000], database)
    with sqlite3.connect(database) as db:
        db.execute("""WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT ?),
                             one AS (SELECT * FROM allocation_row ORDER BY id DESC LIMIT 1)
                      INSERT INTO allocation_row (id, kind, address, bytes, alloc_ns, life_ns, stream, alloc_stack_id, free_stack_id)
                      SELECT one.id + 1 + i, one.kind & ~3 | 1, (1 << 44) + (i % 4096 << 26), 512 * (1 + i * 7919 % 4000),
                             one.alloc_ns + 1000000 + i * 1000, 500 + i * 31 % 1000 * 1000, 0, one.alloc_stack_id, one.free_stack_id
                      FROM n, one""", (tensors,))
    db.close()
    seconds, memory = fastest([TOOL, "whatif", "--json", "--set", "max_split_size_mb:256", database], 3)
    speed = 2 * tensors / seconds / 1e6
    row(f"gpuspy whatif of {2 * tensors:,} tensor events", f"{speed:.1f}", "M events/s", "≥ 3", speed >= 3)
    row("its memory", f"{memory:.0f}", "MiB")


def reading(folder, events):
    print(f"\nReading {events:,} events of 256 call paths, 4,096 blocks live")
    read_by_all(folder, [BENCH / "bench_run", "cuda", events // 2], [BENCH / "bench_run", "malloc", events // 2])


def reading_torch(folder, steps):
    """heaptrack counts the loop's mallocs, which are more than its tensors."""
    print("\nReading PyTorch's micro training loop, CPU tensors")
    if subprocess.run([PYTHON, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode:
        print("  left out: no PyTorch for", PYTHON)
        return
    script = [PYTHON, "fixtures/python/micro_torch.py", steps]
    read_by_all(folder, script, script, {"export torch-snapshot"}, GPUSPY_TORCH_CPU="1")  # which has no CPU tensors


def read_by_all(folder, program, under_heaptrack, without=frozenset(), **environment):
    """A recording, read by every kind of view, beside heaptrack_print on its capture."""
    database = folder / "reading.db"
    recorded(program, database, **environment)
    with sqlite3.connect(database) as db:
        events = db.execute("select count(*) + count(life_ns) from allocation").fetchone()[0]
    views = {"report": ["report"], "report --html": ["report", "--html", folder / "reading.html"],
             "tree": ["tree"], "leaks": ["leaks"], "timeline": ["timeline"], "stats": ["stats"],
             "diff with itself": ["diff", database],
             "export chrome-trace": ["export", "--format", "chrome-trace", "-o", folder / "reading.out"],
             "export pprof": ["export", "--format", "pprof", "-o", folder / "reading.out"],
             "export torch-snapshot": ["export", "-o", folder / "reading.out"]}
    row("recorded", f"{events:,}", "events")
    times = 3 if events <= 10_000_000 else 1
    figures = {name: fastest([TOOL, *words, database], times) for name, words in views.items() if name not in without}
    for name, (seconds, memory) in figures.items():
        row(f"gpuspy {name}", f"{seconds:.2f}", "s", f"{events / seconds / 1e6:.1f} M events/s in {memory:.0f} MiB")
    size = (folder / "reading.html").stat().st_size / 1e6
    row("the page", f"{size:.1f}", "MB", "≤ 10" if events <= 10_000_000 else "",
        size <= 10 if events <= 10_000_000 else None)
    if HEAPTRACK:
        run([HEAPTRACK, "-o", folder / "reading-heaptrack", *under_heaptrack])
        capture = next(folder.glob("reading-heaptrack*"))
        seconds, memory = fastest(["heaptrack_print", capture], times)
        row("heaptrack_print", f"{seconds:.2f}", "s", f"in {memory:.0f} MiB")
        for name, budget in {"report": 1.0, "tree": 0.5, "leaks": 0.5, "timeline": 0.5, "stats": 0.5}.items():
            share = figures[name][0] / seconds
            row(f"gpuspy {name} / heaptrack_print", f"{share:.2f}", "×", f"≤ {budget}", share <= budget)
    for name, budget in {"report --html": 1.5, "diff with itself": 2.2}.items():
        share = figures[name][0] / figures["report"][0]
        row(f"gpuspy {name} / report", f"{share:.2f}", "×", f"≤ {budget}", share <= budget)
    row("the report's memory", f"{figures['report'][1]:.0f}", "MiB", "≤ 64", figures["report"][1] <= 64)
    for old in folder.glob("reading*"):
        old.unlink()


def write_snapshot(file, events, protocol):
    """As PyTorch pickles one: frames are shared, the list of them is each event's own; 600 call paths, 30 to 70 deep."""
    random.seed(1)
    frames = [{"name": f"at::native::function_{i}(c10::ArrayRef<long>)", "filename": f"/home/u/module_{i % 60}.py", "line": i}
              for i in range(3000)]
    paths = [random.choices(frames[k * 4:k * 4 + 90], k=random.randrange(30, 70)) for k in range(600)]
    base, size, live, trace = 1 << 44, 1 << 21, [], []

    def event(action, address, path):
        trace.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000 + 9 * len(trace),
                      "compile_context": "".join(["N", "/A"]), "user_metadata": "", "frames": list(path)})
    free = [base + k * size for k in range(4096)]
    while len(trace) < events:
        if live and (not free or random.random() < 0.5):
            address, path = live.pop(random.randrange(len(live)))
            event("free_requested", address, path)
            event("free_completed", address, path)
            free.append(address)
        else:
            live.append((free.pop(), random.choice(paths)))
            event("alloc", *live[-1])
    blocks = [{"address": a, "size": size, "requested_size": size, "state": "active_allocated", "frames": p} for a, p in sorted(live, key=lambda b: b[0])]
    total = len(blocks) * size
    segment = {"device": 0, "address": base, "total_size": 4096 * size, "allocated_size": total, "active_size": total, "stream": 0,
               "requested_size": total, "segment_type": "large", "segment_pool_id": (0, 0), "frames": [], "blocks": blocks}
    with open(file, "wb") as out:
        pickle.dump({"segments": [segment], "device_traces": [trace], "allocator_settings": {}}, out, protocol)


def importing(folder, events):
    """A snapshot of PyTorch's, imported, beside Python's own reading of it."""
    print(f"\nA snapshot of {events:,} events")
    file, database = folder / "snapshot.pickle", folder / "snapshot.db"
    load = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    for protocol in 2, 4:
        writer = multiprocessing.Process(target=write_snapshot, args=(file, events, protocol))
        writer.start()  # what it takes must not count as that of the programs measured
        writer.join()
        seconds, memory = spent([TOOL, "import", file, "-o", database])
        python_seconds, python_memory = spent([PYTHON, "-c", load, file])
        size = file.stat().st_size / (1 << 20)
        row(f"gpuspy import, protocol {protocol}", f"{seconds:.2f}", "s", f"{size:.0f} MiB; in {memory:.0f} MiB")
        row(f"pickle.load / gpuspy import, protocol {protocol}", f"{python_seconds / seconds:.2f}", "×", "≥ 3", python_seconds >= 3 * seconds)
        row("the import's memory / pickle.load's", f"{memory / python_memory:.2f}", "×", "≤ 0.5", memory <= python_memory / 2)
        file.unlink()
        database.unlink()


def watching(folder, seconds):
    """What `gpuspy top` takes of a core while it looks once a second at a run of 256 call paths that goes on."""
    print("\nWatching a run that goes on")
    database = folder / "watch.db"
    settings = {"LD_PRELOAD": str(LIBRARY), "GPUSPY_DB": str(database), "GPUSPY_QUIET": "1"}
    watched = subprocess.Popen([str(BENCH / "bench_run"), "cuda", "2000000000", "20000"], env=dict(os.environ, **settings))
    while not database.exists() and watched.poll() is None:
        time.sleep(0.1)
    time.sleep(1)
    top = subprocess.Popen([str(TOOL), "top", "--json", "--interval", "1", "--count", str(seconds), str(database)],
                           stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(top.pid, 0)
    top.returncode = os.waitstatus_to_exitcode(status)
    watched.kill()
    watched.wait()
    if top.returncode:
        sys.exit(f"bench: top ended with {top.returncode}")
    share = (usage.ru_utime + usage.ru_stime) / seconds
    row("gpuspy top, 20,000 pairs a second", f"{share * 100:.1f}", "% of a core", "≤ 2", share <= 0.02)
    for old in folder.glob("watch*"):
        old.unlink()


def drain_seconds(pid):
    """CPU time of its thread that writes the database, to the nanosecond: the ticks of `stat` are samples, and a thread
    that timers wake runs more often than others when a tick comes."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text() == "gpuspy-drain\n":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    sys.exit("bench: the program has no drain")


def draining(folder, seconds):
    """What the drain takes of a core, in full and in a recording that is at its bound, where old rows go as new ones come."""
    print("\nThe drain at 50,000 events a second")
    for label, settings, start in (("in full", {}, 2), ("at its bound (GPUSPY_KEEP=32MiB)", {"GPUSPY_KEEP": "32MiB"}, 30)):
        database = folder / "drain.db"
        program = subprocess.Popen([str(BENCH / "bench_run"), "cuda", "2000000000", "25000"], stdout=subprocess.DEVNULL,
                                   env=dict(os.environ, LD_PRELOAD=str(LIBRARY), GPUSPY_DB=str(database), GPUSPY_QUIET="1", **settings))
        time.sleep(start)
        before, begun = drain_seconds(program.pid), time.perf_counter()
        time.sleep(seconds)
        share = (drain_seconds(program.pid) - before) / (time.perf_counter() - begun)
        program.kill()
        program.wait()
        row(label, f"{share * 100:.1f}", "% of a core", "≤ 3", share <= 0.03)
        for old in folder.glob("drain*"):
            old.unlink()


def disk_writer(folder):
    """Another process that writes to the same disk and waits for it, again and again."""
    script = ("import os, sys\nfile = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)\nblock = os.urandom(1 << 20)\n"
              "while True:\n    os.lseek(file, 0, 0)\n    for _ in range(64): os.write(file, block)\n    os.fsync(file)\n")
    return subprocess.Popen([PYTHON, "-c", script, str(folder / "written")])


def tail_of_calls(calls, times):
    print(f"\nThe tail of {calls:,} calls, 20 frames deep, while another process writes to the disk and syncs it")
    command = [BENCH / "bench_tail", 20, calls]
    places = {"this disk": Path(tempfile.mkdtemp(prefix="gpuspy-tail-", dir=BUILD))}
    if os.access("/dev/shm", os.W_OK):
        places["a tmpfs"] = Path(tempfile.mkdtemp(prefix="gpuspy-tail-", dir="/dev/shm"))
    try:
        for name, folder in places.items():
            kind = subprocess.run(["stat", "-f", "-c", "%T", folder], text=True, stdout=subprocess.PIPE).stdout.strip()
            writer = disk_writer(folder if name == "this disk" else places["this disk"])
            results = turns({"bare": lambda: last_numbers(run(command), 4),
                             "gpuspy": lambda: last_numbers(recorded(command, folder / "t.db"), 4)}, times)
            writer.kill()
            writer.wait()
            for who, where in (("bare", ""), ("gpuspy", f", recording on {name} ({kind})")):
                p50, p99, p999, most = (median([r[n] for r in results[who]]) for n in range(4))
                within = None if who == "bare" else p999 <= 20000
                row(f"{who}{where}: p99.9", f"{p999 / 1000:.2f}", "µs", "" if within is None else "≤ 20", within)
                row("  of it p50, p99, maximum", f"{p50 / 1000:.2f}", "µs", f"{p99 / 1000:.2f} µs, {most / 1000:,.0f} µs")
    finally:
        for folder in places.values():
            shutil.rmtree(folder, ignore_errors=True)


def target_memory(folder, pairs):
    print("\nMemory in the target")
    def peak(environment):
        child = subprocess.Popen([str(BENCH / "bench_call"), "cuda", "20", str(pairs)], stdout=subprocess.DEVNULL,
                                 env=dict(os.environ, **environment))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        return usage.ru_maxrss / 1024
    for old in folder.glob("m*"):
        old.unlink()
    more = peak({"LD_PRELOAD": str(LIBRARY), "GPUSPY_DB": str(folder / "m.db"), "GPUSPY_QUIET": "1"}) - peak({})
    row(f"resident above bare, {2 * pairs:,} events", f"{more:.0f}", "MiB", "≤ 64", more <= 64)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions: does it run, not how fast")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    options = parser.parse_args()
    times = 1 if options.quick else 7
    scale = 10 if options.quick else 1
    if not HEAPTRACK:
        print("left out: heaptrack is not installed")
    with tempfile.TemporaryDirectory(prefix="gpuspy-bench-") as name:
        folder = Path(name)
        call_cost(folder, times, 200_000 // scale)
        instructions(folder)
        python_cost(folder, times, 200_000 // scale)
        torch_cost(folder, times, 400 // scale)
        bounded_cost(folder, max(times // 2, 1), 400 // scale)
        tail_of_calls(10_000_000 // scale, 1 if options.quick else 3)
        target_memory(folder, 3_000_000 // scale)
        report_speed(folder, 3_000_000 // scale)
        whatif_speed(folder, 2_000_000 // scale)
        watching(folder, 5 if options.quick else 20)
        draining(folder, 5 if options.quick else 30)
        importing(folder, 1_000_000 // scale)
        for events in (1_000_000, 10_000_000, 50_000_000):
            reading(folder, events // scale)
        reading_torch(folder, 7000 // scale)
    over = [what for what, *_, holds in ROWS if holds is False]
    print(f"\n{len(over)} over budget" + (": " + "; ".join(over) if over else ""))
    if options.json:
        Path(options.json).write_text(json.dumps([dict(zip(("what", "figure", "unit", "budget", "holds"), r)) for r in ROWS], indent=1))


if __name__ == "__main__":
    main()
