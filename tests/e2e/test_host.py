"""The recorder does not harm its host: it does not wait for the dynamic loader or for the program's own code, uses no
descriptor of the program, and does not change how the process ends. Each program runs with and without recording."""
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT, sanitized
from test_lives import completed, other_lines, own_lines, same_as_bare

HOST = BUILD / "programs" / "host"
PLUGIN = BUILD / "programs" / "plugin.so"


def pairs_recorded(recording):
    rows = completed(recording)
    assert all(row == "alloc cudaMalloc 1000 device freed" for row in rows if row.startswith("alloc"))
    return len([row for row in rows if row.startswith("alloc")])


def did(done):
    return int(done.stdout.split("did ")[1].split()[0])


# --- the dynamic loader --------------------------------------------------------------------------

@pytest.mark.parametrize("how, constructor, extra", [
    ("first in constructor", "call", 0), ("warm then constructor", "call", 0), ("warm then constructor", "join", 0),
    ("warm then constructor", "call,join", 1), ("constructor beside first", "slow,call", 0)])
def test_constructors_that_call_cuda(recording, how, constructor, extra):
    """The thread in dlopen holds the loader's lock and waits for the recorder, or for a thread that is in the
    recorder."""
    done = same_as_bare(recording, HOST, how, PLUGIN, HOST_CONSTRUCTOR=constructor)
    assert pairs_recorded(recording) == did(done) + extra  # the plugin counts as one pair


def test_a_python_extension_whose_constructor_calls_cuda(recording):
    started = time.monotonic()
    done = recording.python(f"import ctypes\nctypes.CDLL({str(PLUGIN)!r})\nprint('loaded')\n", HOST_CONSTRUCTOR="call")
    assert done.stdout == "loaded\n" and time.monotonic() - started < 20
    assert pairs_recorded(recording) == 1


def test_calls_from_within_dl_iterate_phdr(recording):
    """The loader's lock is held there, while other threads load and unload libraries and call CUDA."""
    done = same_as_bare(recording, HOST, "within iterations", PLUGIN)
    assert pairs_recorded(recording) == did(done)


# --- other preloaded libraries -------------------------------------------------------------------

@sanitized("a sanitizer's runtime wraps these functions, too")
@pytest.mark.parametrize("order", ["{gpuspy}:{wraps}", "{wraps}:{gpuspy}"])
@pytest.mark.parametrize("table", ["gnu", "sysv"])
def test_another_preloaded_library_wraps_the_same_functions(recording, order, table):
    """Such as a limiter of shared GPUs: it still sees every call of the program, and the allocations are recorded. Old
    linkers write its symbols in another table."""
    wraps = recording.folder / "wraps.so"
    subprocess.run(["gcc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", f"-Wl,--hash-style={table}", "-o", wraps,
                    ROOT / "fixtures/host/wraps.c", "-ldl"], check=True)
    bare = recording.run(HOST, "functions of others", LD_PRELOAD=wraps)
    done = recording.run(HOST, "functions of others",
                         LD_PRELOAD=order.format(gpuspy=recording.environment()["LD_PRELOAD"], wraps=wraps))
    assert done.stdout == bare.stdout and "fork 3\n" in bare.stdout and "cuMemAlloc 6\n" in bare.stdout
    assert other_lines(done.stderr) == []
    assert recording.sql("select bytes, count(*) from allocation group by 1 order by 1") == [(1000, 13), (2000, 3), (3000, 3)]


@sanitized("the two share one runtime of the sanitizer")
@pytest.mark.parametrize("space", [":", " "])
def test_two_recorders_record_each_call_once(recording, space):
    """An image's and the user's own, by hand: the first one records."""
    copy = recording.folder / "image" / "libgpuspy.so"
    copy.parent.mkdir()
    shutil.copy(BUILD / "libgpuspy.so", copy)
    done = recording.python("from minicuda import Runtime, Tensor\nruntime = Runtime()\nkept = Tensor(runtime, 1000)\n",
                            LD_PRELOAD=f"{recording.environment()['LD_PRELOAD']}{space}{copy}")
    assert len(own_lines(done.stderr)) == 1, done.stderr
    assert recording.sql("select api, bytes from allocations") == [("cudaMalloc", 1000)]
    assert not (recording.folder / "run-2.db").exists()


