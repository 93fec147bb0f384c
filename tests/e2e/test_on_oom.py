"""GPUSPY_ON_OOM and gpuspy run --on-oom: when the command runs and with what, and that the job does not notice it."""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import BUILD, ROOT, SECONDS, wait_until

DIES = """import minicuda
rt = minicuda.Runtime()
held = [minicuda.Tensor(rt, 64 << 20) for _ in range(4)]
minicuda.Tensor(rt, 64 << 30)
"""
HANDLES = """import minicuda
rt = minicuda.Runtime()
for again in range(3):
    try:
        minicuda.Tensor(rt, 64 << 30)
    except minicuda.OutOfMemoryError:
        pass
    held = minicuda.Tensor(rt, 1 << 20)
"""
RECOVERS = """import sys, minicuda
rt = minicuda.Runtime()
held = minicuda.Tensor(rt, 6 << 30)
try:
    minicuda.Tensor(rt, 4 << 30)
except minicuda.OutOfMemoryError:
    pass
del held
held = minicuda.Tensor(rt, 5 << 30)
print("recovered", flush=True)
sys.stdin.read()
"""
KILLED = """import os, signal, minicuda
rt = minicuda.Runtime()
try:
    minicuda.Tensor(rt, 64 << 30)
except minicuda.OutOfMemoryError:
    os.kill(os.getpid(), signal.SIGKILL)
"""
COMMAND = "echo $GPUSPY_OOM %p {} >>result.txt"


def settings(**more):
    return {"SIMCUDA_MEMORY": "8GiB", "PYTHONPATH": str(ROOT / "fixtures" / "python"), **more}


def wait_for(path, lines=1, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().count("\n") >= lines:
            return path.read_text()
        time.sleep(0.05)
    raise AssertionError(f"{path} has not got {lines} lines: {path.read_text() if path.exists() else 'it does not exist'}")


def attendants(recording):
    """The processes that wait for an OOM of recordings in this folder."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if b"--attend-oom" in words and str(recording.folder).encode() in b" ".join(words):
            found.append(int(name))
    return found


def settle(recording):
    wait_until(lambda: not attendants(recording), 0.05)


@pytest.mark.parametrize("script, ends", [(DIES, 1), (KILLED, -signal.SIGKILL)], ids=["exception", "kill -9"])
def test_a_process_that_dies_of_it(recording, script, ends):
    done = recording.python(script, check=False, GPUSPY_ON_OOM=COMMAND, **settings())
    assert done.returncode == ends
    words = wait_for(recording.folder / "result.txt").split()
    assert words[:2] == ["not", "handled"] and words[3] == str(recording.database)
    settle(recording)
    ((pid,),) = recording.sql("SELECT pid FROM process")
    assert words[2] == str(pid) and (recording.folder / "result.txt").read_text().count("\n") == 1
    log = recording.folder / "run.db.on-oom.log"
    assert f"not handled: process {pid}, " in log.read_text() and "ended with status 0" in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_the_page_of_a_dead_process(recording):
    command = f"'{BUILD}/gpuspy' report --html page-%p-%h.html {{}}"
    recording.python(DIES, check=False, GPUSPY_ON_OOM=command, **settings())
    settle(recording)
    ((pid, host),) = recording.sql("SELECT pid, host FROM process")
    assert "64" in (recording.folder / f"page-{pid}-{host}.html").read_text()


def test_the_recorder_of_an_installed_gpuspy(recording, tmp_path):
    """As in the tarball: bin/gpuspy, lib/libgpuspy.so, and a folder lib/gpuspy, which is not the program."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib/gpuspy/sim").mkdir(parents=True)
    shutil.copy(BUILD / "gpuspy", tmp_path / "bin")
    shutil.copy(BUILD / "libgpuspy.so", tmp_path / "lib")
    preload = recording.environment()["LD_PRELOAD"].replace(str(BUILD / "libgpuspy.so"), str(tmp_path / "lib/libgpuspy.so"))
    done = recording.python(DIES, check=False, GPUSPY_ON_OOM=COMMAND, LD_PRELOAD=preload, **settings())
    assert "no effect" not in done.stderr
    assert wait_for(recording.folder / "result.txt").startswith("not handled")
    settle(recording)


def test_the_first_that_was_handled_while_the_job_runs(recording):
    (recording.folder / "script.py").write_text(RECOVERS)
    job = subprocess.Popen([sys.executable, "script.py"], cwd=recording.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           env=recording.environment(GPUSPY_ON_OOM=COMMAND, **settings()))
    assert job.stdout.readline() == "recovered\n"
    assert wait_for(recording.folder / "result.txt").split()[:2] == ["handled", str(job.pid)]
    assert attendants(recording) and job.poll() is None
    job.communicate("")
    assert job.returncode == 0
    settle(recording)
    assert (recording.folder / "result.txt").read_text().count("\n") == 1


