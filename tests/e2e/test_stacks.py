"""Capturing native stacks must not affect a program's descriptors, memory or stacks of any kind. Each program runs with
and without recording; both must print the same."""
import shutil
import subprocess

import pytest

from conftest import BUILD, SAN
from fixture_trace import compiled
from test_lives import same_as_bare

DESCRIPTORS = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
static ucontext_t here, there;
static void call(void)
{
    void *p;
    cudaMalloc(&p, 100);
    cudaFree(p);
}
static __attribute__((noinline)) void deeper(int n)
{
    volatile char room[3000];
    room[0] = 1;
    if (n) deeper(n - 1);
    else call();
    room[1] = 2;
}
static void handler(int sig) { deeper(3); }
static void coroutine(void) { deeper(5); }
static void everywhere(void)
{
    static char other[1 << 16], room[1 << 18];
    stack_t own = {.ss_sp = other, .ss_size = sizeof other};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    for (int n = 0; n < 30; n++) deeper(n);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    sigaltstack(&own, NULL);
    sigaction(SIGUSR2, &action, NULL);
    raise(SIGUSR2);
    getcontext(&there);
    there.uc_stack.ss_sp = room;
    there.uc_stack.ss_size = sizeof room;
    there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    swapcontext(&here, &there);
}
int main(void)
{
    char text[64] = "";
    int pipes[2], sockets[2];
    call();
    for (int fd = 3; fd < 20; fd++) close(fd); /* what a daemon does */
    pipe(pipes);
    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
    int file = open("mine", O_RDWR | O_CREAT | O_TRUNC, 0600);
    printf("%d %d %d %d %d\n", pipes[0], pipes[1], sockets[0], sockets[1], file);
    write(pipes[1], "data: 0123456789", 16);
    write(sockets[0], "greetings", 9);
    everywhere();
    printf("%zd %s\n", read(pipes[0], text, sizeof text - 1), text);
    memset(text, 0, sizeof text);
    printf("%zd %s\n", read(sockets[1], text, sizeof text - 1), text);
    printf("%ld\n", (long)lseek(file, 0, SEEK_END));
    close(pipes[1]);
    printf("%zd\n", read(pipes[0], text, sizeof text - 1));
    return 0;
}
"""

FIRST = r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int cudaMalloc(void **, unsigned long);
int main(void)
{
    void *p;
    int before = open("/dev/null", O_RDONLY);
    close(before);
    cudaMalloc(&p, 100);
    printf("%d %d\n", before, open("/dev/null", O_RDONLY));
    return 0;
}
"""


@pytest.mark.parametrize("text", [DESCRIPTORS, FIRST], ids=["all", "first"])
def test_descriptors_are_the_programs(recording, text):
    """Especially the lowest numbers, which a program expects to get after it has closed all files."""
    same_as_bare(recording, compiled(recording, text))


@pytest.mark.skipif(not shutil.which("valgrind"), reason="there is no valgrind")
@pytest.mark.skipif(bool(SAN), reason="valgrind runs no instrumented library")
def test_valgrind_finds_nothing(recording):
    """Unwritten bytes of the stack are never written out."""
    program = compiled(recording, DESCRIPTORS, "-Wl,-z,now")
    done = recording.run("valgrind", "-q", "--error-exitcode=9", program, check=False)
    assert "uninitialised" not in done.stderr and done.returncode == 0, done.stderr


UNKNOWN_PYTHON = """
int cudaMalloc(void **, unsigned long);
int PyCode_Type, PyUnicode_Type, PyBytes_Type, _PyRuntime;
const char *Py_GetVersion(void) { return "4.0.1 (main)"; }
int Py_IsInitialized(void) { return 1; }
void *PyGILState_GetThisThreadState(void) { return 0; }
int main(void) { void *p; return cudaMalloc(&p, 100); }
"""


def test_a_python_that_gpuspy_does_not_know_is_named(recording):
    recording.run(compiled(recording, UNKNOWN_PYTHON, "-rdynamic"))
    sentence = "no Python stacks: this version of gpuspy does not know Python 4.0.1"
    assert sentence in recording.report()["run"]["notes"]
    assert sentence in recording.gpuspy("report", recording.database, env={"COLUMNS": "100"}).stdout