# --- fork ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["forks", "handlers before", "handlers after", "handlers wait"])
def test_fork_handlers_that_call_cuda(recording, how):
    done = same_as_bare(recording, HOST, how)
    assert pairs_recorded(recording) == did(done)


@sanitized("a sanitizer's runtime wraps these functions, too")
@pytest.mark.parametrize("order", ["{gpuspy}:{wraps}", "{wraps}:{gpuspy}"])
@pytest.mark.parametrize("how", ["forks", "handlers before", "handlers after"])
def test_fork_handlers_that_hold_the_lock_of_functions_that_another_library_wraps(recording, how, order):
    """As cwrap's libraries do. They also open the C library with RTLD_DEEPBIND, which is loaded already."""
    preload = order.format(gpuspy=recording.environment()["LD_PRELOAD"], wraps=BUILD / "programs" / "wraps.so")
    bare = recording.run(HOST, how, LD_PRELOAD="")
    done = recording.run(HOST, how, LD_PRELOAD=preload)
    assert done.stdout == bare.stdout and other_lines(done.stderr) == [] and "RTLD_DEEPBIND" not in done.stderr
    assert pairs_recorded(recording) == did(done)


def test_fork_handlers_of_a_library_that_starts_before_the_recorder(recording):
    """Of several preloaded libraries, the last one is initialized first."""
    preload = f"{recording.environment()['LD_PRELOAD']}:{PLUGIN}"
    done = recording.run(HOST, "forks", HOST_CONSTRUCTOR="handlers", LD_PRELOAD=preload)
    assert pairs_recorded(recording) == did(done) + 2 * 20


# --- the clock -----------------------------------------------------------------------------------

@sanitized("a sanitizer's runtime reads the clock")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the processor's counter cannot be forbidden")
@pytest.mark.parametrize("how", ["counter first", "counter later"])
def test_threads_that_must_not_read_the_time_stamp_counter(recording, how):
    """PR_SET_TSC: clock_gettime ends in a SIGSEGV. The simulated driver's own clock does not read it."""
    done = same_as_bare(recording, HOST, how, SIMCUDA_CLOCK="virtual")
    assert pairs_recorded(recording) == did(done) and did(done) >= 20


# --- how the process ends ------------------------------------------------------------------------

@sanitized("a sanitizer's own threads and handlers take part")
@pytest.mark.parametrize("how", ["seccomp alone", "seccomp first", "seccomp last", "main leaves"])
def test_the_end_is_that_of_the_programs_last_thread(recording, how):
    bare = recording.run(HOST, how, check=False, LD_PRELOAD="")
    started = time.monotonic()
    done = recording.run(HOST, how, check=False)
    assert time.monotonic() - started < 20  # otherwise it never ends; a busy machine is slow
    assert (done.returncode, done.stdout, other_lines(done.stderr)) == (bare.returncode, bare.stdout, other_lines(bare.stderr))
    assert pairs_recorded(recording) == did(done)
    assert recording.sql("select complete from process") == [(1,)]


@sanitized("a sanitizer's own threads take part")
def test_the_only_thread_leaves_by_the_system_call(recording):
    """SYS_exit (its numbers are 60 and 93), as under strict seccomp: its status becomes that of the process."""
    source = """import ctypes, platform
pointer = ctypes.c_void_p()
assert ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1000)) == 0
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 7)
"""
    assert recording.python(source, check=False, LD_PRELOAD="").returncode == 7
    assert recording.python(source, check=False).returncode == 7
    assert recording.sql("select complete from process") == [(1,)]


# --- descriptors ---------------------------------------------------------------------------------

