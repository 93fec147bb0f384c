"""Properties of the build: what the library needs and exports, that it can be installed and uninstalled, that rooms
depend on lower rooms only, and that the hook table agrees with the toolkit's headers if they are installed."""
import functools
import graphlib
import os
import re
import shutil
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
    doors = re.compile(rf"cuda[A-Z]\w*@@?{runtime}|{runtime}|cu[A-Z]\w*|dlv?sym|dlopen|dlclose|__register_atfork|fork|daemon|forkpty|prctl|syscall|_ZN3c10\w+|"
                       r"InitializeInjectionNvtx2(Preinject)?|gpuspy_(flush|database|attach|detach)|GPUSPY|(stdin|__libc_start_main)@@GPUSPY")
    # runtime names must have a version, all others must not
    assert names and [n for n in names if not doors.fullmatch(n) or re.fullmatch(r"cuda\w+", n)] == []
    assert {"stdin@@GPUSPY", "__libc_start_main@@GPUSPY"} <= set(names)  # which musl looks for, see interpose/musl.c


def test_the_library_never_ends_or_talks_for_the_host():
    """interpose/ does not use exit, _exit, abort or stdout of libc (SQLite is not ours). Exception: the watcher ends
    the process in the way its last thread would have, because that thread has ended."""
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


def listed_rooms():
    """CONTRIBUTING's list, from the lowest room to the highest; main.c may use all of them."""
    layout = (ROOT / "CONTRIBUTING.md").read_text().split("## Source layout")[1].split("\n#")[0]
    own = layout.split("    analyzer/ ")[1].split("    fixtures/ ")[0]
    return [*re.findall(r"^      (\w+)/ ", own, re.M), "main.c"]


def room(file):
    return file.split("/")[1]


@functools.cache
def uses_by_symbol(top):
    """By file: the other files that define symbols which its object file leaves undefined"""
    sources = sorted(p.relative_to(ROOT) for p in (ROOT / top).rglob("*.c"))
    objects = {str(BUILD / "obj" / s.with_suffix(".o")): str(s) for s in sources}
    defined, undefined = {}, []
    for line in output("nm", "-A", "--extern-only", *objects).splitlines():
        path, rest = line.split(":", 1)
        *_, kind, symbol = rest.split()
        if kind in "Uvw":
            undefined.append((objects[path], symbol))
        else:
            assert defined.setdefault(symbol, objects[path]) == objects[path], f"{symbol} is defined twice"
    uses = {str(s): set() for s in sources}
    for file, symbol in undefined:
        uses[file].add(defined.get(symbol, file))
    return {file: used - {file} for file, used in uses.items()}


def uses_by_include(top):
    files = [p for p in (ROOT / top).rglob("*") if p.suffix in (".c", ".h", ".def")]
    return {str(p.relative_to(ROOT)): set(re.findall(r'^\s*#\s*include "(.*/.*)"', p.read_text(), re.M)) for p in files}


@pytest.mark.parametrize("uses", [uses_by_symbol, uses_by_include])
def test_a_room_uses_only_rooms_above_it(uses):
    rooms = listed_rooms()
    assert {p.name for p in (ROOT / "analyzer").iterdir()} == set(rooms)
    floor = {name: i for i, name in enumerate(rooms)}
    wrong = [f"{file}: {used}" for file, all_used in uses("analyzer").items() for used in sorted(all_used)
             if used.startswith("analyzer/") and floor[room(used)] > floor[room(file)]]
    assert wrong == []


def test_the_analyzer_and_the_recorder_share_only_the_schema():
    allowed = {"schema": ("schema/",), "interpose": ("schema/", "interpose/"), "analyzer": ("schema/", "analyzer/")}
    wrong = [f"{file}: {used}" for top, above in allowed.items() for file, all_used in uses_by_include(top).items()
             for used in sorted(all_used) if not used.startswith(above)]
    assert wrong == []


@pytest.mark.parametrize("top", ["schema", "interpose", "analyzer"])
def test_the_files_of_a_room_form_no_cycle(top):
    """Since rooms depend on lower rooms only, cycles cannot cross rooms either. The exception names the files of a
    cycle."""
    graphlib.TopologicalSorter(uses_by_symbol(top)).prepare()


def accepted_words():
    """CONTRIBUTING's list of accepted second words, by room or by file of base/"""
    layout = (ROOT / "CONTRIBUTING.md").read_text().split("## Source layout")[1].split("\n#")[0]
    words = dict(re.findall(r"^    ([\w/]+?)/? +(\w+)$", layout.split("it accepts only these")[1], re.M))
    assert words and [where for where in words if not list((ROOT / "analyzer").glob(where + "*"))] == []
    return words


def public_names():
    """(file, name) of what object files define for others, and of the types in headers"""
    sources = sorted(p.relative_to(ROOT) for p in (ROOT / "analyzer").glob("*/*.c"))
    objects = {str(BUILD / "obj" / s.with_suffix(".o")): str(s) for s in sources}
    for line in output("nm", "-A", "--defined-only", "--extern-only", *objects).splitlines():
        path, rest = line.split(":", 1)
        if not rest.split()[-1].startswith("__"):
            yield objects[path], rest.split()[-1]
    for header in sorted((ROOT / "analyzer").glob("*/*.h")):
        for name in re.findall(r"\b(?:struct|union|enum) (\w+) \{|^typedef [^;{]*?(\w+)\)?\(", header.read_text(), re.M):
            yield str(header.relative_to(ROOT)), "".join(name)


