"""The commands that gpuspy suggests work as printed, whatever the name of the recording's file."""
import os
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD

NAMES = ["plain.db", "my run.db", "it's.db", 'a"b.db', "-x.db", "--help", "~.db", "$HOME.db", "a;b&c|d.db", "*?[a].db", "#x.db",
         "!h.db", "back\\slash.db", "`id`.db", "new\nline.db", "tab\t.db", "grün.db", b"latin-\xfc.db", "\x1b[31mred.db",
         "\u202egnp.db", "(a) {b,c} <d>.db", "a=b.db", "name ", "ends in\n",
         "wider than the terminal" * 4 + " --full 'as quoted' -x.db"]
PROGRAM = "import ctypes; assert ctypes.CDLL('libcudart.so.13').cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20)) == 0"


def type_it(recording, command, shell="sh"):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([shell, "-c", command], env=dict(env, PATH=f"{BUILD}:{env['PATH']}"), cwd=recording.folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def next_of(stderr):
    """The last command of a text; it may contain a quoted newline."""
    at = stderr.rindex("next: ")
    return stderr[at + len("next: "):].rstrip("\n") if not stderr.endswith("'\n") else stderr[at + len("next: "):-1]


@pytest.mark.parametrize("name", NAMES, ids=[str(n) for n in range(len(NAMES))])
def test_every_name_can_be_typed(recording, name):
    name = os.fsencode(name)
    path = os.path.join(os.fsencode(recording.folder), name)
    env = recording.environment(GPUSPY_DB=os.fsdecode(name))
    ways = [([sys.executable, "-c", PROGRAM], env)]
    ways.append(([BUILD / "gpuspy", "run", f"--output={os.fsdecode(name)}", "--", sys.executable, "-c", PROGRAM],
                 {k: v for k, v in env.items() if k != "LD_PRELOAD"}))
    for command, environment in ways:
        done = subprocess.run([str(c) for c in command], env=environment, cwd=recording.folder,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.returncode == 0 and os.path.exists(path), done.stderr
        stderr = os.fsdecode(done.stderr)
        line = next_of(stderr)
        assert line.startswith("gpuspy report ") and not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e\udc80-\udcff]", stderr)
        text = re.sub(r" \\\n *", " ", os.fsdecode(type_it(recording, line)))  # as a shell joins the lines of a long command
        if not name.endswith(b"\n"):  # its line ends in the middle
            commands = re.findall(r"^  (gpuspy (?:report|tree|leaks) .*?)(?:  +[a-z].*)?$", text, re.M)
            named = re.search(r"^  (export run=.*)\n  gpuspy", text, re.M)
            assert len(commands) > 1
            for command in commands:
                type_it(recording, f"{named[1]}; {command}" if named else command)
        os.unlink(path)


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("name", ["llama-3-8b-finetune-2026-11-30-lr3e-4-seed-17.db", "llama-3-8b finetune of 2026-11-30, seed 17.db"])
def test_a_long_name_is_printed_once(recording, name, width):
    """A variable of the shell has the name, so that from 80 columns on each command keeps its explanation beside it."""
    recording.run(sys.executable, "-c", PROGRAM)
    recording.database.rename(recording.folder / name)
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUSPY_")}
    text = subprocess.run([BUILD / "gpuspy", "report", name], env=dict(env, COLUMNS=str(width)), cwd=recording.folder,
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    after = text[text.index("\nNext\n") + 1:]
    assert after.count(name) == 1, after
    assert width == 60 or re.search(r"^  gpuspy report --html \"?\$run\"?  +a page", after, re.M), after
    commands = re.findall(r"^  (gpuspy .*?)(?:  +[a-z].*)?$", after, re.M)
    for command in commands:
        for shell in filter(shutil.which, ("sh", "bash", "zsh", "fish")):
            type_it(recording, "\n".join([*re.findall(r"^  (export run=.*)$", after, re.M), command]), shell)


def test_a_short_name_is_part_of_each_command(recording):
    recording.run(sys.executable, "-c", PROGRAM)
    text = subprocess.run([BUILD / "gpuspy", "report", recording.database], env=dict(os.environ, COLUMNS="80"), cwd=recording.folder,
                          stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "$run" not in text and "gpuspy tree run.db  " in text, text