@sanitized("a sanitizer opens files of its own")
@pytest.mark.parametrize("how", ["files", "ends of pipes"])
def test_the_programs_descriptors_are_its_own(recording, how):
    done = same_as_bare(recording, HOST, how)
    assert pairs_recorded(recording) == did(done)


NUMBER_2 = """import ctypes, os, sys
if sys.argv[1] != "closed before":
    os.close(2)
if sys.argv[1] == "eventfd":
    assert ctypes.CDLL(None).eventfd(7, 0) == 2
else:
    assert os.open("data", os.O_RDWR | os.O_CREAT) == 2
assert ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1000)) == 0
ctypes.CDLL("libcudart.so.13").cudaFree(None)
import atexit
atexit.register(lambda: sys.argv[1] == "eventfd" and print(int.from_bytes(os.read(2, 8), sys.byteorder)))
"""


@pytest.mark.parametrize("how, printed", [("closed before", ""), ("file", ""), ("eventfd", "7\n")])
@pytest.mark.parametrize("database", ["run.db", "/proc/no/run.db"])
def test_number_2_may_be_data_of_the_program(recording, how, printed, database):
    """gpuspy's lines, that it records or that it cannot, are for stderr only."""
    (recording.folder / "script.py").write_text(NUMBER_2)
    closed = "2>&-" if how == "closed before" else ""
    done = recording.run("sh", "-c", f"exec {sys.executable} script.py '{how}' {closed}", GPUSPY_DB=database)
    assert (done.stdout, done.stderr) == (printed, "")
    assert how == "eventfd" or (recording.folder / "data").read_bytes() == b""


@pytest.mark.parametrize("name, line", [("run.db", "run-2.db (run.db exists)"), ("run.db-shm", "not recording: ")])
def test_a_pipe_with_the_name_of_a_file_of_the_recording(recording, name, line):
    """Opening it would wait for a writer. The first call comes before gpuspy's constructor, and stderr is a file."""
    os.mkfifo(recording.folder / name)
    preload = f"{recording.environment()['LD_PRELOAD']}:{PLUGIN}"
    recording.run("sh", "-c", f"env LD_PRELOAD={preload} HOST_CONSTRUCTOR=call true 2>err.txt", LD_PRELOAD="")
    assert line in (recording.folder / "err.txt").read_text()


@pytest.mark.parametrize("links", [2, 38])
@pytest.mark.parametrize("last", ["run.db", "file"])
def test_links_in_place_of_the_recording(recording, links, last):
    """In a circle, whose reader must not follow them forever; and nearly as many in a row as the kernel follows."""
    (recording.folder / "file").write_text("some text")
    for n in range(links):
        (recording.folder / f"run{n or ''}.db").symlink_to(f"run{n + 1}.db" if n + 1 < links else last)
    done = recording.run(HOST, "forks")
    assert done.returncode == 0 and "run-2.db (run.db exists)" in done.stderr
    assert (recording.folder / "file").read_text() == "some text"


@pytest.mark.parametrize("days", [-10, 10])
def test_a_program_whose_date_is_faked(recording, days):
    """As by libfaketime, whose clock_gettime differs from the clock of the functions that wait for a lock or a thread."""
    preload = f"{recording.environment()['LD_PRELOAD']}:{BUILD / 'programs' / 'fast_clock.so'}"
    done = recording.run(HOST, "forks", LD_PRELOAD=preload, CLOCK_SHIFT=days * 86400)
    assert not any("incomplete" in line or "NVML" in line for line in own_lines(done.stderr))
    assert pairs_recorded(recording) == did(done)


