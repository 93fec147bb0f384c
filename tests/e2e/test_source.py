"""The text of the program's own Python files in a recording."""
import json
import os
import re
import sqlite3
import sys
import time
import zipapp
import zipfile

import pytest

from conftest import BUILD, ROOT
from test_views import terminal

PROGRAM = """
import ctypes, os, signal, sys
lib = ctypes.CDLL("libcudart.so.13")
api_key = "SECRETabc"
def step(n):
    p = ctypes.c_void_p()
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20 + n)) == 0
    return p
kept = [step(n) for n in range(4)]
exec(compile("step(5)", "settings.yaml", "exec"))
exec(compile("step(5)", "<string>", "exec"))
"""
STORED = "select file, bytes, left_out, text from source order by file"


def sources(recording):
    return {file: (left_out, text) for file, _, left_out, text in recording.sql(STORED)}


def test_the_text_is_stored_and_masked(recording):
    (recording.folder / "settings.yaml").write_text("not: a program\n")
    recording.python(PROGRAM)
    found = sources(recording)
    script = str(recording.folder / "script.py")
    assert found == {script: (None, PROGRAM.replace("SECRETabc", "***")), "settings.yaml": ("missing", None)}
    assert recording.sql("select bytes from source where text is not null") == [(len(found[script][1]),)]
    assert recording.sql("select value from meta where key = 'sources'") == [(1,)]


@pytest.mark.parametrize("source", ["1", "0"])
def test_the_program_of_a_command_line(recording, source):
    """`python -c`: the recorded command contains it."""
    leak = PROGRAM.split("kept")[0] + "kept = []\nwhile True:\n    part = step(0)\n    kept.append(part)\n"
    recording.run(sys.executable, "-c", leak, SIMCUDA_MEMORY="768MiB", GPUSPY_SOURCE=source, check=False)
    oom = recording.report()["oom"][0]
    assert [h["text"] for h in oom["holders"]] == (["kept.append(part)"] if source == "1" else [])
    assert "SECRET" not in recording.gpuspy("report", "--full", recording.database).stdout


