"""One workload through every entry point into CUDA (fixtures/doors): the recordings must differ in the names of the
entry points only, and each allocation must be exactly one row."""
import os
import re
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, SAN, Recording, sanitized

DOORS = BUILD / "doors"
OLD_DRIVER = f"{BUILD}/sim/old-driver:{BUILD}/sim"
STREAMS = ("legacy", "per-thread")


def alone(program):
    return lambda stream, threads: (DOORS / program, stream, threads)


def plugin(how, *files):
    return lambda stream, threads: (DOORS / "host", stream, threads, *(x for f in files for x in (how, DOORS / f)))


RUNTIME = {"rt13": alone("rt13"), "rt12": alone("rt12"), "rt11": alone("rt11"),
           "rt13-plugin": plugin("local", "rt13.so"), "rt12-plugin": plugin("local", "rt12.so"),
           "rt13-global": plugin("global", "rt13.so"), "rt12-deepbind": plugin("deepbind", "rt12.so"),
           "rt13-again": plugin("again", "rt13.so")}
STATIC = {"static": alone("static"), "rdynamic": alone("rdynamic"), "static-plugin": plugin("local", "static.so"),
          "static-deepbind": plugin("deepbind", "static.so"), "static-again": plugin("again", "static.so")}
DRIVER = {"plt": alone("plt"), "entrypoint": plugin("local", "entrypoint.so"), "gpa1": plugin("local", "finder.so"),
          "gpa2": plugin("local", "finder.so"), "dlsym": plugin("local", "finder.so"),
          "old-dlsym": plugin("local", "finder.so"), "old-rt13": alone("rt13"), "old-static": alone("static")}
DOOR = {**RUNTIME, **STATIC, **DRIVER}

DEEPBIND = sanitized("a sanitizer ends a program that says RTLD_DEEPBIND")
DLOPEN = sanitized("a sanitizer stands between the loader and who calls dlopen")


def unless_deepbind(names):
    return [pytest.param(name, marks=DEEPBIND if "deepbind" in name else ()) for name in names]


def environment(door):
    env = {}
    if door.startswith("old-"):
        env["LD_LIBRARY_PATH"] = OLD_DRIVER
        env["SIMCUDA_DRIVER"] = ""
    if door.split("-")[-1] in ("gpa1", "gpa2", "dlsym"):
        env["DOOR_HOW"] = door.split("-")[-1]
    return env


def tables(recording, ordered):
    """The allocations in order, each with the number of the first one at its address, and the copies, all without
    names."""
    rows = recording.sql("select address, bytes, space, device, free_ns is null, stream, layer, api from allocations "
                         "order by id")
    addresses = [r[0] for r in rows]
    blocks = [((addresses.index(r[0]) if ordered else None), *r[1:7]) for r in rows]
    copies = recording.sql("select direction, bytes, host_memory, async, stream, device from copies order by id")
    syncs = recording.sql("select kind from syncs where kind <> 'implicit'")
    ooms = recording.sql("select requested_bytes, space, fatal from ooms")
    found = {"blocks": blocks, "copies": copies, "syncs": syncs, "ooms": ooms}
    return found if ordered else {k: sorted(v, key=repr) for k, v in found.items()}


def names(recording):
    return {n for (n,) in recording.sql("select api from allocations union select api from copies union select api "
                                        "from syncs where kind <> 'implicit' union select api from ooms")}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The recording made through the driver's own functions, which are linked directly."""
    made = {}

    def get(stream, threads):
        if (stream, threads) not in made:
            r = Recording(tmp_path_factory.mktemp("reference"))
            r.run(*DOOR["plt"](stream, threads))
            made[stream, threads] = tables(r, threads == 1)
        return made[stream, threads]
    return get