@sanitized("a sanitizer's runtime calls these functions, too")
@pytest.mark.parametrize("order", ["{gpuspy}:{mortal}", "{mortal}:{gpuspy}"])
def test_a_library_whose_wrappers_crash_after_its_destructor(recording, order):
    """As libfaketime's, which lock a semaphore that its destructor unmaps; the sources of a script are read at the end."""
    wrappers = {"stat": "AT_FDCWD, path, status, 0", "lstat": "AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW"}
    (recording.folder / "mortal.c").write_text("""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
static int over;
static __attribute__((destructor)) void end(void)
{
    over = 1;
}
""" + "".join(f"""
int {name}{size}(const char *path, struct stat{size} *status)
{{
    if (over) abort();
    return fstatat{size}({call});
}}
""" for name, call in wrappers.items() for size in ("", "64")))
    mortal = recording.folder / "mortal.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", mortal, recording.folder / "mortal.c"], check=True)
    preload = order.format(gpuspy=recording.environment()["LD_PRELOAD"], mortal=mortal)
    recording.python("import minicuda\nminicuda.Tensor(minicuda.Runtime(), 1000)\n", LD_PRELOAD=preload)
    assert recording.sql("select count(*) from allocation") == [(1,)]
    assert recording.sql("select count(*) from source") == [(2,)]


@sanitized("a sanitizer's runtime calls these functions, too")
@pytest.mark.parametrize("order", ["{gpuspy}:{seeded}", "{seeded}:{gpuspy}"])
def test_a_program_whose_random_numbers_are_faked(recording, order):
    """As by libfaketime with FAKERANDOM_SEED: gpuspy takes none of the sequence. It calls no such function before the
    library's constructor, in which libfaketime would open its files a second time, and no fstat after its destructor."""
    (recording.folder / "seeded.c").write_text("""
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
static int ready, over;
static void early(const char *name)
{
    if (!ready) printf("%s before the constructor\\n", name);
}
static void late(const char *name)
{
    if (over) printf("%s after the destructor\\n", name);
}
static __attribute__((constructor)) void prepare(void)
{
    ready = 1;
}
static __attribute__((destructor)) void end(void)
{
    over = 1;
}
ssize_t getrandom(void *at, size_t bytes, unsigned flags)
{
    static unsigned char next;
    early("getrandom");
    memset(at, ++next, bytes);
    return bytes;
}
int clock_gettime(clockid_t clock, struct timespec *t)
{
    early("clock_gettime");
    t->tv_sec = 1000000000;
    t->tv_nsec = 0;
    return 0;
}
int fstat(int fd, struct stat *status)
{
    early("fstat");
    late("fstat");
    return fstatat(fd, "", status, 0x1000 /* AT_EMPTY_PATH */);
}
""")
    seeded = recording.folder / "seeded.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", seeded, recording.folder / "seeded.c"], check=True)
    (recording.folder / "random.c").write_text("""
#include <stdio.h>
#include <sys/random.h>
int cudaMalloc(void **, size_t);
int main(void)
{
    unsigned before, after;
    void *pointer;
    getrandom(&before, sizeof before, 0);
    cudaMalloc(&pointer, 1000);
    getrandom(&after, sizeof after, 0);
    printf("%x %x\\n", before, after);
    return 0;
}
""")
    subprocess.run(["gcc", "-o", recording.folder / "random", recording.folder / "random.c", f"-L{BUILD}/sim",
                    "-l:libcudart.so.13"], check=True)
    preload = order.format(gpuspy=recording.environment()["LD_PRELOAD"], seeded=seeded)
    assert recording.run(recording.folder / "random", LD_PRELOAD=preload).stdout == "1010101 2020202\n"
    assert recording.sql("select count(*) from allocation") == [(1,)]


# --- a child forked while another thread reads the list of loaded libraries -------------------------

LISTING = """
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int cudaMalloc(void **, size_t);
static int inside[2], enough[2];
static int wait_here(struct dl_phdr_info *info, size_t size, void *data)
{
    char c;
    return write(inside[1], "x", 1) + read(enough[0], &c, 1);
}
static void *list(void *unused)
{
    dl_iterate_phdr(wait_here, 0);
    return 0;
}
int main(void)
{
    pthread_t thread;
    void *pointer;
    char c;
    int status;
    if (pipe(inside) || pipe(enough) || cudaMalloc(&pointer, 1000)) return 1;
    pthread_create(&thread, 0, list, 0);
    if (read(inside[0], &c, 1) != 1) return 2;
    pid_t child = fork();
    if (!child) _exit(cudaMalloc(&pointer, 2000) ? 9 : 7);
    if (waitpid(child, &status, 0) != child || write(enough[1], "x", 1) != 1) return 3;
    pthread_join(thread, 0);
    printf("%d %d\\n", WEXITSTATUS(status), cudaMalloc(&pointer, 3000));
    return 0;
}
"""