@pytest.mark.parametrize("compressed", [True, False])
def test_the_program_of_an_archive(recording, compressed):
    """zipapp's: the text is read from the archive, unless that is damaged or younger than the recording."""
    leak = PROGRAM.split("kept")[0] + "kept = []\nwhile True:\n    part = step(0)\n    kept.append(part)\n"
    (recording.folder / "app").mkdir()
    (recording.folder / "app" / "loop.py").write_text(leak)
    (recording.folder / "app" / "__main__.py").write_text("import loop\n")
    archive = recording.folder / "app.pyz"
    zipapp.create_archive(recording.folder / "app", archive, "/usr/bin/python3", compressed=compressed)
    with zipfile.ZipFile(archive, "a") as twice, pytest.warns(UserWarning, match="Duplicate name"):
        twice.writestr("loop.py", leak.replace("kept", "held"), twice.getinfo("loop.py").compress_type)  # Python imports it
    recording.run(sys.executable, "app.pyz", SIMCUDA_MEMORY="768MiB", check=False)
    assert [h["text"] for h in recording.report()["oom"][0]["holders"]] == ["held.append(part)"]
    shown = recording.gpuspy("report", "--full", recording.database).stdout
    assert "assert lib.cudaMalloc" in shown and "SECRET" not in shown
    whole, times = archive.read_bytes(), archive.stat()
    for at in range(20, len(whole), 29):
        archive.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1:] if at % 2 else whole[:at])
        os.utime(archive, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert recording.report()["oom"]
    archive.write_bytes(whole)
    os.utime(archive, (time.time() + 60, time.time() + 60))
    assert recording.report()["oom"][0]["holders"] == []


def test_text_that_a_command_line_executes_is_not_taken_for_its_own(recording):
    """Frames of exec(text) are named "<string>", as those of the command are; text that is compiled has a name."""
    leak = PROGRAM.split("kept")[0] + "kept = []\nwhile True:\n    part = step(0)\n    kept.append(part)\n"
    (recording.folder / "job.txt").write_text(leak)
    shift = "".join(f"model_eval = {i}; logged = [].append({i})\n" for i in range(20))
    recording.run(sys.executable, "-c", shift + "exec(open('job.txt').read())", SIMCUDA_MEMORY="768MiB", check=False)
    oom = recording.report()["oom"][0]
    verdict = recording.gpuspy("report", "--full", recording.database).stdout.split("OUT OF MEMORY")[1]
    assert oom["holders"] == [] and "<string>:" in verdict and "logged = " not in verdict
    recording.database.unlink()
    shift = "class Model:\n    def eval(self): return self\nexec(compile('1', 'one.py', 'exec'))\nmodel = Model().eval()\n"
    recording.run(sys.executable, "-c", shift + leak, SIMCUDA_MEMORY="768MiB", check=False)
    assert [h["text"] for h in recording.report()["oom"][0]["holders"]] == ["kept.append(part)"]


def test_nothing_is_stored_against_the_users_will(recording):
    recording.python(PROGRAM, GPUSPY_SOURCE="0")
    assert sources(recording) == {}
    assert recording.sql("select value from meta where key = 'sources'") == [(0,)]


def test_a_killed_process_has_it(recording):
    recording.python(PROGRAM + "os.kill(os.getpid(), signal.SIGKILL)\n", check=False)
    assert recording.gpuspy("report", recording.database).returncode == 0
    assert "kept = [step(n)" in sources(recording)[str(recording.folder / "script.py")][1]


def record_changed(recording, change):
    """A recording of a module that `change` modified while it ran."""
    (recording.folder / "part.py").write_text("def part(step):\n    return step(7)\n")
    recording.python(PROGRAM + f"import part\nstep(9)\n{change}\npart.part(step)\n")
    return sources(recording)[str(recording.folder / "part.py")]


@pytest.mark.parametrize("change, why", [
    ("open(part.__file__, 'a').write('# later')", "changed"),
    ("open(part.__file__, 'a').write('# later'); os.utime(part.__file__, (1, 1))", "changed"),
    ("os.remove(part.__file__)", "missing"),
    ("os.remove(part.__file__); os.mkfifo(part.__file__)", "missing"),
    ("os.remove(part.__file__); os.symlink('/dev/zero', part.__file__)", "missing"),
    ("os.remove(part.__file__); os.mkdir(part.__file__)", "missing"),
    ("pass", None),
])
def test_only_what_ran_is_stored(recording, change, why):
    left_out, text = record_changed(recording, change)
    assert left_out == why and (text is None) == (why is not None)


@pytest.mark.parametrize("ahead, why", [(30, "changed"), (3600, None), (60 * 365 * 86400, None)])
def test_a_time_in_the_future_is_not_a_change(recording, ahead, why):
    """On a machine whose clock starts in 1970, all files were written in the future."""
    part = recording.folder / "part.py"
    part.write_text("def part(step):\n    return step(7)\n")
    os.utime(part, (time.time() + ahead,) * 2)
    recording.python(PROGRAM + "import part\nstep(9)\npart.part(step)\n")
    assert sources(recording)[str(part)][0] == why


def module(folder, name, size):
    text = "def part(step):\n    return step(7)\n"
    (folder / f"{name}.py").write_text(text + "#" * (size - len(text) - 1) + "\n")


def test_the_room_is_bounded(recording):
    names = [f"part{n:02}" for n in range(20)]
    for name in names:
        module(recording.folder, name, 250 << 10)
    module(recording.folder, "large", (256 << 10) + 1)
    module(recording.folder, "fits", 256 << 10)
    calls = "".join(f"import {name}\n{name}.part(step)\n" for name in ["large", "fits", *names])
    recording.python(PROGRAM + calls)
    found = sources(recording)
    assert found[str(recording.folder / "large.py")] == ("large", None)
    assert len(found[str(recording.folder / "fits.py")][1]) == 256 << 10
    assert sum(why == "full" for why, _ in found.values()) == 5
    total = recording.sql("select sum(bytes), sum(length(text)) from source")[0]
    assert total[0] == total[1] <= 4 << 20


def test_reading_the_files_slowly_is_not_a_hang(recording):
    """All are read in one transaction, which takes longer than a recorder without progress may hold up the end."""
    names = [f"part{n:02}" for n in range(20)]
    for name in names:
        module(recording.folder, name, 1000)
    preload = f"{recording.environment()['LD_PRELOAD']}:{BUILD / 'programs' / 'hung_disk.so'}"
    recording.python(PROGRAM + "".join(f"import {name}\n{name}.part(step)\n" for name in names), LD_PRELOAD=preload, SLOW_READ_MS="300")
    assert sum(text is not None for _, text in sources(recording).values()) == 21
    assert recording.sql("select complete from process") == [(1,)]


def test_libraries_are_not_stored(recording):
    folder = recording.folder / "site-packages"
    folder.mkdir()
    module(folder, "installed", 100)
    recording.python(PROGRAM + "import installed\ninstalled.part(step)\n", PYTHONPATH=folder)
    assert not any("site-packages" in file for file in sources(recording))


def test_a_relative_name_is_of_the_folder_where_it_began(recording):
    (recording.folder / "script.py").write_text(PROGRAM + "os.chdir('/')\n" + "exec(compile('step(6)', 'b.py', 'exec'))\n")
    (recording.folder / "b.py").write_text("step(6)\n")
    recording.run(sys.executable, "script.py")
    assert sources(recording)["b.py"] == (None, "step(6)\n")


def test_bytes_that_are_not_text(recording):
    (recording.folder / "part.py").write_bytes(b"# coding: latin-1\n# \xe9\ndef part(step):\r\n    return step(7)\r\n")
    recording.python(PROGRAM + "import part\npart.part(step)\n")
    assert sources(recording)[str(recording.folder / "part.py")][1].splitlines()[1] == "# \ufffd"


def test_a_file_that_was_read_keeps_its_times(recording):
    recording.python(PROGRAM)
    os.utime(recording.folder / "script.py", (1000, 1000))
    recording.database.unlink()
    recording.run(sys.executable, "-c", "exec(compile(open('script.py').read(), 'script.py', 'exec'))")
    time.sleep(0.01)
    assert sources(recording)["script.py"][1] == PROGRAM.replace("SECRETabc", "***")


def test_an_unfinished_recording_without_the_table_is_completed(recording):
    """As left by a gpuspy version that did not store source."""
    recording.python(PROGRAM + "os.kill(os.getpid(), signal.SIGKILL)\n", check=False)
    with sqlite3.connect(recording.database) as db:
        db.execute("drop table source")
        db.execute("delete from meta where key = 'sources'")
    db.close()
    report = recording.report()
    assert report["run"]["lost_events"] == 0 and sum(p["count"] for p in report["peak"]) >= 4


LEAK = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
kept = []
def step():
    p = ctypes.c_void_p()
    if lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(16 << 20)):
        raise MemoryError
    return p