@pytest.mark.parametrize("threads", (1, 4))
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("door", unless_deepbind(DOOR))
def test_every_entry_point_records_the_same(recording, reference, door, stream, threads):
    recording.run(*DOOR[door](stream, threads), **environment(door))
    assert tables(recording, threads == 1) == reference(stream, threads)
    seen = names(recording)
    runtime = door in RUNTIME or door == "old-rt13"
    assert all(n.startswith("cuda") == runtime for n in seen), seen
    own = {n for n in seen if re.search("_pt[ds][sz]$", n)}
    assert bool(own) == (stream == "per-thread"), seen
    assert recording.report()["run"].get("notes", []) == []


def test_the_reference_is_what_the_workload_does(reference):
    found = reference("legacy", 1)
    assert [(b[1], b[2], b[4]) for b in found["blocks"]] == [
        (4 << 20, "device", 0), (1000, "device", 0), (65536, "managed", 0), (5000, "pinned", 0), (512 << 10, "pool", 0),
        (7777, "device", 1)]
    assert [(c[0], c[1], c[2], c[3]) for c in found["copies"]] == [
        ("h2d", 4096, "pageable", 0), ("h2d", 500, "pinned", 0), ("d2d", 300, "none", 0), ("h2d", 200, "pinned", 1),
        ("d2h", 4000, "pageable", 0)]
    assert found["syncs"] == [("stream",)] and [o[:2] for o in found["ooms"]] == [(1 << 40, "device")]


# --- two runtimes in one process -------------------------------------------------------------------

@pytest.mark.parametrize("how", unless_deepbind(("local", "global", "deepbind")))
@pytest.mark.parametrize("pair", (("rt12.so", "rt13.so"), ("rt13.so", "rt12.so"), ("rt11.so", "rt13.so", "rt12.so")),
                         ids="-".join)
def test_several_runtimes_in_one_process(recording, reference, pair, how):
    recording.run(*plugin(how, *pair)("legacy", 1), SIMCUDA_LOG="")
    one = reference("legacy", 1)
    found = tables(recording, False)
    assert [(b[1:]) for b in found["blocks"]] == sorted([b[1:] for b in one["blocks"]] * len(pair), key=lambda b: repr((None, *b)))
    assert len(found["copies"]) == len(pair) * len(one["copies"])
    assert all(n.startswith("cuda") for n in names(recording))


def test_each_library_reaches_its_own_runtime(recording):
    """Through the PLT and every kind of look-up, with both runtimes loaded."""
    done = recording.python('''
import ctypes, os
sim = os.environ["LD_LIBRARY_PATH"]
libdl = ctypes.CDLL(None)
for node, want in (("12", 12080), ("13", 13000), ("11.0", 11080)):
    lib = ctypes.CDLL(f"{sim}/libcudart.so.{node}")
    version = ctypes.c_int()
    assert lib.cudaRuntimeGetVersion(ctypes.byref(version)) == 0 and version.value == want
    p = ctypes.c_void_p()
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(want)) == 0
    dlvsym = libdl.dlvsym
    dlvsym.restype = ctypes.c_void_p
    dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    f = dlvsym(lib._handle, b"cudaMalloc", b"libcudart.so." + node.encode())
    assert f and not dlvsym(lib._handle, b"cudaMalloc", b"libcudart.so.9")
    f = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(f)
    assert f(ctypes.byref(p), want + 1) == 0
    assert lib.cudaFree(p) == 0
''')
    assert done.returncode == 0
    assert recording.sql("select api, bytes, free_ns is null from allocations order by bytes") == [
        ("cudaMalloc", v + i, 1 - i) for v in (11080, 12080, 13000) for i in (0, 1)]


# --- answers of the driver ---------------------------------------------------------------------------

def test_finders_return_what_cuda_returned(recording):
    bare = recording.run(BUILD / "programs" / "finders", LD_PRELOAD=os.environ.get("SAN_PRELOAD", ""))
    done = recording.run(BUILD / "programs" / "finders", GPUSPY_QUIET=1)
    assert (done.stdout, done.stderr) == (bare.stdout, bare.stderr)
    assert recording.report()["run"].get("notes", []) == []


