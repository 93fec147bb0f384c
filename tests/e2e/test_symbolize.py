"""Names of C and C++ functions: from every form of debugging information, and written into the recording."""
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, SECONDS, Recording, wait_until

# The tests find expected line numbers in this text.
SOURCE = r"""
#include <cstddef>
#include <vector>
extern "C" int cudaMalloc(void **, size_t);
extern "C" int cudaFree(void *);
namespace app {
static inline __attribute__((always_inline)) void *grab(size_t n) {
    void *p = nullptr;
    cudaMalloc(&p, n); /* THE CALL */
    asm volatile("" : : "r"(p) : "memory");
    return p;
}
struct Pool {
    std::vector<void *> held;
    inline __attribute__((always_inline)) void add(size_t n) {
        held.push_back(grab(n)); /* THE POOL */
    }
};
template <typename T> __attribute__((noinline)) size_t fill(T n) {
    Pool pool;
    pool.add((size_t)n); /* THE FILL */
    return pool.held.size();
}
}
int main() {
    return app::fill<long>(1 << 20) == 1 ? 0 : 1; /* THE MAIN */
}
"""
LINES = {word: n for n, line in enumerate(SOURCE.splitlines(), 1) for word in re.findall(r"/\* THE (\w+) \*/", line)}
CHAIN = [("grab", LINES["CALL"]), ("Pool::add", LINES["POOL"]), ("fill", LINES["FILL"]), ("main", LINES["MAIN"])]


def sh(folder, *commands):
    for command in commands:
        subprocess.run(command, shell=True, cwd=folder, check=True)


def build(folder, compiler="g++", flags="-g -O2"):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    (folder / "code.cc").write_text(SOURCE)
    sh(folder, f"{compiler} {flags} -Wl,--build-id=sha1 -o program code.cc -L{BUILD}/sim -l:libcudart.so.12")
    return folder / "program"


def record(recording, **more):
    recording.run(recording.folder / "program", GPUSPY_STACKS="both", **more)


def chain(recording, *arguments):
    """(function, line) of the program's own frames at the only allocation, innermost first."""
    frames = recording.report(*arguments)["peak"][0]["by_stack"][0]["frames"]
    return [(f["function"], f["line"]) for f in frames if f.get("file") and f["file"].endswith("/code.cc")]


def is_whole(found):
    return [line for _, line in found] == [line for _, line in CHAIN] and \
        all(name in function for (function, _), (name, _) in zip(found, CHAIN))