def train():
    for n in range(1000):
        kept.append(step())  # \x1b[31m\u202e
train()
"""


@pytest.fixture
def leak(recording):
    recording.python(LEAK, SIMCUDA_MEMORY="512MiB", check=False)
    return recording


def shown(recording):
    """The lines of source in the report, by call site."""
    report = recording.report()
    (oom,) = report["oom"]
    for row in oom["source"] + [row for g in report["growth"] for row in g["source"]]:
        assert row["text"] == LEAK.split("\n")[row["line"] - 1] and row["file"].endswith("script.py")
    return [(row["line"], row["marked"], row["from_disk"]) for row in oom["source"]]


def edit(recording, sql):
    with sqlite3.connect(recording.database) as db:
        db.executescript(sql)
    db.close()


def test_the_report_shows_lines_on_another_machine(leak):
    os.remove(leak.folder / "script.py")
    assert shown(leak)[:3] == [(6, False, False), (7, True, False), (8, False, False)]


def test_the_marked_line_has_its_amount(recording):
    recording.python(LEAK, SIMCUDA_MEMORY="2GiB", check=False)
    text = recording.gpuspy("report", "--full", recording.database).stdout
    assert re.search(r"  Source  script.py:7 step: 16.00 MiB (per step|each time)\n +6 [│|] .*\n +[▸>] +7 [│|] .*\n +8 [│|] ", text), text


def test_on_a_terminal_the_line_is_a_link(recording):
    recording.python(LEAK, SIMCUDA_MEMORY="2GiB", check=False)
    text = terminal("report", recording.database, columns=100, PAGER="cat")
    link = f"\x1b]8;;file://{recording.folder}/script.py#7\x1b\\script.py:7\x1b]8;;\x1b\\"
    assert re.search(r"Source.*" + re.escape(link), text if isinstance(text, str) else text.decode()), text


TWO_LINES = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
p = ctypes.byref(ctypes.c_void_p())

# the weights
assert lib.cudaMalloc(p, ctypes.c_size_t(1800 << 20)) == 0
print("loaded")
# the batch
if lib.cudaMalloc(p, ctypes.c_size_t(300 << 20)):
    raise MemoryError
"""