@pytest.mark.parametrize("first", ["cudaMalloc(&pointer, 1000)", "cudaFree(0)"])
def test_a_child_of_a_thread_in_dl_iterate_phdr(recording, first):
    """In such a child the list stays locked forever: gpuspy does not lock it, and says that it does not record the child.
    The child's first function may be one that the parent has not called."""
    (recording.folder / "listing.c").write_text(LISTING.replace("\\\\n", "\\n").replace("cudaMalloc(&pointer, 1000)", first)
                                                .replace("size_t);", "size_t), cudaFree(void *);"))
    subprocess.run(["gcc", "-o", recording.folder / "listing", recording.folder / "listing.c", f"-L{BUILD}/sim",
                    "-l:libcudart.so.13", "-lpthread"], check=True)
    bare, done = (recording.run(recording.folder / "listing", **more) for more in ({"LD_PRELOAD": ""}, {}))
    assert done.stdout == bare.stdout
    assert "it was forked while another thread was using the list of loaded libraries" in done.stderr
    assert recording.sql("select bytes from allocation") == [(1000,), (3000,)][first != "cudaMalloc(&pointer, 1000)":]


def test_a_child_of_a_bare_clone_beside_a_thread_in_dl_iterate_phdr(recording):
    """It makes the first CUDA call, and gpuspy would wait for that lock forever."""
    source = LISTING.replace("\\\\n", "\\n").replace(" || cudaMalloc(&pointer, 1000)", "").replace("= fork()", "= syscall(SYS_clone, 17, 0, 0, 0, 0)")
    (recording.folder / "listing.c").write_text("#include <sys/syscall.h>\n" + source)
    subprocess.run(["gcc", "-w", "-o", recording.folder / "listing", recording.folder / "listing.c", f"-L{BUILD}/sim",
                    "-l:libcudart.so.13", "-lpthread"], check=True)
    raw = {"LD_LIBRARY_PATH": BUILD / "torture/raw"}
    bare, done = (recording.run(recording.folder / "listing", **raw, **more) for more in ({"LD_PRELOAD": ""}, {}))
    assert done.stdout == bare.stdout
    assert "copied it while another thread was using the list of loaded libraries" in done.stderr
    assert recording.sql("select bytes from allocation") == [(3000,)]


# --- threads that fork at the same time --------------------------------------------------------------

MEETING = """
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int cudaMalloc(void **, size_t);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static int here, late;
static void meet(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_mutex_lock(&lock);
    here++;
    pthread_cond_broadcast(&came);
    while (here < THREADS && !late) late = pthread_cond_timedwait(&came, &lock, &until);
    pthread_mutex_unlock(&lock);
}
static void *run(void *unused)
{
    void *pointer;
    int status;
    pid_t child = fork();
    if (!child) _exit(cudaMalloc(&pointer, 2000) ? 9 : 7);
    waitpid(child, &status, 0);
    return (void *)(size_t)WEXITSTATUS(status);
}
int main(void)
{
    pthread_t threads[THREADS];
    void *pointer, *status;
    long sum = 0;
    if (BEFORE && cudaMalloc(&pointer, 1000)) return 1;
    pthread_atfork(meet, 0, 0);
    for (int i = 0; i < THREADS; i++) pthread_create(threads + i, 0, run, 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &status), sum += (long)status;
    printf("%ld %s\\n", sum, late ? "apart" : "together");
    return 0;
}
"""


