"""The rows of interpose/cuda_api.def: each leaves in the database what its fixture program states, none is untested,
and every function that CUDA exports is in the rows or in the reviewed list of functions that need no row."""
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, ROOT, Recording
from fixture_trace import PROGRAMS, run
from rows import Rows

TOOLKIT = next((p for p in (os.environ.get("CUDA_HOME", "") + "/include", "/usr/local/cuda/include")
                if os.path.exists(p + "/cuda.h")), None)
needs_toolkit = pytest.mark.skipif(TOOLKIT is None, reason="no CUDA Toolkit here")

CALLS = (("runtime_calls",), ("driver_calls",), ("finders",), ("resets",), ("calls_copies",),
         ("calls_memory",), ("calls_memory", "share"), ("calls_graphs",), ("calls_counted",),
         ("calls_12",), ("calls_11",))


@pytest.mark.parametrize("command", CALLS, ids="-".join)
def test_every_call_leaves_its_row(recording, command):
    run(recording, *command, counts=True)


# --- nothing is left out ------------------------------------------------------------------------

def preprocessed(macros, file):
    return subprocess.run(["gcc", "-E", "-P", "-I.", "-"], cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE,
                          input=macros + f'#include "{file}"\n').stdout


def rows():
    text = preprocessed("#define GS_CALL(layer, name, ...) ROW name\n"
                        "#define GS_BOTH(layer, name, suffix, ...) ROW name ROW name##suffix\n"
                        "#define GS_CALL_V(versions, layer, name, ...) ROW name\n"
                        "#define GS_BOTH_V(versions, layer, name, suffix, ...) ROW name ROW name##suffix\n"
                        "#define GS_TELLER(layer, name, ...) ROW name\n"
                        "#define GS_FINDER(layer, name, ...) ROW name\n"
                        "#define GS_FINDER_BOTH(layer, name, suffix, ...) ROW name ROW name##suffix\n"
                        "#define GS_FINDER_BOTH_V(versions, layer, name, suffix, ...) ROW name ROW name##suffix\n",
                        "interpose/cuda_api.def")
    return re.findall(r"ROW (\w+)", text)


def unhooked():
    text = preprocessed("#define GS_UNHOOKED(layer, name, reason) LEFT name reason\n", "interpose/cuda_unhooked.def")
    return re.findall(r'LEFT (\w+) ("[^"]+")', text)


def exported():
    """What the simulated CUDA exports."""
    names = set()
    for library in ("libcuda.so.1", "libcudart.so.11.0", "libcudart.so.12", "libcudart.so.13"):
        text = subprocess.run(["nm", "-D", "--defined-only", BUILD / "sim" / library], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        names |= {line.split()[-1].split("@")[0] for line in text.splitlines()}
    return names


def test_every_row_is_tried(tmp_path):
    tried = set()
    for index, command in enumerate(CALLS):
        folder = tmp_path / str(index)
        folder.mkdir()
        done = Recording(folder).run(PROGRAMS / command[0], *command[1:])
        tried |= {line.split()[1] for line in done.stdout.splitlines() if " " in line}
    # functions that the simulated CUDA lacks are only compared with the toolkit's headers
    assert (set(rows()) & exported()) - tried == set()


def test_every_name_of_cuda_has_a_row_or_a_reason():
    names = set((ROOT / "tests" / "cuda13_names.txt").read_text().split())
    left = [name for name, _ in unhooked()]
    assert names - set(rows()) - set(left) == set()
    assert set(rows()) & set(left) == set()
    assert len(left) == len(set(left))


def toolkit_version():
    return re.search(r"#define CUDA_VERSION (\d+)", (Path(TOOLKIT) / "cuda.h").read_text())[1]


@needs_toolkit
def test_the_list_of_names_is_the_toolkits():
    if toolkit_version() != "13050":
        pytest.skip(f"the list is CUDA 13.5's, the toolkit {toolkit_version()}")
    text = subprocess.run(["python3", "tests/cuda_names.py", TOOLKIT], cwd=ROOT, text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    assert text == (ROOT / "tests" / "cuda13_names.txt").read_text()


@needs_toolkit
def test_the_layouts_are_the_toolkits(tmp_path):
    def output(name, *options):
        subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", "-I.", f"-DTOOLKIT={toolkit_version()}", *options,
                        "-o", tmp_path / name, "tests/abi_layout.c"], cwd=ROOT, check=True)
        return subprocess.run([tmp_path / name], text=True, check=True, stdout=subprocess.PIPE).stdout.splitlines()
    ours, theirs = output("ours"), output("theirs", "-DGPUSPY_TOOLKIT_TYPES", f"-I{TOOLKIT}")
    assert len(ours) > 150 and ours == theirs


# --- plausible values -----------------------------------------------------------------------------

def test_times_order_and_devices_make_sense(recording):
    run(recording, "runtime_calls", counts=True)
    assert recording.sql("select count(*) from allocation where free_ns < alloc_ns") == [(0,)]
    assert recording.sql("select distinct device from allocations where space = 'device'") == [(0,)]
    assert recording.sql("select distinct device from allocations where space = 'pinned'") == [(-1,)]
    name, total = recording.sql("select name, total_bytes from device where device = 0")[0]
    assert name and total > 1 << 30
    assert recording.sql("select distinct stream from copies where api like '%_ptds'") == [(2,)]
    assert recording.sql("select count(*) from copy where blocked_ns <= 0") == [(0,)]


def test_a_newer_recording_names_the_version_to_install(recording):
    with Rows(recording.database) as r:
        r.device()
    with sqlite3.connect(recording.database) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("INSERT OR REPLACE INTO meta VALUES ('gpuspy_version', '7.4.1')")
    done = recording.gpuspy("report", recording.database)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and "install gpuspy 7.4.1 or newer" in done.stderr