def test_the_line_that_holds_memory_and_the_line_that_failed(recording):
    """Also on one screen, if it has the room."""
    recording.python(TWO_LINES, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="100MiB", check=False)
    text = recording.gpuspy("report", recording.database).stdout
    shown = re.findall(r"  Source  script.py:(\d+) [^:\n]+: (.*)\n(?:.*\n)?? +[▸>] +(\d+) ", text)
    assert shown == [("7", "holds 1.76 GiB", "7"), ("10", "requests 300.00 MiB", "10")] and len(text.splitlines()) <= 40, text


def test_an_older_recording_is_shown_with_the_file_itself(leak):
    edit(leak, "drop table source; delete from meta where key = 'sources'")
    assert (7, True, True) in shown(leak)
    os.utime(leak.folder / "script.py")
    assert shown(leak) == []  # the file is newer than the recording
    os.remove(leak.folder / "script.py")
    os.mkfifo(leak.folder / "script.py")
    assert shown(leak) == []


def cell_name(text):
    """The number that ipykernel gives a cell: MurmurHash2"""
    data, m, low = text.encode(), 0x5bd1e995, 0xffffffff
    h = 0xc70f6907 ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at:at + 4], "little") * m & low
        h = h * m & low ^ (k ^ k >> 24) * m & low
    if data[whole:]:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & low
    h = (h ^ h >> 13) * m & low
    return h ^ h >> 15


@pytest.mark.parametrize("number, name", [("", "In [9]"), ("7", "In [3]")])
def test_marks_of_another_kernel_do_not_number_a_cell(recording, number, name):
    recording.python(f"""{LEAK}
import os
from gpuspy import marks
path = os.path.abspath(f"ipykernel_{{os.getpid()}}{number}/5.py")
os.mkdir(os.path.dirname(path))
with open(path, "w") as file:
    print("kept.append(step())", "# In [3]", sep=chr(10), file=file)
exec(compile("kept.append(step())", path, "exec"))
marks.mark("In [9] runs In [8] again")
marks.mark("In [8] runs In [3] again")
""".replace("range(1000)", "range(2)"), PYTHONPATH=f"{ROOT}/python:{ROOT}/pytest-gpuspy")
    tree = recording.gpuspy("tree", "--json", recording.database).stdout
    assert f'"{name}"' in tree, tree
    recording.gpuspy("export", recording.database, "-o", recording.folder / "cell.pickle")
    recording.gpuspy("import", recording.folder / "cell.pickle", "-o", recording.folder / "cell.db")
    kind = f"select kind from frames where file = '{name}'"
    assert "python" in recording.gpuspy("sql", recording.folder / "cell.db", kind).stdout


def test_the_last_line_of_a_script_is_not_the_number_of_a_cell(recording):
    recording.python(LEAK.split("def step")[0] + """for n in range(100):
    kept.append(lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(16 << 20)))
# In [5]
""", SIMCUDA_MEMORY="1GiB")
    assert "# In [5]" in recording.gpuspy("report", "--full", recording.database).stdout