# Each: compiler flags, and what is done to the program afterwards.
FORMS = {
    "gcc": ("g++ -g -O2", []), "gcc4": ("g++ -g -O2 -gdwarf-4", []), "compressed": ("g++ -g -O2 -gz=zlib", []),
    "clang": ("clang++ -g -O2", []), "clang4": ("clang++ -g -O2 -gdwarf-4", []), "lto": ("g++ -g -O2 -flto", []),
    "split": ("g++ -g -O2 -gsplit-dwarf", []), "clang-split": ("clang++ -g -O2 -gsplit-dwarf", []),
    "debuglink": ("g++ -g -O2", ["objcopy --only-keep-debug program program.debug",
                                 "objcopy --strip-all --add-gnu-debuglink=program.debug program"]),
    "in .debug": ("g++ -g -O2", ["mkdir .debug", "objcopy --only-keep-debug program .debug/program.debug",
                                 "objcopy --strip-all --add-gnu-debuglink=.debug/program.debug program"]),
    "dwz": ("g++ -g -O2", ["cp program other", "dwz -m common.debug -M $PWD/common.debug program other", "rm other"]),
    "dwz and debuglink": ("g++ -g -O2", ["cp program other", "dwz -m common.debug -M $PWD/common.debug program other",
                                         "objcopy --only-keep-debug program program.debug",
                                         "objcopy --strip-all --add-gnu-debuglink=program.debug program"]),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_debugging_information_gives_the_chain(recording, form):
    command, after = FORMS[form]
    compiler, flags = command.split(" ", 1)
    if "dwz" in form and not shutil.which("dwz"):
        pytest.skip("no dwz")
    build(recording.folder, compiler, flags)
    sh(recording.folder, *after)
    record(recording)
    found = chain(recording)
    assert is_whole(found), found
    site = recording.report()["peak"][0]["by_stack"][0]["site"]
    assert site["line"] == LINES["CALL"] and site["file"].endswith("code.cc")


def test_a_system_header_does_not_replace_its_user(recording):
    """std::invoke calls it, but users look for the caller of std::invoke. The chain contains both."""
    source = SOURCE.replace("#include <vector>", "#include <functional>").replace("cudaMalloc(&p, n);", "std::invoke(cudaMalloc, &p, n);")
    source = source.replace("std::vector<void *> held;", "void *held;").replace("held.push_back(grab(n));", "held = grab(n);")
    source = source.replace("pool.held.size()", "pool.held != nullptr")
    (recording.folder / "code.cc").write_text(source)
    sh(recording.folder, f"g++ -std=c++17 -g -O2 -o program code.cc -L{BUILD}/sim -l:libcudart.so.12")
    record(recording)
    stack = recording.report()["peak"][0]["by_stack"][0]
    assert stack["site"]["line"] == LINES["CALL"] and "grab" in stack["site"]["function"]
    files = [f["file"] or "" for f in stack["frames"]]
    assert "/include/c++/" in files[0] and is_whole(chain(recording))


# As nvcc builds by default: a wrapper from CUDA's header, and the runtime inside the program, without lines.
RUNTIME_HEADER = """
enum cudaError { cudaSuccess };
extern "C" cudaError inside(void **, unsigned long) __asm__("cudaMallocInside");
template <class T> static inline cudaError cudaMalloc(T **p, unsigned long n) { return inside((void **)p, n); }
"""
STATIC_RUNTIME = """
extern int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuMemAlloc_v2(void **, unsigned long);
__attribute__((noinline)) static int libcudart_static_0000ceb4406c(void **p, unsigned long n) { int r = cuMemAlloc_v2(p, n); __asm__(""); return r; }
int inside(void **, unsigned long) __asm__("cudaMallocInside");
int inside(void **p, unsigned long n) { int r = libcudart_static_0000ceb4406c(p, n); __asm__(""); return r; }
void start_runtime(void) { void *c; cuInit(0); cuDevicePrimaryCtxRetain(&c, 0); cuCtxSetCurrent(c); }
"""
RUNTIME_USER = """
#include <cuda_runtime.h>
extern "C" void start_runtime(void);
static float *weights() {
    float *p = nullptr;
    cudaMalloc(&p, 1 << 20); // THE CALL
    return p;
}
int main() {
    start_runtime();
    return weights() ? 0 : 1;
}
"""


@pytest.mark.parametrize("flags", ["-O0 -g", "-O2 -g", "-O0"])
def test_neither_cudas_header_nor_its_static_runtime_is_the_line(recording, flags):
    folder = recording.folder
    include = folder / "cuda" / "targets" / "x86_64-linux" / "include"
    include.mkdir(parents=True)
    (include / "cuda_runtime.h").write_text(RUNTIME_HEADER)
    (folder / "runtime.c").write_text(STATIC_RUNTIME)
    (folder / "user.cc").write_text(RUNTIME_USER)
    sh(folder, "gcc -c runtime.c", f"g++ {flags} -fno-inline -I{include} -o program user.cc runtime.o -L{BUILD}/sim -lcuda")
    record(recording)
    site = recording.report()["peak"][0]["by_stack"][0]["site"]
    assert "weights" in site["function"], site
    if "-g" in flags:
        line = next(n for n, text in enumerate(RUNTIME_USER.splitlines(), 1) if "THE CALL" in text)
        assert (site["file"].rsplit("/", 1)[-1], site["line"]) == ("user.cc", line)


@pytest.mark.parametrize("flags", ["-O0 -g", "-O2 -g"])
def test_a_lambda_is_called_that(recording, flags):
    (recording.folder / "code.cc").write_text("""extern "C" int cudaMalloc(void **, unsigned long);
int main() {
    void *p = nullptr;
    auto work = [&](unsigned long n) __attribute__((noinline)) { int r = cudaMalloc(&p, n); asm volatile("" : "+r"(r)); return r; };
    return work(1 << 20);
}
""")
    sh(recording.folder, f"g++ {flags} -o program code.cc -L{BUILD}/sim -l:libcudart.so.12")
    record(recording)
    site = recording.report()["peak"][0]["by_stack"][0]["site"]
    assert site["line"] == 4 and "lambda" in site["function"], site


def text_section(path):
    out = subprocess.run(["readelf", "-SW", path], text=True, stdout=subprocess.PIPE, check=True).stdout
    start, size = re.search(r" \.text +PROGBITS +(\w+) \w+ (\w+)", out).groups()
    return int(start, 16), int(size, 16)


def said_by(tool, path, addresses):
    """The lines of the chain at each address, innermost first, as printed by another tool."""
    out = subprocess.run([*tool, "-e", path], input="".join(f"{a:#x}\n" for a in addresses), text=True,
                         stdout=subprocess.PIPE, check=True).stdout.splitlines()
    chains = []
    for line in out:
        if re.fullmatch("0x[0-9a-f]+", line):
            chains.append([])
        elif found := re.match(r"(.+):(\d+|\?)(?: .*)?$", line):
            chains[-1].append((os.path.basename(found[1]), int(found[2]) if found[2].isdigit() else 0))
    return [[place for place in c if place[1]] for c in chains]


# DWARF 4: in DWARF 5, binutils 2.40 confuses the numbers of files.
@pytest.mark.parametrize("flags", ["-g -O0 -gdwarf-4", "-g -O2 -gdwarf-4", "-g -O2 -gdwarf-4 -flto"])
def test_lines_and_inlined_calls_are_those_of_addr2line(recording, flags):
    """Every address of the program is stored in a recording as a separate frame."""
    program = build(recording.folder, flags=flags)
    record(recording)
    start, size = text_section(program)
    addresses = list(range(start, start + size))
    with sqlite3.connect(recording.database) as db:
        module, = db.execute("SELECT id FROM module WHERE path = ?", (str(program),)).fetchone()
        db.executemany("INSERT INTO frame (id, kind, module_id, offset) VALUES (?, 1, ?, ?)",
                       [(10 ** 6 + a, module, a) for a in addresses])
    assert recording.gpuspy("symbolize", recording.database).returncode == 0
    ours = {a: [] for a in addresses}
    for a, file, line in recording.sql("SELECT id - 1000000, file, line FROM frame WHERE id > 1000000 AND id NOT IN "
                                       "(SELECT frame_id FROM inlined_frame) AND line"):
        ours[a].append((os.path.basename(file), line))
    for a, file, line in recording.sql("SELECT frame_id - 1000000, file, line FROM inlined_frame WHERE frame_id > 1000000 "
                                       "ORDER BY frame_id, level"):
        if line:
            ours[a].append((os.path.basename(file), line))
    theirs = dict(zip(addresses, said_by(["addr2line", "-i", "-a"], program, addresses)))
    differ = {hex(a): (ours[a], theirs[a]) for a in addresses if ours[a] != theirs[a]}
    assert not differ
    assert max(map(len, theirs.values())) >= 3 and sum(map(len, theirs.values())) > size / 2


def test_names_that_are_packed_into_the_program(recording):
    """.gnu_debugdata: programs of Fedora have it; it contains the names of functions that are not exported."""
    if not shutil.which("xz"):
        pytest.skip("no xz")
    program = build(recording.folder)
    record(recording)
    sh(recording.folder, "objcopy --strip-debug program names", "objcopy --only-keep-debug names names.debug", "xz names.debug",
       "strip program", "objcopy --add-section .gnu_debugdata=names.debug.xz program", "rm names")
    assert build_id(program) == recording.sql("SELECT build_id FROM module WHERE path = ?", str(program))[0][0]
    done = recording.gpuspy("symbolize", "--json", "run.db")
    module, = [m for m in json.loads(done.stdout)["modules"] if m["path"] == str(program)]
    assert module["frames"] == module["named"] > 1 and module["lines"] == 0 and "names of functions" in module["lack"]
    assert recording.sql("SELECT count(*) FROM frame WHERE function LIKE '%app::fill<long>(long)%'") == [(1,)]


# ---------------------------------------------------------------- the same text without the programs

def outputs(recording, folder):
    """The outputs for users."""
    views = {"text": ["report"], "native": ["report", "--native"], "json": ["report", "--json"],
             "snapshot": ["export", "--stacks", "both", "-o", "-"], "page": ["report", "--html", "-"],
             **{f: ["export", "-f", f, "--native", "-o", "-"] for f in ("folded", "speedscope", "pprof", "chrome-trace")},
             **{c: [c] for c in ("tree", "flame", "table", "leaks", "stats", "timeline")}}
    found = {}
    for name, words in views.items():
        done = subprocess.run([str(BUILD / "gpuspy"), *words, "run.db"], cwd=folder, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout
    return found


def test_a_symbolized_recording_reads_the_same_without_the_programs(recording):
    program = build(recording.folder)
    record(recording)
    before = outputs(recording, recording.folder)
    assert b"Pool::add" in before["json"] and b"code.cc" in before["native"] and b"Pool::add" in before["page"]
    assert b"app::Pool::add(unsigned long) (code.cc" in before["folded"]
    done = recording.gpuspy("symbolize", "run.db")
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert re.match(r"\d+ of \d+ native frames are named, [1-9]\d* with file and line\n1 frame represents", done.stdout), done.stdout
    content = recording.database.read_bytes()
    again = recording.gpuspy("symbolize", "run.db")
    assert again.returncode == 0 and "nothing was new" in again.stdout
    assert recording.database.read_bytes() == content
    program.unlink()
    # Elsewhere: only the recording. The C library, which every machine has, stays.
    elsewhere = recording.folder / "elsewhere"
    elsewhere.mkdir()
    shutil.move(recording.database, elsewhere / "run.db")
    after = outputs(recording, elsewhere)
    assert {name: after[name] == before[name] for name in before} == dict.fromkeys(before, True)


def test_a_copy_leaves_the_recording_as_it_is(recording):
    build(recording.folder)
    record(recording)
    content = recording.database.read_bytes()
    (recording.folder / "copy.db.part").write_text("somebody's own")
    done = recording.gpuspy("symbolize", "-o", "copy.db", "run.db")
    assert done.returncode == 0 and done.stderr == "gpuspy: written to copy.db\n"
    assert (recording.folder / "copy.db.part").read_text() == "somebody's own"
    (recording.folder / "copy.db.part").unlink()
    assert recording.database.read_bytes() == content
    assert sorted(p.name for p in recording.folder.glob("*.db*")) == ["copy.db", "run.db"]
    again = recording.gpuspy("symbolize", "-o", "copy.db", "run.db")
    assert again.returncode == 3 and "exists; remove it" in again.stderr
    for words, reported in ((["--debug-dir", "none"], "'none' is not a folder"), (["-o", "none/copy.db"], "give a path where you may write")):
        refused = recording.gpuspy("symbolize", *words, "run.db")
        assert refused.returncode == 3 and reported in refused.stderr and refused.stderr.count("\n") == 1
    (recording.folder / "program").unlink()
    recording.database = recording.folder / "copy.db"
    assert is_whole(chain(recording))


def test_all_processes_of_a_run(recording):
    """A shell starts the program three times: a run of three files."""
    build(recording.folder)
    recording.run("sh", "-c", "./program; ./program; ./program & wait", GPUSPY_STACKS="both")
    files = sorted(recording.folder.glob("*.db"))
    if len(files) == 1:
        pytest.skip("each process made a run of its own")
    done = recording.gpuspy("symbolize", "--json", "run.db")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["databases"]) == len(files)
    for path in files:
        with sqlite3.connect(path) as db:
            assert db.execute("SELECT count(*) FROM frame WHERE file LIKE '%/code.cc'").fetchone()[0] > 0
    done = recording.gpuspy("symbolize", "-o", "named.db", "run.db")
    assert done.returncode == 0 and len(list(recording.folder.glob("named*.db"))) == len(files)


def test_an_older_gpuspy_reads_it(recording):
    """The version, tables and columns do not change: one table is added."""
    build(recording.folder)
    record(recording)
    schema = recording.sql("SELECT name, sql FROM sqlite_master ORDER BY name")
    version = recording.sql("PRAGMA user_version")
    assert recording.gpuspy("symbolize", "run.db").returncode == 0
    later = recording.sql("SELECT name, sql FROM sqlite_master WHERE name <> 'inlined_frame' ORDER BY name")
    assert later == schema and recording.sql("PRAGMA user_version") == version
    file, line = recording.sql("SELECT file, line FROM frame WHERE function LIKE '%grab%'")[0]
    assert line == LINES["CALL"] and file.endswith("/code.cc")


@pytest.mark.parametrize("copy", [False, True])
def test_a_recording_whose_program_was_killed_is_completed_first(recording, copy):
    (recording.folder / "code.cc").write_text(
        SOURCE.replace("int main() {", "#include <signal.h>\nint main() {").replace("== 1 ? 0", "== 1 ? raise(SIGKILL)"))
    sh(recording.folder, f"g++ -g -O2 -Wl,--build-id=sha1 -o program code.cc -L{BUILD}/sim -l:libcudart.so.12")
    recording.run(recording.folder / "program", check=False, GPUSPY_STACKS="both")
    assert (recording.folder / "run.db.spool").exists()
    words = ["-o", "copy.db"] if copy else []
    done = recording.gpuspy("symbolize", *words, "run.db")
    assert done.returncode == 0, done.stderr
    recording.database = recording.folder / ("copy.db" if copy else "run.db")
    (recording.folder / "program").unlink()
    assert [line for _, line in chain(recording)][:3] == [line for _, line in CHAIN][:3]


# ---------------------------------------------------------------- stopped, refused

def test_killed_at_any_time_it_is_whole(recording):
    """Either no frame is named, or all are."""
    program = build(recording.folder)
    record(recording)
    start, size = text_section(program)
    with sqlite3.connect(recording.database) as db:
        module, = db.execute("SELECT id FROM module WHERE path = ?", (str(program),)).fetchone()
        db.executemany("INSERT INTO frame (id, kind, module_id, offset) VALUES (?, 1, ?, ?)",
                       [(10 ** 6 + i, module, start + i % size) for i in range(30000)])
    state = "SELECT count(*), sum(function IS NULL) FROM frame WHERE id >= 1000000"
    fresh = recording.database.read_bytes()
    seen = set()
    for delay in [0.004 * i for i in range(1, 20)]:
        recording.database.write_bytes(fresh)
        for left in recording.folder.glob("run.db-*"):
            left.unlink()
        p = subprocess.Popen([BUILD / "gpuspy", "symbolize", recording.database], stdout=subprocess.DEVNULL)
        time.sleep(delay)
        p.send_signal(signal.SIGKILL)
        p.wait()
        done = recording.gpuspy("report", "--json", "run.db")
        assert done.returncode == 0, done.stderr
        assert recording.sql("PRAGMA integrity_check") == [("ok",)]
        seen.add(recording.sql(state)[0])
    assert (30000, 30000) in seen and seen <= {(30000, 30000), *[s for s in seen if s[1] < 15000]}
    assert recording.gpuspy("symbolize", "run.db").returncode == 0
    whole = recording.sql(state)[0]
    assert seen <= {(30000, 30000), whole}, seen


def test_a_running_recording_is_refused(recording):
    script = recording.folder / "wait.py"
    script.write_text("import ctypes, time\nctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4096)\n"
                      "print('up', flush=True)\ntime.sleep(600)\n")
    p = subprocess.Popen([sys.executable, script], env=recording.environment(), cwd=recording.folder,
                         stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout.readline() == "up\n"
        for words in ["run.db"], ["-o", "copy.db", "run.db"]:
            def asked():
                done = recording.gpuspy("symbolize", *words)
                return None if "recording is starting" in done.stderr else done
            done = wait_until(asked)
            assert done.returncode == 3 and "is still being recorded" in done.stderr, done.stderr
        assert not (recording.folder / "copy.db").exists()
    finally:
        p.kill()
        p.wait()


def test_unwritable_output_is_reported(recording):
    build(recording.folder)
    record(recording)
    recording.database.chmod(0o444)
    command = [BUILD / "gpuspy", "symbolize", recording.database]
    if os.geteuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("root may write everywhere")
        for folder in [recording.folder, *recording.folder.parents][:4]:
            folder.chmod(folder.stat().st_mode | 0o055)
        command = ["setpriv", "--reuid=65534", "--clear-groups", *command]
    else:
        recording.folder.chmod(0o555)
    content = recording.database.read_bytes()
    done = subprocess.run(list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    recording.folder.chmod(0o755)
    assert done.returncode == 3 and re.fullmatch(r"gpuspy: symbolize: cannot write [^\n]+ -o COPY.db\n", done.stderr), done
    assert recording.database.read_bytes() == content
    missing = recording.gpuspy("symbolize", "nothing.db")
    assert missing.returncode == 3 and missing.stderr.count("\n") == 1
    done = recording.gpuspy("symbolize", "-o", "no/such/folder.db", "run.db")
    assert done.returncode == 3 and "cannot write" in done.stderr
    assert recording.gpuspy("symbolize").returncode == 2


# ---------------------------------------------------------------- which files are used

def test_another_build_is_never_used(recording):
    build(recording.folder)
    record(recording)
    assert is_whole(chain(recording))
    (recording.folder / "code.cc").write_text(SOURCE.replace("namespace app {", "namespace app {\n\nint wrong() { return 1; }\n"))
    sh(recording.folder, f"g++ -g -O2 -Wl,--build-id=sha1 -o program code.cc -L{BUILD}/sim -l:libcudart.so.12")
    assert chain(recording) == []
    done = recording.gpuspy("report", "run.db")
    assert done.returncode == 0 and done.stderr.count("has changed since the recording") == 1
    done = recording.gpuspy("symbolize", "run.db")
    assert done.returncode == 0 and "has changed since the recording" in done.stdout
    assert recording.sql("SELECT count(*) FROM frame WHERE file LIKE '%code.cc'") == [(0,)]


def test_without_build_id_its_age_decides(recording):
    (recording.folder / "code.cc").write_text(SOURCE)
    make = f"g++ -g -O2 -Wl,--build-id=none -o program code.cc -L{BUILD}/sim -l:libcudart.so.12"
    sh(recording.folder, make)
    record(recording)
    assert is_whole(chain(recording))
    time.sleep(0.05)
    sh(recording.folder, make)
    assert chain(recording) == []


def test_a_debug_link_with_another_checksum_is_not_believed(recording):
    program = build(recording.folder)
    sh(recording.folder, "objcopy --only-keep-debug program program.debug",
       "objcopy --strip-all --remove-section=.note.gnu.build-id --add-gnu-debuglink=program.debug program")
    record(recording)
    assert is_whole(chain(recording))
    with open(recording.folder / "program.debug", "ab") as f:
        f.write(b"\0")
    assert chain(recording) == []
    assert program.exists()


def build_id(path):
    out = subprocess.run(["readelf", "-n", path], text=True, stdout=subprocess.PIPE, check=True).stdout
    return re.search(r"Build ID: (\w+)", out)[1]


@pytest.mark.parametrize("gone", [False, True], ids=["stripped", "gone"])
@pytest.mark.parametrize("how", ["option", "environment"])
def test_a_folder_by_build_id(recording, gone, how):
    """Also if the program itself is not there any more."""
    program = build(recording.folder)
    number = build_id(program)
    folder = recording.folder / "symbols" / ".build-id" / number[:2]
    folder.mkdir(parents=True)
    sh(recording.folder, f"objcopy --only-keep-debug program {folder}/{number[2:]}.debug", "strip program")
    record(recording)
    assert chain(recording) == []
    if gone:
        program.unlink()
    if how == "option":
        done = recording.gpuspy("symbolize", "--debug-dir", "symbols", "run.db")
    else:
        done = subprocess.run([BUILD / "gpuspy", "symbolize", "run.db"], cwd=recording.folder, text=True,
                              stdout=subprocess.PIPE, env=dict(os.environ, GPUSPY_DEBUG_PATH=f"/none:{recording.folder}/symbols"))
    assert done.returncode == 0
    assert is_whole(chain(recording))


def test_more_debugging_information_later_adds_lines(recording):
    program = build(recording.folder)
    sh(recording.folder, "mkdir later", "objcopy --only-keep-debug program later/program", "strip --strip-debug program")
    record(recording)
    done = recording.gpuspy("symbolize", "run.db")
    assert "has names of functions, but no lines" in done.stdout and "app::fill" in str(recording.sql("SELECT function FROM frame"))
    assert build_id(program) == build_id(recording.folder / "later" / "program")
    program.unlink()
    assert recording.gpuspy("symbolize", "--debug-dir", "later", "run.db").returncode == 0
    assert is_whole(chain(recording))


@pytest.mark.parametrize("gone", [False, True], ids=["stripped", "gone"])
def test_servers_are_asked_only_on_request(recording, gone):
    """A folder replaces a server: its layout is that of debuginfod's addresses."""
    program = build(recording.folder)
    served = recording.folder / "server" / "buildid" / build_id(program)
    served.mkdir(parents=True)
    shutil.copy(program, served / "executable")
    sh(recording.folder, f"objcopy --only-keep-debug program {served}/debuginfo", "strip program")
    record(recording)
    if gone:
        program.unlink()
    env = dict(os.environ, DEBUGINFOD_URLS=f"file://{recording.folder}/server/", DEBUGINFOD_CACHE_PATH=str(recording.folder / "cache"),
               HOME=str(recording.folder))

    def symbolize(*words, **more):
        return subprocess.run([BUILD / "gpuspy", "symbolize", *words, "run.db"], cwd=recording.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**env, **more})

    done = symbolize()
    assert done.returncode == 0 and not done.stderr and not (recording.folder / "cache").exists()
    assert chain(recording) == []
    done = symbolize("--debuginfod", DEBUGINFOD_URLS="")
    assert done.returncode == 0 and "contains no server" in done.stderr
    done = symbolize("--debuginfod")
    if "libdebuginfod.so.1 is not here" in done.stderr:
        pytest.skip("no libdebuginfod")
    assert done.returncode == 0 and f"asking file://{recording.folder}/server/" in done.stderr
    assert is_whole(chain(recording)), done.stdout


def test_hostile_tables_are_not_written_into(recording):
    build(recording.folder)
    record(recording)
    for sql in ["CREATE TRIGGER t AFTER UPDATE ON frame BEGIN DELETE FROM process; END",
                "CREATE VIEW inlined_frame AS SELECT 1 AS frame_id, 2 AS level, 'x' AS function, 'y' AS file, 3 AS line"]:
        with sqlite3.connect(recording.database) as db:
            db.execute(sql)
        done = recording.gpuspy("symbolize", "run.db")
        assert done.returncode == 3 and "is not a recording of gpuspy" in done.stderr
        assert recording.gpuspy("report", "run.db").returncode == 0
        with sqlite3.connect(recording.database) as db:
            db.execute(f"DROP {sql.split()[1]} {sql.split()[2]}")
    assert recording.gpuspy("symbolize", "run.db").returncode == 0


def test_chains_that_make_no_sense_are_survived(recording):
    build(recording.folder)
    record(recording)
    assert recording.gpuspy("symbolize", "run.db").returncode == 0
    with sqlite3.connect(recording.database) as db:
        frame, = db.execute("SELECT max(id) FROM frame").fetchone()
        db.executemany("INSERT INTO inlined_frame VALUES (?, ?, ?, ?, ?)",
                       [(frame, i, "\x1b[31m<b>" + "x" * 70000, b"\xff\xfe", -i) for i in range(100, 2000)] +
                       [(10 ** 12, 0, None, None, None), (-1, -1, "a", "b", 1 << 40)])
    for words in ["report", "--native"], ["report", "--json"], ["export", "--stacks", "both", "-o", "-"]:
        done = subprocess.run([BUILD / "gpuspy", *words, "run.db"], cwd=recording.folder, stdout=subprocess.PIPE)
        assert done.returncode == 0 and (words[0] == "export" or b"\x1b[31m" not in done.stdout)