def test_finding_is_not_an_event(recording):
    source = '''
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
p = ctypes.c_void_p()
for name in (b"cuMemAlloc", b"cuMemFree", b"cuNothing"):
    cuda.cuGetProcAddress_v2(name, ctypes.byref(p), 12000, ctypes.c_uint64(0), None)
'''
    assert recording.python(source).stderr == "" and not recording.database.exists()


def test_a_newer_driver_hands_out_its_newer_calls(recording):
    """cuGetProcAddress of CUDA 13.5: each version of a name is the wrapper of that version's export."""
    source = '''
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
find = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(
    ("cuGetProcAddress_v2", cuda))
class Found(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("at", ctypes.c_void_p)]
for base in ("cuMemcpyWithAttributesAsync", "cuMemcpy3DWithAttributesAsync", "cuFabricCpyBatchAsync", "cuGraphAddNode",
             "cuLaunchHostFunc", "cuStreamBeginRecaptureToGraph", "cuMulticastBindMem", "cuMulticastBindAddr"):
    for flags in 0, 2:
        f, found = ctypes.c_void_p(), Found()
        assert find(base.encode(), ctypes.byref(f), 13050, flags, None) == 0
        assert ctypes.CDLL(None).dladdr(f, ctypes.byref(found)) and b"libgpuspy" in found.file, base
        print(found.name.decode())
'''
    done = recording.python(source, SIMCUDA_DRIVER=13050)
    both = lambda name: [name, name + "_ptsz"]  # noqa: E731
    assert done.stdout.split() == [
        *both("cuMemcpyWithAttributesAsync"), *both("cuMemcpy3DWithAttributesAsync"), *both("cuFabricCpyBatchAsync"),
        *["cuGraphAddNode_v3"] * 2, *both("cuLaunchHostFunc_v2"), *both("cuStreamBeginRecaptureToGraph"),
        *["cuMulticastBindMem_v2"] * 2, *["cuMulticastBindAddr_v2"] * 2]


@pytest.mark.parametrize("killed", (False, True))
def test_functions_handed_out_without_a_hook_are_named(recording, killed):
    if killed:
        source = '''
import ctypes, os, signal
cuda = ctypes.CDLL("libcuda.so.1")
f, p, c = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
host = ctypes.CDLL(None)
find = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)(
    ("cuGetProcAddress_v2", cuda))
for name in (b"cuMemAllocHost", b"cuMemAlloc", b"cuMemAlloc"):
    assert find(name, ctypes.byref(f), 12000, 0, None) == 0
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(c), 0) == 0 and cuda.cuCtxSetCurrent(c) == 0
assert cuda.cuMemAllocHost_v2(ctypes.byref(p), ctypes.c_size_t(64)) == 0
os.kill(os.getpid(), signal.SIGKILL)
'''
        done = recording.python(source, check=False, LD_LIBRARY_PATH=DOORS / "newer")
        assert done.returncode == -9, done.stderr
    else:
        recording.run(*DOOR["gpa2"]("legacy", 1), DOOR_HOW="gpa2", LD_LIBRARY_PATH=DOORS / "newer")
    notes = [n for n in recording.report()["run"]["notes"] if "were not recorded" in n]
    assert len(notes) == 1 and notes[0].endswith(": cuMemAlloc"), notes
    assert notes[0] in recording.gpuspy("report", recording.database).stdout.split("\n\n")[0].replace("\n", " ")


# --- other doors ----------------------------------------------------------------------------------

def test_a_library_with_a_runtime_of_its_own(recording):
    recording.run(*plugin("local", "blas.so")("legacy", 1))
    assert recording.sql("select api, bytes, free_ns is null from allocations order by id") == [
        ("cuMemAlloc_v2", 33554432 + 8192, 0), ("cuMemAlloc_v2", 33554432 + 8192, 1)]


