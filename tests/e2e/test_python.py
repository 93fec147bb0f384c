"""The Python package: a recording as data, marks in a recorded program, magics in a notebook's shell."""
import importlib
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import types

import pytest
from conftest import BUILD, ROOT
from rows import GIB, MIB, Rows

PATHS = f"{ROOT / 'python'}:{ROOT / 'pytest-gpuspy'}"
MARKING = """
import ctypes, gpuspy
cuda = ctypes.CDLL("libcudart.so.13")
cuda.cudaFree(None)  # recording begins with the first call
gpuspy.mark("begin")
with gpuspy.scope("load"):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0
"""


@pytest.fixture
def gpuspy(monkeypatch):
    for path in PATHS.split(":"):
        monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("PATH", f"{BUILD}:/usr/bin:/bin")
    yield importlib.import_module("gpuspy")
    for name in [n for n in sys.modules if n.split(".")[0] in ("gpuspy", "pytest_gpuspy")]:
        del sys.modules[name]


@pytest.fixture
def run(recording, gpuspy):
    with Rows(recording.database) as r:
        r.device()
        at = r.stack("/home/me/train.py:9 step")
        r.block(1, 20 * GIB, None, at)
        r.oom(2, 8 * GIB, 4 * GIB, 24 * GIB, stack=at)
    return gpuspy.open(recording.database)


def test_a_recording_is_data(run, recording):
    assert run.report() == recording.report() and run.report("--only", "oom").keys() < run.report().keys()
    assert run.peak[0]["bytes"] == 20 * GIB and run.ooms[0]["cause"] == "oversized_request" or run.ooms
    assert run.table("allocations", "rows")[0]["bytes"] == 20 * GIB
    assert "Out of memory" in run._repr_html_() and "Peak 20.00 GiB" in run._repr_html_()


