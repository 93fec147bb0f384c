"""if (cudaMalloc): a program tests with weak references whether CUDA is loaded, and gets the same result as without
gpuspy."""
import subprocess

import pytest

from conftest import sanitized
from test_programs import databases

pytestmark = sanitized("a sanitized recorder brings libraries of its own")

SOURCE = r"""
#include <stdio.h>
#include <stddef.h>
#define WEAK __attribute__((weak))
extern int cudaMalloc(void **, size_t) WEAK;
extern int cudaDeviceSynchronize(void) WEAK;
extern int cudaGetErrorName(int) WEAK;
extern int cuMemAlloc_v2(unsigned long long *, size_t) WEAK;
extern int cuInit(unsigned) WEAK;
extern int customary(void) WEAK;
static int (*const table[])(void **, size_t) = {cudaMalloc};
int (*changeable)(void) = cudaDeviceSynchronize;

int ask(void)
{
    void *p = NULL;
    unsigned long long d = 0;
    printf("%d%d%d%d%d%d%d\n", !!cudaMalloc, !!cudaDeviceSynchronize, !!cuMemAlloc_v2, !!cuInit, !!table[0], !!changeable, !!customary);
    if (cudaMalloc) printf("malloc %d\n", cudaMalloc(&p, 100) == 0 && table[0](&p, 100) == 0);
    if (cuMemAlloc_v2) printf("driver %d\n", cuMemAlloc_v2(&d, 100) == 0);
    if (changeable) printf("wait %d\n", changeable() == 0);
    return 0;
}
"""
WAYS = ["", "-no-pie", "-no-pie -fPIC", "-fPIC -pie", "-fno-plt", "-Wl,-z,now", "-Wl,-z,lazy", "-Wl,-z,norelro", "-rdynamic", "-O2 -flto"]
MAIN = SOURCE + "int main(void) { return ask(); }\n"


def compiled(recording, source, name, *options):
    path = recording.folder / f"{name}.c"
    path.write_text(source)
    subprocess.run(["gcc", "-o", recording.folder / name, path, *options], check=True)
    return recording.folder / name


def same(recording, *command, **more):
    bare = recording.run(*command, LD_PRELOAD=more.get("LD_PRELOAD", ""), **{k: v for k, v in more.items() if k != "LD_PRELOAD"})
    if more.get("LD_PRELOAD"):
        more["LD_PRELOAD"] = f"{recording.environment()['LD_PRELOAD']}:{more['LD_PRELOAD']}"
    done = recording.run(*command, **more)
    assert done.stdout == bare.stdout, (done.stdout, bare.stdout)
    assert [line for line in done.stderr.splitlines() if not line.startswith("gpuspy: ")] == bare.stderr.splitlines()
    return bare.stdout


@pytest.mark.parametrize("way", WAYS)
def test_a_program_without_cuda(recording, way):
    program = compiled(recording, MAIN, "program", *way.split())
    assert same(recording, program) == "0000000\n"
    assert not databases(recording)


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_finds_cuda(recording, way):
    """Preloaded, the runtime defines the references: they are recorded."""
    program = compiled(recording, MAIN, "program", *way.split())
    text = same(recording, program, LD_PRELOAD="libcudart.so.13:libcuda.so.1")
    if text.startswith("1"):
        assert recording.sql("select count(*) from allocation") == [(3,)]


def test_a_program_with_the_runtime_and_no_driver_of_its_own(recording):
    """What a reference is bound to depends on the library that has it."""
    program = compiled(recording, MAIN, "program")
    text = same(recording, program, LD_PRELOAD="libcudart.so.13")
    assert text.startswith("1100")


def test_a_linked_library(recording):
    compiled(recording, SOURCE, "libask.so", "-shared", "-fPIC")
    program = compiled(recording, "int ask(void);\nint main(void) { return ask(); }\n", "program", "-L.", f"-L{recording.folder}", "-l:libask.so",
                       f"-Wl,-rpath,{recording.folder}")
    assert same(recording, program) == "0000000\n"


def test_what_a_library_opened_later_gets(recording):
    """A limitation: its references were bound while it was opened. The call fails as it does without a driver, and does
    nothing else."""
    compiled(recording, SOURCE, "late.so", "-shared", "-fPIC")
    program = compiled(recording, '#include <dlfcn.h>\nint main(void) { void *l = dlopen("./late.so", RTLD_NOW);\n'
                       'return ((int (*)(void))dlsym(l, "ask"))(); }\n', "program")
    done = recording.run(program)
    assert done.stdout.splitlines()[1:] == ["malloc 0", "driver 0", "wait 0"]
    assert not databases(recording) and done.stderr == ""
