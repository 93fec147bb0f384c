"""What a build must be: what the library needs and exports, that it installs and goes again, and that the hook table agrees with the toolkit's headers where they stand."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from conftest import BUILD, ROOT

TOOLKITS = [Path(p) for p in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr") if p]
TOOLKIT = next((t / "include" for t in TOOLKITS if (t / "include" / "cuda_runtime_api.h").exists()), None)


def output(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, text=True, stdout=subprocess.PIPE, cwd=ROOT,
                          **more).stdout


def test_the_library_needs_only_libc():
    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", BUILD / "libgpuspy.so"))
    if os.environ.get("SAN"):
        needed = [n for n in needed if not re.match(r"lib(a|ub|t)san|libclang_rt|libgcc_s|librt", n)]
    assert set(needed) <= {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def test_the_library_exports_only_doors():
    lines = output("nm", "-D", "--defined-only", BUILD / "libgpuspy.so").split("\n")
    names = [line.split()[-1] for line in lines if line]
    runtime = r"libcudart\.so\.(11\.0|12|13)"
    doors = re.compile(rf"cuda[A-Z]\w*@@?{runtime}|{runtime}|cu[A-Z]\w*|dlv?sym|dlopen|dlclose|__register_atfork|fork|daemon|forkpty|_ZN3c10\w+|"
                       r"InitializeInjectionNvtx2(Preinject)?|gpuspy_flush")
    # a runtime's name always with a version, everything else never
    assert names and [n for n in names if not doors.fullmatch(n) or re.fullmatch(r"cuda\w+", n)] == []


def test_the_library_never_ends_or_talks_for_the_host():
    """exit, _exit, abort and stdout are not in what interpose/ asks of libc (SQLite is not ours). But for the
    watcher, which ends the process as its last thread would have ended it: that thread is gone."""
    bad = {}
    for path in sorted((BUILD / "obj" / "interpose").glob("*.o")):
        wanted = {line.split()[-1] for line in output("nm", "-u", path).splitlines() if line.strip()}
        found = wanted & {"exit", "_exit", "_Exit", "abort", "quick_exit", "stdout", "printf", "puts", "putchar"}
        if found:
            bad[path.name] = found
    assert bad == {"watcher.o": {"exit", "_exit"}}


@pytest.mark.skipif(TOOLKIT is None, reason="no CUDA Toolkit here: its headers cannot check the hook table")
def test_every_row_agrees_with_the_toolkits_headers():
    if int(re.search(r"#define CUDA_VERSION (\d+)", (TOOLKIT / "cuda.h").read_text())[1]) < 13000:
        pytest.skip("the toolkit is older than what the rows name")
    done = subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I.", f"-I{TOOLKIT}",
                           "tests/toolkit_check.c"], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


# A room uses those of the lines above its own, and of its own line; the last line's words (how an option is
# declared, what exit codes are, the table of variables) are anybody's.
ROOMS = """
base
run
symbol
model
estimate
question oom allocator step category
profile
launch
diff
json
page
export
text
sql
check
top
doctor
command
"""
WORDS = {"analyzer/command/command.h", "analyzer/command/options.h", "analyzer/command/environment.def"}


def test_no_room_uses_one_that_stands_above_it():
    level = {room: i for i, line in enumerate(ROOMS.split("\n")) for room in line.split()}
    assert {p.name for p in (ROOT / "analyzer").iterdir() if p.is_dir()} == {*level, "web"}
    below = {"schema": ("schema/",), "interpose": ("schema/", "interpose/"),
             "analyzer": ("schema/", "analyzer/", "interpose/stack_python_layout.def", "interpose/settings.def")}
    wrong = []
    for path in (p for top in below for p in (ROOT / top).rglob("*.[chd]*") if p.suffix in (".c", ".h", ".def")):
        name = path.relative_to(ROOT)
        for used in re.findall(r'^\s*#\s*include "(.*/.*)"', path.read_text(), re.M):
            own, other = level.get(name.parts[1]), level.get(used.split("/")[1])
            above = used not in WORDS and own is not None and other is not None and used.startswith("analyzer/") and other > own
            if above or not used.startswith(below[name.parts[0]]):
                wrong.append(f"{name}: {used}")
    assert wrong == []


def test_what_the_readme_says_where_things_are_is_so():
    text = (ROOT / "README.md").read_text().split("## Extending")[1]
    named = [name.replace("NAME", "*") for name in re.findall(r"`((?:[\w*.-]+/)+[\w*.-]+\.[\w*]+)`", text)]
    assert len(named) > 30 and [name for name in named if not list(ROOT.glob(name))] == []


def test_install_and_uninstall(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    arguments = [f"O={os.environ.get('O', 'build')}", f"SAN={os.environ.get('SAN', '')}", f"DESTDIR={tmp_path}", "PREFIX=/opt/gpuspy"]
    output("make", "install", *arguments, env=env)
    installed = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert "opt/gpuspy/bin/gpuspy" in installed and "opt/gpuspy/lib/libgpuspy.so" in installed
    assert {"opt/gpuspy/share/man/man1/gpuspy-report.1", "opt/gpuspy/share/zsh/site-functions/_gpuspy",
            "opt/gpuspy/share/fish/vendor_completions.d/gpuspy.fish"} <= set(installed)
    tool = tmp_path / "opt/gpuspy/bin/gpuspy"
    # An installed tool finds its library beside itself.
    done = subprocess.run([str(tool), "run", "-o", str(tmp_path / "x.db"), "--", "sh", "-c", "echo $LD_PRELOAD"],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout.strip() == str(tmp_path / "opt/gpuspy/lib/libgpuspy.so"), done.stderr
    output("make", "uninstall", *arguments, env=env)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
