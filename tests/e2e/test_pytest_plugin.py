"""pytest --gpuspy: limits, the lines, the table, workers and forks, and the message if it cannot work."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, SECONDS, sanitized

pytestmark = sanitized("pytest itself is not built with the sanitizer that the library needs")

HEAD = """
import sys, time
import pytest
from minicuda import Runtime, Tensor

MIB = 1 << 20
kept = []

@pytest.fixture(scope="module")
def runtime():
    return Runtime()
"""
TESTS = HEAD + """
def test_nothing():
    pass

@pytest.mark.limit_gpu_memory("2MiB")
def test_fits(runtime):
    t = Tensor(runtime, MIB)
    del t
    t = Tensor(runtime, 2 * MIB)

@pytest.mark.limit_gpu_memory("2 MiB")
def test_needs_more(runtime):
    a = Tensor(runtime, MIB)  # one
    b = Tensor(runtime, 2 * MIB)  # two

@pytest.mark.limit_gpu_leaks
def test_keeps(runtime):
    kept.append(Tensor(runtime, 3 * MIB))  # kept

@pytest.mark.limit_gpu_leaks("0")
@pytest.mark.limit_gpu_memory("1MiB")
def test_leaves_a_cycle(runtime):
    cycle = [Tensor(runtime, MIB)]
    cycle.append(cycle)

@pytest.mark.limit_gpu_syncs(2)
def test_waits(runtime):
    t = Tensor(runtime, MIB)
    for i in range(5):
        t.item()  # waits

@pytest.mark.limit_gpu_memory("0")
@pytest.mark.xfail(reason="known")
def test_known(runtime):
    Tensor(runtime, MIB)

def test_fixture(runtime, gpuspy):
    assert gpuspy.recording and (gpuspy.current, gpuspy.peak, gpuspy.waits) == (0, 0, 0)
    t = Tensor(runtime, MIB)
    assert gpuspy.current == MIB
    t.item()
    del t
    assert (gpuspy.current, gpuspy.peak) == (0, MIB) and gpuspy.waits >= 1
"""


def line_of(comment, source=TESTS):
    (found,) = [i + 1 for i, line in enumerate(source.splitlines()) if line.endswith("# " + comment)]
    return found


@pytest.fixture
def session(tmp_path):
    def run(*words, source=TESTS, plugin=True, python="/usr/bin/python3", **more):
        (tmp_path / "test_it.py").write_text(source)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "PYTEST_", "SIMCUDA_"))}
        env.update(LD_LIBRARY_PATH=str(BUILD / "sim"), GPUSPY_LIB=str(BUILD / "libgpuspy.so"), TMPDIR=str(tmp_path),
                   PYTHONPATH=f"{ROOT / 'pytest-gpuspy'}:{ROOT / 'fixtures' / 'python'}", PYTHONDONTWRITEBYTECODE="1")
        env.update({k: str(v) for k, v in more.items()})
        env = {k: v for k, v in env.items() if v}
        plugins = ["-p", "pytest_gpuspy.plugin"] if plugin else []
        command = [python, "-m", "pytest", *plugins, "-p", "no:cacheprovider", "-rA", *words, "test_it.py"]
        return subprocess.run(list(map(str, command)), env=env, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=SECONDS)
    run.folder = tmp_path
    return run


def outcomes(done):
    return dict((name, word) for word, name in re.findall(r"^(PASSED|FAILED|XFAIL|ERROR|SKIPPED) test_it\.py::(\w+)", done.stdout, re.M))


EXPECTED = {"test_nothing": "PASSED", "test_fits": "PASSED", "test_needs_more": "FAILED", "test_keeps": "FAILED",
            "test_leaves_a_cycle": "PASSED", "test_waits": "FAILED", "test_known": "XFAIL", "test_fixture": "PASSED"}


@pytest.mark.parametrize("how", [[], ["-n", "2"], ["--forked"]], ids=["plain", "xdist", "forked"])
def test_limits(session, how):
    if how:
        pytest.importorskip("xdist" if "-n" in how else "pytest_forked")
    done = session("--gpuspy", *how)
    assert done.returncode == 1 and not done.stderr, done.stdout + done.stderr
    assert outcomes(done) == EXPECTED, done.stdout
    reported = re.sub(r"\s+", " ", done.stdout)
    assert "3.00 MiB of GPU memory at once, 1.00 MiB over its limit of 2.00 MiB" in reported
    assert "3.00 MiB of the GPU memory that the test allocated is still live" in reported
    assert re.search(r"waited for the GPU \d+ times, \d+ more than its limit of 2", reported)
    for comment, name in (("one", "needs_more"), ("two", "needs_more"), ("kept", "keeps"), ("waits", "waits")):
        assert f"test_it.py:{line_of(comment)} in test_{name}" in reported
    # the table: the peak of each test
    table = {name: size for size, name in re.findall(r"^ *([\d.]+ \w+) .* test_it\.py::(\w+)$", done.stdout, re.M)}
    assert table == {"test_fits": "2.00 MiB", "test_needs_more": "3.00 MiB", "test_keeps": "3.00 MiB",
                     "test_leaves_a_cycle": "1.00 MiB", "test_waits": "1.00 MiB", "test_known": "1.00 MiB",
                     "test_fixture": "1.00 MiB"}, done.stdout
    left = {p.name for p in session.folder.glob("pytest-gpuspy-*")}
    for _ in range(100):  # removed when pytest has ended
        if not left:
            break
        import time
        time.sleep(0.05)
        left = {p.name for p in session.folder.glob("pytest-gpuspy-*")}
    assert not left


def test_without_the_option_marks_do_nothing(session):
    done = session()
    assert all(word != "FAILED" for name, word in outcomes(done).items() if name != "test_fixture")
    assert "GPU memory of tests" not in done.stdout and "Unknown pytest.mark" not in done.stdout


def test_tests_that_never_touch_cuda_cost_nothing(session):
    done = session("--gpuspy", "--gpuspy-dir", "kept", source="""
