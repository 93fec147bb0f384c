"""The acceptance run on a machine with a GPU: real driver, real runtimes, real frameworks. Each check records a
program and holds gpuspy's figures against what CUDA, or the framework, says of itself.

  acceptance.py OUT [--only NAME,…] [--simulated]

Writes OUT/results.json and OUT/results.md. Exits 1 where a check failed or none could be run; what could not be run is
skipped, with the reason. --simulated: only what needs no GPU, against the simulated CUDA on LD_LIBRARY_PATH (a rehearsal)."""
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback
from pathlib import Path

from recorded import BUILD, DEVICE, OWN, ROOT, TENSOR, Recorded, environment

HERE = Path(__file__).resolve().parent
MIB = 1 << 20
CHECKS = []


class Skip(Exception):
    pass


def check(needs_gpu=True):
    def keep(function):
        CHECKS.append((function.__name__, function, needs_gpu))
        return function
    return keep


class Run:
    def __init__(self, out, simulated):
        self.out, self.simulated = out, simulated
        self.python = sys.executable
        self.found = {}

    def nvcc(self):
        found = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
        if not Path(found).exists():
            raise Skip("no nvcc")
        driver, release = ctypes.c_int(), re.search(r"release (\d+)\.\d+", subprocess.check_output([found, "--version"], text=True))
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(driver))
        if release and driver.value // 1000 < int(release[1]):
            raise Skip(f"the driver is for CUDA {driver.value // 1000}.{driver.value % 1000 // 10}; programs of nvcc {release[0]} need a newer one")
        return found

    def build(self, name, *flags):
        program = self.out / name
        libraries = [f"-L{BUILD / 'sim'}"] if self.simulated else ["-L/usr/local/cuda/lib64/stubs"]
        done = subprocess.run([self.nvcc(), "-o", program, HERE / "workload.cu", *flags, *libraries], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout[-2000:]
        return program

    def record(self, name, *command, **more):
        if self.simulated:
            more["WORKLOAD_SIMULATED"] = 1
        return Recorded(self.out, name, command, **more)

    def package(self, name, *more):
        """A package's version; finding it needs an import, so each is looked up once."""
        if (name, more) not in self.found:
            code = "; ".join((f"import {name}", f"print({name}.__version__)", *more))
            self.found[name, more] = subprocess.run([self.python, "-c", code], text=True, stdout=subprocess.PIPE,
                                                    stderr=subprocess.PIPE, env=environment())
        done = self.found[name, more]
        if done.returncode != 0:
            raise Skip(f"no {name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
        return done.stdout.strip()

    def needs_torch(self):
        """Needs a PyTorch that sees a GPU, which may be the simulated one."""
        if not self.package("torch", "print(torch.cuda.is_available())").endswith("\nTrue"):
            raise Skip("this PyTorch sees no GPU")

    def torch(self, name, *words, **more):
        self.needs_torch()
        done = self.record(name, self.python, HERE / "torch_train.py", *words, **more)
        assert done.code == 0, done.stderr[-3000:]
        return done


def nothing_lost(done):
    assert done.lost() == 0, f"{done.lost()} events lost"


# ------------------------------------------------------------------ CUDA programs

def workload(run, name, *flags):
    """Changes of the device's total, compared with those in cudaMemGetInfo, and the number of calls of every kind."""
    done = run.record(name, run.build(name, *flags))
    assert done.code == 0, done.stderr
    nothing_lost(done)
    reported, figures = done.reported(), {}
    rows = {
        "alloc": done.one("SELECT count(*) FROM allocations"),
        "copy": done.one("SELECT count(*) FROM copy"),
        "set": done.one("SELECT count(*) FROM memset"),
        "sync": done.one("SELECT count(*) FROM syncs WHERE kind <> 'implicit'"),
        "sample": done.one("SELECT count(*) FROM sample WHERE source = 0"),
        "launch": done.one("SELECT coalesce(sum(count), 0) FROM calls WHERE api LIKE '%LaunchKernel%'"),
    }
    for kind, count in reported.items():
        assert rows[kind] == count, f"{kind}: {rows[kind]} rows, {count} calls made"
    assert done.one("SELECT count(*) FROM allocation WHERE free_ns IS NULL") == 0, "what was freed is not live"
    assert done.one("SELECT count(*) FROM oom") == 2, "two refused allocations"
    moved = done.movements()
    moved = moved[len(moved) // 2 + 1:]  # the second round
    equal = [a == b for a, b in moved if b]
    figures.update(rows, movements=len(moved), unequal=len(equal) - sum(equal), drivers_own=[a for a, b in moved if not b])
    assert figures["unequal"] == 0, f"device and gpuspy moved by different amounts: {moved}"
    # After the program has freed everything, the driver's own memory may have changed: for streams and graphs by 2 to 4
    # MiB on an H200.
    assert all(abs(a) <= 8 * MIB for a in figures["drivers_own"]), moved
    return figures


@check(needs_gpu=False)
def cuda_shared_runtime(run):
    return workload(run, "workload_shared", "-cudart", "shared")


@check(needs_gpu=False)
def cuda_static_runtime(run):
    figures = workload(run, "workload_static", "-cudart", "static")
    return figures


@check(needs_gpu=False)
def cuda_driver_and_vmm(run):
    return workload(run, "workload_driver", "-DDRIVER", "-cudart", "shared", "-lcuda")


@check(needs_gpu=False)
def same_table_by_every_door(run):
    """Shared and static runtime give the same allocations."""
    tables = []
    for name in ("workload_shared", "workload_static"):
        if not (run.out / f"{name}.db").exists():
            raise Skip(f"{name} did not run")
        kept = Recorded.__new__(Recorded)
        kept.name, kept.database = name, run.out / f"{name}.db"
        tables.append(kept.sql("SELECT bytes, space, free_ns IS NOT NULL FROM allocations ORDER BY id"))
    assert tables[0] == tables[1], "the tables differ"
    return {"rows": len(tables[0])}


@check(needs_gpu=False)
def killed_at_random(run):
    """kill -9 in the middle: the report is complete and nothing is counted as lost."""
    program = run.build("workload_killed", "-cudart", "shared")
    seen = []
    for round_ in range(8):
        database = run.out / f"killed{round_}.db"
        database.unlink(missing_ok=True)
        child = subprocess.Popen([program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=run.out,
                                 env=environment(LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DB=database,
                                                 WORKLOAD_SIMULATED=1))
        deadline = time.monotonic() + 30
        while not database.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.03 * round_)  # CUDA starts in 140 ms on an H200, and the program allocates for the next 50
        child.send_signal(signal.SIGKILL)
        child.wait()
        if not database.exists():
            continue
        kept = Recorded.__new__(Recorded)
        kept.name, kept.database = f"killed{round_}", database
        answer = kept.json()
        assert answer["run"]["lost_events"] == 0
        seen.append(kept.one("SELECT count(*) FROM allocation"))
    assert any(seen), f"killed before it allocated, or after its end: {seen}"
    return {"rounds": len(seen), "rows": seen}


# ------------------------------------------------------------------ PyTorch

SEGMENTS = "layer = 'device' AND api LIKE 'cudaMalloc%' AND space = 'device'"


def torch_figures(done, segments=SEGMENTS, exact_segments=True):
    nothing_lost(done)
    reported = done.reported()
    figures = dict(reported)
    figures["gpuspy_tensor_peak"] = done.peak("layer = 'tensor' AND device = 0")
    figures["gpuspy_segment_peak"] = done.peak(segments)
    figures["tensor_events"], figures["tensor_mismatches"] = done.tensor_mismatches()
    figures["seconds"] = round(done.seconds, 2)
    assert figures["tensor_mismatches"] == 0, f"gpuspy's total differs from PyTorch's {figures['tensor_mismatches']} times"
    assert figures["tensor_events"] > 0, "PyTorch reported nothing"
    assert figures["gpuspy_tensor_peak"] == reported["max_memory_allocated"], \
        f"tensor peak {figures['gpuspy_tensor_peak']}, PyTorch says {reported['max_memory_allocated']}"
    if exact_segments:
        assert figures["gpuspy_segment_peak"] == reported["max_memory_reserved"], \
            f"segment peak {figures['gpuspy_segment_peak']}, PyTorch says {reported['max_memory_reserved']}"
    return figures


@check(needs_gpu=False)
def torch_plain(run):
    return torch_figures(run.torch("torch_plain"))


@check(needs_gpu=False)
def torch_amp(run):
    return torch_figures(run.torch("torch_amp", "amp"))


@check(needs_gpu=False)
def torch_checkpointing(run):
    return torch_figures(run.torch("torch_checkpoint", "checkpoint"))


@check(needs_gpu=False)
def torch_loader_with_pinned_memory(run):
    done = run.torch("torch_loader", "loader")
    figures = torch_figures(done)
    figures["pinned_peak"] = done.peak("space = 'pinned'")
    assert figures["pinned_peak"] > 0, "no pinned memory seen"
    return figures


@check(needs_gpu=False)
def torch_expandable_segments(run):
    return torch_figures(run.torch("torch_expandable", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
                         segments="layer = 'device' AND space = 'vmm' AND device = 0")


@check(needs_gpu=False)
def torch_async_backend(run):
    done = run.torch("torch_async", PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
    nothing_lost(done)
    figures = dict(done.reported(), gpuspy_pool_peak=done.peak("space = 'pool'"))
    assert figures["backend"] == "cudaMallocAsync" and figures["gpuspy_pool_peak"] > 0
    figures["difference"] = figures["gpuspy_pool_peak"] - figures["max_memory_allocated"]
    return figures


@check(needs_gpu=False)
def torch_graph_pools(run):
    done = run.torch("torch_graph", "graph")
    figures = torch_figures(done, exact_segments=False)
    figures["graph_launches"] = done.one("SELECT coalesce(sum(count), 0) FROM calls WHERE api LIKE '%GraphLaunch%'")
    assert figures["graph_launches"] == 10, figures["graph_launches"]
    return figures


@check(needs_gpu=False)
def torch_item_is_the_line_that_waits(run):
    done = run.torch("torch_item", "item")
    text = (HERE / "torch_train.py").read_text().splitlines()
    line = next(i for i, t in enumerate(text, 1) if "the line that waits" in t)
    sites = done.json()["sync"]
    found = [s for s in sites if s["site"]["file"] and s["site"]["file"].endswith("torch_train.py") and s["site"]["line"] == line]
    assert found, f"line {line} is not among {[(s['site']['file'], s['site']['line']) for s in sites]}"
    return {"count": found[0]["count"], "blocked_s": found[0]["blocked_s"], "share": found[0]["share"]}


@check(needs_gpu=False)
def torch_out_of_memory(run):
    run.needs_torch()
    done = run.record("torch_oom", run.python, HERE / "torch_train.py", "oom")
    assert done.code == 1 and "OutOfMemoryError" in done.stderr, done.stderr[-2000:]
    ooms = [o for o in done.json()["oom"] if o["fatal"]]
    assert ooms, "no fatal OOM reported"
    text = (HERE / "torch_train.py").read_text().splitlines()
    line = next(i for i, t in enumerate(text, 1) if "the line that fails" in t)
    lines = [f["line"] for f in ooms[-1]["stack"] if f.get("file", "") and f["file"].endswith("torch_train.py")]
    assert line in lines, f"line {line} is not in the OOM's stack {lines}"
    return {"cause": ooms[-1]["cause"], "requested_bytes": ooms[-1]["requested_bytes"],
            "free_bytes": ooms[-1]["free_bytes"], "total_bytes": ooms[-1]["total_bytes"]}


@check(needs_gpu=False)
def torch_leak_and_its_line(run):
    done = run.torch("torch_leak", "leak")
    growth = done.json()["growth"]
    lines = [i for i, text in enumerate((HERE / "torch_train.py").read_text().splitlines(), 1) if "kept.append" in text]
    assert growth and growth[0]["site"]["line"] in lines, f"lines {lines} leak, the report says {growth[:1]}"
    return {"line": growth[0]["site"]["line"], "bytes_per_step": growth[0]["bytes_per_step"], "steps": growth[0]["steps"]}


@check(needs_gpu=False)
def torch_simulated_beside_real(run):
    """Each script's peaks on this device and in a dry run on a simulated one: how accurate a dry run is."""
    run.needs_torch()
    if not (BUILD / "sim" / "libsimcuda-redirect.so").exists():
        raise Skip("the simulated CUDA is not here")
    conf, figures = "PYTORCH_CUDA_ALLOC_CONF", {}
    scripts = {how: ([HERE / "torch_train.py", how], {}) for how in ("plain", "amp", "checkpoint", "loader", "graph")}
    scripts["expandable"] = ([HERE / "torch_train.py", "plain"], {conf: "expandable_segments:True"})
    if run.simulated:  # the simulated GPU used here has the same model, on which the size of PyTorch's workspaces depends
        alike = {"SIMCUDA_CAPABILITY": "9.0", "SIMCUDA_SMS": "132"}
        scripts = {"expandable": (scripts["expandable"][0], {**scripts["expandable"][1], **alike})}
    for name, (command, env) in scripts.items():
        reported = []
        for simulate in (None, "h200-141g"):
            done = Recorded(run.out, f"beside_{name}_{'simulated' if simulate else 'real'}", [run.python, *command],
                            simulate=simulate, **env)
            assert done.code == 0, done.stderr[-2000:]
            reported.append(done.reported())
        real, simulated = reported
        figures[name] = {what: {"real": real[f"max_memory_{what}"], "simulated": simulated[f"max_memory_{what}"],
                                "error": round(simulated[f"max_memory_{what}"] / real[f"max_memory_{what}"] - 1, 5)}
                         for what in ("allocated", "reserved")}
    worst = max(abs(f["allocated"]["error"]) for f in figures.values())
    assert worst <= 0.05, f"a dry run's peak is off by {100 * worst:.1f} %: {figures}"
    return figures


@check()
def torch_overhead(run):
    """The time of a training run with and without recording, three times each, alternating."""
    run.needs_torch()
    times = {"bare": [], "recorded": []}
    for round_ in range(3):
        for how in times:
            done = run.record(f"overhead_{how}{round_}", run.python, HERE / "torch_train.py", "amp", bare=how == "bare")
            assert done.code == 0, done.stderr[-2000:]
            times[how].append(done.seconds)
    return {**{k: [round(s, 2) for s in v] for k, v in times.items()},
            "ratio": round(statistics.median(times["recorded"]) / statistics.median(times["bare"]), 3)}


# ------------------------------------------------------------------ others

def other(run, name, **more):
    run.package(name)
    command = run.python, HERE / "others.py", name
    done = run.record(name, *command, **more)
    if done.code and run.record(name, *command, bare=True, **more).code:
        raise Skip(f"{name} fails without gpuspy, too: {done.stderr.strip().splitlines()[-2]}")
    assert done.code == 0, done.stderr[-3000:]
    nothing_lost(done)
    return done


@check()
def jax_with_preallocation(run):
    done = other(run, "jax")
    figures = dict(done.reported(), device_peak=done.peak(f"layer = 'device' AND space IN {OWN}"))
    assert figures["device_peak"] > 0, "no allocation seen"
    return figures


@check()
def cupy_pool(run):
    done = other(run, "cupy")
    reported = done.reported()
    live = done.one("SELECT time_ns FROM sample WHERE source = 0 ORDER BY time_ns DESC LIMIT 1")
    # every segment of the pool is a CUDA allocation: the pool's total is what was live when it was queried
    at_end = done.live_at(live, "layer = 'device' AND space = 'device'")
    assert at_end == reported["total_bytes"], f"gpuspy {at_end}, CuPy says {reported['total_bytes']}"
    return dict(reported, gpuspy=at_end)


@check()
def triton_launches(run):
    done = other(run, "triton")
    reported = done.reported()
    launches = done.one("SELECT coalesce(sum(count), 0) FROM calls WHERE api LIKE 'cuLaunchKernel%'")
    assert launches >= reported["launches"], f"{launches} driver launches seen, {reported['launches']} made by Triton"
    return dict(reported, seen=launches)


@check()
def numba_memory(run):
    done = other(run, "numba")
    return dict(done.reported(), device_peak=done.peak(f"layer = 'device' AND space IN {OWN}"))


@check(needs_gpu=False)
def two_ranks_one_run(run):
    run.needs_torch()
    folder = run.out / "ranks"
    done = Recorded(folder, "ranks", [run.python, HERE / "ranks.py"])
    assert done.code == 0, done.stderr[-3000:]
    reported = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    answer = done.json()
    ranks = {p.get("rank") for p in answer["run"]["processes"]}
    assert {0, 1} <= ranks, f"ranks {ranks}"
    return {"ranks": sorted(r for r in ranks if r is not None), "said": reported,
            "peaks": [p["bytes"] for p in answer["peak"]]}


@check(needs_gpu=False)
def nvml_agrees(run):
    """NVML's figure for this process minus gpuspy's live bytes: the rest is the context."""
    path = run.out / "torch_plain.db"
    if not path.exists():
        raise Skip("torch_plain did not run")
    kept = Recorded.__new__(Recorded)
    kept.name, kept.database = "torch_plain", path
    rows = kept.sql("SELECT time_ns, own_bytes FROM sample WHERE source = 2 AND own_bytes IS NOT NULL ORDER BY time_ns")
    if not rows:
        raise Skip("NVML does not distinguish processes here (containers often hide them)")
    rest = [own - kept.live_at(at, f"layer = 'device' AND space IN {OWN}") for at, own in rows]
    return {"samples": len(rows), "context_bytes": [min(rest), max(rest)]}


# ------------------------------------------------------------------ the run itself

def machine():
    facts = {"date": time.strftime("%Y-%m-%d"), "system": platform.platform(), "python": platform.python_version()}
    try:
        facts["gpu"] = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                                      text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()
    except OSError:
        facts["gpu"] = ""
    for package in ("torch", "jax", "cupy", "triton", "numba"):
        try:
            from importlib import metadata
            facts[package] = metadata.version({"cupy": "cupy-cuda13x"}.get(package, package))
        except Exception:
            facts[package] = None
    return facts


def why_no_gpu():
    """None if there is one."""
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError as error:
        return f"no GPU here: {error}"
    return f"no GPU here: cuInit gave {code}" if code else None


def short(figures):
    text = json.dumps(figures)
    return text if len(text) < 1500 else text[:1497] + "..."


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    simulated = "--simulated" in sys.argv
    only = [w.split("=", 1)[1].split(",") for w in sys.argv if w.startswith("--only=")]
    run = Run(Path(words[0]).resolve(), simulated)
    run.out.mkdir(parents=True, exist_ok=True)
    facts, results, without = machine(), [], why_no_gpu()
    for name, function, needs_gpu in CHECKS:
        if only and name not in only[0]:
            continue
        start = time.monotonic()
        try:
            if without or (simulated and needs_gpu):
                raise Skip(without or "needs a GPU")
            outcome, figures = "passed", function(run) or {}
        except Skip as reason:
            outcome, figures = "skipped", {"reason": str(reason)}
        except Exception as error:  # a check that crashes must not end the others
            outcome = "failed"
            figures = {"error": str(error)[-1500:] or type(error).__name__}
            if not isinstance(error, AssertionError):
                figures["where"] = traceback.format_exc()[-1500:]
        results.append({"check": name, "outcome": outcome, "seconds": round(time.monotonic() - start, 1), **figures})
        print(f"{outcome:8} {name} ({results[-1]['seconds']} s) {short(figures)}", flush=True)
        (run.out / "results.json").write_text(json.dumps({"machine": facts, "results": results}, indent=1) + "\n")
    lines = [f"# {facts['date']}: {facts['gpu'] or 'no GPU: the simulated CUDA'}", "",
             *(f"- {k}: {v}" for k, v in facts.items() if v and k not in ("date", "gpu")), "", "| check | outcome | figures |",
             "|---|---|---|"]
    lines += [f"| {r['check']} | {r['outcome']} | " + short({k: v for k, v in r.items() if k not in ("check", "outcome")})
              .replace("|", "\\|") + " |" for r in results]
    (run.out / "results.md").write_text("\n".join(lines) + "\n")
    count = {o: sum(r["outcome"] == o for r in results) for o in ("passed", "failed", "skipped")}
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] else 0


sys.exit(main())