@pytest.mark.parametrize("before", [0, 1])
def test_fork_handlers_of_several_threads_run_at_the_same_time(recording, before):
    """One may wait for another. Forks do not wait for each other, and each child that can call CUDA is recorded."""
    (recording.folder / "meeting.c").write_text(MEETING)
    subprocess.run(["gcc", f"-DBEFORE={before}", "-DTHREADS=16", "-o", recording.folder / "meeting",
                    recording.folder / "meeting.c", f"-L{BUILD}/sim", "-l:libcudart.so.13", "-lpthread"], check=True)
    bare, done = (recording.run(recording.folder / "meeting", **more) for more in ({"LD_PRELOAD": ""}, {}))
    if "apart" in bare.stdout:
        pytest.skip("this C library runs the handlers of one fork at a time")
    assert done.stdout == bare.stdout
    assert "not recording" not in done.stderr


# --- a limit on threads ------------------------------------------------------------------------------

FEW_THREADS = """
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
int cudaMalloc(void **, size_t);
static void *end(void *unused) { return unused; }
int main(void)
{
    const struct rlimit two = {2, 2};
    const uid_t user = 1000000 + getpid(); /* who has no other process */
    pthread_t thread;
    void *pointer;
    if (setrlimit(RLIMIT_NPROC, &two) || setresuid(user, user, user) || cudaMalloc(&pointer, 1000)) return 1;
    printf("%s\\n", strerror(pthread_create(&thread, 0, end, 0)));
    return 0;
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who has no other process")
def test_a_start_that_fails_takes_no_thread_of_the_program(recording):
    """When the first CUDA call returns, the thread that gpuspy could start no longer counts against the limit."""
    (recording.folder / "few.c").write_text(FEW_THREADS)
    subprocess.run(["gcc", "-o", recording.folder / "few", recording.folder / "few.c", f"-L{BUILD}/sim", "-l:libcudart.so.13",
                    "-lpthread"], check=True)
    for _ in range(8):
        done = recording.run(recording.folder / "few")
        assert (done.stdout, own_lines(done.stderr)) == ("Success\n", [
            "gpuspy: not recording: cannot start a thread: Resource temporarily unavailable"])


# --- Python's development mode ---------------------------------------------------------------------

@sanitized("a sanitizer's malloc takes part")
@pytest.mark.parametrize("options, more", [(["-X", "dev"], {}), (["-IXdev"], {}), (["-W", "ignore", "-X", "dev"], {}),
                                           (["-c", "import runpy; runpy.run_path('script.py')"], {"PYTHONMALLOC": "debug"}),
                                           ([], {"PYTHONMALLOC": "pymalloc_debug"}), ([], {"PYTHONDEVMODE": "1"})])
def test_a_python_that_checks_its_memory(recording, options, more):
    """It aborts when it frees what was allocated before it started."""
    (recording.folder / "script.py").write_text("import ctypes\n"
        "assert not ctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1000))\n"
        "raise ValueError('its own')\n")
    done = recording.run(sys.executable, *options, "script.py", check=False, **more)
    assert done.returncode == 1 and "ValueError: its own" in done.stderr and "atal Python error" not in done.stderr
    assert recording.sql("select count(*) from allocation") == [(1,)]


# --- a file system that hangs ---------------------------------------------------------------------

HUNG = '''
import ctypes, os, sys
cuda, address = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
def pair():
    assert not cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1000)) and not cuda.cudaFree(address)
if sys.argv[1] == "pwrite64":
    pair()
open("hung", "w").close()
pair()
while not os.path.exists("blocked"):
    pair()
for _ in range(20):
    child = os.fork()
    if not child:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
pair()
print("done")
'''


@pytest.mark.parametrize("call, line", [("open", "not recording: the file system of run.db has not responded for 5 s"),
                                        ("pwrite64", "the database is incomplete; gpuspy report completes it")])
def test_a_file_system_that_hangs(recording, call, line):
    """At the first call or later: the program's calls, forks and end go on."""
    preload = f"{recording.environment()['LD_PRELOAD']}:{BUILD / 'programs' / 'hung_disk.so'}"
    done = recording.python(HUNG, call, LD_PRELOAD=preload, HUNG_CALL=call, GPUSPY_DB="run.db")
    assert done.stdout == "done\n" and own_lines(done.stderr)[-1] == f"gpuspy: {line}"
    if call == "pwrite64":
        (recording.folder / "hung").unlink()
        assert recording.report()["run"]["lost_events"] == 0