def test_a_report_of_a_job_that_still_runs_does_not_call_it_killed(recording):
    (recording.folder / "script.py").write_text(RECOVERS[:RECOVERS.index("del held")] + "print(flush=True)\nsys.stdin.read()\n")
    job = subprocess.Popen([sys.executable, "script.py"], cwd=recording.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           env=recording.environment(**settings()))
    job.stdout.readline()

    def failed():
        text = " ".join(recording.gpuspy("report", "--full", recording.database).stdout.split())
        return "Request 4.00 GiB" in text and text
    text = wait_until(failed)
    assert "the program was still running when gpuspy read this" in text and "killed" not in text, text
    job.communicate("")
    assert job.returncode == 0 and "exited with status 0" in failed()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_whoever_signals_all_processes_of_a_job_leaves_the_command_its_time(recording, number):
    script = RECOVERS.replace("4 << 30)\nexcept", "2 << 30)\nexcept").replace("sys.stdin.read()", "sys.stdin.readline(); minicuda.Tensor(rt, 64 << 30)")
    (recording.folder / "script.py").write_text(script)
    job = subprocess.Popen([sys.executable, "script.py"], cwd=recording.folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, env=recording.environment(GPUSPY_ON_OOM="kill -TERM $$; " + COMMAND, **settings()))
    assert job.stdout.readline() == "recovered\n"
    for pid in attendants(recording):
        os.kill(pid, number)
    job.communicate("\n")
    assert job.returncode == 1
    settle(recording)
    assert "the command died of signal 15" in (recording.folder / "run.db.on-oom.log").read_text()  # this signal is not ignored


def test_handled_ones_that_only_the_end_shows(recording):
    recording.python(HANDLES, GPUSPY_ON_OOM=COMMAND, **settings())
    assert wait_for(recording.folder / "result.txt").split()[0] == "handled"
    settle(recording)
    assert (recording.folder / "result.txt").read_text().count("\n") == 1


def test_no_out_of_memory_no_command(recording):
    done = recording.python("import minicuda\nheld = minicuda.Tensor(minicuda.Runtime(), 1 << 20)\n", GPUSPY_ON_OOM=COMMAND, **settings())
    settle(recording)
    assert "gpuspy" in done.stderr and "ON_OOM" not in done.stderr
    assert sorted(p.name for p in recording.folder.iterdir()) == ["run.db", "script.py"]


# What a job can see of itself and of its children, before and after an out-of-memory error.
NOTICES = """import ctypes, json, os, signal, sys, time
import minicuda
libc = ctypes.CDLL(None, use_errno=True)
WALL, WNOHANG = 0x40000000, 1
caught = []
for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, lambda n, f: caught.append(n))
readable, writable = os.pipe()
os.set_inheritable(writable, True)

def children():
    status = ctypes.c_int()
    ctypes.set_errno(0)
    return libc.waitpid(-1, ctypes.byref(status), WNOHANG), ctypes.get_errno()

def listed():
    return open(f"/proc/self/task/{os.getpid()}/children").read()

rt = minicuda.Runtime()
rows = []
for _ in range(3):
    try:
        minicuda.Tensor(rt, 64 << 30)
    except minicuda.OutOfMemoryError:
        pass
    for _ in range(20):
        minicuda.Tensor(rt, 1 << 30)
        minicuda.Tensor(rt, 5 << 30)
        rows.append(children())
        time.sleep(0.01)
tasks = [open(f"/proc/self/task/{task}/children").read() for task in os.listdir("/proc/self/task")]
os.close(writable)
end = os.read(readable, 1)
before = list(caught)
pid = os.fork()
if pid == 0:
    os._exit(7)
print(json.dumps({"children": sorted(set(rows)), "caught": before, "own": list(os.waitpid(-1, 0)) == [pid, 7 << 8],
                  "tasks": "".join(tasks), "end": end.decode(), "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
                  "descriptors": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if int(fd) < 500)}))
"""


def test_the_job_notices_nothing(recording):
    bare = json.loads(recording.python(NOTICES, **settings()).stdout)
    done = recording.python(NOTICES, GPUSPY_ON_OOM="echo out; echo err >&2; echo done >>result.txt; exit 3", GPUSPY_QUIET=1, **settings())
    assert json.loads(done.stdout) == bare and bare["children"] == [[-1, 10]] and bare["own"] and bare["caught"] == [] and done.stderr == ""
    wait_for(recording.folder / "result.txt")
    settle(recording)
    log = (recording.folder / "run-2.db.on-oom.log").read_text()
    assert "\nout\nerr\n" in log and "ended with status 3" in log


@pytest.mark.parametrize("command", ["/does/not/exist", "kill -9 $$", "exit 3", "'", "x" * 200_000], ids=["missing", "killed", "fails", "syntax", "long"])
def test_a_command_that_fails(recording, command):
    if len(command) > 100_000:
        command = command[:100_000]
    done = recording.python(DIES, check=False, GPUSPY_ON_OOM=command, GPUSPY_QUIET=1, **settings())
    assert done.returncode == 1 and "gpuspy" not in done.stderr
    settle(recording)
    log = (recording.folder / "run.db.on-oom.log").read_text()
    assert any(words in log for words in ("status 127", "signal 9", "status 3", "status 2", "longer than"))


