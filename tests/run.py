#!/usr/bin/env python3
"""Runs every test and ends with the line "N passed, N failed".

Units and the simulated CUDA's own tests are cmocka programs (build/tests/*/test_*), one per CPU at a time
and read as TAP; then come pytest, with two workers per CPU because half of its time is waiting, and beside it the
browser's tests and the cases of tests/torture. A program that crashes, prints no result or exits non-zero without a
failed test counts as one failure under its own name. On a busy machine a Python test can be late: one that fails is
tried once more, alone, and has failed if it fails again.

  tests/run.py [NAME]    only tests whose name contains NAME

With SAN (the make variable) the programs and the recorder are instrumented, and the sanitizer's run
time has to come first in the Python processes that they are loaded into. What cannot be had is left
out, and reported.
"""
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
UNIT_SECONDS = 300
PYTEST_SECONDS = 3600
CPUS = len(os.sched_getaffinity(0))
ALONE = ("test_spool_file",)  # counts the shared memory segments of the machine


def sanitizer():
    """The environment that the Python tests need with SAN, or why they are left out."""
    wanted = [name for name in os.environ.get("SAN", "").split(",") if name]
    names = {"address": "libasan.so", "undefined": "libubsan.so", "thread": "libtsan.so"}
    if not wanted:
        return {}, ""
    paths = []
    for name in wanted:
        command = os.environ.get("CC", "gcc").split() + ["-print-file-name=" + names[name]]
        found = subprocess.run(command, text=True, stdout=subprocess.PIPE).stdout.strip()
        if not os.path.isabs(found):
            return {}, f"{command[0]} has no shared {names[name]} to preload"
        paths.append(found)
    more = {"SAN_PRELOAD": ":".join(paths)}
    if "thread" in wanted:
        logs = BUILD / "tests" / "tsan"
        logs.mkdir(parents=True, exist_ok=True)
        # Programs call CUDA in signal handlers: the tests are about that. A forked child of a process with many threads
        # continues recording with a new thread.
        more["TSAN_OPTIONS"] = (f"log_path={logs}/log:suppressions={ROOT}/tests/tsan.supp:die_after_fork=0:"
                                "report_signal_unsafe=0:handle_segv=0:handle_abort=0")
        return more, ""
    # Interpreters do not free their memory at the end, and signals are intended by the tests. A report's own exit
    # status would be 1, which `gpuspy check` also uses.
    return {"SAN_PRELOAD": ":".join(paths), "UBSAN_OPTIONS": "exitcode=99:print_stacktrace=1",
            "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_abort=0:verify_asan_link_order=0:exitcode=99"}, ""


