"""The program's descriptors are its own: the numbers of its files are those of a run without gpuspy, whatever the
limit on open files, and nothing of ours stays among them."""
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
    subprocess.run(["gcc", "-O0", "-o", folder / "program", folder / "program.c", f"-L{BUILD / 'sim'}", "-l:libcudart.so.13"],
                   check=True)
    return folder / "program"


def numbers(stdout):
    return [line.replace(" and higher", "") for line in stdout.splitlines()]


def compare(recording, program, limit, how="", shell=False):
    command = ["sh", "-c", f"ulimit -n {limit}; exec {program} 0 {how}"] if shell else [program, limit, how]
    bare = recording.run(*command, check=False, LD_PRELOAD="")
    done = recording.run(*command, check=False)
    ours = [line for line in done.stderr.splitlines() if line.startswith("gpuspy: ")]
    assert done.returncode == bare.returncode, done.stderr
    assert numbers(done.stdout) == numbers(bare.stdout), done.stderr
    others = [line for line in numbers(done.stderr) if line not in ours and "cannot be preloaded" not in line]
    assert others == bare.stderr.splitlines()
    return bare, done, ours


@pytest.mark.parametrize("limit", [*range(3, 13), 64, 256, 500])
@pytest.mark.parametrize("shell", [False, True], ids=["itself", "before"])
def test_a_limit_below_our_numbers(recording, program, limit, shell):
    """Our threads have numbers of their own: from a handful on the program is recorded, below that one line says why."""
    bare, done, ours = compare(recording, program, limit, shell=shell)
    assert " and higher" not in done.stdout
    if "call" not in bare.stdout:  # the loader itself had too few
        return
    assert len(ours) == 1
    if limit >= 12:
        assert recording.sql("select count(*) from allocation") == [(6,)]
    elif "not recording: " in ours[0]:
        assert not databases(recording) and not list(recording.folder.glob("run.db*"))


@pytest.mark.parametrize("limit", [501, 502, 503, 504, 506, 508, 512, 1024])
def test_a_limit_near_our_numbers(recording, program, limit):
    bare, done, ours = compare(recording, program, limit)
    assert len(ours) == 1
    assert recording.sql("select count(*) from allocation") == [(6,)]


@pytest.mark.parametrize("how", ["full", "closed", "closerange", "dup2"])
@pytest.mark.parametrize("limit", [8, 64, 512, 1024])
def test_programs_that_meddle_with_descriptors(recording, program, limit, how):
    compare(recording, program, limit, how)


@pytest.mark.parametrize("limit", [16, 64, 256])
def test_a_report_needs_few_descriptors(recording, program, limit):
    """In a process of its own gpuspy takes what numbers there are."""
    recording.python("import ctypes, os, signal\nassert ctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), "
                     "ctypes.c_size_t(1 << 20)) == 0\nos.kill(os.getpid(), signal.SIGKILL)\n", check=False)
    assert list(recording.folder.glob("*.spool"))
    done = subprocess.run(["sh", "-c", f"ulimit -n {limit}; exec {BUILD / 'gpuspy'} report run.db"], cwd=recording.folder,
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and not list(recording.folder.glob("*.spool")), done.stderr
    assert recording.sql("select count(*) from allocation") == [(1,)]
