"""What-ifs of programs recorded with default settings, compared with runs recorded with those settings and with
what-ifs of the snapshot that PyTorch itself took of the same run. WHATIF_ALL=1 runs every setting on every size for
each."""
import json
import os
import re
import shutil
import sqlite3
import subprocess
import zlib

import pytest
from conftest import BUILD, HERE, REAL, limit_of

SCRIPT = HERE / "allocations.py"
PROGRAMS = re.findall(r"^def (\w+)\(\):", SCRIPT.read_text(), re.M)
PROGRAMS.remove("switched")  # it replaces all settings
PROGRAMS.remove("renewed_pools")  # whether a request that fails was made in a MemPool is unknown
PROGRAMS.remove("captured_twice")
PROGRAMS.remove("cleared_first")  # for steps only
UNSEEN = ("emptied_in_use", "captured_by_hand", "rejected")
PROGRAMS = [name for name in PROGRAMS if name not in UNSEEN]
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:21", "max_split_size_mb:64,roundup_power2_divisions:8",
            "roundup_power2_divisions:4", "roundup_power2_divisions:[1:2,4:8,>:4]", "garbage_collection_threshold:0.6",
            "expandable_segments:True,roundup_power2_divisions:8"]
MIB, LARGE, CONTEXT, SEGMENT = 1 << 20, 8 << 30, 100 << 20, 20 << 20
CASES = [(setting, (row + column) % 3, program) for row, setting in enumerate(SETTINGS) for column, program in enumerate(PROGRAMS)
         if os.environ.get("WHATIF_ALL") or column % len(SETTINGS) == row]
CASES += [("", 1, "switched"), *(("expandable_segments:True", size, program) for size, program in ((0, "graphs"), (0, "pools"), (1, "recorded_streams"), (2, "two_devices")))]
if os.environ.get("WHATIF_ALL"):
    CASES = [(setting, size, program) for setting, _, program in CASES for size in range(3)]
CASES += [("expandable_segments:True", size, "pool_beside_cache") for size in (1, 2)]
CASES += [(setting, 0, "renewed_pools") for setting in SETTINGS[:2]]
CASES += [(setting, 0, "captured_twice") for setting in ("expandable_segments:True", "roundup_power2_divisions:[16:2,64:8,>:4]", "max_split_size_mb:21")]
CASES += [(setting, size, "emptied_in_use") for setting, size in ((SETTINGS[4], 0), ("max_split_size_mb:24", 2))]
CASES += [(setting, size, "captured_by_hand") for setting, size in ((SETTINGS[4], 1), ("max_split_size_mb:24", 0))]
CASES += [(SETTINGS[size and 7 or 1], size, "rejected") for size in (0, 1, 2)]