def as_notebook(text, listed, count=None):
    source = text.splitlines(keepends=True) if listed else text
    cells = [{"cell_type": "markdown", "source": text}, {"cell_type": "code", "source": "x = 1", "execution_count": count},
             {"cell_type": "code", "source": source, "execution_count": count and count + 1}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("more", ["", "#", "# é", "# 日本"])
def test_a_cell_without_a_file_is_found_in_its_notebook(recording, listed, more):
    """nbconvert and papermill do not load gpuspy's extension, so the kernel's file of a cell does not exist."""
    cell = "\n\n" + LEAK.lstrip("\n") + more
    name = f"/tmp/ipykernel_7/{cell_name(cell)}.py"
    (recording.folder / "a.ipynb").write_text("{")
    (recording.folder / "job.ipynb").write_text(as_notebook(cell, listed))
    os.mkfifo(recording.folder / "pipe.ipynb")
    run = f"\nexec(compile({cell.lstrip()!r}, {name!r}, 'exec'), globals())"  # IPython drops the empty lines
    recording.python(run, SIMCUDA_MEMORY="512MiB", check=False)
    report = recording.report()
    found = [row for row in report["oom"][0]["source"] if row["marked"]]
    assert found and all(row["from_disk"] and row["file"] == "cell 2" for row in found)
    assert found[0]["text"] == cell.lstrip().split("\n")[found[0]["line"] - 1]
    assert {row["cell"] for row in found} == {"code cell 2 of job.ipynb"}
    (recording.folder / "out.ipynb").write_text(as_notebook(cell, listed))  # papermill's copy
    assert {row["cell"] for row in recording.report()["oom"][0]["source"] if row["marked"]} == {"code cell 2"}
    (recording.folder / "out.ipynb").write_text(as_notebook("", listed).replace("x = 1", json.dumps(cell)[1:-1]))
    assert {row["cell"] for row in recording.report()["oom"][0]["source"] if row["marked"]} == {None}
    (recording.folder / "out.ipynb").unlink()
    assert "(code cell 2 of job.ipynb, read from disk)" in recording.gpuspy("report", recording.database).stdout
    (recording.folder / "job.ipynb").write_text(as_notebook(cell, listed, count=6))
    report = recording.gpuspy("report", recording.database).stdout
    assert f"In [7]:{found[0]['line']}" in report and str(cell_name(cell)) not in report, report
    (recording.folder / "job.ipynb").write_text(as_notebook(cell + " ", listed))  # edited since
    assert recording.report()["oom"][0]["source"] == []
    (recording.folder / "job.ipynb").write_text(as_notebook(cell, listed))
    edit(recording, "update meta set value = '0' where key = 'sources'")
    assert recording.report()["oom"][0]["source"] == []


def test_the_same_cell_of_two_kernels(recording):
    """Two notebooks have it, one of them twice: which one ran is unknown, its number is not."""
    cell = LEAK.replace("1000", "40")
    code = [{"cell_type": "code", "source": text} for text in ("x = 1", cell, cell)]
    (recording.folder / "a.ipynb").write_text(json.dumps({"cells": code}))
    (recording.folder / "b.ipynb").write_text(as_notebook(cell, False))
    names = [f"/tmp/ipykernel_{kernel}/{cell_name(cell)}.py" for kernel in (7, 8)]
    recording.python("".join(f"\nexec(compile({cell!r}, {name!r}, 'exec'), globals())" for name in names),
                     SIMCUDA_MEMORY="1536MiB", check=False)
    failed = [row for row in recording.report()["oom"][0]["source"] if row["marked"]]
    assert {(row["file"], row["cell"]) for row in failed} == {(names[1], "code cell 2")}, failed


OTHERS = ["/tmp/ipython-input-{}.py", "/tmp/xpython_7/{}.py", "/root/.ipykernel/9/command-17-{}"]


@pytest.mark.parametrize("form, unknown", zip(OTHERS, ("ipython-input-{}.py:", "{}.py:", "<command-17>:")))
def test_cells_of_other_kernels(recording, form, unknown):
    """Colab, xeus-python and Databricks. The notebook can be beside the recording, as after a download."""
    name = form.format(cell_name(LEAK))
    (recording.folder / "there").mkdir()
    recording.python(f"\nexec(compile({LEAK!r}, {name!r}, 'exec'), globals())", SIMCUDA_MEMORY="512MiB", check=False)
    edit(recording, f"update process set cwd = '{recording.folder}/there'")
    report = recording.gpuspy("report", recording.database).stdout
    assert unknown.format(cell_name(LEAK)) in report and "In [" not in report, report
    (recording.folder / "job.ipynb").write_text(as_notebook(LEAK, True))
    assert "(code cell 2 of job.ipynb, read from disk)" in recording.gpuspy("report", recording.database).stdout


def test_a_cell_in_a_file_without_ending(recording):
    """Databricks: the kernel's file has the text."""
    name = recording.folder / f".ipykernel/9/command-17-{cell_name(LEAK)}"
    name.parent.mkdir(parents=True)
    name.write_text(LEAK)
    recording.python(f"\nexec(compile({LEAK!r}, {str(name)!r}, 'exec'), globals())", SIMCUDA_MEMORY="512MiB", check=False)
    assert recording.sql(f"select left_out, bytes > 0 from source where file = '{name}'") == [(None, 1)]
    assert any(row["marked"] for row in recording.report()["oom"][0]["source"])


@pytest.mark.parametrize("below", ["", "\n\n"])
def test_a_cell_of_a_script(recording, below):
    """Editors run the code below a line "# %%" in a kernel."""
    cell = LEAK.strip() + below
    name = f"/tmp/ipykernel_7/{cell_name(cell)}.py"
    (recording.folder / "train.py").write_text(f"import os\n#%%\nx = 1\n\n# %% [markdown]\n# text\n# %% leak\n\n{cell}\n# %%\nx")
    recording.python(f"\nexec(compile({cell!r}, {name!r}, 'exec'), globals())", SIMCUDA_MEMORY="512MiB", check=False)
    report = recording.gpuspy("report", recording.database).stdout
    assert "(code cell 2 of train.py, read from disk)" in report and "cell 2:" in report, report
    sites = recording.gpuspy("sql", recording.database, "select distinct file from sites where file like '%cell%'").stdout
    assert "cell 2" in sites, sites
    assert "cell 2:" in recording.gpuspy("top", "--once", recording.database).stdout


def test_source_can_be_switched_off(recording):
    recording.python(LEAK, SIMCUDA_MEMORY="512MiB", GPUSPY_SOURCE="0", check=False)
    assert shown(recording) == []


def test_a_recording_shows_no_other_files(leak):
    """A recording made by somebody else could name any file."""
    (leak.folder / "id_rsa").write_text("\n" * 50 + "SECRET\n")
    os.utime(leak.folder / "id_rsa", (1000, 1000))
    edit(leak, f"drop table source; delete from meta where key = 'sources'; update frame set file = '{leak.folder}/id_rsa'")
    assert leak.report()["oom"][0]["source"] == []


@pytest.mark.parametrize("change", [
    "drop table source; create view source as select file, function as text, 1 as left_out from frame",
    "update source set text = x'ff00fe0a' || text", "update source set text = 5", "update source set text = ''",
    "update frame set line = 2147483647", "update source set text = 'one line'",
    "update source set text = zeroblob(8388608)"])
def test_a_hostile_recording_shows_what_it_can(leak, change):
    os.remove(leak.folder / "script.py")
    edit(leak, change)
    done = leak.gpuspy("report", "--json", leak.database)
    assert done.returncode == 0 and len(done.stdout) < 1 << 20, done.stderr
    done = leak.gpuspy("report", leak.database)
    assert done.returncode == 0 and "\x1b[31m" not in done.stdout


LIBRARY = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
def take(n):
    p = ctypes.c_void_p()
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n)) == 0
    return p
