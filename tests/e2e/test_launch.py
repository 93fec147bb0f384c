"""gpuspy run as the parent of a job: signals, job control, alarms, descriptors and the environment are those of a job
started by a shell."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from conftest import BUILD, sanitized

GPUSPY = str(BUILD / "gpuspy")
SECONDS = 20


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "ASAN_"))}


def start(tmp_path, program, *arguments, **more):
    """Starts it as a job, as a shell does."""
    return subprocess.Popen([GPUSPY, "run", "-q", "--", sys.executable, "-c", program, *map(str, arguments)], cwd=tmp_path,
                            env=environment(), process_group=0, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def bare(tmp_path, program, *arguments, **more):
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], cwd=tmp_path, env=environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0, timeout=SECONDS, **more)


def wait_for_line(job, text):
    line = job.stdout.readline()
    assert line == text + "\n", (line, job.stderr.read())


LISTENER = """
import os, signal, sys, time
got = []
for number in map(int, sys.argv[1:]):
    signal.signal(number, lambda n, frame: got.append(n))
print("ready", flush=True)
deadline = time.monotonic() + 10
while not got and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.1)  # for one that would come twice
print(got, flush=True)
sys.exit(9)
"""
OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGSEGV, signal.SIGBUS,
          signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ}


@pytest.mark.parametrize("number", sorted(set(signal.valid_signals()) - OTHERS), ids=lambda n: getattr(n, "name", str(n)))
def test_a_signal_reaches_the_program(tmp_path, number):
    job = start(tmp_path, LISTENER, int(number))
    wait_for_line(job, "ready")
    os.kill(job.pid, number)
    out, err = job.communicate(timeout=SECONDS)
    assert (out, job.returncode) == (f"[{int(number)}]\n", 9), err


@pytest.mark.parametrize("how", ["os.kill(0, {n})", "os.kill(os.getppid(), {n})", "os.system('trap : {n}; kill -{n} 0; sleep 0.3')"])
def test_a_program_that_signals_its_group_gets_it_once(tmp_path, how):
    number = int(signal.SIGUSR1)
    text = LISTENER.replace('print("ready", flush=True)', "signal.signal(signal.SIGUSR1, lambda n, frame: got.append(n))\n"
                            + how.format(n=number)).replace("+ 10", "+ 0.3")
    job = start(tmp_path, text, number)
    out, err = job.communicate(timeout=SECONDS)
    assert out == ("[]\n" if "getppid" in how else f"[{number}]\n") and job.returncode == 9, err


def test_the_job_survives_gpuspy(tmp_path):
    """If gpuspy is killed, the job continues: SIGKILL cannot be passed on."""
    job = start(tmp_path, "import time; print(1, flush=True); time.sleep(0.5); open('done', 'w').close()")
    job.stdout.readline()
    job.kill()
    job.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_alarm_that_was_set_before(tmp_path):
    """perl -e 'alarm 1; exec ...' is a way to limit a job's time."""
    text = "import signal, sys, os; signal.setitimer(signal.ITIMER_REAL, 0.5); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", "import time; time.sleep(30)"]
    done = [subprocess.run([sys.executable, "-c", text, *before, *command], env=environment(), cwd=tmp_path, timeout=SECONDS,
                           stderr=subprocess.DEVNULL).returncode for before in ([], [GPUSPY, "run", "-q", "--"])]
    assert done == [-signal.SIGALRM] * 2


@pytest.mark.parametrize("name", ["SIGTSTP", "SIGSTOP", "SIGTTIN"])
def test_a_program_that_stops_itself(tmp_path, name):
    """The shell notices that its job is stopped, and continues it."""
    job = start(tmp_path, f"import os, signal; os.kill(os.getpid(), signal.{name}); print('on', flush=True); raise SystemExit(7)")
    pid, status = os.waitpid(job.pid, os.WUNTRACED)
    assert pid == job.pid and os.WIFSTOPPED(status)
    os.killpg(job.pid, signal.SIGCONT)
    wait_for_line(job, "on")
    assert job.wait(SECONDS) == 7


