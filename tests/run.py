#!/usr/bin/env python3
"""Runs every test and ends with the line "N passed, N failed".

Units and the simulated CUDA's own tests are cmocka programs (build/tests/*/test_*), run one after
the other and read as TAP; then come pytest and a minute of tests/torture. A program that crashes, prints no result or exits
non-zero without a failed test counts as one failure under its own name.

  tests/run.py [NAME]    only tests whose name contains NAME

With SAN (the make variable) the programs and the recorder are instrumented, and the sanitizer's run
time has to come first in the Python processes that they are loaded into. What cannot be had is left
out, and said.
"""
import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD
UNIT_SECONDS = 300
PYTEST_SECONDS = 3600


def sanitizer():
    """What the Python tests need in the environment with SAN, or why they are left out."""
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
        # Programs call CUDA out of signal handlers: they are tests of that.
        # A forked child of many threads goes on recording with a thread of its own.
        more["TSAN_OPTIONS"] = (f"log_path={logs}/log:suppressions={ROOT}/tests/tsan.supp:die_after_fork=0:"
                                "report_signal_unsafe=0:handle_segv=0:handle_abort=0")
        return more, ""
    # Interpreters leave their memory to the system at the end; signals are the tests' own affair. A report's own exit
    # status would be 1, which is also what `gpuspy check` says no with.
    return {"SAN_PRELOAD": ":".join(paths), "UBSAN_OPTIONS": "exitcode=99:print_stacktrace=1",
            "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_abort=0:verify_asan_link_order=0:exitcode=99"}, ""


def run_program(path):
    """(passed, failed, skipped, text to show) of one cmocka program."""
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
    # cmocka calls a skipped test "not ok … # SKIP".
    failed = sum(1 for kind, rest in results if kind == "not ok" and "# SKIP" not in rest.upper())
    passed = len(results) - failed - skipped
    plan = re.findall(r"^1\.\.(\d+)", text, re.M)
    short = sum(map(int, plan)) != len(results)
    if (code != 0 and failed == 0) or not results or short:
        failed += 1
        text += f"\n(exit status {code}, {len(results)} of {plan} results)"
    return passed, failed, skipped, text


# Programs of our own, sanitized as the recorder is.
OF_THREADS = ("test_programs", "test_doors", "test_marks")


def runs_of(sanitizers):
    """The Python tests that can be had with these, by pytest of their own: each folder's conftest is a module of that
    name. Those that cannot are said."""
    if "thread" not in sanitizers.split(","):
        return [("tests/e2e", "tests/python"), ("tests/browser",)]
    print("left out: tests/python and all of tests/e2e but", ", ".join(OF_THREADS), "because they record Python, or "
          "fork and end in ways that ThreadSanitizer's run time does not bear", flush=True)
    return [tuple(f"tests/e2e/{name}.py" for name in OF_THREADS)]


def run_pytest(pattern):
    """(passed, failed, skipped) of the tests written in Python."""
    more, missing = sanitizer()
    if missing:
        print(f"left out: tests/e2e, tests/python and tests/browser, because {missing}")
        return 0, 0, 0
    counts = [run_files(files, pattern, more) for files in runs_of(os.environ.get("SAN", ""))]
    return tuple(map(sum, zip(*counts)))


def run_files(files, pattern, more):
    report = BUILD / "tests" / "pytest.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-rsfE", "-p", "no:cacheprovider", f"--junit-xml={report}", *files]
    if pattern:
        command += ["-k", pattern]
    env = dict(os.environ, O=str(BUILD), PYTHONDONTWRITEBYTECODE="1", **more)
    code = subprocess.run(command, cwd=ROOT, env=env, timeout=PYTEST_SECONDS).returncode
    if code == 5:  # nothing selected
        return 0, 0, 0
    if not report.exists():
        return 0, 1, 0
    suite = ElementTree.parse(report).getroot().find("testsuite")
    count = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return count["tests"] - failed - count["skipped"], failed or (1 if code else 0), count["skipped"]


TORTURE_S = 60
RACES = "raw=1 together=0"  # 64 threads, for ThreadSanitizer


def run_torture(pattern):
    """(passed, failed) cases of one minute of tests/torture, the same ones every time as far as time allows."""
    sanitizers = os.environ.get("SAN", "")
    if pattern and pattern not in "torture" or sanitizers and "thread" not in sanitizers:
        return 0, 0
    more, missing = sanitizer()
    which = ["--only", RACES, "--times", "3"] if sanitizers else ["--seconds", str(TORTURE_S), "--seed", "1", "--no-minimise"]
    if missing:
        return 0, 0
    done = subprocess.run([sys.executable, "tests/torture/torture.py", *which], cwd=ROOT, text=True,
                          env=dict(os.environ, O=str(BUILD), **more), stdout=subprocess.PIPE)
    print(done.stdout, end="", flush=True)
    counts = re.search(r"^torture: (\d+) cases, (\d+) failed", done.stdout, re.M)
    if not counts or (done.returncode and counts.group(2) == "0"):
        return 0, 1
    cases, failed = map(int, counts.groups())
    return cases - failed, failed


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    total = [0, 0, 0]
    programs = sorted(p for p in (BUILD / "tests").glob("*/test_*") if p.is_file() and os.access(p, os.X_OK))
    for path in programs:
        name = f"{path.parent.name}/{path.name}"
        if pattern and pattern not in name:
            continue
        start = time.monotonic()
        passed, failed, skipped, text = run_program(path)
        for index, value in enumerate((passed, failed, skipped)):
            total[index] += value
        note = f", {skipped} skipped" if skipped else ""
        print(f"{'FAIL' if failed else 'ok  '} {name}: {passed} passed, {failed} failed{note} "
              f"({time.monotonic() - start:.1f} s)", flush=True)
        if failed:
            print(text, flush=True)
    if not programs and not pattern:
        print("no unit test program was built")
        total[1] += 1
    for index, value in enumerate(run_pytest(pattern)):
        total[index] += value
    passed, failed = run_torture(pattern)
    total[0], total[1] = total[0] + passed, total[1] + failed
    note = f", {total[2]} skipped" if total[2] else ""
    print(f"{total[0]} passed, {total[1]} failed{note}")
    return 1 if total[1] or not total[0] else 0


if __name__ == "__main__":
    sys.exit(main())