def test_a_folder_with_quotes_and_spaces(recording, tmp_path):
    folder = tmp_path / "it's $(touch bad) \"x\""
    folder.mkdir()
    recording.folder, recording.database = folder, folder / "run.db"
    recording.python(DIES, check=False, GPUSPY_ON_OOM="cp {} copy.db", **settings())
    settle(recording)
    assert (folder / "copy.db").read_bytes()[:15] == b"SQLite format 3" and not (folder / "bad").exists()


def test_forked_and_executed_processes(recording):
    script = f"""import os, sys, subprocess
import minicuda
pid = os.fork()
if pid == 0:
    try:
        minicuda.Tensor(minicuda.Runtime(), 64 << 30)
    finally:
        os._exit(5)
os.waitpid(pid, 0)
held = minicuda.Tensor(minicuda.Runtime(), 1 << 20)
os.execv(sys.executable, [sys.executable, "-c", {DIES!r}])
"""
    done = recording.python(script, check=False, GPUSPY_ON_OOM=COMMAND, **settings())
    assert done.returncode == 1
    rows = wait_for(recording.folder / "result.txt", 2).splitlines()
    settle(recording)
    assert len({row.split()[2] for row in rows}) == 2 and all(row.startswith("not handled") for row in rows)


@pytest.mark.parametrize("script", [DIES, KILLED], ids=["exception", "kill -9"])
def test_run_waits_for_its_command(recording, script):
    (recording.folder / "script.py").write_text(script)
    done = recording.gpuspy("run", "--on-oom", "sleep 1; " + COMMAND, "--", sys.executable, "script.py",
                            env=settings(LD_LIBRARY_PATH=str(BUILD / "sim")))
    assert done.returncode == (1 if script == DIES else -signal.SIGKILL), done.stderr
    assert (recording.folder / "result.txt").read_text().startswith("not handled ")
    settle(recording)
    assert (recording.folder / "result.txt").read_text().count("\n") == 1


def test_run_as_process_1_of_a_container(recording):
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no namespaces can be made here")
    (recording.folder / "script.py").write_text(DIES)
    env = recording.environment(LD_PRELOAD="", **settings())
    command = ["run", "-q", "--on-oom", "sleep 1; " + COMMAND, "--", sys.executable, "script.py"]
    done = subprocess.run([*unshare, str(BUILD / "gpuspy"), *command], env=env, cwd=recording.folder, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 1
    assert (recording.folder / "result.txt").read_text().startswith("not handled 2 ")


def test_run_runs_the_command_if_the_waiting_process_is_killed(recording):
    """The waiting process is killed as well, as by a batch system that kills all processes of a job."""
    kills = """for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{name}/cmdline", "rb").read().split(b"\\0")
        except OSError:
            continue  # it has ended since
        if words[1:2] == [b"--attend-oom"] and words[3] == str(os.getpid()).encode():
            os.kill(int(name), signal.SIGKILL)
    os.kill("""
    (recording.folder / "script.py").write_text(KILLED.replace("os.kill(", kills, 1))
    done = recording.gpuspy("run", "-q", "--on-oom", COMMAND, "--", sys.executable, "script.py", env=settings(LD_LIBRARY_PATH=str(BUILD / "sim")))
    assert done.returncode == -signal.SIGKILL
    assert (recording.folder / "result.txt").read_text().startswith("not handled ")


def test_a_job_that_adopts_orphans(recording):
    script = "import ctypes\nctypes.CDLL(None).prctl(36, 1)\n" + DIES
    done = recording.python(script, check=False, GPUSPY_ON_OOM=COMMAND, **settings())
    assert done.returncode == 1 and "GPUSPY_ON_OOM has no effect in process" in done.stderr and "gpuspy run" in done.stderr
    assert attendants(recording) == [] and not (recording.folder / "result.txt").exists()


def test_the_command_is_not_recorded(recording):
    recording.python(DIES, check=False, GPUSPY_ON_OOM="env >environment.txt; cat /proc/self/status >status.txt", **settings())
    settle(recording)
    environment = (recording.folder / "environment.txt").read_text()
    assert "LD_PRELOAD" not in environment and "GPUSPY_OOM=not handled" in environment and "SIMCUDA_MEMORY=8GiB" in environment
    status = dict(line.split(":\t", 1) for line in (recording.folder / "status.txt").read_text().splitlines() if ":\t" in line)
    assert int(status["SigBlk"], 16) == 0 and int(status["SigIgn"], 16) == 0


def test_the_word_is_for_gpuspy_itself(recording):
    done = recording.gpuspy("--attend-oom")
    assert done.returncode == 2 and done.stderr.startswith("gpuspy: --attend-oom is for gpuspy's own use")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_another_file_in_place_of_the_log_is_not_changed(recording, kind):
    log, other = recording.folder / "run.db.on-oom.log", recording.folder / "other.txt"
    other.write_text("kept")
    {"link": lambda: log.symlink_to(other), "pipe": lambda: os.mkfifo(log), "folder": log.mkdir}[kind]()
    recording.python(DIES, check=False, GPUSPY_ON_OOM="echo output; " + COMMAND, **settings())
    assert wait_for(recording.folder / "result.txt").startswith("not handled")
    settle(recording)
    assert other.read_text() == "kept"