def test_disabled_hands_out_cudas_own(recording):
    for door in ("static-plugin", "gpa2", "dlsym", *(() if SAN else ("rt12-deepbind",))):
        done = recording.run(*DOOR[door]("legacy", 1), GPUSPY_DISABLE=1, **environment(door))
        assert done.stderr == "" and not recording.database.exists()


@DEEPBIND
def test_deepbind_is_removed_and_reported_once(recording):
    command = plugin("deepbind", "rt12.so", "rt13.so")("legacy", 1)
    reported = recording.run(*command).stderr.splitlines()
    assert [line for line in reported if "RTLD_DEEPBIND" in line] == reported[:1] and "rt12.so" in reported[0]
    assert recording.run(*command, GPUSPY_QUIET=1, GPUSPY_DB="q.db").stderr == ""
    kept = recording.run(*command, GPUSPY_DEEPBIND="keep", GPUSPY_DB=recording.folder / "keep.db")
    assert "RTLD_DEEPBIND" not in kept.stderr
    assert not (recording.folder / "keep.db").exists()  # the hook was not called even for the runtime's dlsym


@DEEPBIND
def test_deepbind_stays_on_the_c_library(recording):
    source = """
import ctypes, os
for name in ("libc.so.6", "libc.so.7"):
    try:
        ctypes.CDLL(name, os.RTLD_DEEPBIND)
    except OSError as error:
        print(error)
"""
    done = recording.python(source)
    assert done.stdout.startswith("libc.so.7: ") and done.stdout.count("\n") == 1
    assert "RTLD_DEEPBIND" not in done.stderr


@DEEPBIND
def test_deepbind_is_removed_even_if_another_thread_unloads_the_library_first(recording):
    """The preloaded library stands for that thread: it closes the program's handle before it passes dlopen on."""
    (recording.folder / "between.c").write_text("""
#include <dlfcn.h>
#include <string.h>
void *first;
void *dlopen(const char *file, int mode)
{
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (file && strstr(file, "rt12.so") && first) {
        dlclose(first);
        first = NULL;
        return real(file, RTLD_NOW | RTLD_NOLOAD) ? NULL : real(file, mode);
    }
    return file && strstr(file, "rt12.so") ? first = real(file, mode) : real(file, mode);
}
""")
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", recording.folder / "between.so",
                    recording.folder / "between.c"], check=True)
    source = f"""
import ctypes, os
libc = ctypes.CDLL(None)
libc.dlopen.restype = ctypes.c_void_p
for mode in (os.RTLD_NOW, os.RTLD_NOW | os.RTLD_DEEPBIND):
    handle = libc.dlopen({str(DOORS / "rt12.so")!r}.encode(), mode)
print(ctypes.CDLL(None, handle=handle).run_door(0, 1))
"""
    preload = f"{recording.environment()['LD_PRELOAD']}:{recording.folder / 'between.so'}"
    assert recording.python(source, LD_PRELOAD=preload).stdout == "0\n"
    assert "cudaMalloc" in {api for api, in recording.sql("select distinct api from allocations")}


@DLOPEN
def test_errors_of_dlopen_are_the_loaders(recording):
    source = '''
import ctypes, os
libc = ctypes.CDLL(None)
libc.dlopen.restype, libc.dlerror.restype = ctypes.c_void_p, ctypes.c_char_p
for name in (b"libnothing.so", b"/dev/null", b""):
    for mode in (0, 8, os.RTLD_NOW, os.RTLD_NOW | 8, os.RTLD_NOLOAD | os.RTLD_LAZY | 8, 8 | 4):
        print(name, mode, bool(libc.dlopen(name, mode)), libc.dlerror())
'''
    bare = recording.python(source, LD_PRELOAD=os.environ.get("SAN_PRELOAD", ""))
    with_us = recording.python(source, GPUSPY_QUIET=1)
    assert (with_us.stdout, with_us.stderr) == (bare.stdout, bare.stderr) and "invalid mode" in bare.stdout


