"""gpuspy does not disturb the program's descriptors: its files have the same numbers as without gpuspy, whatever the
limit on open files, and gpuspy leaves none of its own open among them."""
import subprocess

import pytest

from conftest import BUILD, sanitized
from test_programs import databases

SOURCE = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
extern int cudaMalloc(void **, size_t);
extern int cudaStreamSynchronize(void *);

/* Without opening anything: what is open below 500, and how much above. */
static void list(const char *when)
{
    int high = 0;
    printf("%s:", when);
    for (int fd = 0; fd < 1000; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            fd < 500 ? printf(" %d", fd) : high++;
    printf("%s\n", high ? " and higher" : "");
}

int main(int argc, char **argv)
{
    void *p;
    struct rlimit limit;
    const rlim_t most = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    const char *how = argc > 2 ? argv[2] : "";
    /* without PIC, the address of malloc is that of the program's own PLT entry, as in Debian's Python */
    void *(*volatile allocate)(size_t) = malloc;
    free(allocate(1));
    list("start");
    if (most) {
        getrlimit(RLIMIT_NOFILE, &limit);
        limit.rlim_cur = most;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    int kept = !strcmp(how, "full") ? 100 : 0;
    while (kept-- > 0 && open("/dev/null", O_RDONLY) >= 0)
        ;
    if (!strcmp(how, "closed")) close(0), close(1), dup2(2, 1);
    list("before");
    for (int i = 0; i < 3; i++) printf("call %d\n", cudaMalloc(&p, 1 << 20));
    list("after");
    if (!strcmp(how, "closerange")) {
        for (int fd = 3; fd < 1024; fd++) close(fd);
        list("closed");
    }
    if (!strcmp(how, "dup2")) {
        for (int fd = 498; fd < 520; fd++) dup2(2, fd);
    }
    for (int i = 0; i < 4; i++) printf("open %d\n", open("/dev/null", O_RDONLY));
    for (int i = 0; i < 3; i++) printf("call %d\n", cudaMalloc(&p, 1 << 20)), cudaStreamSynchronize(0);
    for (int i = 0; i < 4; i++) printf("open %d\n", open("/dev/null", O_RDONLY));
    list("end");
    return 5;
}
"""
pytestmark = sanitized("a sanitizer's run time opens files of its own")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("descriptors")
    (folder / "program.c").write_text(SOURCE)
    subprocess.run(["gcc", "-O0", "-fno-pic", "-no-pie", "-o", folder / "program", folder / "program.c", f"-L{BUILD / 'sim'}",
                    "-l:libcudart.so.13"], check=True)
    return folder / "program"


def numbers(stdout):
    return [line.replace(" and higher", "") for line in stdout.splitlines()]


ALLOCATOR = r"""
#include <stddef.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void free(void *p) { __libc_free(p); }
"""


@pytest.fixture(scope="module")
def allocator(tmp_path_factory):
    """If the program has its own allocator, which may use files, gpuspy keeps its files in the program's table of
    descriptors. It also does on kernels before 5.9."""
    folder = tmp_path_factory.mktemp("allocator")
    (folder / "allocator.c").write_text(ALLOCATOR)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "liballocator.so", folder / "allocator.c"], check=True)
    return folder / "liballocator.so"


def compare(recording, program, limit, how="", shell=False, beside=None):
    command = ["sh", "-c", f"ulimit -n {limit}; exec {program} 0 {how}"] if shell else [program, limit, how]
    ours = recording.environment()["LD_PRELOAD"]
    bare = recording.run(*command, check=False, LD_PRELOAD=beside or "")
    for _ in range(5 if beside else 1):  # there, a file of gpuspy has a low number for microseconds, until it gets a high one
        done = recording.run(*command, check=False, LD_PRELOAD=f"{ours}:{beside}" if beside else ours)
        if numbers(done.stdout) == numbers(bare.stdout):
            break
    ours = [line for line in done.stderr.splitlines() if line.startswith("gpuspy: ")]
    assert done.returncode == bare.returncode, done.stderr
    assert numbers(done.stdout) == numbers(bare.stdout), done.stderr
    others, without = ([line for line in numbers(run.stderr) if line not in ours and "cannot be preloaded" not in line]
                       for run in (done, bare))
    assert others == without
    return bare, done, ours


@pytest.mark.parametrize("limit", [*range(3, 13), 64, 256, 500])
@pytest.mark.parametrize("shell", [False, True], ids=["itself", "before"])
def test_a_limit_below_our_numbers(recording, program, allocator, limit, shell):
    """Nothing is recorded, one line states why, and nothing stays open."""
    bare, done, ours = compare(recording, program, limit, shell=shell, beside=allocator)
    if "call" in bare.stdout:  # else even the loader did not have enough
        assert " and higher" not in done.stdout
        assert len(ours) == 1 and f"the limit on open files (ulimit -n) is {limit}, " in ours[0]
    assert not databases(recording) and not list(recording.folder.glob("run.db*"))


@pytest.mark.parametrize("limit", [*range(3, 13), 64, 256, 500, 512])
@pytest.mark.parametrize("shell", [False, True], ids=["itself", "before"])
def test_a_limit_with_a_table_of_our_own(recording, program, limit, shell):
    """gpuspy needs few, and none of the program's numbers."""
    bare, done, ours = compare(recording, program, limit, shell=shell)
    if "call" in bare.stdout:
        assert " and higher" not in done.stdout and len(ours) == 1
    if limit >= 12:
        assert recording.sql("select count(*) from allocation") == [(6,)]
    elif databases(recording) and "recording stopped" not in ours[0]:
        assert recording.sql("select count(*) + (select lost_events from process) from allocation") == [(6,)]


@pytest.mark.parametrize("limit", range(3, 7))
def test_a_limit_that_a_recorded_program_lowers(recording, limit):
    recording.python("import resource\nfrom minicuda import Runtime, Tensor\nruntime = Runtime()\nfirst = Tensor(runtime, 100)\n"
                     f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\nsecond = Tensor(runtime, 200)\n")
    assert [file.name for file in recording.folder.glob("run*")] == ["run.db"]
    assert recording.sql("select bytes from allocation") == [(100,), (200,)]


@pytest.mark.parametrize("limit", [501, 502, 503, 504, 506, 508, 512, 1024])
def test_a_limit_near_our_numbers(recording, program, allocator, limit):
    """Recorded or not: in both cases the program's numbers are unchanged."""
    bare, done, ours = compare(recording, program, limit, beside=allocator)
    assert len(ours) == 1
    if limit >= 512:
        assert recording.sql("select count(*) from allocation") == [(6,)]


@pytest.mark.parametrize("how", ["full", "closed", "closerange", "dup2"])
@pytest.mark.parametrize("limit", [8, 64, 512, 1024])
def test_programs_that_meddle_with_descriptors(recording, program, allocator, limit, how):
    compare(recording, program, limit, how)
    compare(recording, program, limit, how, beside=allocator)


@pytest.mark.parametrize("limit", [16, 64, 256])
def test_a_report_needs_few_descriptors(recording, program, limit):
    """A gpuspy command uses whatever numbers are free."""
    recording.python("import ctypes, os, signal\nassert ctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), "
                     "ctypes.c_size_t(1 << 20)) == 0\nos.kill(os.getpid(), signal.SIGKILL)\n", check=False)
    assert list(recording.folder.glob("*.spool"))
    done = subprocess.run(["sh", "-c", f"ulimit -n {limit}; exec {BUILD / 'gpuspy'} report run.db"], cwd=recording.folder,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not list(recording.folder.glob("*.spool")), done.stderr
    assert recording.sql("select count(*) from allocation") == [(1,)]
