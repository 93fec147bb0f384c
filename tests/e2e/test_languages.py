"""Programs in Rust, Go and Fortran: the user's line behind wrappers and the language's own frames, its source, its name as
programmers write it, and what keeps the memory."""
import json
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT

PROGRAMS = ROOT / "fixtures/languages"
GO_CACHE = str(BUILD / "tests" / "go-cache")  # with the parts of Go's own library that each program needs
COMPILERS = {
    "rs": lambda source, flags: ["rustc", *flags, "-A", "warnings", "-L", BUILD / "sim", "-o", "program", source],
    "go": lambda source, flags: ["go", "build", *flags, "-o", "program", source],
    "f90": lambda source, flags: ["gfortran", *flags, source, "-o", "program", "-L", BUILD / "sim", "-lcudart"],
}
#           flags that users build with,   function of the line,        what keeps the memory
LEAKS = [
    ("rs", ["-g"], "leak::KvCache::append", "`self.layers.entry(layer).or_default().push(…)` keeps each of them"),
    ("rs", ["-g", "-O"], "leak::KvCache::append", "`self.layers.entry(layer).or_default().push(…)` keeps each of them"),
    ("go", [], "main.(*Server).handle", "`s.sessions[id] = …` keeps each of them"),
    ("go", ["-gcflags=-N -l"], "main.(*Server).handle", "`s.sessions[id] = …` keeps each of them"),
    ("go", ["-trimpath"], "main.(*Server).handle", ""),
    ("go", ["-ldflags=-buildid="], "main.(*Server).handle", "`s.sessions[id] = …` keeps each of them"),
    ("f90", ["-g"], "solver::advance", "free each block after its last use"),
    ("f90", ["-g", "-O2"], "solver::advance", "free each block after its last use"),
]


def build(folder, name, suffix, flags=()):
    command = [str(word) for word in COMPILERS[suffix](PROGRAMS / f"{name}.{suffix}", flags)]
    if not shutil.which(command[0]):
        pytest.skip(f"no {command[0]}")
    environment = {**os.environ, "CGO_LDFLAGS": f"-L{BUILD}/sim -lcudart", "GOCACHE": GO_CACHE}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return folder / "program"


def line_of(name, mark):
    lines = (PROGRAMS / name).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if re.search(rf"(//|!) {mark}$", line))


@pytest.mark.parametrize("suffix, flags, function, keeper", LEAKS)
def test_a_leak_is_at_the_users_line(recording, suffix, flags, function, keeper):
    program = build(recording.folder, "leak", suffix, flags)
    done = recording.run(program, check=False, SIMCUDA_MEMORY="2GiB", LD_LIBRARY_PATH=BUILD / "sim")
    assert done.returncode == 3
    line = line_of(f"leak.{suffix}", "LEAK")
    (oom,) = recording.report()["oom"]
    assert (oom["cause"], oom["blame"]["line"], oom["blame"]["function"]) == ("leak", line, function)
    assert keeper in oom["advice"][0]
    text = recording.gpuspy("report", recording.database, env={"COLUMNS": "100"}).stdout
    assert f"leak.{suffix}:{line} in {function}" in text
    if "-trimpath" not in flags:
        assert re.search(rf"▸ +{line} │ ", text)
    tree = recording.gpuspy("tree", recording.database).stdout
    assert re.search(rf":{line}\b", tree) and not re.search(r"goexit|asmcgocall|_Cfunc_|_cgo_|lang_start|_MOD_", tree)


@pytest.mark.parametrize("name, suffix, function, keeper", [
    ("closure", "rs", "closure::main::{{closure}}", "`r.borrow_mut().push(…)` keeps each of them"),
    ("derived", "f90", "solver::step", "free each block after its last use"),
])
def test_a_wrapper_that_one_function_calls_at_two_lines(recording, name, suffix, function, keeper):
    """By its name, such as try_new or array_create; what only it calls is a part of it."""
    recording.run(build(recording.folder, name, suffix, ["-g"]), check=False, SIMCUDA_MEMORY="1GiB",
                  LD_LIBRARY_PATH=BUILD / "sim")
    (oom,) = recording.report()["oom"]
    assert (oom["blame"]["line"], oom["blame"]["function"]) == (line_of(f"{name}.{suffix}", "LEAK"), function)
    assert keeper in oom["advice"][0]


def test_a_server_that_answers_failed_requests(recording):
    """Its folder src/runtime, in one with an @v, is not Go's. Each of its requests fails after the first failure."""
    folder = recording.folder / "proj@v2"
    shutil.copytree(PROGRAMS / "server", folder)
    if not shutil.which("go"):
        pytest.skip("no go")
    environment = {**os.environ, "CGO_LDFLAGS": f"-L{BUILD}/sim -lcudart", "GOCACHE": GO_CACHE}
    subprocess.run(["go", "build", "-o", "program", "."], cwd=folder, env=environment, check=True)
    done = recording.run(folder / "program", check=False, SIMCUDA_MEMORY="1GiB", LD_LIBRARY_PATH=BUILD / "sim")
    assert done.returncode == 3
    first = min(recording.report()["oom"], key=lambda oom: oom["time_s"])
    line = line_of("server/src/runtime/engine.go", "LEAK")
    assert (first["cause"], first["blame"]["line"]) == ("leak", line)
    assert first["blame"]["function"] == "proj/src/runtime.(*Engine).Step"
    assert "`e.kv[int(i)] = …` keeps each of them" in first["advice"][0]


def test_goroutines_are_not_disturbed_and_have_stacks(recording):
    """Their stacks grow, move and end while the garbage collector runs."""
    program = build(recording.folder, "stress", "go")
    bare = subprocess.run([program], capture_output=True, text=True, check=True,
                          env={**os.environ, "LD_LIBRARY_PATH": str(BUILD / "sim")})
    done = recording.gpuspy("run", "-o", recording.database, "--", program, env={"LD_LIBRARY_PATH": str(BUILD / "sim")})
    assert done.stdout == bare.stdout == "[0 0 0 0 0 0 0 0]\n"
    report = recording.gpuspy("report", recording.database).stdout
    assert "killed, crashed" not in report  # it calls _exit, with status 0
    rows = json.loads(recording.gpuspy("table", "--what", "allocated", "--json", recording.database).stdout)["rows"]
    assert sum(row["count"] for row in rows) == 16000
    stacks = recording.gpuspy("export", "--format", "folded", "--what", "allocated", "-o", "-", recording.database).stdout
    deep = [line for line in stacks.splitlines() if line.startswith("(deeper frames cut)")]
    assert deep and all(line.count("main.descend") > 50 for line in deep)
    assert all("main.main" in line for line in stacks.splitlines() if line not in deep)