def test_a_busy_machine_is_not_a_file_system_that_hangs(recording):
    """Opening the recording takes longer than the program waits for a file system, because the thread gets no processor."""
    preload = f"{recording.environment()['LD_PRELOAD']}:{BUILD / 'programs' / 'hung_disk.so'}"
    script = HUNG.replace("pair()\nwhile", "import threading\nthreading.Timer(7, os.remove, ['hung']).start()\npair()\nwhile")
    done = recording.python(script, "open", LD_PRELOAD=preload, HUNG_CALL="open", HUNG_BUSY=1, GPUSPY_DB="run.db")
    assert done.stdout == "done\n" and "has not responded" not in done.stderr
    assert recording.report()["run"]["lost_events"] == 0


def test_a_file_system_that_responds_late(recording):
    """No recording without events is left, which would look as if it were still being made."""
    preload = f"{recording.environment()['LD_PRELOAD']}:{BUILD / 'programs' / 'hung_disk.so'}"
    done = recording.python(HUNG.replace('print("done")', """
os.remove("hung")
import time
time.sleep(2)
print("done")
"""), "open", LD_PRELOAD=preload, HUNG_CALL="open", GPUSPY_DB="run.db")
    assert done.stdout == "done\n" and "has not responded for 5 s" in done.stderr
    assert not [path.name for path in recording.folder.iterdir() if path.name.startswith("run")]


# --- the program's malloc -------------------------------------------------------------------------

COUNTS = """
#include <stddef.h>
#include <stdio.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);
static _Atomic long calls;
void *malloc(size_t n) { calls++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { calls++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { calls++; return __libc_realloc(p, n); }
void free(void *p) { calls++; __libc_free(p); }
__attribute__((destructor)) static void print(void)
{
    char line[64];
    fwrite(line, 1, (size_t)snprintf(line, sizeof line, "%ld calls\\n", calls), stderr);
}
"""


@sanitized("a sanitizer's malloc takes part")
def test_the_database_does_not_use_the_programs_malloc(recording):
    """It may be a debugging allocator that stores a stack for each call."""
    counts = recording.folder / "counts.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", counts, "-xc", "-"], input=COUNTS, text=True, check=True)
    def calls(preload):
        done = recording.run(BUILD / "programs" / "storm", 20000, LD_PRELOAD=preload, GPUSPY_NVML="0")
        return int(re.search(r"^(\d+) calls$", done.stderr, re.M)[1])
    assert calls(f"{counts}:{recording.environment()['LD_PRELOAD']}") < calls(counts) + 1000
    assert recording.sql("select count(*) from allocation") == [(20000,)]


# --- NVML ----------------------------------------------------------------------------------------

NVML_THAT_HANGS = """
#include <unistd.h>
int nvmlInit_v2(void) { if (HANGS_IN_INIT) pause(); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = device; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) { pause(); return 1; }
"""


@pytest.mark.parametrize("init", [0, 1])
def test_a_hung_nvml_delays_the_exit_by_a_second(recording, init):
    library = recording.folder / "nvml" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DHANGS_IN_INIT={init}", "-o", library, "-xc", "-"], check=True,
                   input=NVML_THAT_HANGS, text=True)
    path = f"{library.parent}:{BUILD}/sim"
    started = time.monotonic()
    done = recording.run(HOST, "forks", LD_LIBRARY_PATH=path)
    assert time.monotonic() - started < 20  # the driver hangs for ever; a busy machine is slow
    assert any("NVML has not answered for 1 s" in line for line in own_lines(done.stderr))
    assert pairs_recorded(recording) == did(done)