import pytest
@pytest.mark.limit_gpu_memory("0")
@pytest.mark.limit_gpu_leaks("0")
@pytest.mark.limit_gpu_syncs(0)
def test_it(gpuspy):
    assert gpuspy.peak == 0
""")
    assert done.returncode == 0, done.stdout
    assert not list((session.folder / "kept").rglob("*.db")) and "GPU memory of tests" not in done.stdout


def test_recordings_can_be_kept_and_read(session):
    done = session("--gpuspy", "--gpuspy-dir", "kept", "--gpuspy-top", "2")
    assert len(re.findall(r"^ +[\d.]+ \w+ .* test_it\.py::", done.stdout, re.M)) == 2 and "--gpuspy-top=7" in done.stdout
    (database,) = (session.folder / "kept").rglob("*.db")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    report = subprocess.run([BUILD / "gpuspy", "report", "--full", database], env=env, text=True, stdout=subprocess.PIPE, timeout=SECONDS)
    assert report.returncode == 0 and "test_it.py::test_keeps" in report.stdout
    for bad in ("was killed", "events were lost"):
        assert bad not in report.stdout


def test_many_tests_are_measured_separately(session):
    source = HEAD + """
@pytest.mark.parametrize("n", range(40))
@pytest.mark.limit_gpu_memory(10 * MIB)
def test_n(runtime, n):
    for k in range(5):
        t = Tensor(runtime, (n % 12) * MIB + 4096)
        kept.append(Tensor(runtime, 4096))
"""
    done = session("--gpuspy", "--gpuspy-top", "100", source=source)
    wanted = {n: "FAILED" if 2 * ((n % 12) * MIB_ + 4096) + 4 * 4096 > 10 * MIB_ else "PASSED" for n in range(40)}
    found = {int(n): word for word, n in re.findall(r"^(PASSED|FAILED) test_it\.py::test_n\[(\d+)\]", done.stdout, re.M)}
    assert {n: word for n, word in found.items() if word != wanted[n]} == {}
    assert len(found) == 40


MIB_ = 1 << 20


@pytest.mark.parametrize("mark, reported", [
    ('limit_gpu_memory("lots")', "is not a size"), ("limit_gpu_syncs('a')", "whole number"), ("limit_gpu_memory(1, 2)", "one value"),
    ("limit_gpu_memory()", "is not a size"), ("limit_gpu_syncs()", "whole number"), ("limit_gpu_memory(limit=1)", "one value"),
])
@pytest.mark.parametrize("option", [["--gpuspy"], []], ids=["recorded", "not"])
def test_a_wrong_mark_is_a_usage_error(session, mark, reported, option):
    done = session(*option, source=f"import pytest\n@pytest.mark.{mark}\ndef test_it(): pass\n")
    lines = [line for line in (done.stdout + done.stderr).splitlines() if reported in line]
    assert done.returncode == 4 and len(lines) == 1 and "test_it.py::test_it: " + mark.partition("(")[0] in lines[0]
    assert "Traceback" not in done.stdout + done.stderr


def test_figures_without_a_recording_skip_the_test(session):
    source = """def test_peak(gpuspy): assert gpuspy.peak < 1 << 20