def test_a_public_name_begins_with_its_rooms_word():
    also, wrong = accepted_words(), []
    for file, name in public_names():
        own = Path(file).stem if room(file) == "base" else room(file)
        words = [own, *(also[where] for where in (room(file), f"{room(file)}/{Path(file).stem}") if where in also)]
        if not name.startswith(tuple(words)):
            wrong.append(f"{file}: {name} does not begin with {' or '.join(words)} (CONTRIBUTING.md, Source layout)")
    assert wrong == [], "\n".join(wrong)


def test_what_only_one_file_uses_is_static():
    """A row of a table may contain a function's name, also in parts."""
    objects = [str(p) for p in (BUILD / "obj/analyzer").rglob("*.o")]
    used = {line.split()[-1] for line in output("nm", "--undefined-only", *objects).splitlines() if line.strip()}
    used |= {w for p in (ROOT / "tests").rglob("*.[ch]") for w in re.findall(r"\w+", p.read_text())}
    sources = {p: p.read_text() for p in (ROOT / "analyzer").rglob("*") if p.suffix in (".c", ".h", ".def")}
    used |= {w for p, text in sources.items() if p.suffix == ".def" for w in re.findall(r"\w+", text)}
    made = tuple({w for text in sources.values() for w in re.findall(r"\b(\w{4,}_)##", text)})
    wrong = [f"{file}: {name}" for file, name in public_names() if file.endswith(".c") and room(file) != "main.c"
             and name not in used and not name.startswith(made)]
    assert wrong == [], "\n".join(wrong)


def test_the_analyzer_does_not_use_the_schemas_prefix():
    """Names that begin with gs_ or GS_ belong to schema/. A macro there composes some: GS_SYNC_##name."""
    schema = {w for p in (ROOT / "schema").iterdir() if p.is_file() for w in re.findall(r"\b(?:gs|GS)_\w*", p.read_text())}
    made = tuple(w for w in schema if w.endswith("_") and len(w) > 3)
    wrong = {f"{p.relative_to(ROOT)}: {w}" for p in (ROOT / "analyzer").glob("*/*.[chd]*")
             for w in re.findall(r"\b(?:gs|GS)_\w*", re.sub(r'"(?:\\.|[^"\\\n])*"', "", p.read_text()))
             if w not in schema and not w.startswith(made)}
    assert wrong == set(), "\n".join(sorted(wrong))


FORMATTER = shutil.which("clang-format")


def identifiers(file):
    """The words of a C source, without comments and strings"""
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", (ROOT / file).read_text(), flags=re.S)
    return set(re.findall(r"[A-Za-z_]\w*", code))


def test_names_are_specific():
    """Names that mean something different in every file cannot be searched for."""
    vague = {"said", "told", "untold", "unsaid", "hear", "heard", "heavier", "look", "looked", "looks", "say", "says", "there", "wanted"}
    files = output("git", "ls-files", "analyzer/*.[ch]", "interpose/*.[ch]", "schema/*.[ch]").split()
    assert {f: names for f in files if (names := identifiers(f) & vague)} == {}


def functions_of(file):
    """Those that it defines, also static ones; not those that a macro makes"""
    return re.findall(r"^[a-z][\w *]*?\b(?:__attribute__\(\(\w+\)\) )?([a-z]\w*)\([^;{}]*\)\n\{", (ROOT / file).read_text(), re.M)


def test_a_function_can_be_found_by_its_name():
    """A verb and its object, and one function in the whole tree that is called so."""
    files = output("git", "ls-files", "analyzer/*.[ch]", "interpose/*.[ch]", "schema/*.[ch]").split()
    defined = {}
    for file in files:
        for name in functions_of(file):
            defined.setdefault(name, set()).add(file)
    assert len(defined) > 5000
    assert {n: f for n, f in defined.items() if "_" not in n and n not in ("main", "complain")} == {}
    assert {n: f for n, f in defined.items() if len(f) > 1} == {}


@pytest.mark.skipif(not (ROOT / ".git").exists() or not FORMATTER or " 14." not in output(FORMATTER, "--version"), reason="no clang-format 14")
def test_the_sources_are_formatted():
    files = re.findall(r"'(.*?)'", re.search(r"^FORMATTED = .*", (ROOT / "Makefile").read_text(), re.M)[0])
    files = output("git", "ls-files", *files).split()
    assert len(files) > 600
    done = subprocess.run([FORMATTER, "--dry-run", "--Werror", *files], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    assert done.returncode == 0, "make format: " + done.stderr[:2000]


def test_contributing_names_files_that_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Where to add what")[1]
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
    # An installed tool finds the library next to itself.
    done = subprocess.run([str(tool), "run", "-o", str(tmp_path / "x.db"), "--", "sh", "-c", "echo $LD_PRELOAD"],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.stdout.strip() == str(tmp_path / "opt/gpuspy/lib/libgpuspy.so"), done.stderr
    output("make", "uninstall", *arguments, env=env)
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