def test_a_group_that_is_stopped_and_continued(tmp_path):
    """^Z and fg, ten times: after fg it keeps running."""
    job = start(tmp_path, "import sys, time\nprint('ready', flush=True)\nsys.stdin.readline()\nraise SystemExit(7)", stdin=subprocess.PIPE)
    wait_for_line(job, "ready")
    for _ in range(10):
        os.killpg(job.pid, signal.SIGTSTP)
        pid, status = os.waitpid(job.pid, os.WUNTRACED)
        assert pid == job.pid and os.WIFSTOPPED(status)
        os.killpg(job.pid, signal.SIGCONT)
        time.sleep(0.05)
        assert os.waitpid(job.pid, os.WUNTRACED | os.WNOHANG) == (0, 0)
    job.communicate("\n", timeout=SECONDS)
    assert job.returncode == 7


SITUATION = """
import json, os, signal, sys
o = {"fds": {}, "env": dict(os.environ), "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
     "ignored": [int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
     "group": os.getpgrp() == os.getpid(), "session": os.getsid(0), "cwd": os.getcwd(), "umask": os.umask(0)}
for fd in range(256):
    try: o["fds"][fd] = os.readlink(f"/proc/self/fd/{fd}") if fd < 3 else os.fstat(fd).st_mode
    except OSError: pass
o["status"] = [l for l in open("/proc/self/status") if l.startswith(("Sig", "Shd")) and not l.startswith("SigQ")]
o["limits"] = open("/proc/self/limits").read()
print(json.dumps(o))
"""


@sanitized("a sanitizer's runtime handles signals")
@pytest.mark.parametrize("how", ["", "nohup", "blocked", "closed", "chld"])
def test_the_program_finds_what_it_would_find(tmp_path, how):
    def prepare():
        if how == "nohup":
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        elif how == "blocked":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD])
        elif how == "chld":
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        elif how == "closed":
            os.close(0)

    out = tmp_path / "out"
    found = []
    for before in ([], [GPUSPY, "run", "-q", "--"]):
        with open(out, "w") as file, open(os.devnull) as null:
            done = subprocess.run([*before, sys.executable, "-c", SITUATION], env=environment(), cwd=tmp_path, stdin=null, stdout=file,
                                  stderr=subprocess.DEVNULL, preexec_fn=prepare, timeout=SECONDS)
        assert done.returncode == 0
        found.append(json.loads(out.read_text()))
    plain, recorded = found
    added = set(recorded["env"]) - set(plain["env"])
    assert added == {"LD_PRELOAD", "GPUSPY_DB", "GPUSPY_RUN_ID", "GPUSPY_QUIET", "ASAN_OPTIONS", "NVTX_INJECTION64_PATH"}
    for one in found:
        one["env"] = {k: v for k, v in one["env"].items() if k not in added and k != "_"}
        one["group"] = False
    assert recorded == plain


def test_run_does_not_deny_the_calls_of_a_program_that_could_not_be_recorded(tmp_path):
    code = ("import ctypes\nlib = ctypes.CDLL('libcudart.so.13')\np = ctypes.c_void_p()\n"
            "assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(100)) == 0\n")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([str(BUILD / "gpuspy"), "run", "--", "sh", "-c", "ulimit -f 64; exec \"$@\"", "sh", sys.executable, "-c", code],
                          cwd=tmp_path, env={**env, "LD_LIBRARY_PATH": str(BUILD / "sim")}, text=True, stderr=subprocess.PIPE, timeout=120)
    assert done.returncode == 0
    assert "gpuspy: not recording: " in done.stderr and "no recorded process called CUDA" in done.stderr


CRASH = """
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <string.h>
void *opendir(const char *path) { if (!strcmp(program_invocation_short_name, "gpuspy")) raise(SIGSEGV); return 0; }
"""