"""
@pytest.mark.parametrize("launcher, package, line", [
    ("bin/tool", "lib/python3.11/site-packages/tool", "device.py"), ("home/bin/tool", "lib/site-packages/tool", "tool"), ("app.pyz/_bootstrap/__init__.py", "site-packages/tool", "device.py"),
    ("v/pex", "v/lib/site-packages/tool", "device.py"), ("home/pex", "lib/site-packages/tool", "pex"),
    ("bin/tool", "tool", "device.py"), ("bin/tool.py", "lib/site-packages/tool", "tool.py")])
def test_the_package_that_its_command_starts_is_the_program(recording, launcher, package, line):
    """After `pip install .`, the user's own lines are in site-packages."""
    at, command = recording.folder / package, recording.folder / launcher
    for folder in (at, command.parent):
        folder.mkdir(parents=True, exist_ok=True)
    (at / "__init__.py").touch()
    (at / "device.py").write_text(LIBRARY + "def main():\n    return [take(1 << 20)]\n")
    command.write_text("from tool.device import main\nkept = main()\n")
    recording.python(f"import sys\nsys.path.insert(0, {str(at.parent)!r})\n"
                     f"exec(compile(open({str(command)!r}).read(), {str(command)!r}, 'exec'))\n")
    site = recording.report()["peak"][0]["by_stack"][0]["site"]
    assert site["file"].endswith("/" + line), site