def run_program(path):
    """(passed, failed, skipped, text to show, seconds) of one cmocka program."""
    start = time.monotonic()
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP", O=str(BUILD), XDG_CONFIG_HOME=str(BUILD / "tests" / "no-config"))
    env.setdefault("ASAN_OPTIONS", "detect_leaks=1")
    env.setdefault("TSAN_OPTIONS", f"suppressions={ROOT}/tests/tsan.supp")
    try:
        done = subprocess.run([str(path)], env=env, cwd=ROOT, timeout=UNIT_SECONDS, text=True,
                              errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        text = (late.stdout or b"").decode(errors="replace") if isinstance(late.stdout, bytes) else ""
        text, code = text + f"\nno end after {UNIT_SECONDS} s", -1
    results = re.findall(r"^(ok|not ok) \d+(.*)$", text, re.M)
    skipped = sum(1 for kind, rest in results if "# SKIP" in rest.upper())
    # cmocka prints a skipped test as "not ok … # SKIP".
    failed = sum(1 for kind, rest in results if kind == "not ok" and "# SKIP" not in rest.upper())
    passed = len(results) - failed - skipped
    plan = re.findall(r"^1\.\.(\d+)", text, re.M)
    short = sum(map(int, plan)) != len(results)
    if (code != 0 and failed == 0) or not results or short:
        failed += 1
        text += f"\n(exit status {code}, {len(results)} of {plan} results)"
    return passed, failed, skipped, text, time.monotonic() - start


# Programs of gpuspy's tests, sanitized like the recorder.
OF_THREADS = ("test_programs", "test_doors", "test_marks")


def runs_of(sanitizers):
    """The Python tests, without the browser's, that can run with these sanitizers. The others are listed."""
    if "thread" not in sanitizers.split(","):
        return "tests/e2e", "tests/python"
    print("left out: tests/python and all of tests/e2e but", ", ".join(OF_THREADS), "because they record Python, or "
          "fork and end in ways that ThreadSanitizer's run time does not bear", flush=True)
    return tuple(f"tests/e2e/{name}.py" for name in OF_THREADS)


def run_pytest(pattern):
    """(passed, failed, skipped, text to show) of the tests written in Python, without the browser's."""
    if sanitizer()[1]:
        return 0, 0, 0, f"left out: tests/e2e, tests/python and tests/browser, because {sanitizer()[1]}\n"
    # A sanitizer's reports are attributed to the test that runs when they appear.
    together = not os.environ.get("SAN") and importlib.util.find_spec("xdist")
    workers = ["-n", str(2 * CPUS), "--dist", "loadfile"] if together else []
    return run_files(runs_of(os.environ.get("SAN", "")), pattern, "pytest", workers)


def run_browser(pattern):
    """(passed, failed, skipped, text to show) of tests/browser: a pytest of its own, because each folder's conftest is a
    module of that name."""
    if sanitizer()[1] or "thread" in os.environ.get("SAN", ""):
        return 0, 0, 0, ""
    return run_files(("tests/browser",), pattern, "browser", show=subprocess.PIPE)


LATE_MOST = 40  # if more tests fail, the machine is not the reason
FAILED = {}  # what has to be tried once more: the command by the name of its run


def run_files(files, pattern, name, options=(), show=None):
    """show: where pytest writes to, None for this program's own output."""
    cache = BUILD / "tests" / f"{name}.cache"
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={cache}", *files, *(["-k", pattern] if pattern else [])]
    passed, failed, skipped, text = pytest_counts([*command, "-rs", *options], name, show)
    if 0 < failed <= LATE_MOST and not os.environ.get("SAN"):  # a race that is found once is one
        FAILED[name] = command
        failed = 0
    return passed, failed, skipped, text


def run_failed(name):
    """(passed, failed, skipped) of what failed beside other tests, alone."""
    print(f"{name}: what failed, once more, alone:", flush=True)
    command = [*FAILED[name], "-vv", "-rfE", "--last-failed", "--last-failed-no-failures=none"]
    passed, failed, skipped, _ = pytest_counts(command, f"{name}-again", None)
    return passed, failed or int(not passed), skipped


def pytest_counts(command, name, show):
    """(passed, failed, skipped, output if it is piped) of one run of pytest."""
    report = BUILD / "tests" / f"{name}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    env = dict(os.environ, O=str(BUILD), PYTHONDONTWRITEBYTECODE="1", **sanitizer()[0])
    done = subprocess.run([*command, f"--junit-xml={report}"], cwd=ROOT, env=env, timeout=PYTEST_SECONDS, stdout=show, text=True)
    text = done.stdout or ""
    if done.returncode == 5:  # nothing selected
        return 0, 0, 0, text
    if not report.exists():
        return 0, 1, 0, text
    suite = ElementTree.parse(report).getroot().find("testsuite")
    count = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return count["tests"] - failed - count["skipped"], failed or (1 if done.returncode else 0), count["skipped"], text


RACES = "raw=1 together=0"  # 64 threads, for ThreadSanitizer


def run_torture(pattern):
    """(passed, failed, skipped, text to show) of tests/torture, the same cases on every machine; `make torture` composes
    others."""
    sanitizers = os.environ.get("SAN", "")
    if pattern and pattern not in "torture" or sanitizers and "thread" not in sanitizers:
        return 0, 0, 0, ""
    more, missing = sanitizer()
    # Beside other tests a rare failure says little: a case fails if it fails again, and is shown as ONCE otherwise.
    which = ["--fixed", "--seed", "1", "--no-minimise", "--confirm", "2"]
    which = ["--only", RACES, "--times", "3"] if sanitizers else which
    if missing:
        return 0, 0, 0, ""
    done = subprocess.run([sys.executable, "tests/torture/torture.py", *which], cwd=ROOT, text=True,
                          env=dict(os.environ, O=str(BUILD), **more), stdout=subprocess.PIPE)
    counts = re.search(r"^torture: (\d+) cases, (\d+) failed", done.stdout, re.M)
    if not counts or (done.returncode and counts.group(2) == "0"):
        return 0, 1, 0, done.stdout
    cases, failed = map(int, counts.groups())
    return cases - failed, failed, 0, done.stdout


def note(skipped):
    return f", {skipped} skipped" if skipped else ""


def run_programs(pattern):
    """(passed, failed, skipped) of the cmocka programs."""
    total = [0, 0, 0]
    built = sorted(p for p in (BUILD / "tests").glob("*/test_*") if p.is_file() and os.access(p, os.X_OK))
    chosen = [p for p in built if pattern in f"{p.parent.name}/{p.name}"]
    chosen.sort(key=lambda p: p.name in ALONE)
    beside = [p for p in chosen if p.name not in ALONE]
    with ThreadPoolExecutor(CPUS) as pool:
        results = itertools.chain(pool.map(run_program, beside), map(run_program, chosen[len(beside):]))
        for path, (passed, failed, skipped, text, seconds) in zip(chosen, results):
            total = [a + b for a, b in zip(total, (passed, failed, skipped))]
            print(f"{'FAIL' if failed else 'ok  '} {path.parent.name}/{path.name}: {passed} passed, {failed} failed{note(skipped)} "
                  f"({seconds:.1f} s)", flush=True)
            if failed:
                print(text, flush=True)
    if not built and not pattern:
        print("no unit test program was built")
        total[1] += 1
    return total


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    counts = [run_programs(pattern)]
    runs = (run_pytest, run_browser, run_torture)
    with ThreadPoolExecutor(1 if os.environ.get("SAN") else len(runs)) as pool:
        for *count, text in pool.map(lambda run: run(pattern), runs):
            print(text, end="", flush=True)
            counts.append(count)
    counts += map(run_failed, FAILED)
    passed, failed, skipped = map(sum, zip(*counts))
    print(f"{passed} passed, {failed} failed{note(skipped)}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