def test_a_crash_of_the_summary_keeps_the_programs_status(tmp_path):
    (tmp_path / "crash.c").write_text(CRASH)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "crash.so", "crash.c"], cwd=tmp_path, check=True)
    done = subprocess.run([BUILD / "gpuspy", "run", "--", "sh", "-c", "exit 7"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=SECONDS, env={**os.environ, "LD_PRELOAD": str(tmp_path / "crash.so")})
    assert (done.returncode, "the summary crashed (signal 11)" in done.stderr) == (7, True)


def test_an_images_recorder_gives_way(tmp_path):
    """An image's LD_PRELOAD has another gpuspy: two recorders would record a call and the driver's call below it."""
    (tmp_path / "image").mkdir()
    image = shutil.copy(BUILD / "libgpuspy.so", tmp_path / "image" / "libgpuspy.so")
    code = ("import ctypes, os\nlib = ctypes.CDLL('libcudart.so.13')\np = ctypes.c_void_p()\n"
            "assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(100)) == 0\nprint(os.environ['LD_PRELOAD'])\n")
    done = subprocess.run([GPUSPY, "run", "--", sys.executable, "-c", code], cwd=tmp_path, text=True, stdout=subprocess.PIPE, timeout=SECONDS,
                          env={**environment(), "LD_LIBRARY_PATH": str(BUILD / "sim"), "LD_PRELOAD": f"{image}:{BUILD / 'sim/libcudart.so.13'}"})
    assert done.returncode == 0 and "image" not in done.stdout and "libcudart" in done.stdout, done.stdout
    rows = subprocess.check_output([GPUSPY, "sql", "--json", "run.db", "SELECT api FROM allocations"], cwd=tmp_path, text=True)
    assert [row["api"] for row in json.loads(rows)] == ["cudaMalloc"]


SAVER = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
typedef unsigned long long handle;
int cuMemCreate(handle *, size_t, void *, handle), cuMemAddressReserve(void **, size_t, size_t, void *, handle);
int cuMemMap(void *, size_t, size_t, handle, handle), cuMemUnmap(void *, size_t), cuMemRelease(handle);
static void *at; static handle now; static size_t bytes;
static int map(void)
{
    int place[8] = {1, 0, 1, 0};
    return cuMemCreate(&now, bytes, place, 0) || cuMemMap(at, bytes, 0, now, 0);
}
void sleep_now(void) { cuMemUnmap(at, bytes); cuMemRelease(now); }
void wake(void) { map(); }
int cudaMalloc(void **out, size_t n)
{
    ((int (*)(void *))dlsym(RTLD_NEXT, "cudaFree"))(0);
    int failed = cuMemAddressReserve(&at, bytes = n, 0, 0, 0) || map();
    *out = at;
    return failed;
}
"""


def test_a_library_that_maps_memory_within_cudamalloc_comes_first(tmp_path):
    """torch_memory_saver, which SGLang preloads: its memory is that of the device while a server sleeps, and afterwards."""
    (tmp_path / "saver.c").write_text(SAVER)
    saver = tmp_path / "torch_memory_saver_hook_mode_preload.abi3.so"
    subprocess.run(["gcc", "-w", "-shared", "-fPIC", "-o", saver, "saver.c", f"-L{BUILD}/sim", "-l:libcuda.so.1", "-ldl"], cwd=tmp_path, check=True)
    code = (f"import ctypes\nlib = ctypes.CDLL(None)\np = ctypes.c_void_p()\n"
            "assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(64 << 20)) == 0\nlib.sleep_now()\nlib.wake()\n")
    done = subprocess.run([GPUSPY, "run", "--", sys.executable, "-c", code], cwd=tmp_path, text=True, capture_output=True, timeout=SECONDS,
                          env={**environment(), "LD_LIBRARY_PATH": str(BUILD / "sim"), "LD_PRELOAD": f"{saver}:{BUILD / 'sim/libcudart.so.13'}"})
    assert done.returncode == 0, done.stderr
    rows = subprocess.check_output([GPUSPY, "sql", "--json", "run.db", "SELECT api, bytes >> 20 AS mib FROM allocations WHERE layer='device'"],
                                   cwd=tmp_path, text=True)
    assert [(row["api"], row["mib"]) for row in json.loads(rows)] == [("cuMemCreate", 64), ("cuMemCreate", 64)]