def test_asks(gpuspy): assert not gpuspy.recording
"""
    done = session("-rs", source=source)
    assert done.returncode == 0 and "1 passed, 1 skipped" in done.stdout
    assert "gpuspy.peak is measured only with 'pytest --gpuspy'" in done.stdout


def test_no_recorder_is_a_usage_error(session):
    done = session("--gpuspy", GPUSPY_LIB="/nowhere/libgpuspy.so")
    assert done.returncode == 4 and "GPUSPY_LIB names '/nowhere/libgpuspy.so'" in done.stderr
    copy = session.folder / "alone"
    shutil.copytree(ROOT / "pytest-gpuspy" / "pytest_gpuspy", copy / "pytest_gpuspy")
    done = session("--gpuspy", GPUSPY_LIB="", PYTHONPATH=copy, PATH="/usr/bin:/bin")
    assert done.returncode == 4 and "was not found" in done.stderr and "GPUSPY_LIB" in done.stderr
    done = session("--gpuspy", GPUSPY_LIB="", PYTHONPATH=f"{copy}:{ROOT / 'fixtures' / 'python'}", PATH=f"{BUILD}:/usr/bin:/bin")
    assert outcomes(done) == EXPECTED  # found beside the gpuspy on PATH
    for name, folder in (("gpuspy", "my env/bin"), ("libgpuspy.so", "my env/lib64")):
        (session.folder / folder).mkdir(parents=True)
        shutil.copy(BUILD / name, session.folder / folder)
    shutil.copytree(copy / "pytest_gpuspy", session.folder / "my env" / "pytest_gpuspy")
    done = session("--gpuspy", GPUSPY_LIB="", PYTHONPATH=f"{session.folder / 'my env'}:{ROOT / 'fixtures' / 'python'}", PATH="/usr/bin:/bin")
    assert outcomes(done) == EXPECTED, done.stderr  # beside the package, in a folder that LD_PRELOAD cannot name


def test_pytest_started_by_a_script(session):
    script = session.folder / "start.py"
    script.write_text("import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))\n")
    env = {"PYTHONPATH": f"{ROOT / 'pytest-gpuspy'}:{ROOT / 'fixtures' / 'python'}", "LD_LIBRARY_PATH": str(BUILD / "sim"),
           "GPUSPY_LIB": str(BUILD / "libgpuspy.so"), "PATH": os.environ["PATH"], "TMPDIR": str(session.folder)}
    (session.folder / "test_it.py").write_text(TESTS)
    done = subprocess.run([sys.executable, script, "-p", "pytest_gpuspy.plugin", "-p", "no:cacheprovider", "-rA", "--gpuspy",
                           "test_it.py"], env=env, cwd=session.folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS)
    assert outcomes(done) == EXPECTED, done.stdout + done.stderr


def test_it_installs_from_the_checkout_without_a_network(tmp_path):
    made = subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", tmp_path / "env"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if made.returncode:
        pytest.skip(f"no virtual environment: {made.stdout.strip()[:200]}")
    python = tmp_path / "env" / "bin" / "python"
    before = sorted(p for p in (ROOT / "pytest-gpuspy").rglob("*") if "__pycache__" not in p.parts)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "PYTHON", "PIP_"))}
    for way in ([], ["-e"]):
        done = subprocess.run([python, "-m", "pip", "install", "--no-index", "--force-reinstall", "--no-deps", *way,
                               ROOT / "pytest-gpuspy"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=SECONDS)
        assert done.returncode == 0, done.stdout
        helped = subprocess.run([python, "-m", "pytest", "--help"], env=env, stdout=subprocess.PIPE, text=True,
                                cwd=tmp_path, timeout=SECONDS)
        assert "--gpuspy-dir" in helped.stdout
        if not way:  # only of a copy does pytest know the files
            late = subprocess.run([python, "-c", "import pytest, pytest_gpuspy; pytest.main([])"], env=env, cwd=tmp_path,
                                  stdout=subprocess.PIPE, text=True, timeout=SECONDS)
            assert "no tests ran" in late.stdout and "already imported" not in late.stdout, late.stdout
    checked = subprocess.run([python, "-m", "pip", "check"], env=env, stdout=subprocess.PIPE, text=True, timeout=SECONDS)
    assert "pytest-gpuspy" not in checked.stdout
    assert before == sorted(p for p in (ROOT / "pytest-gpuspy").rglob("*") if "__pycache__" not in p.parts)


def test_sizes():
    sys.path.insert(0, str(ROOT / "pytest-gpuspy"))
    try:
        from pytest_gpuspy.units import format_bytes, parse_bytes
    finally:
        sys.path.pop(0)
    assert [parse_bytes(t) for t in ("1 GiB", "1G", "1.5MiB", "0", "10kB", 7, "12 b")] == [1 << 30, 1 << 30, 3 << 19, 0, 10000, 7, 12]
    for bad in ("", "GiB", "10", "-1", "1 GB/s", None, -1, True, "1 2"):
        with pytest.raises(ValueError):
            parse_bytes(bad)
    assert [format_bytes(n) for n in (0, 1023, 1024, 3 << 29)] == ["0 B", "1023 B", "1.00 KiB", "1.50 GiB"]
