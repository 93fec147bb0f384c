"""Recordings used by the tests of several exports."""
import sqlite3

import pytest

from conftest import Recording
from rows import GIB, MIB, TENSOR, Rows
from test_hostile import names, sound

PROGRAM = """
import ctypes
from minicuda import OutOfMemoryError, Runtime, Tensor

runtime = Runtime()
kept = []


def step(i):
    batch = Tensor(runtime, 3 << 20)
    batch.copy_from(bytes(1 << 20))
    kept.append(Tensor(runtime, (1 << 20) + (i << 12)))
    return batch.item()


for i in range(12):
    step(i)
del kept[3:6]
try:
    Tensor(runtime, 1 << 40)
except OutOfMemoryError:
    pass
"""


def a_program(folder):
    recording = Recording(folder)
    recording.python(PROGRAM)
    return recording


def a_sound_one(folder):
    recording = Recording(folder)
    sound(recording.database)
    return recording


def a_hostile_one(folder):
    recording = a_sound_one(folder)
    with sqlite3.connect(recording.database) as db:
        names(db)
    return recording


def ranks(folder):
    """Two processes of a run; the second holds more and waits longer."""
    recording = Recording(folder)
    for rank in range(2):
        name = recording.database if rank == 0 else recording.folder / "run.101.db"
        with Rows(name, run="job", pid=100 + rank, rank=rank, seconds=4) as r:
            r.device(rank)
            line = r.stack("/home/me/train.py:40 main", f"/home/me/train.py:{12 + rank} step")
            other = r.stack("/home/me/train.py:40 main", "/home/me/net.py:3 forward")
            r.block(0.1, 2 * GIB, None, line, device=rank, address=1 << 30)
            for i in range(20):
                r.block(0.2 + i * 0.1, (8 + rank * 4) * MIB, 0.35, line, layer=TENSOR, device=rank,
                        address=(1 << 30) + i * 16 * MIB)
                r.block(0.21 + i * 0.1, MIB, None, other, layer=TENSOR, device=rank, address=(2 << 30) + i * 2 * MIB)
                r.sync(0.25 + i * 0.1, 0.01 * (1 + rank), line, device=rank)
    return recording


MADE = {"program": a_program, "sound": a_sound_one, "hostile": a_hostile_one, "ranks": ranks}


@pytest.fixture(scope="module", params=MADE)
def made(request, tmp_path_factory):
    """Each kind of recording, with its name."""
    recording = MADE[request.param](tmp_path_factory.mktemp(request.param))
    recording.kind = request.param
    return recording


def one(name, tmp_path_factory):
    return MADE[name](tmp_path_factory.mktemp(name))


def export(recording, form, *options, out="out", code=0):
    """Writes it; the file."""
    path = recording.folder / out
    done = recording.gpuspy("export", "--format", form, "--output", path, *options, recording.database)
    assert done.returncode == code, done.stderr
    assert not done.stdout
    recording.reported = done.stderr
    return path


def usual_peaks(report):
    """The peak of each process and GPU: of its tensors if it has any, else of CUDA allocations, as in exported
    profiles."""
    best = {}
    for p in report["peak"]:
        if p["layer"] in ("tensor", "device"):
            key = p.get("process"), p.get("rank"), p["device"]
            if p["layer"] == "tensor" or key not in best:
                best[key] = p
    return list(best.values())
