"""gpuspy attach and detach: recording of a running program starts and stops, and the program does not notice."""
import ctypes
import json
import os
import random
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT, SECONDS, sanitized, wait_until

PROGRAM = BUILD / "programs" / "goes_on"
pytestmark = sanitized("a sanitizer's run time has to be loaded first")


class Target:
    """A running fixtures/programs/goes_on.c."""

    def __init__(self, folder, threads=2, program=PROGRAM, **more):
        self.folder, self.threads = folder, threads
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
        env.update(LD_LIBRARY_PATH=str(BUILD / "sim"), **{k: str(v) for k, v in more.items()})
        self.process = subprocess.Popen([program, str(threads)], env=env, cwd=folder, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == "ready\n"

    def do(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        lines = []
        while not lines or lines[-1] not in ("done", ""):
            lines.append(self.process.stdout.readline().rstrip("\n"))
        assert lines[-1] == "done", self.process.communicate(timeout=SECONDS)
        return lines[:-1]

    def end(self):
        """Ends the program: its exit status and output must be its own."""
        out, err = self.process.communicate(timeout=SECONDS)
        assert (self.process.returncode, out, err) == (0, "end\n", "")


def gpuspy(*words, folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    return subprocess.run([BUILD / "gpuspy", *map(str, words)], env={**env, **more}, cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


def attach(target, name="run.db", *words):
    done = gpuspy("attach", target.pid, "--db", name, *words, folder=target.folder)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert len(done.stderr.splitlines()) == 1 and f"gpuspy detach {target.pid}" in done.stderr
    return target.folder / name


def detach(target):
    done = gpuspy("detach", target.pid, folder=target.folder)
    assert done.returncode == 0, done.stderr
    assert f"process {target.pid} was recorded to" in done.stderr


def sql(path, query):
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        return db.execute(query).fetchall()


def sizes(path):
    """By api and size: the number of allocations, and how many were not freed."""
    rows = sql(path, "SELECT api, bytes, count(*), sum(free_ns IS NULL) FROM allocations GROUP BY 1, 2")
    assert sql(path, "SELECT lost_events, complete FROM process") == [(0, 1)]
    return {(api, size): (n, live) for api, size, n, live in rows}


@pytest.fixture
def target(tmp_path):
    made = Target(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


# ---------------------------------------------------------------- what is recorded

def test_each_recording_has_what_was_done_meanwhile(target):
    target.do("pairs", 1000, 10)
    first = attach(target)
    target.do("pairs", 2000, 50)
    detach(target)
    target.do("pairs", 3000, 10)
    second = attach(target, "again.db")
    target.do("pairs", 4000, 7)
    target.end()
    assert sizes(first) == {("cudaMalloc", 2000): (150, 0)}
    assert sizes(second) == {("cudaMalloc", 4000): (21, 0)}


BUILDS = {"lazy": ["-Wl,-z,lazy"], "bound and read-only": ["-Wl,-z,relro,-z,now"], "no PIE": ["-no-pie"]}


@pytest.mark.parametrize("flags", BUILDS.values(), ids=BUILDS)
def test_however_the_program_is_linked(tmp_path, flags):
    objects = [BUILD / "obj" / "fixtures" / "programs" / name for name in ("goes_on.o", "fixture.o")]
    program = tmp_path / "program"
    subprocess.run(["cc", "-o", program, *objects, *flags, f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda", "-lpthread", "-ldl"],
                   check=True)
    target = Target(tmp_path, program=program)
    target.do("pairs", 1000, 2)
    path = attach(target)
    target.do("pairs", 2000, 5)
    detach(target)
    target.do("pairs", 3000, 5)
    target.end()
    assert sizes(path) == {("cudaMalloc", 2000): (15, 0)}


def test_a_static_runtime_is_seen_by_its_driver_calls(tmp_path):
    """It has looked up the driver's functions before: their addresses are in its data."""
    objects = [BUILD / "obj" / "fixtures" / "programs" / name for name in ("goes_on.o", "fixture.o")]
    program = tmp_path / "program"
    subprocess.run(["cc", "-o", program, *objects, BUILD / "sim" / "libcudart_static.a", "-lpthread", "-ldl", "-lm"], check=True)
    target = Target(tmp_path, program=program)
    target.do("pairs", 1000, 2)
    path = attach(target)
    target.do("pairs", 2000, 5)
    detach(target)
    target.do("pairs", 3000, 5)
    target.end()
    assert sizes(path) == {("cuMemAlloc_v2", 2000): (15, 0)}


LIBRARY = r"""
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
void later(void) { void *p; cudaMalloc(&p, 5000); cudaFree(p); }
"""


@pytest.mark.parametrize("flags", [[], ["-Wl,-z,now"]], ids=["lazy", "now"])
def test_a_library_that_is_opened_later_is_recorded(target, flags):
    source = target.folder / "later.c"
    source.write_text(LIBRARY)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", target.folder / "later.so", source, *flags, f"-L{BUILD / 'sim'}", "-lcudart"],
                   check=True)
    path = attach(target)
    assert target.do("open", target.folder / "later.so", "later") == []
    assert "nothing" in target.do("open", target.folder / "later.so", "nothing")[0]  # the text of dlerror
    detach(target)
    target.do("open", target.folder / "later.so", "later")
    target.end()
    assert sizes(path) == {("cudaMalloc", 5000): (1, 0)}


def test_a_free_of_an_earlier_allocation_is_not_an_error(target):
    target.do("keep", 1 << 20, 3)
    path = attach(target)
    target.do("free")
    target.do("keep", 2000, 2)
    detach(target)
    target.do("free")
    target.end()
    assert sizes(path) == {("cudaMalloc", 2000): (6, 6)}
    assert sql(path, "SELECT value FROM meta WHERE key = 'unknown_frees'") == [(9,)]
    report = gpuspy("report", path, folder=target.folder)
    assert report.returncode == 0 and not report.stderr
    text = " ".join(report.stdout.split())
    assert f"gpuspy attached to process {target.pid}" in text and "allocated before is not in the recording" in text
    assert "because of gpuspy detach" in text
    assert text.count("without what was allocated before gpuspy attached") == 1
    process, = json.loads(gpuspy("report", "--json", path, folder=target.folder).stdout)["run"]["processes"]
    assert process["stopped"] == "detach" and process["attached_after_s"] > 0


def test_a_killed_process_is_recorded_completely(target):
    path = attach(target)
    target.do("keep", 2000, 100)
    os.kill(target.pid, signal.SIGKILL)
    target.process.wait()
    report = gpuspy("report", "--json", path, folder=target.folder)
    assert report.returncode == 0
    assert sql(path, "SELECT count(*), sum(bytes) FROM allocation WHERE free_ns IS NULL") == [(300, 600000)]
    assert json.loads(report.stdout)["run"]["processes"][0]["attached_after_s"] > 0


def test_settings_are_those_of_the_command(target):
    path = attach(target, "a.db", "--stacks", "none")
    target.do("pairs", 2000, 1)
    detach(target)
    assert sql(path, "SELECT count(*) FROM frame") == [(0,)]
    done = gpuspy("attach", "-q", target.pid, folder=target.folder, GPUSPY_DB="b.db", GPUSPY_ARGS="0")
    assert done.returncode == 0 and not done.stderr
    target.do("pairs", 2000, 1)
    target.end()
    assert sql(target.folder / "b.db", "SELECT command FROM process") == [(str(PROGRAM),)]  # without its argument
    assert sql(target.folder / "b.db", "SELECT count(*) FROM frame")[0][0] > 0


@pytest.mark.parametrize("name, value, says", [("GPUSPY_KEEP", "much", "is not a size of at least 32MiB, such as 512MiB; the "
                                                "recording is not bounded"),
                                               ("GPUSPY_STACKS", "all", "is not python, native, both or none; using the default")])
def test_a_setting_that_makes_no_sense_is_reported(target, name, value, says):
    """Reported by the command: the program's own output does not change."""
    done = gpuspy("attach", target.pid, folder=target.folder, **{name: value})
    assert done.returncode == 0
    assert done.stderr.splitlines()[1:] == [f"gpuspy: attach: {name}={value} {says}"]
    target.do("pairs", 2000, 5)
    target.end()
    assert sizes(target.folder / "run.db") == {("cudaMalloc", 2000): (15, 0)}


def test_a_recording_that_exists_is_not_overwritten(target):
    (target.folder / "run.db").write_text("mine")
    done = gpuspy("attach", target.pid, folder=target.folder)
    assert done.returncode == 0 and "run-2.db" in done.stderr
    target.end()
    assert (target.folder / "run.db").read_text() == "mine"


# ---------------------------------------------------------------- the program does not notice

def test_attach_and_detach_under_load(tmp_path):
    """At random moments, with threads, signals, forks and malloc: the program's output and status must not change."""
    target = Target(tmp_path, threads=4)
    lucky = random.Random(1)
    target.do("storm")
    for i in range(15):
        path = attach(target, f"{i}.db")
        time.sleep(lucky.random() / 50)
        os.kill(target.pid, signal.SIGUSR1)
        detach(target)
        assert sql(path, "SELECT lost_events, complete FROM process") == [(0, 1)]
        assert set(sql(path, "SELECT DISTINCT bytes FROM allocation")) <= {(512,)}
        assert sql(path, "SELECT count(*) FROM allocation WHERE free_ns IS NULL")[0][0] <= 4
        if i % 3 == 0:
            assert target.do("fork") == ["child 42"]
    target.do("pairs", 100, 1)
    target.end()
    assert not list(tmp_path.glob("*.spool"))


def test_its_environment_and_its_children_stay_as_they_are(target):
    def environment():
        return open(f"/proc/{target.pid}/environ", "rb").read()
    def blocked():
        return [re.search(r"\nSigBlk:\t(.*)\n", open(f"/proc/{target.pid}/task/{thread}/status").read())[1] for thread in threads]
    threads = os.listdir(f"/proc/{target.pid}/task")
    target.do("pairs", 100, 1)  # no thread is being started, with its signals blocked
    before, signals, descriptors = environment(), blocked(), set(os.listdir(f"/proc/{target.pid}/fd"))
    attach(target)
    assert blocked() == signals
    target.do("pairs", 100, 1)
    assert target.do("fork") == ["child 42"]
    assert {int(n) for n in os.listdir(f"/proc/{target.pid}/fd") if n not in descriptors} <= set(range(500, 600))
    detach(target)
    assert environment() == before and blocked() == signals and set(os.listdir(f"/proc/{target.pid}/fd")) == descriptors
    target.end()
    assert len(list(target.folder.glob("*.db"))) == 1


def test_a_program_that_ends_meanwhile(tmp_path):
    for i in range(8):
        target = Target(tmp_path)
        target.do("storm")
        running = subprocess.Popen([BUILD / "gpuspy", "attach", str(target.pid), "--db", tmp_path / f"{i}.db"], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(i * 0.01)
        target.end()
        out, err = running.communicate(timeout=SECONDS)
        assert running.returncode in (0, 3) and out == "" and len(err.splitlines()) == 1, err


def test_a_busy_python_is_recorded_with_its_lines(tmp_path):
    script = tmp_path / "busy.py"
    script.write_text("import ctypes, sys\n"
                      "cuda = ctypes.CDLL('libcudart.so.12')\n"
                      "def step():\n"
                      "    p = ctypes.c_void_p()\n"
                      "    assert cuda.cudaMalloc(ctypes.byref(p), 2000) == 0\n"
                      "    assert cuda.cudaFree(p) == 0\n"
                      "step()\nprint('ready', flush=True)\n"
                      "while not sys.stdin.closed:\n"
                      "    cuda = ctypes.CDLL('libcudart.so.12')  # its addresses are in malloc's memory\n"
                      "    for i in range(100): step()\n"
                      "    import select\n"
                      "    if select.select([0], [], [], 0)[0]: break\n"
                      "print('end')\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    process = subprocess.Popen([sys.executable, script], env={**env, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == "ready\n"
    done = gpuspy("attach", process.pid, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    time.sleep(0.3)
    out, err = process.communicate("\n", timeout=SECONDS)
    assert (process.returncode, out, err) == (0, "end\n", "")
    lines = sql(tmp_path / "run.db", "SELECT DISTINCT function, line FROM frames WHERE kind = 'python'")
    assert ("step", 5) in lines and sizes(tmp_path / "run.db")[("cudaMalloc", 2000)][0] > 10


IN_A_WAIT = r"""
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int cudaFree(void *);
static void handle(int number) { (void)number; }
int main(int argc, char **argv)
{
    int ends[2], epoll = epoll_create1(0), counter = semget(IPC_PRIVATE, 1, 0600);
    struct epoll_event event = {.events = EPOLLIN};
    struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
    const struct timespec long_time = {30, 0};
    const struct timeval limit = {30, 0};
    sigset_t set;
    long result = -2;
    char byte;
    (void)argc;
    socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGUSR1, handle);
    siginterrupt(SIGUSR1, 1);
    if (!fork()) { /* ends the wait after the next line of input */
        while (read(0, &byte, 1) == 1 && byte != '\n') continue;
        kill(getppid(), strcmp(argv[1], "handled") ? SIGUSR2 : SIGUSR1);
        semop(counter, &up, 1);
        if (strcmp(argv[1], "handled")) write(ends[1], "", 1);
        _exit(0);
    }
    cudaFree(0);
    puts("ready");
    fflush(stdout);
    errno = 0;
    if (!strcmp(argv[1], "epoll_wait") || !strcmp(argv[1], "handled")) result = epoll_wait(epoll, &event, 1, 30000);
    if (!strcmp(argv[1], "epoll_pwait")) result = epoll_pwait(epoll, &event, 1, -1, &set);
    if (!strcmp(argv[1], "recv")) result = recv(ends[0], &byte, 1, 0);
    if (!strcmp(argv[1], "semop")) result = semop(counter, &down, 1);
    if (!strcmp(argv[1], "semtimedop")) result = semtimedop(counter, &down, 1, &long_time);
    if (!strcmp(argv[1], "sigtimedwait")) result = sigtimedwait(&set, NULL, &long_time);
    if (!strcmp(argv[1], "sigwaitinfo")) result = sigwaitinfo(&set, NULL);
    printf("%ld %s\n", result, strerror(errno));
    semctl(counter, 0, IPC_RMID);
}
"""


@pytest.fixture(scope="module")
def in_a_wait(tmp_path_factory):
    program = tmp_path_factory.mktemp("in_a_wait") / "program"
    subprocess.run(["cc", "-o", program, "-xc", "-", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda"], input=IN_A_WAIT, text=True,
                   check=True)
    return program


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="elsewhere the kernel has decided before the stop")
@pytest.mark.parametrize("wait, printed", [("epoll_wait", "1 Success"), ("epoll_pwait", "1 Success"), ("recv", "1 Success"),
                                           ("semop", "0 Success"), ("semtimedop", "0 Success"),
                                           ("sigtimedwait", f"{int(signal.SIGUSR2)} Success"),
                                           ("sigwaitinfo", f"{int(signal.SIGUSR2)} Success"),
                                           ("handled", "-1 Interrupted system call")])
def test_a_wait_that_a_stop_would_end(tmp_path, in_a_wait, wait, printed):
    """The kernel ends these with EINTR when a debugger stops their thread. A handler of the program still ends them."""
    process = subprocess.Popen([in_a_wait, wait], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "S")
        for words in ["attach", process.pid], ["detach", process.pid]:
            assert gpuspy(*words, folder=tmp_path).returncode == 0
        assert process.communicate("go\n", timeout=SECONDS)[0] == f"{printed}\n"
    finally:
        process.kill()
        process.communicate()


ON_FIBERS = r"""
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
int cudaFree(void *);
enum { ARENA = 1 << 20, STACK = 4 << 10 };
static ucontext_t thread, fiber;
static char *arena;
static void wait_ms(int ms)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}
static void on_fiber(void)
{
    for (;;) {
        wait_ms(8);
        swapcontext(&fiber, &thread);
    }
}
int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    cudaFree(0);
    arena = mmap(0, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(arena, 0x55, ARENA);
    getcontext(&fiber);
    fiber.uc_stack.ss_sp = arena + ARENA / 2;
    fiber.uc_stack.ss_size = STACK;
    makecontext(&fiber, on_fiber, 0);
    puts("ready");
    fflush(stdout);
    while (!poll(&input, 1, 1)) swapcontext(&thread, &fiber);
    for (int i = 0; i < ARENA / 2; i++)
        if (arena[i] != 0x55) return puts("overwritten");
    puts("intact");
}
"""


def test_a_thread_on_a_stack_of_the_programs(tmp_path):
    """Go's routines and libraries of fibers have small stacks inside larger memory: no function is called there."""
    subprocess.run(["cc", "-O1", "-o", tmp_path / "fibers", "-xc", "-", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda"], input=ON_FIBERS,
                   text=True, check=True)
    process = subprocess.Popen([tmp_path / "fibers"], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "ready\n"
        for i in range(3):
            for words in ["attach", process.pid, "--db", f"{i}.db"], ["detach", process.pid]:
                done = gpuspy(*words, folder=tmp_path)
                assert done.returncode == 0, done.stderr
        assert process.communicate("go\n", timeout=SECONDS)[0] == "intact\n"
    finally:
        process.kill()
        process.communicate()


OWN_MALLOC = r"""
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
int cudaFree(void *);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Alignas(16) char memory[64 << 20];
static size_t used;
void *malloc(size_t n)
{
    pthread_mutex_lock(&lock);
    for (volatile int i = 0; i < 2000; i++) continue;
    char *p = memory + used;
    if (n > 1) used += (n + 31) & ~(size_t)15; /* what the loop below asks for is given again and again */
    pthread_mutex_unlock(&lock);
    memcpy(p, &n, sizeof n);
    return p + 16;
}
void free(void *p) { (void)p; }
void *calloc(size_t n, size_t size) { return memset(malloc(n * size + 2), 0, n * size); }
void *realloc(void *old, size_t n)
{
    size_t had = 0;
    void *p = malloc(n + 2);
    if (old) memcpy(&had, (char *)old - 16, sizeof had);
    return old ? memcpy(p, old, had < n ? had : n) : p;
}
int main(void)
{
    struct pollfd input = {0, POLLIN, 0};
    cudaFree(0);
    puts("ready");
    fflush(stdout);
    while (!poll(&input, 1, 2))
        for (volatile int i = 0; i < 8000; i++) malloc(1);
    puts("end");
}
"""


def test_a_program_with_a_malloc_of_its_own(tmp_path):
    """A statically linked jemalloc, say: dlopen would wait for the lock that the interrupted thread holds."""
    subprocess.run(["cc", "-O1", "-fno-builtin", "-o", tmp_path / "own", "-xc", "-", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda", "-lpthread"],
                   input=OWN_MALLOC, text=True, check=True)
    process = subprocess.Popen([tmp_path / "own"], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == "ready\n"
        for words in (["attach", process.pid], ["detach", process.pid]) * 3:
            done = gpuspy(*words, folder=tmp_path)
            assert done.returncode == 0, done.stderr
        assert process.communicate("go\n", timeout=SECONDS)[0] == "end\n"
    finally:
        process.kill()
        process.communicate()


# ---------------------------------------------------------------- what cannot be attached to

def refused(done, code, *words):
    assert (done.returncode, done.stdout) == (code, "") and len(done.stderr.splitlines()) == 1, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr
    return True


def test_twice(target):
    path = attach(target)
    assert refused(gpuspy("attach", target.pid, "--db", "b.db", folder=target.folder), 1, "recorded already", str(path))
    detach(target)
    assert refused(gpuspy("detach", target.pid, folder=target.folder), 1, "is not recorded")
    target.do("pairs", 100, 1)
    target.end()
    assert not (target.folder / "b.db").exists()


def test_a_process_that_gpuspy_run_started(tmp_path):
    target = Target(tmp_path, LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DB=tmp_path / "run.db", GPUSPY_QUIET=1)
    assert refused(gpuspy("attach", target.pid, folder=tmp_path), 1, "since it started")
    other = Target(tmp_path, LD_PRELOAD=BUILD / "libgpuspy.so", GPUSPY_DISABLE=1)
    assert refused(gpuspy("attach", other.pid, folder=tmp_path), 1, "GPUSPY_DISABLE")
    other.end()
    assert refused(gpuspy("detach", target.pid, folder=tmp_path), 1, "started with the recorder")
    target.do("pairs", 2000, 1)
    target.end()
    assert sizes(tmp_path / "run.db") == {("cudaMalloc", 2000): (3, 0)}


def test_processes_without_cuda(tmp_path):
    sleeping = subprocess.Popen(["sleep", "60"])
    try:
        wait_until(lambda: "libc.so" in open(f"/proc/{sleeping.pid}/maps").read())
        assert refused(gpuspy("attach", sleeping.pid, folder=tmp_path), 3, "has not loaded CUDA")
        assert refused(gpuspy("detach", sleeping.pid, folder=tmp_path), 1, "is not recorded")
        os.kill(sleeping.pid, signal.SIGSTOP)
        os.waitpid(sleeping.pid, os.WUNTRACED)
        assert refused(gpuspy("attach", sleeping.pid, folder=tmp_path), 3, "is stopped", f"kill -CONT {sleeping.pid}")
    finally:
        sleeping.kill()
        sleeping.wait()
    for words, code, text in ((["4194304"], 3, "no process"), ([], 2, "no process given"), (["train.py"], 2, "'train.py'"),
                              (["0"], 2, "'0'"), (["-5"], 2, "-5"), (["99999999999999999999"], 2, "9999"),
                              ([os.getpid(), "x"], 2, "'x'")):
        for command in "attach", "detach":
            assert refused(gpuspy(command, *words, folder=tmp_path), code, text)


def test_a_zombie_and_a_thread(target):
    dead = subprocess.Popen(["true"])
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
    assert refused(gpuspy("attach", dead.pid, folder=target.folder), 3, "has ended")
    dead.wait()
    thread = max(int(n) for n in os.listdir(f"/proc/{target.pid}/task"))
    assert refused(gpuspy("attach", thread, folder=target.folder), 3, "is a thread of process", str(target.pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a program as somebody else")
def test_a_process_of_somebody_else(target, tmp_path):
    target.do("pairs", 100, 1)
    done = subprocess.run([BUILD / "gpuspy", "attach", str(target.pid)], cwd="/", text=True, user="nobody", extra_groups=[],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) if os.access(BUILD, os.X_OK) else None
    assert refused(done, 3, "belongs to another user", "uid 0")
    target.end()


def test_a_traced_process(target):
    tracer = ("import ctypes, os, sys, time\nlibc = ctypes.CDLL(None)\n"
              f"print(libc.ptrace(0x4206, {target.pid}, 0, 0), flush=True)\ntime.sleep(60)\n")
    debugger = subprocess.Popen([sys.executable, "-c", tracer], stdout=subprocess.PIPE, text=True)
    try:
        assert debugger.stdout.readline() == "0\n"
        assert refused(gpuspy("attach", target.pid, folder=target.folder), 3, "is being traced by process", str(debugger.pid))
    finally:
        debugger.kill()
        debugger.wait()
    target.do("pairs", 100, 1)
    target.end()


def test_a_process_near_its_limit_on_addresses(target):
    size = int(re.search(r"VmSize:\s*(\d+)", open(f"/proc/{target.pid}/status").read())[1]) << 10
    resource.prlimit(target.pid, resource.RLIMIT_AS, (size + (100 << 20), resource.RLIM_INFINITY))
    assert refused(gpuspy("attach", target.pid, folder=target.folder), 3, "MiB more (ulimit -v)")
    resource.prlimit(target.pid, resource.RLIMIT_AS, (size + (400 << 20), resource.RLIM_INFINITY))
    attach(target)
    target.do("pairs", 100, 1)
    target.end()


def test_where_the_recording_cannot_be_written(target):
    done = gpuspy("attach", target.pid, "--db", "/proc/no/run.db", folder=target.folder)
    assert refused(done, 3, "cannot write /proc/no/run.db", "No such file")
    target.do("pairs", 100, 1)
    path = attach(target)  # the failed first attempt leaves nothing that prevents the second
    target.do("pairs", 2000, 1)
    target.end()
    assert sizes(path) == {("cudaMalloc", 2000): (3, 0)}


def test_memory_from_before_is_not_taken_for_a_context(target):
    """Nor for memory of another process, nor for fragmentation."""
    target.do("keep", 1 << 30, 3)  # 9 of 24 GiB
    path = attach(target)
    target.do("keep", 1 << 30, 4)  # 12 more
    out, err = target.process.communicate(f"keep {2 << 30} 2\n", timeout=SECONDS)  # and 12
    assert target.process.returncode == 9 and "cudaMalloc" in err
    report = gpuspy("report", "--json", path, folder=target.folder)
    oom = json.loads(report.stdout)["oom"][-1]
    assert oom["cause"] == "capacity"
    parts = {part["text"]: part["bytes"] for part in oom["waterfall"]}
    earlier, = [size for text, size in parts.items() if "gpuspy attached" in text]
    assert 9 << 30 <= earlier < 10 << 30 and sum(parts.values()) == 24 << 30


ENDED_LEADER = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int cudaFree(void *);
static void *rest(void *unused) { puts("ready"); fflush(stdout); sleep(60); return unused; }
int main(void) { pthread_t t; cudaFree(0); pthread_create(&t, 0, rest, 0); pthread_exit(0); }
"""


def test_a_process_without_its_main_thread(tmp_path):
    (tmp_path / "leader.c").write_text(ENDED_LEADER)
    subprocess.run(["cc", "-o", tmp_path / "leader", tmp_path / "leader.c", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda", "-lpthread"],
                   check=True)
    process = subprocess.Popen([tmp_path / "leader"], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")},
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "Z")
        assert refused(gpuspy("attach", process.pid, folder=tmp_path), 3, "main thread", "has ended")
    finally:
        process.kill()
        process.communicate()


IN_VFORK = r"""
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int cudaFree(void *);
static void *rest(void *unused) { puts("ready"); fflush(stdout); for (;;) { usleep(1000); cudaFree(0); } return unused; }
int main(void) { pthread_t t; cudaFree(0); pthread_create(&t, 0, rest, 0); if (!vfork()) { pause(); _exit(0); } }
"""


def test_a_process_that_cannot_be_interrupted(tmp_path):
    """Its only thread waits in vfork: it is traced by gpuspy itself, which must not be named as a debugger."""
    (tmp_path / "waits.c").write_text("#include <unistd.h>\nint cudaFree(void *);\n"
                                      "int main(void) { cudaFree(0); if (!vfork()) { write(1, \"ready\", 5); pause(); _exit(0); } }")
    subprocess.run(["cc", "-o", tmp_path / "waits", tmp_path / "waits.c", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda"], check=True)
    process = subprocess.Popen([tmp_path / "waits"], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")},
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    def status():
        return open(f"/proc/{process.pid}/status").read()
    try:
        assert process.stdout.read(5) == "ready"
        assert refused(gpuspy("attach", process.pid, folder=tmp_path), 3, "waiting in the kernel", "try again later")
        wait_until(lambda: "State:\tD" in status() and "TracerPid:\t0\n" in status())
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_stopped_process_whose_main_thread_does_not_look_stopped(tmp_path):
    """It waits in vfork. A thread that gpuspy started in the process would not run until the process is resumed."""
    (tmp_path / "waits.c").write_text(IN_VFORK)
    subprocess.run(["cc", "-o", tmp_path / "waits", tmp_path / "waits.c", f"-L{BUILD / 'sim'}", "-lcudart", "-lcuda", "-lpthread"],
                   check=True)
    process = subprocess.Popen([tmp_path / "waits"], env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")},
                               stdout=subprocess.PIPE, text=True, start_new_session=True)
    def states():
        return {int(t): open(f"/proc/{process.pid}/task/{t}/stat").read().rsplit(")", 1)[1].split()[0]
                for t in os.listdir(f"/proc/{process.pid}/task")}
    try:
        assert process.stdout.readline() == "ready\n"
        wait_until(lambda: states()[process.pid] == "D")
        other = max(states())
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGSTOP) == 0
        wait_until(lambda: states()[other] == "T")
        assert refused(gpuspy("attach", process.pid, folder=tmp_path), 3, "is stopped", f"kill -CONT {process.pid}")
        wait_until(lambda: states() == {process.pid: "D", other: "T"})
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_tree_of_processes(tmp_path):
    """A launcher that does not use CUDA, two workers that do, and one that does not."""
    script = tmp_path / "launcher.py"
    script.write_text("import subprocess, sys\n"
                      "workers = [subprocess.Popen([sys.argv[1], '1'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in '12']\n"
                      "idle = subprocess.Popen(['sleep', '60'])\n"
                      "for w in workers: assert w.stdout.readline() == b'ready\\n'\n"
                      "print('ready', flush=True)\nsys.stdin.readline()\n"
                      "for w in workers: w.communicate(b'pairs 2000 5\\n')\n"
                      "idle.kill()\nprint([w.returncode for w in workers])\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    launcher = subprocess.Popen([sys.executable, script, PROGRAM], env={**env, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert launcher.stdout.readline() == "ready\n"
    assert refused(gpuspy("attach", launcher.pid, folder=tmp_path), 3, "has not loaded CUDA")
    assert refused(gpuspy("detach", "--tree", launcher.pid, folder=tmp_path), 1, "is not recorded")
    done = gpuspy("attach", "--tree", launcher.pid, folder=tmp_path)
    assert done.returncode == 0 and len(done.stderr.splitlines()) == 2, done.stderr
    assert launcher.communicate("go\n", timeout=SECONDS)[0] == "[0, 0]\n"
    recordings = sorted(tmp_path.glob("run*.db"))
    assert [sizes(path) for path in recordings] == [{("cudaMalloc", 2000): (10, 0)}] * 2
    report = json.loads(gpuspy("report", "--json", tmp_path / "run.db", folder=tmp_path).stdout)
    assert len(report["run"]["processes"]) == 2


FAKE_TORCH = """
import ctypes, os, sys, time, types
ctypes.CDLL("libcudart.so.13").cudaFree(None)
def snapshot():
    open("asked", "w").close()
    raise RAISED
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, memory_snapshot=snapshot)
torch._C = types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: False)
sys.modules["torch"] = torch
print("ready", flush=True)
try:
    while not os.path.exists("stop"):
        time.sleep(0.001)
    print("went on")
except BaseException as e:
    print("caught", type(e).__name__)
"""


@pytest.mark.parametrize("raised, printed", [("RuntimeError('no list')", "went on"), ("KeyboardInterrupt", "caught KeyboardInterrupt"),
                                             ("TimeoutError('a handler of SIGALRM')", "caught TimeoutError")])
def test_what_a_signal_handler_raises_while_blocks_are_listed_is_the_programs(tmp_path, raised, printed):
    """Python runs the program's signal handlers inside functions that gpuspy calls. PyTorch's own errors are handled by
    gpuspy."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
    child = subprocess.Popen([sys.executable, "-c", FAKE_TORCH.replace("RAISED", raised)], cwd=tmp_path, text=True,
                             env=env | {"LD_LIBRARY_PATH": str(BUILD / "sim")}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == "ready\n"
    done = gpuspy("attach", child.pid, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    wait_until((tmp_path / "asked").exists)
    (tmp_path / "stop").touch()
    out, err = child.communicate(timeout=SECONDS)
    assert (child.returncode, out) == (0, f"{printed}\n"), (out, err, done.stderr)