def asked(file, *words):
    done = subprocess.run([BUILD / "gpuspy", "whatif", "--json", *words, file], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


def run_of(once, program, setting="", size=LARGE, **more):
    return once(f"allocations {program} {setting} {size} {more}", SCRIPT, program, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY=size,
                SIMCUDA_DEVICES=2 if program == "two_devices" else 1, PYTORCH_CUDA_ALLOC_CONF=setting, **more)


def size_of(recorded, which):
    """More than enough; less than the program reserves; less than it allocates."""
    allocated, reserved = recorded["peak_allocated_bytes"], recorded["peak_reserved_bytes"]
    return (LARGE, (CONTEXT + (allocated + reserved) // 2) >> 21 << 21, (CONTEXT + allocated * 9 // 10) >> 21 << 21)[which]


def failed_at(answer):
    return answer["oom"] and ((answer["oom"]["site"] or {}).get("line"), answer["oom"]["requested_bytes"])


@pytest.mark.parametrize("setting, which, program", CASES)
def test_a_what_if_is_what_happens(once, setting, which, program):
    first = run_of(once, program)
    assert first.code == 0, first.stderr[-2000:]
    recorded = asked(first.database, "--limit", "8GiB")["recorded"]
    size = size_of(recorded, which)
    last = run_of(once, program, setting, size)
    answer = asked(first.database, "--limit", limit_of(f"{size // MIB}MiB", "100MiB"), *(["--set", setting] if setting else []))
    ours = answer["whatif"][0]
    assert answer["replay"]["exact"], answer["replay"]
    if ours["oom"] and not ours["oom"]["event"]:  # it failed at the first request: such a recording has nothing to replay
        assert len(last.report()["oom"]) == 1 and not any(peak["bytes"] for peak in last.report()["peak"])
        return
    theirs = asked(last.database, "--limit", "8GiB")
    assert theirs["replay"]["exact"], theirs["replay"]  # also of the request that fails, on whichever stream
    real = theirs["recorded"]
    failures = [failed_at(x) if program != "caught" or not x["oom"] else x["oom"]["site"]["line"] for x in (ours, real)]
    assert ours["fits"] == real["fits"] and failures[0] == failures[1], (ours, real)  # `caught` requests the GPU's size
    if ours["exact"]:
        assert ours["peak_reserved_bytes"] == real["peak_reserved_bytes"], (ours, real)
    assert abs(ours["peak_reserved_bytes"] - real["peak_reserved_bytes"]) <= SEGMENT


def test_an_emptied_cache_that_an_older_recording_does_not_show_is_a_doubt(once, tmp_path):
    """It lacks the allocator's count, which grows although nothing is freed."""
    first = run_of(once, "emptied_in_use")
    words = ["--set", "roundup_power2_divisions:4"]
    older = tmp_path / "older.db"
    shutil.copy(first.database, older)
    with sqlite3.connect(older) as db:
        assert db.execute("DELETE FROM allocator_fact WHERE kind = 3").rowcount > 10
    db.close()
    new, old = (asked(file, *words)["whatif"][0] for file in (first.database, older))
    assert new["exact"] and not old["exact"] and "empty_cache" in old["doubts"][0], (new, old)
    assert new["peak_reserved_bytes"] != old["peak_reserved_bytes"]


@pytest.mark.parametrize("resets", [True, False])
def test_an_emptied_cache_that_a_reset_of_the_counts_hides_is_a_doubt(once, resets):
    reset = "torch.cuda.reset_accumulated_memory_stats()" if resets else ""
    code = ("import torch\nmib = lambda n: torch.empty(int(n * 2**20), dtype=torch.uint8, device='cuda')\nkept = []\nfor step in range(8):\n"
            "    a, b = mib(30 + step), mib(9.5)\n    del a\n    kept += [mib(14), b]\n    torch.cuda.empty_cache()\n    temporary = mib(15.5 + step)\n"
            f"    {reset}\n    torch.cuda.empty_cache()\n    del temporary\n    {reset}\nkept += [mib(41), mib(18)]\n")
    run = once(f"counts, {resets}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    ours = asked(run.database, "--set", "roundup_power2_divisions:4")["whatif"][0]
    assert ours["exact"] is not resets and ("empty_cache" in "".join(ours["doubts"])) is resets, ours


@pytest.mark.parametrize("lines, changed", [("TEMPORARY", {}), ("OUTPUTS", {"CLEAR": 1}), ("", {"EMPTY": 2}), ("OUTPUTS", {"CLEAR": 1, "EMPTY": 3}),
                                            ("KEPT", {"CLEAR": 1, "EMPTY": 2})])
@pytest.mark.parametrize("setting, which", [("", 1), ("expandable_segments:True", 0)])
def test_without_a_line_is_the_program_without_it(once, lines, changed, setting, which):
    program = "cleared_first" if lines == "KEPT" else "kept_outputs"
    first = run_of(once, program)
    size = size_of(asked(first.database, "--limit", "8GiB")["recorded"], which)
    last = run_of(once, program, setting, size, **changed)
    words = ["--limit", limit_of(f"{size // MIB}MiB", "100MiB"), *(["--set", setting] if setting else [])]
    if lines:
        number = next(n for n, text in enumerate(SCRIPT.read_text().splitlines(), 1) if f"--without {lines}" in text)
        words += ["--without", f"allocations.py:{number}"]
    if "EMPTY" in changed:
        words += ["--empty-cache-every", str(changed["EMPTY"])]
    ours, real = asked(first.database, *words)["whatif"][0], asked(last.database, "--limit", "8GiB")["recorded"]
    # outputs may hold tensors of other lines by their graph: gpuspy cannot tell that these ones do not
    doubts = [d for d in ours["doubts"] if lines != "OUTPUTS" or not d.startswith("Tensors of other lines outlive")]
    assert not doubts and ours["fits"] == real["fits"] and failed_at(ours) == failed_at(real), (ours, real)
    assert ours["exact"] is not bool(ours["doubts"])
    assert ours["peak_reserved_bytes"] == real["peak_reserved_bytes"] and ours["retries"] == real["retries"], (ours, real)


@pytest.mark.parametrize("program", ["varying", "streams", "emptying", "mixed", "large", "evaluation"])
def test_a_snapshot_of_pytorch_gives_the_same_answers(once, tmp_path_factory, program):
    snapshot = tmp_path_factory.getbasetemp() / f"{program}.pickle"
    run = once(f"snapshot {program}", SCRIPT, program, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY=LARGE, SNAPSHOT=snapshot)
    assert run.code == 0, run.stderr[-2000:]
    answer = asked(run.database, "--limit", "8GiB")
    small, version = size_of(answer["recorded"], 2), answer["replay"]["torch_version"]
    settings = [s for s in SETTINGS[1:] if ">" not in s or tuple(map(int, version.split(".")[:2])) >= (2, 9)]  # a snapshot does not contain it
    for words in *(["--set", setting] for setting in settings), *([] if REAL else [["--limit"]]):
        # A snapshot does not have the context.
        limits = [f"{small // MIB}MiB"], [f"{(small - CONTEXT) // MIB}MiB"]
        ours, theirs = (asked(file, *words, *(limit if words == ["--limit"] else []))
                        for file, limit in zip((run.database, snapshot), limits))
        assert ours["replay"]["exact"] and theirs["replay"]["exact"], (ours["replay"], theirs["replay"])
        peaks = [[x["recorded"][key] for key in ("peak_allocated_bytes", "peak_reserved_bytes")] for x in (ours, theirs)]
        assert peaks[0] == peaks[1]
        figures = [[x["whatif"][0][key] for key in ("fits", "peak_reserved_bytes", "segments", "retries")] for x in (ours, theirs)]
        assert figures[0] == figures[1], words
        failures = [failed_at(x["whatif"][0]) for x in (ours, theirs)]
        # The newest PyTorch records no frames on the threads of backward.
        assert not failures[0] or failures[1][0] in (failures[0][0], None), failures


def test_a_snapshot_states_requests_without_their_rounding(once, tmp_path_factory):
    """Its events have the request, in units of 512 bytes; only blocks that are there at the end have their own size."""
    snapshot = tmp_path_factory.getbasetemp() / "rounded.pickle"
    run = once("rounded snapshot", SCRIPT, "mixed", SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY=LARGE, SNAPSHOT=snapshot, PYTORCH_CUDA_ALLOC_CONF=SETTINGS[4])
    assert run.code == 0, run.stderr[-2000:]
    ours, theirs = (asked(file, "--limit", "8GiB")["recorded"] for file in (run.database, snapshot))
    assert ours["peak_allocated_bytes"] == theirs["peak_allocated_bytes"] and ours["peak_reserved_bytes"] == theirs["peak_reserved_bytes"], (ours, theirs)


ADAPTS = """import sys, torch
def mib(n): return torch.empty(int(n) << 20, dtype=torch.uint8, device="cuda")
kept = [mib(40)]
if sys.argv[1] == "handles":
    try:
        kept.append(mib(700))
    except torch.OutOfMemoryError:
        kept.append(mib(200))
if sys.argv[1] == "asks":
    kept.append(mib(torch.cuda.mem_get_info()[0] // 2 >> 20))
if sys.argv[1] == "caps":
    torch.cuda.set_per_process_memory_fraction(0.9)
kept += [mib(30 + k) for k in range(4)]
"""


@pytest.mark.parametrize("does, doubtful, sure, part", [
    ("handles", ("--limit", "2GiB"), ("--limit", "560MiB"), "handled the error"),
    ("asks", ("--limit", "2GiB"), ("--set", "max_split_size_mb:512"), "how much memory is free"),
    ("caps", ("--set", "per_process_memory_fraction:0.3"), ("--limit", "2GiB"), "set_per_process_memory_fraction"),
    ("", (), ("--limit", "2GiB"), "")])
def test_a_program_that_would_go_on_otherwise_makes_a_what_if_inexact(once, does, doubtful, sure, part):
    run = once(f"adapts {does}", "-c", ADAPTS, does, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="600MiB")
    assert run.code == 0, run.stderr[-2000:]
    answer = asked(run.database, *sure)
    assert answer["replay"]["exact"] and answer["whatif"][0]["exact"] and answer["whatif"][0]["doubts"] == [], answer
    if doubtful:
        other = asked(run.database, *doubtful)["whatif"][0]
        assert not other["exact"] and part in other["doubts"][0], other
        text = subprocess.run([BUILD / "gpuspy", "whatif", *doubtful, run.database], capture_output=True, text=True).stdout
        assert part in " ".join(text.split()) and (does != "handles" or "would do then is unknown" in " ".join(text.split()))


DECIDES = {  # what a program does, and the doubts of a what-if on a larger GPU under another setting; from shapes of public programs
    "batch by size": ("n = int(torch.cuda.get_device_properties(0).total_memory / 2**20 / 64)\nkept.append(mib(n))", "size of the GPU"),
    "props": ("props = torch.cuda.get_device_properties(0)\ngigabytes = props.total_memory / 1e9\nif gigabytes > 1:\n    kept.append(mib(9))", "size of the GPU"),
    "helper": ("def vram():\n    return torch.cuda.get_device_properties(0).total_memory / 2**30\nkept.append(mib(8 if vram() < 20 else 4))", "size of the GPU"),
    "attribute": ("class Plan:\n    def __init__(self):\n        self.room = torch.cuda.get_device_properties(0).total_memory\n    def batch(self):\n        return self.room // 2**27\nkept.append(mib(Plan().batch()))",
                  "size of the GPU"),
    "empties": ("if torch.cuda.memory_reserved() > 0.9 * 2**29:\n    torch.cuda.empty_cache()", "allocator reserves"),
    "statistics": ("stats = torch.cuda.memory_stats()\nunused = stats['reserved_bytes.all.current'] - stats['allocated_bytes.all.current']\nkept.append(mib(unused // 2**21 + 1))",
                   "allocator reserves"),
    "chunks": ("free = 2**29 - torch.cuda.memory_reserved()\nfor part in range(int(free // 2**28)):\n    kept.append(mib(3))", "allocator reserves"),
    "prints": ("print(f'{torch.cuda.get_device_properties(0).total_memory / 2**30:.1f} GB')", ""),
    "prints a name": ("total = torch.cuda.get_device_properties(0).total_memory\nprint('total', total / 2**30, round(total))", ""),
    "logs": ("import logging\ndef usage():\n    return {'reserved': torch.cuda.memory_reserved() / 2**20, 'peak': torch.cuda.max_memory_allocated()}\nlogging.info('memory %s', usage())", ""),
    "highest": ("highest = 0\nfor _ in range(3):\n    highest = max(highest, torch.cuda.memory_reserved())\nhistory = []\nhistory.append(highest)\nprint(history)", ""),
    "processors": ("blocks = torch.cuda.get_device_properties(0).multi_processor_count * 2\nkept.append(mib(blocks % 2 + 5))", ""),
    "waits": ("while torch.cuda.memory_reserved() + 300 * 2**20 > 2**29:\n    kept.pop()\nkept.append(mib(4))", "allocator reserves"),
    "global": ("def prepare():\n    global batch\n    batch = torch.cuda.get_device_properties(0).total_memory // 2**27\ndef work():\n    kept.append(mib(batch))\nprepare()\nwork()",
               "size of the GPU"),
    "closure": ("def main():\n    total = torch.cuda.get_device_properties(0).total_memory\n    def work():\n        kept.append(mib(total // 2**27))\n    work()\nmain()", "size of the GPU"),
    "loop": ("rows = []\nfor n in (1, 2):\n    y = mib(n)\n    peak = torch.cuda.max_memory_allocated()\n    rows.append((n, peak))\nfor n, peak in rows:\n    print(n, peak)", ""),
    "another name": ("total = torch.cuda.get_device_properties(0).total_memory\nprint(total)\ndef count():\n    total = 0\n    for k in range(3):\n        total += k\n    if total > 2:\n        kept.append(mib(total))\ncount()", ""),
    "parameter": ("used = torch.cuda.memory_allocated()\nprint(used)\ndef work(used):\n    if used:\n        kept.append(mib(3))\nwork(True)", ""),
    "variable": ("def memory():\n    return torch.cuda.memory_allocated()\ndef work():\n    memory = [1, 2]\n    if len(memory) > 1:\n        kept.append(mib(3))\nwork()\nprint(memory())", ""),
    "assigns": ("import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'max_split_size_mb:900'", "sets PYTORCH_CUDA_ALLOC_CONF itself"),
    "default": ("import os\nos.environ.setdefault('PYTORCH_CUDA_ALLOC_CONF', 'max_split_size_mb:900')\n"
                "if 'PYTORCH_CUDA_ALLOC_CONF' not in os.environ:\n    os.environ['PYTORCH_CUDA_ALLOC_CONF'] = ''\nprint(os.environ['PYTORCH_CUDA_ALLOC_CONF'])", ""),
    "sets": ("torch.cuda.memory._set_allocator_settings('max_split_size_mb:900')", "changes the settings"),
    "getattr": ("if getattr(torch.cuda, 'memory_reserved')() > 2**29:\n    torch.cuda.empty_cache()", "allocator reserves"),
    "f-string": ("figures = {kind: getattr(torch.cuda, f'memory_{kind}') for kind in ('allocated', 'reserved')}\n"
                 "if figures['reserved']() > 1.5 * figures['allocated']():\n    torch.cuda.empty_cache()", "allocator reserves"),
    "name in a variable": ("field = 'total_memory'\ngigabytes = getattr(torch.cuda.get_device_properties(0), field) / 2**30\nkept.append(mib(9 if gigabytes > 1 else 3))", "size of the GPU"),
    "imported name": ("from torch.cuda import memory_reserved as used\nif used() > 2**29:\n    torch.cuda.empty_cache()", "allocator reserves"),
    "element": ("history = []\nhistory.append(torch.cuda.memory_stats())\nif history[-1]['reserved_bytes.all.current'] > 2**29:\n    torch.cuda.empty_cache()", "allocator reserves"),
    "unknown name": ("key = '-'.join(['total_memory'])\nif getattr(torch.cuda.get_device_properties(0), key) > 2**30:\n    kept.append(mib(9))", "size of the GPU"),
    "free memory": ("if torch.cuda.mem_get_info()[0] > 2**28:\n    kept.append(mib(9))", "how much memory is free"),
    "prints free memory": ("free, total = torch.cuda.mem_get_info()\nprint(f'{free / 2**30:.1f} of {total / 2**30:.1f} GiB', round(free / total, 2))", ""),
    "prints names": ("for kind in ('allocated', 'reserved'):\n    print(kind, getattr(torch.cuda, f'memory_{kind}')() / 2**20)", ""),
    "other getattr": ("options = {'memory_reserved': torch.cuda.memory_reserved()}\nprint(options)\nif getattr(torch, 'nothing', None):\n    kept.append(mib(3))", ""),
    "list of figures": ("history = []\nfor n in (1, 2):\n    history.append(torch.cuda.max_memory_allocated())\nif len(history) > 1:\n    kept.append(mib(3))\nprint(max(history))", ""),
    "never called": ("def batch():\n    return mib(torch.cuda.get_device_properties(0).total_memory // 2**27)", ""),
}


@pytest.mark.parametrize("does", DECIDES)
def test_a_program_that_decides_by_memory_makes_a_what_if_inexact(once, tmp_path_factory, does):
    code, part = DECIDES[does]
    script = tmp_path_factory.getbasetemp() / f"{does.replace(' ', '_')}.py"
    script.write_text("import torch\ndef mib(n): return torch.empty(int(n) << 20, dtype=torch.uint8, device='cuda')\n"
                      f"kept = [mib(40)]\nx = mib(30)\ndel x\n{code}\nkept += [mib(21 + k) for k in range(3)]\n")
    run = once(f"decides {does}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="600MiB")
    assert run.code == 0, run.stderr[-2000:]
    answer = asked(run.database, "--limit", "2GiB", "--set", "expandable_segments:True")
    ours = answer["whatif"][0]
    assert answer["replay"]["exact"] and len(ours["doubts"]) == (part != "") and ours["exact"] == (not part), answer
    assert part in "".join(ours["doubts"])
    same = asked(run.database, "--limit", "600MiB")["whatif"][0]
    assert same["exact"] and not same["doubts"], same


HANDLES = {
    "retries": ("for n in (700, 90, 9):\n    try:\n        kept.append(mib(n))\n        break\n    except torch.OutOfMemoryError:\n        torch.cuda.empty_cache()", True),
    "any error": ("def work():\n    kept.append(mib(90))\ntry:\n    work()\nexcept Exception as error:\n    print(error)", True),
    "only if": ("try:\n    kept.append(mib(90))\nexcept RuntimeError as error:\n    if 'out of memory' not in str(error):\n        raise\n    kept.clear()", True),
    "continues": ("for n in (90, 9):\n    try:\n        kept.append(mib(n))\n        break\n    except RuntimeError as error:\n        if 'out of memory' in str(error):\n            continue\n        raise", True),
    "returns": ("def work():\n    try:\n        kept.append(mib(90))\n    except Exception as error:\n        if isinstance(error, torch.OutOfMemoryError):\n            return None\n        raise\nwork()", True),
    "suppresses": ("import contextlib\nwith contextlib.suppress(torch.OutOfMemoryError):\n    kept.append(mib(90))", True),
    "inner loop": ("try:\n    kept.append(mib(90))\nexcept Exception:\n    for k in (1, 2):\n        if k == 1:\n            continue\n    raise", False),
    "inner function": ("try:\n    kept.append(mib(90))\nexcept Exception as error:\n    def text():\n        return str(error)\n    print(text())\n    raise", False),
    "thread": ("import threading\nt = threading.Thread(target=lambda: kept.append(mib(90)))\nt.start()\nt.join()", True),
    "raises": ("try:\n    kept.append(mib(90))\nexcept RuntimeError as error:\n    print('failed')\n    raise", False),
    "exits": ("import sys\ntry:\n    kept.append(mib(90))\nexcept Exception:\n    sys.exit(3)", False),
    "others": ("try:\n    kept.append(mib(90))\nexcept (ValueError, KeyboardInterrupt):\n    pass", False),
    "only others": ("try:\n    kept.append(mib(90))\nexcept ValueError as e:\n    print(e)\nexcept (KeyError, OSError) as e:\n    print(e)", False),
    "finally": ("try:\n    kept.append(mib(90))\nfinally:\n    print('end')", False),
    "before": ("try:\n    n = 90\nexcept Exception:\n    n = 9\nkept.append(mib(n))", False),
    "alias": ("Full = torch.OutOfMemoryError\ntry:\n    kept.append(mib(90))\nexcept Full:\n    kept.clear()", True),
    "another name": ("from torch import OutOfMemoryError as Full\ntry:\n    kept.append(mib(90))\nexcept (KeyError, Full):\n    kept.clear()", True),
    "raises it": ("try:\n    kept.append(mib(90))\nexcept RuntimeError as e:\n    if 'out of memory' in str(e):\n        raise\n    kept.clear()", False),
    "raises only it": ("try:\n    kept.append(mib(90))\nexcept Exception as e:\n    if isinstance(e, torch.OutOfMemoryError):\n        raise\n    kept.clear()", False),
    "raises the others": ("try:\n    kept.append(mib(90))\nexcept RuntimeError as e:\n    if 'CUDA out of memory' in str(e):\n        kept.clear()\n    else:\n        raise", True),
    "as another error": ("def work():\n    try:\n        kept.append(mib(90))\n    except RuntimeError as e:\n        raise ValueError('too large') from e\n"
                         "try:\n    work()\nexcept ValueError:\n    kept.clear()", True),
    "another error": ("try:\n    kept.append(mib(90))\nexcept RuntimeError as e:\n    raise ValueError('too large') from e", False),
    "leaves in finally": ("def work():\n    done = False\n    try:\n        kept.append(mib(90))\n        done = True\n    finally:\n        return done\nwork()", True),
    "own manager": ("class Skips:\n    def __enter__(self):\n        return self\n    def __exit__(self, kind, error, trace):\n"
                    "        return kind is torch.OutOfMemoryError\nwith Skips():\n    kept.append(mib(90))", True),
    "a manager's variable": ("class Base:\n    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n        return True\nclass Skips(Base):\n    pass\n"
                             "guard = Skips()\nwith torch.no_grad(), guard:\n    kept.append(mib(90))", True),
    "own timer": ("class Timer:\n    def __enter__(self):\n        return self\n    def __exit__(self, *error):\n        print('end')\n        return False\n"
                  "with Timer():\n    kept.append(mib(90))", False),
    "generator": ("import contextlib\n@contextlib.contextmanager\ndef skips():\n    try:\n        yield\n    except torch.OutOfMemoryError:\n        pass\n"
                  "with skips():\n    kept.append(mib(90))", True),
    "generator that cleans up": ("import contextlib\n@contextlib.contextmanager\ndef timed():\n    try:\n        yield\n    finally:\n        print('end')\n"
                                 "with timed():\n    kept.append(mib(90))", False),
    "decorated": ("import contextlib\n@contextlib.contextmanager\ndef skips():\n    try:\n        yield\n    except torch.OutOfMemoryError:\n        pass\n"
                  "@skips()\ndef work():\n    kept.append(mib(90))\nwork()", True),
    "stack": ("import contextlib\nwith contextlib.ExitStack() as stack:\n    stack.enter_context(contextlib.suppress(RuntimeError))\n    kept.append(mib(90))", True),
    "asserts": ("import unittest\nclass Case(unittest.TestCase):\n    def test_it(self):\n        with self.assertRaises(RuntimeError):\n            kept.append(mib(90))\n"
                "            raise RuntimeError\nunittest.main(argv=['x'], exit=False)", True),
    "a test": ("import unittest\nclass Case(unittest.TestCase):\n    def test_it(self):\n        kept.append(mib(90))\nunittest.main(argv=['x'], exit=False)", True),
    "tasks": ("import asyncio\nasync def work(n):\n    kept.append(mib(n))\nasync def main():\n    await asyncio.gather(work(9), work(90), return_exceptions=True)\n"
              "asyncio.run(main())", True),
    "its main task": ("import asyncio\nasync def work(n):\n    kept.append(mib(n))\nasync def main():\n    await work(90)\nasyncio.run(main())", False),
    "a library": ("import functools\n@functools.lru_cache\ndef work(n):\n    return mib(n)\nkept.extend(map(work, (9, 90)))", False),
}


@pytest.mark.parametrize("does", HANDLES)
def test_a_program_that_would_handle_the_failure_makes_a_what_if_inexact(once, tmp_path_factory, does):
    code, handles = HANDLES[does]
    script = tmp_path_factory.getbasetemp() / f"handles_{does.replace(' ', '_')}.py"
    script.write_text("import torch\ndef mib(n): return torch.empty(int(n) << 20, dtype=torch.uint8, device='cuda')\n"
                      f"kept = [mib(40)]\n{code}\n")
    run = once(f"handles {does}", script, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    assert run.code == 0, run.stderr[-2000:]
    ours = asked(run.database, "--limit", "200MiB")["whatif"][0]
    assert not ours["fits"] and ours["exact"] != handles and ("handles the error" in "".join(ours["doubts"])) == handles, ours


LIBRARY = """def retried(function):
    def wrapper(*words):
        for attempt in range(3):
            try:
                return function(*words)
            except BODY
    return wrapper
"""


@pytest.mark.parametrize("body, handles", [
    ("Exception as e:\n                if 'out of memory' not in str(e):\n                    raise", True),  # accelerate's
    ("BaseException:\n                state = 'failed'", True),  # tenacity's
    ("wanted as e:\n                print(e)", True),  # backoff's, with a variable
    ("Exception:\n                print('failed')\n                raise", False),
    ("KeyboardInterrupt:\n                pass", False)])
def test_a_library_that_tries_again_makes_a_what_if_inexact(once, tmp_path_factory, body, handles):
    folder = tmp_path_factory.getbasetemp() / f"handler{zlib.crc32(body.encode())}"
    library = folder / "site-packages" / "again.py"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.write_text("wanted = RuntimeError\n" + LIBRARY.replace("BODY", body))
    (folder / "main.py").write_text("import sys, torch\nsys.path.insert(0, " + repr(str(library.parent)) + ")\nfrom again import retried\n"
                                    "def mib(n): return torch.empty(int(n) << 20, dtype=torch.uint8, device='cuda')\nkept = [mib(40)]\n"
                                    "@retried\ndef work(n):\n    kept.append(mib(n))\nwork(90)\n")
    run = once(f"library {body}", folder / "main.py", SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    assert run.code == 0, run.stderr[-2000:]
    ours = asked(run.database, "--limit", "200MiB")["whatif"][0]
    assert not ours["fits"] and ours["exact"] != handles, ours


def test_a_query_of_free_memory_before_the_first_tensor_counts(once):
    run = once("asks first", "-c", "import torch\nfree, _ = torch.cuda.mem_get_info()\nx = torch.empty(free // 8, dtype=torch.uint8, device='cuda')",
               SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    other = asked(run.database, "--limit", "1GiB")["whatif"][0]
    assert not other["exact"] and "how much memory is free" in other["doubts"][0], other


@pytest.mark.skipif(REAL, reason="only a simulated GPU has the memory of others")
def test_what_other_processes_hold_makes_a_what_if_inexact_where_it_does_not_fit(once):
    code = ("import time, torch\nkept = []\nfor n in (200, 250):\n    kept.append(torch.empty(n << 20, dtype=torch.uint8, device='cuda'))\n"
            "    time.sleep(1.2)")
    shared = {"SIMCUDA_CONTEXT": "100MiB", "SIMCUDA_OTHER": "300MiB@4242"}
    run = once("beside others", "-c", code, SIMCUDA_MEMORY="4GiB", **shared)
    assert once("beside others, small", "-c", code, SIMCUDA_MEMORY="800MiB", **shared).code != 0
    small, large = (asked(run.database, "--limit", size)["whatif"][0] for size in ("800MiB", "1GiB"))
    assert large["exact"] and large["fits"] and not small["exact"] and "Other processes" in small["doubts"][0], (small, large)


def test_a_thread_of_backward_that_frees_beside_the_program_makes_a_what_if_inexact(once, tmp_path):
    """As with torch.func: whether it frees before or after the program's next request differs from run to run."""
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\nx = torch.randn(1 << 20, device='cuda', requires_grad=True)\n"
            "(x * x).sum().backward()\na, b = mib(9), mib(13)\ndel b\nc = mib(3)\n")
    run = once("frees beside", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    beside = tmp_path / "beside.db"
    shutil.copy(run.database, beside)
    with sqlite3.connect(beside) as db:
        (row,), = db.execute("SELECT id FROM allocation WHERE layer = 1 AND requested_bytes = ?", (13 * MIB,)).fetchall()
        db.execute("UPDATE allocation_row SET free_stack_id = 4294967295 WHERE id = ?", (row,))
    db.close()
    own, other = (asked(file, "--limit", "1GiB")["whatif"][0] for file in (run.database, beside))
    assert own["exact"] and not own["doubts"] and not other["exact"] and "after it has returned" in other["doubts"][0], (own, other)


@pytest.mark.parametrize("uses", [True, False])
def test_a_block_that_another_stream_uses_makes_a_what_if_inexact(once, uses):
    """Its event may be finished at the next request in one run, and not in another one."""
    code = ("import torch\nside = torch.cuda.Stream()\nfor _ in range(6):\n    x = torch.empty(9 << 20, device='cuda')\n"
            f"    {'x.record_stream(side)' if uses else 'torch.cuda.synchronize()'}\n    del x\n")
    run = once(f"another stream, {uses}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    answer = asked(run.database, "--set", "max_split_size_mb:64")
    assert answer["replay"]["exact"] and answer["whatif"][0]["exact"] is not uses, answer
    assert not uses or "record_stream" in answer["whatif"][0]["doubts"][0]


@pytest.mark.skipif(REAL, reason="the speed of copies is simulated")
@pytest.mark.parametrize("long", [True, False])
def test_blocks_may_wait_as_long_as_any_did(once, long):
    """In another run, the GPU may be late elsewhere: then the next large request gets a second segment."""
    code = ("import time, torch\nside = torch.cuda.Stream()\nhost = torch.empty(100 << 20, dtype=torch.uint8, pin_memory=True)\n"
            "to = torch.empty_like(host, device='cuda')\nfor i in range(4):\n    x = torch.empty(40 << 20, dtype=torch.uint8, device='cuda')\n"
            f"    if i == 3 and {long}:\n        with torch.cuda.stream(side): to.copy_(host, non_blocking=True)\n"
            "    x.record_stream(side)\n    del x\n    side.synchronize()\n    small = torch.empty(8, device='cuda')\n    time.sleep(0.2)\n")
    run = once(f"longest wait {long}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB", SIMCUDA_PCIE="200000000")
    assert run.code == 0, run.stderr[-2000:]
    answer = asked(run.database, "--limit", "1GiB")
    assert answer["replay"]["exact"] and answer["whatif"][0]["exact"] is not long, answer


def test_a_switch_shows_in_how_a_cached_block_is_split(once):
    """Expandable segments split off 512 bytes, others only more than 1 MiB."""
    code = ("import torch\nset_conf = torch.cuda.memory._set_allocator_settings\nfor on in (True, False, True):\n"
            "    x = torch.empty(30 << 20, dtype=torch.uint8, device='cuda')\n    del x\n    set_conf(f'expandable_segments:{on}')\n"
            "    y = torch.empty((59 << 19), dtype=torch.uint8, device='cuda')\n    del y\n")
    run = once("split after a switch", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    answer = asked(run.database, "--limit", "1GiB")
    assert answer["replay"]["exact"], answer


def test_a_pool_that_never_splits_blocks(once):
    """MemPool(no_split=True): each request gets a whole block, small ones 2 MiB."""
    code = ("import torch\ntry:\n    pool = torch.cuda.MemPool(no_split=True)\nexcept TypeError:\n    pool = None\n"
            "w, held = torch.randn(1024, 1024, device='cuda'), []\nfor i in range(8):\n    if pool:\n        with torch.cuda.use_mem_pool(pool):\n"
            "            held.append(torch.randn(300 + 700 * i, 1024, device='cuda'))\n            small = torch.empty(1000, device='cuda')\n"
            "        y = held[-1] @ w\n    else:\n        held.append(torch.empty(30 << 20, device='cuda'))\n    if len(held) > 3: held.pop(0)\n")
    first = once("never splits", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    setting = "expandable_segments:True,roundup_power2_divisions:4"
    other = once("never splits, set", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB", PYTORCH_CUDA_ALLOC_CONF=setting)
    answer, real = asked(first.database, "--set", setting), asked(other.database, "--limit", "2GiB")
    assert answer["replay"]["exact"] and real["replay"]["exact"], (answer["replay"], real["replay"])
    assert answer["whatif"][0]["peak_reserved_bytes"] == real["recorded"]["peak_reserved_bytes"]


def test_when_a_capture_reuses_blocks_of_other_streams_is_a_doubt(once):
    """Only of a program that captures a CUDA graph: then it depends on graph_capture_record_stream_reuse."""
    capture = ("import torch\nside, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()\nx = torch.randn(1 << 20, device='cuda')\n"
               "with torch.cuda.graph(graph):\n    main = torch.cuda.current_stream()\n    for i in range(6):\n"
               "        big = torch.empty(32 << 20, dtype=torch.uint8, device='cuda')\n        side.wait_stream(main)\n"
               "        with torch.cuda.stream(side): y = x + 1\n        big.record_stream(side)\n        main.wait_stream(side)\n        del big, y\n")
    for code, doubtful in ((capture, True), ("import torch\nx = torch.randn(1 << 20, device='cuda')\ny = x + 1\n", False)):
        run = once(f"reuse {doubtful}", "-c", code, SIMCUDA_CONTEXT="100MiB", PYTORCH_CUDA_ALLOC_CONF="graph_capture_record_stream_reuse:True")
        if "Unrecognized" in run.stderr:
            pytest.skip("PyTorch before 2.9 does not have it")
        ours = asked(run.database, "--set", "graph_capture_record_stream_reuse:False")["whatif"][0]
        assert any("graph_capture_record_stream_reuse" in doubt for doubt in ours["doubts"]) is doubtful, ours
        assert not doubtful or not asked(run.database, "--limit", "4GiB")["whatif"][0]["doubts"]


@pytest.mark.parametrize("ends_in", ["pool", "default"])
def test_a_request_that_fails_beside_a_private_pool_is_reproduced(once, ends_in):
    """In a MemPool, PyTorch before 2.13 does not free the cache of the default pool for it."""
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\npool, held = torch.cuda.MemPool(), []\n"
            "cached = mib(60)\ndel cached\nfor i in range(30):\n    with torch.cuda.use_mem_pool(pool):\n        held.append(mib(24))\n"
            f"    temporary = mib(11)\n    del temporary\n    {'' if ends_in == 'pool' else 'held.append(mib(33))'}\n")
    run = once(f"fails in {ends_in}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="400MiB")
    assert run.code != 0 and "out of memory" in run.stderr
    answer = asked(run.database, "--limit", "400MiB")
    assert answer["replay"]["exact"] and not answer["whatif"][0]["fits"], answer


@pytest.mark.parametrize("ends_in", ["pool", "default"])
def test_a_request_that_fails_after_one_in_a_private_pool(once, ends_in):
    """Nothing else is cached, so that the allocator does the same in both pools: the line decides."""
    requests = {"pool": "    for n in 80, 80, 290:\n        x = None\n        x = mib(n)\n",
                "default": "    a, b = mib(80), mib(80)\n    del a, b\nx = mib(200)\n"}
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\npool = torch.cuda.MemPool()\n"
            "with torch.cuda.use_mem_pool(pool):\n" + requests[ends_in])
    settings = dict(SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="400MiB")
    run = once(f"fails after a pool's, {ends_in}", "-c", code, **settings)
    assert run.code != 0 and "out of memory" in run.stderr
    expandable = once(f"fails after a pool's, {ends_in}, expandable", "-c", code, **settings, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    answer = asked(run.database, "--set", "expandable_segments:True")
    assert answer["replay"]["exact"] and answer["whatif"][0]["fits"] is (expandable.code == 0), answer


@pytest.mark.parametrize("freed", ["b", "b, y"])
def test_pages_that_a_failing_request_got_before_it_failed_count(once, freed):
    """The request takes 60 MiB that were unmapped, a free block, and what follows, which CUDA refuses, or refuses at first."""
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\nfirst, a, b = mib(20), mib(60), mib(40)\n"
            "del a\ntorch.cuda.empty_cache()\nwith torch.cuda.stream(torch.cuda.Stream()):\n    y = mib(100)\n"
            f"small = torch.empty(8, device='cuda')\ndel {freed}\ntry:\n    z = mib(240)\nfinally:\n    print('peak', torch.cuda.memory_stats()['reserved_bytes.all.peak'])\n")
    run = once(f"pages before a failure {freed}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="400MiB", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert (run.code == 0) is ("y" in freed), run.stderr
    answer = asked(run.database, "--limit", "400MiB")
    assert answer["replay"]["exact"] and answer["recorded"]["peak_reserved_bytes"] == int(run.stdout.split()[-1]), (answer, run.stdout)


def test_a_request_that_frees_pages_and_then_needs_none(once):
    """CUDA refuses a page; the freed ones leave parts of a block, and the request gets the one before them, not the one that fits best."""
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\nfirst, a, b, c = mib(10), mib(60), mib(3), mib(227)\n"
            "del a\nx = mib(6)\ny = mib(3)\n")
    run = once("frees pages", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="400MiB", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True,max_split_size_mb:32")
    assert run.code == 0, run.stderr[-2000:]
    answer = asked(run.database, "--limit", "400MiB")
    assert answer["replay"]["exact"] and answer["recorded"]["retries"] == 1, answer


def test_a_private_pool_that_is_laid_out_again(once):
    """Before torch.compile captures another shape, it restores what the pool of its graphs had after the last one."""
    code = ("import torch\nmodel = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(3)]).cuda()\n"
            "compiled, kept = torch.compile(model, backend='cudagraphs', dynamic=False), []\nfor step, n in enumerate((300, 300, 900, 300, 900, 900, 2000, 300)):\n"
            "    torch.compiler.cudagraph_mark_step_begin()\n    with torch.no_grad():\n        y = compiled(torch.randn(n, 512, device='cuda'))\n"
            "        kept.append(y[:100].clone())\n    x = torch.empty(12 + 3 * step << 20, dtype=torch.uint8, device='cuda')\n    del x, y\n")
    runs = [once(f"laid out again {setting}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB", PYTORCH_CUDA_ALLOC_CONF=setting) for setting in SETTINGS[:2]]
    answers = [asked(run.database, "--set", SETTINGS[1]) for run in runs]
    version = tuple(int(n) for n in answers[0]["replay"]["torch_version"].split(".")[:2])
    with sqlite3.connect(runs[0].database) as db:
        assert db.execute("SELECT 1 FROM frame WHERE function LIKE '%apply_checkpoint_execution_state%'").fetchone()
    db.close()
    assert all(answer["replay"]["exact"] or version >= (2, 12) for answer in answers), answers
    assert answers[0]["whatif"][0]["peak_reserved_bytes"] == answers[1]["recorded"]["peak_reserved_bytes"], answers


def test_a_result_that_depends_on_addresses_is_inexact(once):
    """Two free blocks of the same size: if the one in the larger segment is taken, that segment does not become free."""
    code = ("import torch\nmib = lambda n: torch.empty(n << 20, dtype=torch.uint8, device='cuda')\n"
            "first_of_all, a, b = mib(33), mib(20), mib(40)\ndel b\nfirst, second = mib(20), mib(20)\ndel a, first\nx = mib(20)\ndel second\ny = mib(40)\n")
    run = once("two blocks of one size", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    answer = asked(run.database, "--set", "roundup_power2_divisions:4")  # so the first segment is another one
    ours, version = answer["whatif"][0], tuple(int(n) for n in answer["replay"]["torch_version"].split(".")[:2])
    assert answer["replay"]["exact"] and ours["exact"] is (version >= (2, 12)), answer
    assert ours["exact"] or "lowest address" in ours["doubts"][0], ours


def test_a_free_of_autograds_thread_beside_a_forward_pass_is_a_doubt(once, tmp_path):
    """The forward pass of an autograd.Function is in a file of torch/autograd, but the program runs it."""
    code = ("import torch\nclass Twice(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
            "        y = torch.empty(20 << 20, dtype=torch.uint8, device='cuda')\n        del y\n        return x * 2\n"
            "x = torch.ones(1 << 20, device='cuda', requires_grad=True)\nfor _ in range(3):\n    Twice.apply(x)\n")
    run = once("forward pass of a Function", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    assert asked(run.database, "--limit", "1GiB")["whatif"][0]["exact"]
    changed = shutil.copy(run.database, tmp_path / "run.db")
    with sqlite3.connect(changed) as db:  # as if a thread without Python had freed it
        db.execute("UPDATE allocation_row SET free_stack_id = NULL WHERE abs(bytes) = ?", [20 << 20])
    db.close()
    [doubt] = asked(changed, "--limit", "1GiB")["whatif"][0]["doubts"]
    assert "the threads of backward()" in doubt


def test_waits_of_other_streams_without_effect_are_no_doubt(once):
    """The blocks are small beside the cache: the same segments serve all requests, however long the blocks wait."""
    code = ("import torch\nside = torch.cuda.Stream()\ncache = torch.empty(200 << 20, dtype=torch.uint8, device='cuda')\ndel cache\n"
            "for _ in range(6):\n    x = torch.empty(12 << 20, dtype=torch.uint8, device='cuda')\n    x.record_stream(side)\n    del x\n")
    run = once("waits without effect", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    answer = asked(run.database, "--limit", "1GiB")
    assert answer["replay"]["exact"] and answer["whatif"][0]["exact"], answer


def test_generated_code_is_not_the_programs_line(once):
    code = ("import torch\nmodel = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU())).cuda()\n"
            "x = torch.randn(4096, 256, device='cuda')\nfor _ in range(3):\n    y = model(x)\n")
    run = once("generated code", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    lines = [line for peak in run.report()["peak"] if peak["layer"] == "tensor" for line in peak["by_line"]]
    assert lines and not any("eval_with_key" in (line["site"]["file"] or "") for line in lines), lines


def test_where_the_step_ends_in_which_memory_ran_out_is_an_inference(once):
    code = ("import torch\nmodel = torch.nn.Linear(512, 512).cuda()\noptimizer = torch.optim.Adam(model.parameters())\nn = 2000\n"
            "for _ in range(40):\n    model(torch.randn(n, 512, device='cuda')).mean().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
            "    n = int(n * 1.4)\n")
    run = once("grows until memory runs out", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="600MiB")
    ours = asked(run.database, "--empty-cache-every", "1")["whatif"][0]
    assert run.code != 0 and not ours["exact"] and "infers" in ours["doubts"][0], ours


@pytest.mark.parametrize("between, exact", [("time.sleep(0.3)", True), ("time.sleep(0.3); held = evaluate()", False)])
def test_a_pause_between_steps_is_a_doubt_only_if_the_program_worked_in_it(once, between, exact):
    code = ("import time, torch\nmodel = torch.nn.Linear(512, 512).cuda()\noptimizer = torch.optim.Adam(model.parameters())\nkept = []\n"
            "def evaluate():\n    time.sleep(0.3)\n    return torch.empty(9 << 20, device='cuda')\n"
            "for i in range(12):\n    model(torch.randn(2000, 512, device='cuda')).mean().backward()\n    optimizer.step()\n"
            f"    optimizer.zero_grad()\n    if i == 6: {between}\n    kept.append(torch.empty(3 << 20, device='cuda'))\n")
    run = once(f"pauses {between}", "-c", code, SIMCUDA_CONTEXT="100MiB", SIMCUDA_MEMORY="2GiB")
    ours = asked(run.database, "--empty-cache-every", "1")["whatif"][0]
    assert ours["exact"] is exact, ours