@DLOPEN
def test_dlopen_searches_the_folders_of_its_caller(recording):
    """The plugin is only in the RUNPATH of the library that opens it."""
    folder = recording.folder / "lib" / "deep"
    folder.mkdir(parents=True)
    (recording.folder / "plug.c").write_text("int plugged(void) { return 42; }\n")
    (recording.folder / "opener.c").write_text('''
#include <dlfcn.h>
int open_it(int mode) {
    void *p = dlopen("libplugged-by-runpath.so", mode);
    return p ? ((int (*)(void))dlsym(p, "plugged"))() : -1;
}
''')
    (recording.folder / "main.c").write_text("int open_it(int); int main(void) "
                                             "{ return !(open_it(2) == 42 && open_it(2 | 8) == 42); }\n")

    def cc(*arguments):
        subprocess.run(["gcc", *arguments], cwd=recording.folder, check=True)
    cc("-shared", "-fPIC", "-o", "lib/deep/libplugged-by-runpath.so", "plug.c")
    cc("-shared", "-fPIC", "-o", "lib/libopener.so", "opener.c", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/deep")
    cc("-o", "main", "main.c", "-Llib", "-lopener", "-Wl,--enable-new-dtags,-rpath,$ORIGIN/lib")
    assert recording.run("./main", GPUSPY_QUIET=1).stderr == ""


def test_one_event_for_one_act(recording):
    """interpose/recorder.h: an allocation inside a wait is recorded separately, one inside an allocation is not."""
    recording.run(DOORS / "nesting")
    assert recording.sql("select api, bytes from allocations order by id") == [
        ("cuMemAlloc_v2", 1111), ("cudaMalloc", 3333)]
    assert recording.sql("select api from syncs where kind = 'stream'") == [("cudaStreamSynchronize",)]
    assert recording.sql("select value from meta where key = 'unknown_frees'") in ([], [(0,)])


NVCC = next((p for p in (os.environ.get("CUDA_HOME", "") + "/bin/nvcc", "/usr/local/cuda/bin/nvcc")
             if os.path.exists(p)), None)
PROGRAM = """
#include <cuda_runtime.h>
int main() {
    void *a, *b;
    char host[100] = "x";
    if (cudaMalloc(&a, 1000) || cudaMalloc(&b, 2000)) return 1;
    if (cudaMemcpy(a, host, 100, cudaMemcpyHostToDevice)) return 2;
    if (cudaMemcpyAsync(b, a, 50, cudaMemcpyDeviceToDevice, 0) || cudaStreamSynchronize(0)) return 3;
    return cudaFree(a);
}
"""


@pytest.mark.skipif(NVCC is None, reason="no CUDA Toolkit here")
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("runtime", ("shared", pytest.param("static", marks=sanitized(
    "the static runtime is sanitized, and nvcc's link is not"))))
def test_what_nvcc_makes(recording, runtime, stream):
    (recording.folder / "program.cu").write_text(PROGRAM)
    subprocess.run([NVCC, "-cudart", runtime, "-default-stream", stream, "-L", BUILD / "sim", "-o", "program",
                    "program.cu"], cwd=recording.folder, check=True)
    recording.run("./program")
    s, z = ("_ptds", "_ptsz") if stream == "per-thread" else ("", "")
    want = (("cudaMalloc", "cudaMemcpy" + s, "cudaMemcpyAsync" + z) if runtime == "shared" else
            ("cuMemAlloc_v2", "cuMemcpyHtoD_v2" + s, "cuMemcpyDtoDAsync_v2" + z))
    assert recording.sql("select api, bytes, free_ns is null from allocations order by id") == [
        (want[0], 1000, 0), (want[0], 2000, 1)]
    assert recording.sql("select api, direction, bytes, stream from copies order by id") == [
        (want[1], "h2d", 100, 2 if s else 0), (want[2], "d2d", 50, 2 if z else 0)]
