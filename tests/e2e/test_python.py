"""The Python package: a recording as data, marks in a recorded program, magics in a notebook's shell."""
import importlib
import sys

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


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars"])
def test_tables_of_each_kind(run, gpuspy, kind):
    pytest.importorskip({"arrow": "pyarrow"}.get(kind, kind))
    table = run.table("allocations", kind)
    assert len(table) == 1


def test_what_is_wrong_is_one_line(run, gpuspy, tmp_path):
    bad = tmp_path / "bad.db"
    bad.write_text("no database")
    for act in (lambda: run.table("nothing"), lambda: run.table("allocations", "excel"), lambda: gpuspy.open(bad).report(),
                lambda: gpuspy.open(tmp_path / "none.db"), lambda: gpuspy.open(bad).table("allocations")):
        with pytest.raises(gpuspy.GpuspyError) as error:
            act()
        assert str(error.value).count("\n") == 0 and len(str(error.value)) > 20


def test_marks_are_in_the_recording(recording):
    recording.python(MARKING, PYTHONPATH=PATHS)
    assert {(m["name"], m["count"]) for m in recording.report()["marks"]} >= {("load", 1)}


def test_marks_cost_nothing_where_nothing_records(recording):
    recording.python("import gpuspy\nwith gpuspy.scope('x'):\n    gpuspy.mark('y')\n", PYTHONPATH=PATHS, LD_PRELOAD="")
    assert not recording.database.exists()


def test_magics(run, gpuspy, capsys):
    class Shell:
        def register_magic_function(self, function, kind, name):
            self.magic = function

        def run_cell(self, cell):
            self.ran = cell

    shell = Shell()
    gpuspy.load_ipython_extension(shell)
    assert shell.magic("report") is None and "Nothing is recorded" in capsys.readouterr().out
    shell.magic("load", "x = 1")
    assert shell.ran == "x = 1"
    with pytest.raises(Exception, match="type %gpuspy report"):
        shell.magic("rep")
