"""PyTorch's reporting functions in every form that libc10.so has had, with a replacement of libc10.so that prints the
calls it gets."""
import subprocess

import pytest

from conftest import BUILD, ROOT, thread_sanitized

BASE = 0x7F0000000000


@pytest.fixture
def reporter(recording):
    flags = ["-std=gnu11", "-O1", "-I", str(ROOT)]
    library, program = recording.folder / "libc10.so", recording.folder / "reporter"
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-Wl,-soname,libc10.so", "-o", library,
                    ROOT / "fixtures/c10/libc10.c"], check=True)
    subprocess.run(["gcc", *flags, "-o", program, ROOT / "fixtures/c10/reporter.c", library,
                    f"-Wl,-rpath,{recording.folder}"], check=True)
    return program


def test_every_form_reaches_the_real_one_unchanged(recording, reporter):
    assert recording.run(reporter).stdout == recording.run(reporter, LD_PRELOAD="").stdout


def test_every_form_is_recorded(recording, reporter):
    recording.run(reporter)
    assert recording.sql("select device, layer, address, bytes, free_ns is null from allocations order by id") == [
        (0, "tensor", BASE + 0x1000, 512, 1),
        (0, "tensor", BASE + 0x2000, 1024, 0),
        (0, "tensor", BASE + 0x3000, 2048, 1),
        (1, "tensor", BASE + 0x4000, 4096, 1),
    ]
    assert recording.sql("select device, layer, requested_bytes, tensor_allocated, tensor_reserved, fatal from ooms "
                         "order by time_ns") == [(0, "tensor", 1 << 40, 2560, 1 << 21, 1),
                                                 (1, "tensor", 1 << 41, 4096, 1 << 21, 1)]
    assert recording.sql("select device, events, mismatches from tensor_check order by device") == [(0, 3, 0), (1, 1, 0)]
    assert recording.sql("select device, bytes from reserved order by device") == [(0, 1 << 21), (1, 1 << 21)]


def test_cpu_tensors_only_on_request(recording, reporter):
    done = recording.run(reporter, GPUSPY_TORCH_CPU=1)
    assert "profiling 1\n" in done.stdout
    assert recording.sql("select bytes from allocations where layer = 'host'") == [(100,)]


@pytest.fixture
def streams(recording, reporter):
    """Depends on reporter, which makes libc10.so."""
    flags = ["-std=gnu11", "-O1", "-I", str(ROOT)]
    library, program = recording.folder / "libc10_cuda.so", recording.folder / "streams"
    subprocess.run(["gcc", *flags, "-shared", "-fPIC", "-Wl,-soname,libc10_cuda.so", "-o", library,
                    ROOT / "fixtures/c10/libc10_cuda.c", recording.folder / "libc10.so", BUILD / "sim/libcudart.so.13",
                    f"-Wl,-rpath,{recording.folder}"], check=True)
    subprocess.run(["gcc", *flags, "-o", program, ROOT / "fixtures/c10/streams.c", library, recording.folder / "libc10.so",
                    BUILD / "sim/libcudart.so.13", f"-Wl,-rpath,{recording.folder}:{BUILD / 'sim'}"], check=True)
    return program


def test_streams_of_tensors(recording, streams):
    recording.run(streams)
    assert recording.sql("select device, stream from allocations where layer = 'tensor' order by id") == [
        (0, 0), (0, 0x5003), (1, 0x5103), (0, 0), (0, 0)]


def test_unknown_without_pytorchs_function(recording, reporter):
    recording.run(reporter)
    assert recording.sql("select distinct stream from allocations where layer = 'tensor'") == [(-1,)]


@thread_sanitized("there are no native stacks with it")
def test_frees_that_wait_for_events(recording, streams):
    recording.run(streams)
    rows = recording.sql("select allocation_id, done_ns is null, event_stack_id, free_stack_id from pending_free order by id")
    assert [r[:2] for r in rows] == [(1, 0), (2, 1), (4, 1)]
    parent = dict(recording.sql("select id, parent_id from stack"))

    def own(event, free):  # as the analyzer sees them
        above = [event]
        while above[-1] is not None:
            above.append(parent[above[-1]])
        return parent[free] in above[1:5]
    assert [own(*r[2:]) for r in rows] == [True, True, False]
    state = [a for a in recording.report()["allocator"] if a["device"] == 0 and a["moment"] == "end"]
    assert [(s["allocated_bytes"], s["pending_bytes"], s["active_bytes"]) for s in state] == [(512, 512, 1024)]


def test_statistics_that_are_unmapped_after_a_report_are_not_read(recording, reporter):
    """Until they have counted along, they may be a copy that the program frees."""
    program = recording.folder / "short_lived"
    subprocess.run(["gcc", "-std=gnu11", "-O0", "-I", str(ROOT), "-o", program, ROOT / "fixtures/c10/short_lived.c",
                    recording.folder / "libc10.so", f"-L{BUILD / 'sim'}", "-lcudart", f"-Wl,-rpath,{recording.folder}"], check=True)
    assert recording.run(program).stdout.endswith("end\n")
    assert recording.sql("select bytes, free_ns is null from allocations where layer = 'tensor'") == [(1 << 20, 0)]