EDITABLE = "__editable__.toolkit-1.0.pth,sha256=x,40\ntoolkit-1.0.dist-info/RECORD,,\n"


@pytest.mark.parametrize("record, path, line", [
    ("toolkit/__init__.py,,\ntoolkit/parts/device.py,sha256=x,212\n", "toolkit/parts/device.py", "script.py"),
    ("toolkit/device.py,sha256=x,212\n", "toolkit/device.py", "script.py"), ("device.py,sha256=x,212\n", "device.py", "script.py"),
    ("parts/device.py,sha256=x,212\n", "toolkit/device.py", "device.py"), ("toolkit/device.pyc,,\n", "toolkit/device.py", "device.py"),
    (EDITABLE, "toolkit/device.py", "device.py"), (None, "toolkit/device.py", "device.py")])
def test_packages_that_are_installed_elsewhere(recording, record, path, line):
    """`pip install --target`, PYTHONPATH: the package's RECORD lists the file. What it does not list is the user's own, such
    as an editable install."""
    at = recording.folder / "opt" / path
    at.parent.mkdir(parents=True)
    at.write_text(LIBRARY)
    for folder in at.parents:
        if folder.name == "opt":
            break
        (folder / "__init__.py").touch()
    if record:
        (recording.folder / "opt" / "other_thing-2.dist-info").mkdir()
        (recording.folder / "opt" / "toolkit-1.0.dist-info").mkdir()
        (recording.folder / "opt" / "toolkit-1.0.dist-info" / "RECORD").write_text(record)
    module = path[:-3].replace("/", ".")
    recording.python(f"import sys\nsys.path.insert(0, 'opt')\nfrom {module} import take\nkept = take(1 << 20)\n")
    peak = recording.report()["peak"][0]["by_stack"][0]
    assert peak["site"]["file"].endswith(line), peak["site"]
    stored = {file.rsplit("/", 1)[1]: (left_out, bool(text)) for file, (left_out, text) in sources(recording).items()}
    assert stored["device.py"] == (("installed", False) if line == "script.py" else (None, True))


def test_many_files_beside_many_packages(recording):
    """Each list of installed files is read once, not once per file of the program: the exit waits for it."""
    libs = recording.folder / "libs"
    lines = "".join(f"other/module_{n}.py,sha256=abcdefghijklmnopqrstuvwxyz,1234\n" for n in range(1500))
    for n in range(300):
        (libs / f"Other{n}-1.dist-info").mkdir(parents=True)
        (libs / f"Other{n}-1.dist-info" / "RECORD").write_text(lines + f"listed{n}.py,,\n")
        (libs / f"listed{n}.py").write_text("def part(step):\n    return step(7)\n")
        (libs / f"part{n}.py").write_text("def part(step):\n    return step(7)\n")
    calls = "".join(f"import {name}{n}\n{name}{n}.part(step)\n" for n in range(300) for name in ("part", "listed"))
    recording.python(PROGRAM + calls, PYTHONPATH=libs, SIMCUDA_MEMORY="200GiB")
    assert recording.sql("select complete from process") == [(1,)]
    found = {os.path.basename(file): why for file, (why, _) in sources(recording).items()}
    assert {found[f"part{n}.py"] for n in range(300)} == {None}
    assert {found[f"listed{n}.py"] for n in range(300)} == {"installed"}