def test_the_package_has_the_programs_version(gpuspy):
    printed = subprocess.run(["gpuspy", "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert f"gpuspy {gpuspy.__version__}" == printed.splitlines()[0]


def column_types(table):
    if type(table).__module__.startswith("pyarrow"):
        return {field.name: str(field.type) for field in table.schema}
    return {name: str(kind) for name, kind in dict(table.dtypes if hasattr(table, "iloc") else table.schema).items()}


@pytest.mark.parametrize("kind, whole, text", [("arrow", ["int64"], ["string"]), ("pandas", ["int64", "Int64"], ["str", "object"]),
                                               ("polars", ["Int64"], ["String", "Utf8"])])
def test_tables_of_each_kind(run, gpuspy, kind, whole, text):
    """Types do not depend on what happened in the run: tables of two runs can be joined. No integer becomes a float for a NULL."""
    pytest.importorskip({"arrow": "pyarrow"}.get(kind, kind))
    for name, rows, texts in ("allocation", 1, ()), ("allocations", 1, ("layer", "space", "api")), ("copies", 0, ("host_memory", "direction", "api")), \
            ("ooms", 1, ("layer", "space", "api")), ("leaks", None, ("layer", "space", "function", "file", "api")):
        table = run.table(name, kind)
        assert rows is None or len(table) == rows
        for column, found in column_types(table).items():
            assert found in (text if column in texts else whole), (name, column, found)
    freed = run.table("allocation", kind)["free_ns"]
    assert (freed.null_count if kind == "arrow" else freed.isna().sum() if kind == "pandas" else freed.null_count()) == 1
    assert column_types(run.table("copy_sites", kind))["blocked_s"].lower() in ("double", "float64")


def test_an_error_is_one_line(run, gpuspy, tmp_path):
    bad = tmp_path / "bad.db"
    bad.write_text("no database")
    for act in (lambda: run.table("nothing"), lambda: run.table("allocations", "excel"), lambda: gpuspy.open(bad).report(),
                lambda: gpuspy.open(tmp_path / "none.db"), lambda: gpuspy.open(bad).table("allocations")):
        with pytest.raises(gpuspy.GpuspyError) as error:
            act()
        assert str(error.value).count("\n") == 0 and len(str(error.value)) > 20 and not str(error.value).startswith("gpuspy: ")


FORKS = """import ctypes, os
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(n):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n << 20)) == 0
if os.fork() == 0:
    allocate(1)
    os._exit(0)
os.wait()
allocate(2)
os.kill(os.getpid(), 9)
"""


def test_the_program_beside_the_package(run, tmp_path):
    """As pip --target and --user leave them: PATH does not have it."""
    for package in (ROOT / "python" / "gpuspy", ROOT / "pytest-gpuspy" / "pytest_gpuspy"):
        shutil.copytree(package, tmp_path / "lib" / "site" / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": tmp_path / "lib" / "site", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "gpuspy", "report", "--only", "oom", run.path]
    def output():
        return subprocess.run(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert output().stdout == "gpuspy: the program 'gpuspy' is neither beside this package nor on PATH; pip install gpuspy\n"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gpuspy").symlink_to(BUILD / "gpuspy")
    assert output().returncode == 0 and "train.py:9" in output().stdout


def test_all_processes_of_a_run_though_killed(recording, gpuspy):
    recording.python(FORKS, check=False)
    for path in recording.database, recording.folder, os.fsencode(recording.database):
        rows = gpuspy.open(path).table("allocations", "rows")
        assert sorted((row["process_id"], row["bytes"]) for row in rows) == [(1, 1 << 20), (2, 2 << 20)], path
    found = gpuspy.open(recording.folder).rows("SELECT bytes, '?' AS mark, ? AS given FROM allocations WHERE bytes > ?",
                                               ("it's", 1 << 20))
    assert found == [{"bytes": 2 << 20, "mark": "?", "given": "it's"}]


def test_folders(recording, gpuspy, run):
    with pytest.raises(gpuspy.GpuspyError, match="no database"):
        (recording.folder / "empty").mkdir()
        gpuspy.open(recording.folder / "empty").table("allocations")
    assert gpuspy.open(recording.folder).table("allocations", "rows") == run.table("allocations", "rows")
    assert run.table("copies", "rows") == []


def test_another_tools_recording_is_a_table_too(tmp_path, gpuspy):
    path = tmp_path / "snapshot.pickle"
    block = {"size": 512, "requested_size": 512, "address": 1 << 40, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": 1 << 40, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512, "stream": 0,
               "segment_type": "small", "blocks": [block]}
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    assert [row["bytes"] for row in gpuspy.open(path).table("allocations", "rows") if row["layer"] == "tensor"] == [512]


def test_one_that_is_still_written(recording, gpuspy):
    program = subprocess.Popen([sys.executable, "-c", FORKS.split("if os")[0] + "allocate(1)\nprint(flush=True)\ninput()\nallocate(4)\n"],
                               cwd=recording.folder, env=recording.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program.stdout.readline()
    while not recording.database.exists():
        pass
    run = gpuspy.open(recording.database)
    assert run.report()["run"]["processes"][0]["recording"] and isinstance(run.table("allocations", "rows"), list)
    program.communicate(b"\n")
    assert run.peak[0]["bytes"] == 5 << 20 and len(run.table("allocations", "rows")) == 2


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_empty_and_mixed_columns(run, gpuspy, kind):
    pytest.importorskip({"arrow": "pyarrow"}.get(kind, kind))
    empty = run.table("copies", kind)
    columns = empty.column_names if kind == "arrow" else list(empty.columns)
    assert len(empty) == 0 and {"direction", "bytes"} <= set(columns)
    assert len(run.table("meta", kind)) > 0


def test_names_that_are_not_utf8(recording, gpuspy):
    with Rows(recording.database) as r:
        r.device()
        r.db.execute("INSERT INTO meta VALUES('odd', CAST(x'ff41' AS TEXT))")
    assert gpuspy.open(recording.database).rows("SELECT value FROM meta WHERE key='odd'")[0]["value"] == "\ufffdA"


def test_a_display_is_no_traceback(tmp_path, gpuspy):
    (tmp_path / "empty.db").touch()
    assert "it is empty" in gpuspy.open(tmp_path / "empty.db")._repr_html_()


def test_the_schema_that_it_knows(gpuspy):
    from gpuspy.reader import SCHEMA
    assert f"#define GS_SCHEMA_VERSION {SCHEMA}\n" in (ROOT / "schema" / "store.h").read_text()


def test_marks_are_in_the_recording(recording):
    recording.python(MARKING, PYTHONPATH=PATHS)
    assert {(m["name"], m["count"]) for m in recording.report()["marks"]} >= {("load", 1)}


SCOPES = """
import asyncio, ctypes, gpuspy
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(n):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n << 20)) == 0
    return p
@gpuspy.scope("plain")
def plain(n): return allocate(1) if n == 0 else plain(n - 1)
@gpuspy.scope("generator")
def generator():
    cuda.cudaFree((yield allocate(2)))
    return 7
@gpuspy.scope("coroutine")
async def coroutine():
    p = allocate(2)
    await asyncio.sleep(0)
    cuda.cudaFree(p)
    return 5
cuda.cudaFree(None)  # recording begins with the first call
again = gpuspy.scope("again")
with again, again: pass
try:
    with again: raise KeyError
except KeyError: pass
with gpuspy.scope(3), gpuspy.scope("\\ud800"): gpuspy.mark(None)  # as without the recorder
plain(2)
running = generator()
try: running.send(next(running))
except StopIteration as end: assert end.value == 7
async def both(): return await asyncio.gather(coroutine(), coroutine())
assert asyncio.run(both()) == [5, 5]
"""


def test_scopes_of_every_kind(recording):
    recording.python(SCOPES, PYTHONPATH=PATHS)
    found = {s["name"]: (s["count"], s["peak_bytes"] >> 20, s["exit_bytes"] >> 20) for s in recording.report()["scopes"]}
    assert found == {"plain": (3, 1, 1), "generator": (1, 3, 1), "coroutine": (2, 5, 1), "again": (3, 0, 0), "3": (1, 0, 0), "?": (1, 0, 0)}


@pytest.mark.parametrize("source", ["import gpuspy\nwith gpuspy.scope('x'):\n    gpuspy.mark('y')\n",
                                    SCOPES.replace("cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n << 20))", "0")])
def test_marks_cost_nothing_where_nothing_records(recording, source):
    recording.python(source, PYTHONPATH=PATHS, LD_PRELOAD="")
    assert not recording.database.exists()


def test_a_sqlite_that_is_too_old_is_left_out(run, gpuspy, monkeypatch):
    """Debian 11's and RHEL 8's Python: gpuspy's own reads then."""
    expected = run.table("allocations", "rows")
    monkeypatch.setattr("gpuspy.reader.sqlite3.sqlite_version_info", (3, 26, 0))
    monkeypatch.setattr("gpuspy.reader.sqlite3.connect", lambda path, *more, connect=sqlite3.connect, **kw: connect(
        path if path == ":memory:" else "/nowhere/run.db", *more, **kw))
    assert run.table("allocations", "rows") == expected


def test_magics(run, gpuspy, capsys):
    class Shell:
        events = types.SimpleNamespace(register=lambda name, function: None)
        compile = None

        def register_magic_function(self, function, kind, name):
            self.magic = function

        def run_cell(self, cell):
            self.ran = cell
            return types.SimpleNamespace(success=True)

    shell = Shell()
    gpuspy.load_ipython_extension(shell)
    assert shell.magic("report") is None and "Nothing is recorded" in capsys.readouterr().out
    assert shell.magic(f"report --full {run.path}").path == run.path and "peak" in capsys.readouterr().out
    with pytest.raises(Exception, match="No such file"):
        shell.magic("report none.db")
    shell.magic("load", "x = 1")
    assert shell.ran == "x = 1"
    with pytest.raises(Exception, match="type %gpuspy report"):
        shell.magic("rep")


def test_an_error_names_the_package_and_the_damage(gpuspy, run, recording, monkeypatch):
    for module in "pyarrow", "pandas", "polars":
        monkeypatch.setitem(sys.modules, module, None)
    assert isinstance(run.table("allocations"), list)
    for kind, package in ("arrow", "pyarrow"), ("polars", "polars"):
        with pytest.raises(gpuspy.GpuspyError, match=f"pip install {package}$"):
            run.table("allocations", kind)
    whole = recording.database.read_bytes()
    recording.database.write_bytes(whole[:len(whole) // 2])
    with pytest.raises(gpuspy.GpuspyError, match="is truncated"):
        gpuspy.open(recording.database).table("allocations", "rows")
