"""Programs built with a compiler's sanitizers: under the recorder they start, report the same, and end with the same
status."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, SECONDS, sanitized
from test_programs import databases

pytestmark = sanitized("a sanitized recorder brings a run time of its own")

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern int cudaMalloc(void **, size_t);
static int global;
int run(const char *how)
{
    void *p;
    volatile int one = 1;
    int status = cudaMalloc(&p, 1 << 20);
    char *q = malloc(10);
    printf("call %d\n", status);
    fflush(stdout);
    if (!strcmp(how, "overflow")) q[9 + one] = 1;
    if (!strcmp(how, "leak")) q = NULL;
    if (!strcmp(how, "undefined")) global = 0x7fffffff, global += one;
    if (!strcmp(how, "uninitialised") && q[3] == 5) puts("five");
    free(q);
    return 3;
}
"""
MAIN = SOURCE + "int main(int argc, char **argv) { return run(argc > 1 ? argv[1] : \"\"); }\n"
CLANG_LIBRARIES = "/usr/lib/llvm-*/lib/clang/*/lib/linux"
BUILDS = [("gcc", "address", ()), ("gcc", "address", ("-static-libasan",)), ("clang", "address", ()),
          ("clang", "address", ("-shared-libasan",)), ("gcc", "address,undefined", ()), ("gcc", "thread", ()),
          ("clang", "thread", ()), ("gcc", "undefined", ()), ("clang", "undefined", ()), ("gcc", "leak", ()),
          ("clang", "leak", ())]


def build(recording, compiler, sanitizer, more=(), name="program", source=MAIN):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    path, program = recording.folder / f"{name}.c", recording.folder / name
    path.write_text(source)
    runtime = []
    if "-shared-libasan" in more:
        done = subprocess.run([compiler, "-print-file-name=libclang_rt.asan-x86_64.so"], text=True, stdout=subprocess.PIPE)
        runtime = [f"-Wl,-rpath,{os.path.dirname(done.stdout.strip())}"]
    done = subprocess.run([compiler, f"-fsanitize={sanitizer}", *more, "-O0", "-g", "-o", program, path, f"-L{BUILD / 'sim'}",
                           "-l:libcudart.so.13", *runtime], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        pytest.skip(f"{compiler} -fsanitize={sanitizer} does not link here: {done.stderr.strip().splitlines()[-1]}")
    return program


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "ASAN_"))}
    return {**env, "LD_LIBRARY_PATH": str(BUILD / "sim"), **more}


def start(recording, *command, **more):
    return subprocess.run([str(c) for c in command], env=environment(**more), cwd=recording.folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)


def under_run(recording, *command, **more):
    return start(recording, BUILD / "gpuspy", "run", "-o", recording.database, "--", *command, **more)


def findings(stderr):
    """What a sanitizer reports, without addresses: kinds of errors and functions of the program."""
    return [line.split("==")[-1].split(" on ")[0].split(" /")[0] for line in stderr.splitlines()
            if "ERROR: " in line or "runtime error" in line or line.startswith("WARNING: ")]


def assert_same(recording, program, *arguments, recorded=True, **more):
    bare = start(recording, program, *arguments, **more)
    done = under_run(recording, program, *arguments, **more)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout), done.stderr
    assert findings(done.stderr) == findings(bare.stderr)
    assert "call 0" in bare.stdout and len(databases(recording)) == recorded
    for path in databases(recording):
        assert recording.sql("select count(*) from allocation") == [(1,)]
        path.unlink()
    return done


@pytest.mark.parametrize("compiler,sanitizer,more", BUILDS, ids=["-".join((c, s, *m)) for c, s, m in BUILDS])
def test_a_sanitized_program(recording, compiler, sanitizer, more):
    program = build(recording, compiler, sanitizer, more)
    for how in ("", "overflow", "leak", "undefined"):
        if how != "overflow" or "address" in sanitizer:
            assert_same(recording, program, how)


def test_its_own_options_stay(recording):
    program = build(recording, "gcc", "address")
    assert_same(recording, program, "leak", ASAN_OPTIONS="detect_leaks=0")
    assert_same(recording, program, "overflow", ASAN_OPTIONS="exitcode=42:halt_on_error=1")


def test_a_sanitized_program_that_a_script_starts(recording):
    program = build(recording, "gcc", "address")
    script = recording.folder / "script.sh"
    script.write_text(f"#!/bin/sh\n{program} leak; echo $?; sh -c '{program} overflow'; echo $?; exit 4\n")
    script.chmod(0o755)
    bare, done = start(recording, script), under_run(recording, script)
    assert (done.returncode, done.stdout) == (bare.returncode, bare.stdout) == (4, bare.stdout)
    assert len(databases(recording)) == 2


@pytest.mark.parametrize("after", ["", ":libutil.so.1", " libutil.so.1: "])
def test_a_sanitized_extension_of_python(recording, after):
    """The interpreter is not sanitized: the runtime is preloaded explicitly and must stay the first library."""
    build(recording, "gcc", "address", ("-shared", "-fPIC"), name="extension.so", source=SOURCE)
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], text=True, stdout=subprocess.PIPE).stdout.strip()
    if not os.path.isabs(runtime):
        pytest.skip("no shared libasan")
    text = "import ctypes, sys; sys.exit(ctypes.CDLL('./extension.so').run(sys.argv[1].encode()))"
    command = (sys.executable, "-c", text)
    for how in ("", "overflow"):
        assert_same(recording, *command, how, LD_PRELOAD=runtime + after, ASAN_OPTIONS="detect_leaks=0")


def test_programs_with_memory_sanitizer_run_unrecorded(recording):
    program = build(recording, "clang", "memory")
    for how in ("", "uninitialised"):
        done = assert_same(recording, program, how, recorded=False)
        assert "gpuspy: not recording: the program is built with MemorySanitizer" in done.stderr


def test_doctor_explains(recording):
    program = build(recording, "gcc", "address")
    done = recording.gpuspy("doctor", program)
    assert "AddressSanitizer" in done.stdout and "gpuspy run" in done.stdout
    if shutil.which("clang"):
        assert "MemorySanitizer" in recording.gpuspy("doctor", build(recording, "clang", "memory", name="other")).stdout
