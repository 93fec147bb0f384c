"""gpuspy's command line: exit codes, messages, `run` and its child, bad input, help."""
import json
import os
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys

from pathlib import Path

import pytest

from conftest import BUILD, ROOT, SECONDS

GPUSPY = str(BUILD / "gpuspy")
COMMANDS = re.findall(r"^COMMAND\((\w+),", (ROOT / "analyzer" / "command" / "commands.def").read_text(), re.M)


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "SIMCUDA_"))}
    env.update({k: str(v) for k, v in more.items()})
    return env


def gpuspy(*arguments, env=None, cwd=None, **more):
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([GPUSPY, *map(str, arguments)], env=environment(**(env or {})), cwd=cwd, text=True,
                          timeout=SECONDS, errors="replace", **more)


def one_line(done, code):
    assert done.returncode == code, done.stderr
    assert re.fullmatch(r"gpuspy: [^\n]+\n", done.stderr), done.stderr
    return done.stderr


# ---------------------------------------------------------------- words

def test_version():
    done = gpuspy("--version")
    assert done.returncode == 0 and re.fullmatch(r"gpuspy \d+\.\d+\.\d+\n", done.stdout) and not done.stderr


def test_no_words_is_usage():
    done = gpuspy()
    assert done.returncode == 2 and not done.stdout and "Usage:" in done.stderr


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_each_command_takes_help(command, option):
    done = gpuspy(command, option)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith(f"Usage: gpuspy {command} ") and "\nExamples:\n" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert gpuspy("help", command).stdout == done.stdout


def test_the_overview_lists_the_commands():
    overview = gpuspy("--help").stdout
    listed = re.findall(r"^  (\w+) +\S", overview.split("Commands:\n")[1].split("\n\n")[0], re.M)
    assert listed == COMMANDS


@pytest.mark.parametrize("words, hint", [
    (["reprot"], "did you mean 'gpuspy report'?"), (["hlep", "top"], "did you mean 'gpuspy help'?"), (["frobnicate"], "'gpuspy --help' lists them"),
    (["python3"], "lists the commands; to record the program 'python3': gpuspy run -- python3 ARGUMENT..."),
    (["report", "--jsno", "x"], "did you mean '--json'?"), (["report"], "no recording in this folder"),
    (["run"], "no program given"), (["estimate"], "no model given"), (["estimate", "1e9"], "--params"),
    (["help", "reprot"], "did you mean 'gpuspy report'?"), (["help", "run", "report"], "give one command"),
    (["run", "--stacks=pyhton", "true"], "did you mean 'python'?"), (["report", "--top", "0", "x"], "from 1 to"),
    (["--versoin"], "did you mean 'gpuspy --version'?"), (["version"], "did you mean 'gpuspy --version'?"), (["RUN"], "did you mean 'gpuspy run'?"),
    (["--json", "report", "x"], "unknown option '--json' before the command"), (["record", "python3", "x"], "gpuspy run -- python3 ARGUMENT..."),
    (["report", "--limit", "24GiB"], "these commands have it: gpuspy run, gpuspy whatif"), (["tree", "waits"], "did you mean --what waits?"),
    (["whatif", "24GiB", "x"], "did you mean --limit 24GiB?"), (["report", "html"], "did you mean --html?"), (["export", "pprof", "x"], "--format pprof?"),
    (["estimate", "a.yml"], "did you mean --config a.yml?"), (["report", "--top", "3", "-n", "4"], "--top is given twice, as '3' and '4'"),
    (["check", "--max-leak", "1B", "--max-leak", "2B", "x"], "--max-leak is given twice"), (["check", "--max-peak", "1B,2B", "x"], "--max-peak is given twice"),
    (["check", "--max-peak", "scope:a=1B", "--max-peak=scope:a=1B", "x"], "--max-peak scope:a is given twice"),
    (["check", "--max-growth", "x", "x"], "such as 1MiB/step"), (["check", "--max-peak="], "write --max-peak=SIZE|scope:NAME=SIZE"),
    (["sql", "SELECT 1"], "give the recording before the query: gpuspy sql run.db"), (["run", "--simulate", "h1000", "true"], "did you mean 'h100'?"),
    (["calibrate", "--params", "1e9", "--batch", "1", "--optimizer", "x", "run.db"], "'gpuspy estimate --help' lists them"), (["jupyter", "uninstall"], "'uninstall' is unexpected"),
    (["transfer", "--bytes", "28GB", "--bandwidth", "300"], "'300' has no unit"), (["run", "--simulate", "5", "true"], "'5' has no unit"),
    (["estimate", "--model", "gpt2", "--batch", "1.5"], "give a number such as 8, 4096"),
    (["report", "--top"], "needs a value"), (["report", "--json=1", "x"], "takes no value"), ([""], "unknown command ''"),
    (["import", "--to", "0", "x"], "--from 0 is not before --to 0"), (["top", "--interval", "0x1", "x"], "not a number of seconds"),
    (["estimate", "--params", "1e9", "--gpu", "h100", "--serve", "vllm", "--gpu-memory-utilization", "0x1"], "give 0.9 or 90%"),
    (["import", "-o", "-", "x"], "cannot be written to stdout"),
    (["estimate", "--params", "7B", "--batch-size", "4"], "did you mean '--batch'?"),
    (["estimate", "--params", "7B", "--per_device_train_batch_size=4"], "did you mean '--batch'?"),
    (["estimate", "--params", "7B", "--qlora"], "did you mean '--adapter qlora'?"),
    (["estimate", "--params", "7"], "'7' is out of range; give a number from 1000 to 1e15"), (["flamegraph", "x"], "did you mean 'gpuspy flame'?"),
    (["run", "--limit", "rtx-4080-ti", "true"], "did you mean 'rtx4080'?"), (["report", "help"], "did you mean gpuspy report --help?"),
    (["--json", "report", "x"], "write options after it: gpuspy report --json"), (["attach", "--pid", "1"], "usage: gpuspy attach [OPTION...] PID..."),
    (["symbolize", "-o", "-", "x"], "cannot be written to stdout"), (["timeline", "--to", "0", "x"], "--from, which is 0 s by default"),
])
def test_wrong_words_get_one_line_and_2(words, hint):
    assert hint in one_line(gpuspy(*words), 2)


def test_a_command_after_its_recording_is_named(tmp_path):
    (tmp_path / "run.db").write_text("x")
    done = gpuspy("run.db", "tree", cwd=tmp_path)
    assert one_line(done, 2) == "gpuspy: the command comes first: gpuspy tree run.db\n"


def test_what_is_not_a_program_gets_what_to_give_instead(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "solver").write_text("x")
    (tmp_path / "solver").chmod(0o755)
    (tmp_path / "train.py").write_text("")
    for name, words in ("folder", "it is a folder; give the program in it"), ("./venv", "give the Python in it: ./venv/bin/python"), \
                       ("notes.txt", "chmod +x notes.txt"), ("solver", "write ./solver"), ("train.py", "is a script"), ("nothing", "check its name and PATH"):
        assert words in one_line(gpuspy("doctor", name, cwd=tmp_path), 3)
        assert words in one_line(gpuspy("run", name, cwd=tmp_path), 126 if "/" in name else 127)
    assert "without quotes: gpuspy run -- true x" in one_line(gpuspy("run", "true x"), 127)


def test_output_to_a_pipe_leaves_what_is_in_it(recorded):
    done = subprocess.run(f"(echo first; '{GPUSPY}' report --html /dev/stdout '{recorded / 'run.db'}') | (sleep 1; cat)", shell=True,
                          stdout=subprocess.PIPE, text=True, check=True, env=environment(), timeout=60)
    assert done.stdout.startswith("first\n<!doctype html>")


def test_output_never_replaces_a_recording(recorded, tmp_path):
    """Whichever recording it is, and whichever command writes."""
    other = tmp_path / "other.db"
    shutil.copy(recorded / "run.db", other)
    before = other.read_bytes()
    for words in ["check", "--max-peak", "1GiB", "--junit"], ["report", "--html"], ["export", "--format", "pprof", "-o"]:
        done = gpuspy(*words, other, recorded / "run.db")
        assert done.returncode == 3 and "recording; give another name" in done.stderr, done.stderr
        assert other.read_bytes() == before


def test_files_that_are_missing_empty_or_something_else(recorded, tmp_path):
    assert "record a run with: gpuspy run" in one_line(gpuspy("tree", "rum.db", cwd=tmp_path), 3)
    for query in [], ["SELECT 1"]:
        assert "cannot read 'of today.db'" in one_line(gpuspy("sql", "of today.db", *query, cwd=tmp_path), 3)
    shutil.copy(recorded / "run.db", tmp_path)
    assert "the newest recording in this folder is 'run.db'" in one_line(gpuspy("tree", "rum.db", cwd=tmp_path), 3)
    assert "type: gpuspy report run.db" in one_line(gpuspy("estimate", "run.db", cwd=tmp_path), 2)
    (tmp_path / "empty").write_text("")
    assert "'empty' has no limits; add lines such as" in one_line(gpuspy("check", "-c", "empty", "run.db", cwd=tmp_path), 2)
    assert "'empty' is empty" in one_line(gpuspy("estimate", "--model", "empty", cwd=tmp_path), 3)
    swapped = one_line(gpuspy("sql", "SELECT 1", "run.db", cwd=tmp_path), 2)
    assert "gpuspy sql run.db" in swapped


def man(*words):
    """What `man` shows of a page, without line breaks; it must find no mistake in the roff."""
    page = subprocess.run([GPUSPY, "help", "--man", *words], env=environment(), stdout=subprocess.PIPE, check=True)
    done = subprocess.run(["man", "--warnings", "-l", "-"], input=page.stdout, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=environment(MANWIDTH="1000", LC_ALL="C.UTF-8"))
    assert done.returncode == 0 and not done.stderr, done.stderr
    return re.sub(r".\x08", "", done.stdout.decode())


needs_man = pytest.mark.skipif(not shutil.which("man"), reason="no man here")


@needs_man
def test_the_man_page_names_each_command():
    text = man()
    for command in COMMANDS:
        assert re.search(rf"^ +gpuspy {command}\n.*see gpuspy-{command}\(1\)", text, re.M), command
    assert "GPUSPY_DB=FILE" in text and "EXIT STATUS" in text


@needs_man
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_man_page(command):
    text = man(command)
    assert re.search(rf"^NAME\n +gpuspy-{command} - ", text, re.M)
    for option in re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", gpuspy(command, "--help").stdout, re.M):
        assert option in text
    assert all(f"gpuspy-{other}(1)" in text for other in COMMANDS if other != command)
    status = text[text.index("\nEXIT STATUS\n"):text.index("\nSEE ALSO\n")]  # run has its program's, and no other
    assert ("\n       3 " in status) == (command != "run") and (" 124 " in " ".join(status.split())) == (command == "run")


@pytest.mark.parametrize("line, wanted", [
    ("gpuspy re", "report"), ("gpuspy report --js", "--json"), ("gpuspy run --stacks py", "python"),
    ("gpuspy run --stacks = py", "python"), ("gpuspy estimate --optimizer adamw8", "adamw8bit"),
    ("gpuspy estimate --precision = amp-b", "amp-bf16"), ("gpuspy help esti", "estimate"),
    ("gpuspy report ru", "run.db"), ("gpuspy run -o ru", "run.db"), ("gpuspy export ru", "run.db"),
    ("gpuspy export --at p", "peak"), ("gpuspy export -f torch", "torch-snapshot"),
    ("gpuspy estimate --gpu h100-80g,rtx409", "h100-80g,rtx4090-24g"), ("gpuspy estimate --solve b", "batch"),
    ("gpuspy estimate --gpus --js", "--json"), ("gpuspy estimate --checkpointing = f", "full"),
    ("gpuspy jupyter ins", "install"), ("gpuspy estimate --config ru", "run.db"), ("gpuspy estimate --model ru", "run.db"),
    ("gpuspy estimate --model llama-3.1-8", "llama-3.1-8b"), ("gpuspy report --html = ru", "run.db"),
])
def test_completion(tmp_path, line, wanted):
    (tmp_path / "run.db").touch()
    script = tmp_path / "completion"
    script.write_text(gpuspy("help", "--completion=bash").stdout)
    words = line.split()
    bash = ("source completion; compopt() { :; }; COMP_WORDS=(%s); COMP_CWORD=%d; _gpuspy; "
            'printf "%%s\\n" "${COMPREPLY[@]}"' % (" ".join(words), len(words) - 1))
    done = subprocess.run(["bash", "-uc", bash], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.stdout.split() == [wanted] and not done.stderr


def options_of_help(command):
    text = gpuspy(command, "--help").stdout.split("\nExamples:")[0]
    one = set(re.findall(r"^  (?:-\w, |    )(--[\w-]+)", text, re.M))
    return one.union(*(line.split() for line in re.findall(r"^      ((?: ?--[\w-]+)+)$", text, re.M)))


def test_bash_offers_the_options_of_help(tmp_path):
    (tmp_path / "completion").write_text(gpuspy("help", "--completion=bash").stdout)
    script = "".join(f"COMP_WORDS=(gpuspy {c} --); COMP_CWORD=2; COMPREPLY=(); _gpuspy; echo {c} ${{COMPREPLY[@]}}\n" for c in COMMANDS)
    done = subprocess.run(["bash", "-c", f"source completion; compopt() {{ :; }}\n{script}"], cwd=tmp_path, text=True, stdout=subprocess.PIPE)
    offered = {words[0]: {word.rstrip("=") for word in words[1:]} for words in map(str.split, done.stdout.splitlines())}
    assert offered == {command: options_of_help(command) for command in COMMANDS}


def test_zsh_offers_the_options_of_help():
    text = gpuspy("help", "--completion=zsh").stdout
    offered = {command: set(re.findall(r"(?<=[',({}])(--[\w-]+)(?=[=\[+'{},]|$)", text[text.index(f"\n    {command})"):].split(";;")[0], re.M))
               for command in COMMANDS}
    assert offered == {command: options_of_help(command) for command in COMMANDS}


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
def test_fish_offers_the_options_of_help(tmp_path):
    (tmp_path / "completion").write_text(gpuspy("help", "--completion=fish").stdout)
    script = "source completion\n" + "".join(f"echo '== {c}'; complete -C 'gpuspy {c} --'\n" for c in COMMANDS)
    done = subprocess.run(["fish", "--private", "-c", script], cwd=tmp_path, text=True, env=environment(HOME=tmp_path), stdout=subprocess.PIPE)
    offered = {part.split("\n")[0]: {line.split("\t")[0].rstrip("=") for line in part.split("\n")[1:] if line}
               for part in done.stdout.split("== ")[1:]}
    assert offered == {command: options_of_help(command) for command in COMMANDS}


# The same option has the same letter in every command or none, and no other option has that letter. Options of one
# command only (-t, -n of run, export, top, …) are exempt.
ALIKE = {"output": "-o", "top": "-n", "device": "-d", "rank": "-r", "process": "-p", "what": "-w", "by": "-b", "sort": "-s",
         "min": "-m", "layer": "-l", "json": None, "native": None, "at": None, "color": None, "no-pager": None, "only": None,
         "alone": None, "stacks": None}


@pytest.mark.parametrize("command", COMMANDS)
def test_options_are_consistent(command):
    for letter, name in re.findall(r"^  (?:(-\w),|   ) --([\w-]+)", gpuspy(command, "--help").stdout, re.M):
        if name in ALIKE:
            assert (letter or None) == ALIKE[name], (command, name)


LINES = [("gpuspy re", "report"), ("gpuspy report --js", "--json"), ("gpuspy run --stacks py", "python"),
         ("gpuspy estimate --optimizer adamw8", "adamw8bit"), ("gpuspy help esti", "estimate"),
         ("gpuspy report ru", "run.db"), ("gpuspy run -o ru", "run.db"), ("gpuspy export --at p", "peak"),
         ("gpuspy export --format=torch", "torch-snapshot"), ("gpuspy estimate --precision=amp-b", "amp-bf16"),
         ("gpuspy export --for", "--format"), ("gpuspy run -- zzpro", "zzprogram"), ("gpuspy doctor zzpro", "zzprogram"),
         ("gpuspy run --stacks=none zzprogram ru", "run.db"), ("gpuspy run -q -o new.db -- zzprogram ru", "run.db"),
         ("gpuspy jupyter ins", "install"), ("gpuspy report --html=ru", "run.db"), ("gpuspy estimate --config ru", "run.db"),
         ("gpuspy estimate --model ru", "run.db"), ("gpuspy estimate --model=llama-3.1-8", "llama-3.1-8b")]


@pytest.fixture
def program_in_path(tmp_path):
    """A folder with a recording, and the PATH on which one program is."""
    (tmp_path / "run.db").touch()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "zzprogram").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "zzprogram").chmod(0o755)
    return f"{tmp_path / 'bin'}:{BUILD}:{os.environ['PATH']}"


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
@pytest.mark.parametrize("line, wanted", LINES)
def test_completion_of_fish(tmp_path, program_in_path, line, wanted):
    (tmp_path / "completion").write_text(gpuspy("help", "--completion=fish").stdout)
    done = subprocess.run(["fish", "--private", "-c", f"source completion; complete -C '{line}'"], cwd=tmp_path,
                          text=True, env=environment(HOME=tmp_path, PATH=program_in_path),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    offered = [found.split("\t")[0].split("=")[-1] for found in done.stdout.splitlines()]
    assert not done.stderr and wanted in offered
    start = line.split()[-1].split("=")[-1]
    assert all(found.startswith(start) for found in offered)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish here")
@pytest.mark.parametrize("typed, wanted", [("--only oom,gr", "oom,growth"), ("--only=oom,gr", "oom,growth"), ("--only gr", "growth"),
                                           ("--only=gr", "growth")])
def test_fish_completes_each_word_of_a_list(tmp_path, typed, wanted):
    (tmp_path / "completion").write_text(gpuspy("help", "--completion=fish").stdout)
    done = subprocess.run(["fish", "--private", "-c", f"source completion; complete -C 'gpuspy report {typed}'"],
                          cwd=tmp_path, text=True, env=environment(HOME=tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    offered = [found.split("\t")[0].removeprefix("--only=") for found in done.stdout.splitlines()]
    assert offered == [wanted] and not done.stderr


SHELLS = {  # command, its file, what the file has before it prints lines that ^T ends
    "zsh": (["zsh", "-i", "-d"], ".zshrc", "PS1='ready> '; unsetopt zle_bracketed_paste beep; setopt no_list_ambiguous\n"
            "autoload -U compinit; compinit -u -D; source ./completion\n"
            "show() { print -r -- $BUFFER >> shown; BUFFER=; zle accept-line }\nzle -N show; bindkey '^T' show\n"),
    "bash": (["bash", "--rcfile", "rc", "-i"], "rc", "PS1='ready> '; source ./completion\n"
             "show() { printf '%s\\n' \"$READLINE_LINE\" >> shown; READLINE_LINE=; }; bind -x '\"\\C-t\": show'\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_of_a_typed_line(tmp_path, program_in_path, shell):
    """The text is typed, with a tab at the end; the resulting line is printed."""
    command, file, setup = SHELLS[shell]
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    (tmp_path / "completion").write_text(gpuspy("help", f"--completion={shell}").stdout)
    (tmp_path / file).write_text(setup)
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execvpe(shell, command, environment(ZDOTDIR=tmp_path, TERM="dumb", COLUMNS="200", PATH=program_in_path))
    shown = tmp_path / "shown"
    for line, wanted in LINES:
        os.write(terminal, f"{line}\t\x14".encode())
    os.write(terminal, b"exit\n")
    while True:
        try:
            if not os.read(terminal, 65536):
                break
        except OSError:  # the end of a terminal
            break
    os.waitpid(child, 0)
    lines = shown.read_text().splitlines()
    assert len(lines) == len(LINES)
    for completed, (line, wanted) in zip(lines, LINES):
        assert re.split(r"[ =]", completed.strip().rstrip("="))[-1] == wanted and "\\" not in completed, completed


# ---------------------------------------------------------------- output that does not arrive

@pytest.mark.parametrize("words", [["estimate", "--params", "1e9"], ["--help"], ["help", "--man"]])
def test_a_full_disk_is_an_error(words):
    with open("/dev/full", "w") as full:
        assert "No space left" in one_line(gpuspy(*words, stdout=full), 3)


def test_closed_output_is_an_error():
    done = subprocess.run([GPUSPY, "estimate", "--params", "1e9"], env=environment(), stderr=subprocess.PIPE,
                          text=True, preexec_fn=lambda: os.close(1))
    one_line(done, 3)


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_pipe_gives_no_message(ignored):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([GPUSPY, "help", "--man"], env=environment(), stdout=write, stderr=subprocess.PIPE,
                          restore_signals=False, preexec_fn=lambda: signal.signal(
                              signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL))
    os.close(write)
    assert not done.stderr and done.returncode == (3 if ignored else -signal.SIGPIPE)


# ---------------------------------------------------------------- run: the program's own behaviour

def run_sh(script, *options, **more):
    return gpuspy("run", *options, "--", "sh", "-c", script, **more)


@pytest.mark.parametrize("code", [0, 1, 2, 37, 125, 255])
def test_run_ends_with_the_programs_code(tmp_path, code):
    assert run_sh(f"exit {code}", cwd=tmp_path).returncode == code


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "INT", "ABRT"])
def test_run_ends_with_the_programs_signal(tmp_path, name):
    done = run_sh(f"kill -{name} $$", cwd=tmp_path)
    assert done.returncode == -getattr(signal, "SIG" + name)
    assert not list(tmp_path.glob("core*"))


def test_run_of_what_cannot_be_run(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("echo hello\n")
    assert "cannot run 'nonexistent-program'" in one_line(gpuspy("run", "nonexistent-program", cwd=tmp_path), 127)
    one_line(gpuspy("run", "--", "/nonexistent/program", cwd=tmp_path), 127)
    one_line(gpuspy("run", "--", plain, cwd=tmp_path), 126)
    one_line(gpuspy("run", "--", tmp_path, cwd=tmp_path), 126)
    for library, why in (("/nowhere.so", "No such file"), (plain, "Exec format error"), (tmp_path, "Is a directory")):
        error = one_line(gpuspy("run", "true", cwd=tmp_path, env={"GPUSPY_LIB": library}), 125)
        assert f"GPUSPY_LIB: cannot read '{library}': {why}" in error
    script = tmp_path / "moved-script"  # as in a virtual environment that was moved
    script.write_text("#!/old/place/bin/python -u\n")
    script.chmod(0o755)
    for name, path in ((script, ""), ("moved-script", f":{tmp_path}")):
        error = one_line(gpuspy("run", "--", name, cwd=tmp_path, env={"PATH": os.environ["PATH"] + path}), 127)
        assert f"cannot run '{name}': its interpreter '/old/place/bin/python' does not exist" in error


def other_loader(tmp_path):
    """A program whose loader has musl's name; it is glibc's, so that it runs."""
    program = Path("/usr/bin/printenv").read_bytes()
    loader = re.search(rb"/lib[^\0]*/ld-linux[^\0]*", program)[0]
    (tmp_path / "ld-musl-x").symlink_to(os.path.realpath(loader))
    (tmp_path / "musl").write_bytes(program.replace(loader + b"\0", b"./ld-musl-x".ljust(len(loader) + 1, b"\0")))
    (tmp_path / "musl").chmod(0o755)
    return tmp_path / "musl"


def test_a_program_that_musl_loads_runs_without_the_recorder(tmp_path):
    """musl ends a program whose preloaded library needs glibc."""
    program = other_loader(tmp_path)
    assert "is linked to musl, and the recorder needs glibc" in one_line(gpuspy("run", "--", program, "PATH", cwd=tmp_path), 0)
    assert gpuspy("run", "--", program, "LD_PRELOAD", cwd=tmp_path).stdout == ""
    assert f"{program} is linked to musl" in re.sub(r"\s+", " ", gpuspy("doctor", program, cwd=tmp_path).stdout)


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="no musl-gcc here (musl-tools)")
def test_a_program_that_musl_loads_can_be_started_by_a_recorded_one(tmp_path):
    (tmp_path / "child.c").write_text("#include <stdio.h>\nint main(void) { return puts(\"started\") < 0 ? 1 : 7; }\n")
    subprocess.run(["musl-gcc", "-o", "child", "child.c"], cwd=tmp_path, check=True)
    done = gpuspy("run", "--no-summary", "--", "sh", "-c", "./child; echo $?", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("started\n7\n", "")


def test_run_leaves_the_streams_to_the_program(tmp_path):
    done = gpuspy("run", "-q", "--", "cat", input="through\n", cwd=tmp_path)
    assert done.stdout == "through\n"
    closed = subprocess.run([GPUSPY, "run", "-q", "--", "sh", "-c", "ls -l /proc/$$/fd"], env=environment(),
                            cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            preexec_fn=lambda: os.close(0))
    assert not re.search(r" 0 -> ", closed.stdout)


def test_run_gives_the_program_its_words_and_environment(tmp_path):
    done = gpuspy("run", "-q", "-o", "x.db", "--stacks", "python", "--native-depth", "7", "--torch-cpu", "env",
                  "A=1", "env", cwd=tmp_path, env={"LD_PRELOAD": "libm.so.6"})
    env = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert env["LD_PRELOAD"] == f"{BUILD / 'libgpuspy.so'}:libm.so.6"
    assert env["GPUSPY_DB"] == str(tmp_path / "x.db") and env["A"] == "1"
    assert env["GPUSPY_STACKS"] == "python" and env["GPUSPY_NATIVE_DEPTH"] == "7" and env["GPUSPY_TORCH_CPU"] == "1"
    assert re.fullmatch(r"[0-9a-f]{32}", env["GPUSPY_RUN_ID"])
    again = gpuspy("run", "-q", "env", cwd=tmp_path, env={"GPUSPY_RUN_ID": "outer"})
    assert "GPUSPY_RUN_ID=outer\n" in again.stdout and f"GPUSPY_DB={tmp_path}/run.db\n" in again.stdout


LISTENER = """
import os, signal, sys
def got(number, frame):  # no print: it may come while "ready" is being printed
    os.write(1, b"got %s\\n" % signal.Signals(number).name.encode())
    count.append(number)
count = []
for name in sys.argv[1].split(","):
    signal.signal(getattr(signal, name), got)
print("ready", flush=True)
while not count:
    signal.sigtimedwait([], 0.05)  # not pause: the signal may come just before it
signal.sigtimedwait([], 0.3)
sys.exit(100 + len(count))
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH"])
def test_run_passes_signals_on(tmp_path, name):
    with subprocess.Popen([GPUSPY, "run", "-q", "--", sys.executable, "-c", LISTENER, name], env=environment(),
                          cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout.readline() == "ready\n"
        child.send_signal(getattr(signal, name))
        assert child.stdout.read() == f"got {name}\n"
        assert child.wait(SECONDS) == 101


def test_ctrl_c_at_the_terminal_arrives_once(tmp_path):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.environ.pop("LD_PRELOAD", None)
        os.execv(GPUSPY, [GPUSPY, "run", "-q", "--", sys.executable, "-c", LISTENER, "SIGINT"])
    text = b""
    while b"ready" not in text:
        text += os.read(terminal, 1000)
    os.write(terminal, b"\x03")
    try:
        while True:
            text += os.read(terminal, 1000)
    except OSError:
        pass
    _, status = os.waitpid(pid, 0)
    assert text.count(b"got SIGINT") == 1 and os.waitstatus_to_exitcode(status) == 101


def test_ignored_signals_stay_ignored(tmp_path):
    done = subprocess.run([GPUSPY, "run", "-q", "--", "grep", "SigIgn", "/proc/self/status"], env=environment(),
                          cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert int(done.stdout.split()[1], 16) & 1
    mask = subprocess.run([GPUSPY, "run", "-q", "--", "grep", "SigBlk", "/proc/self/status"], env=environment(),
                          cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert int(mask.stdout.split()[1], 16) == 0


@pytest.mark.skipif(os.geteuid() == 0 and not os.path.isdir("/proc"), reason="needs /proc")
@pytest.mark.parametrize("output", ["/nonexistent/run.db", "/proc/run.db", "/dev/null/run.db", "/dev/null", "folder"])
def test_the_job_continues_if_nothing_can_be_recorded(tmp_path, output):
    (tmp_path / "folder").mkdir()
    done = gpuspy("run", "-o", output, "--", "sh", "-c", "echo result; exit 7", cwd=tmp_path)
    assert done.stdout == "result\n"
    if output != "/proc/run.db":  # for root, access(2) reports that it may write there
        assert "runs unrecorded" in one_line(done, 7)
    assert done.returncode == 7


def test_run_that_records_nothing_states_why(tmp_path):
    assert "called CUDA" in one_line(run_sh("exit 0", cwd=tmp_path), 0)
    assert "--torch-cpu" not in one_line(run_sh("exit 0", "--torch-cpu", cwd=tmp_path), 0)
    assert not run_sh("exit 0", "--no-summary", cwd=tmp_path).stderr
    static = tmp_path / "static"
    (tmp_path / "static.c").write_text("int main(void) { return 3; }\n")
    if subprocess.run(["gcc", "-static", "-o", static, tmp_path / "static.c"], stderr=subprocess.DEVNULL).returncode == 0:
        assert "statically, so no library can be loaded into it; it failed with status 3" in one_line(
            gpuspy("run", static, cwd=tmp_path), 3)


HAS_GPU = any(map(os.path.exists, ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")))


@pytest.mark.parametrize("command, code, words", [
    (["./missing"], 127, "cannot run './missing': No such file or directory"),
    (["./plain"], 126, "cannot run './plain': it is not executable; if it is a program: chmod +x ./plain"),
    ([sys.executable, "missing.py"], 2, "failed with status 2, and no recorded process called CUDA"),
    (["sh", "-c", "./missing"], 127, "failed with status 127 (a shell's status for a command that was not found)"),
    (["sh", "-c", "./plain"], 126, "failed with status 126 (a shell's status for a command that cannot be executed)"),
    (["sh", "-c", "exit 5"], 5, "failed with status 5"),
    (["true"], 0, "'true' succeeded, and no recorded process called CUDA; " + (
        "--torch-cpu records" if HAS_GPU else "no GPU here: add --simulate a100-40g") + "; see gpuspy doctor"),
    (["script.py"], 127, "cannot run 'script.py', which is a script; type: gpuspy run -- python script.py"),
])
def test_run_of_what_fails_guesses_nothing(tmp_path, command, code, words):
    (tmp_path / "plain").write_text("text\n")
    (tmp_path / "script.py").write_text("pass\n")
    done = gpuspy("run", "--", *command, cwd=tmp_path)
    assert done.returncode == code and words in done.stderr.splitlines()[-1], done.stderr
    assert "static" not in done.stderr and len(done.stderr.splitlines()[-1]) <= 160


def test_run_of_what_a_signal_ended_names_the_signal(tmp_path):
    done = run_sh("kill -KILL $$", cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert "was killed by signal 9 (Killed); see gpuspy doctor" in done.stderr


@pytest.mark.parametrize("folder", ["lib", "lib64", "lib/gpuspy"])
@pytest.mark.parametrize("prefix", ["plain", "my env \u00fc", "a:b", "$ORIGIN"])
def test_an_installed_gpuspy_finds_its_library(tmp_path, prefix, folder):
    """The loader ends a path in LD_PRELOAD at a space or colon, so it gets a link that has none."""
    prefix = tmp_path / prefix
    for name, into in (("gpuspy", "bin"), ("libgpuspy.so", folder)):
        (prefix / into).mkdir(parents=True)
        shutil.copy(BUILD / name, prefix / into)
    def preload(program, **more):
        return subprocess.run([program, "run", "-q", "sh", "-c", "echo $LD_PRELOAD"], env={**environment(), **more}, cwd=tmp_path,
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    (tmp_path / "link").symlink_to(prefix / "bin" / "gpuspy")
    (tmp_path / "tmp").mkdir()
    for program in (prefix / "bin" / "gpuspy", tmp_path / "link"):
        done = preload(program, TMPDIR=str(tmp_path / "tmp"))
        named = done.stdout.strip()
        assert os.path.realpath(named) == str(prefix / folder / "libgpuspy.so") and "ld.so" not in done.stderr, done.stderr
        assert not set(" :$") & set(named) and (named == os.path.realpath(named)) == (prefix.name == "plain")
    (tmp_path / "tmp" / f"gpuspy-{os.geteuid()}").mkdir(exist_ok=True)
    (tmp_path / "tmp" / f"gpuspy-{os.geteuid()}").chmod(0o777)  # where others could change the link
    done = preload(tmp_path / "link", TMPDIR=str(tmp_path / "tmp"))
    assert prefix.name == "plain" or (done.returncode == 125 and "install gpuspy elsewhere" in one_line(done, 125))
    elsewhere = preload(tmp_path / "link", TMPDIR=str(tmp_path / "of another machine"))
    assert elsewhere.returncode == 0 and "of another" not in elsewhere.stdout, elsewhere.stderr
    shutil.rmtree(prefix / folder.split("/")[0])
    assert preload(prefix / "bin" / "gpuspy").returncode == 125


# ---------------------------------------------------------------- run: what is recorded

def simulated(**more):
    return dict(LD_LIBRARY_PATH=BUILD / "sim", PYTHONPATH=ROOT / "fixtures" / "python", **more)


def leak(tmp_path, *options, steps=30, **more):
    return gpuspy("run", *options, "--", sys.executable, ROOT / "fixtures" / "python" / "train_leak.py", steps,
                  cwd=tmp_path, env=simulated(**more))


def test_run_summarises_and_names_the_next_command(tmp_path):
    done = leak(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith("gpuspy: ") for line in lines)
    assert re.match(r"gpuspy: GPU 0: peak \S+ MiB of ", lines[0]), done.stderr
    assert lines[-1] == "gpuspy: next: gpuspy report run.db"
    assert not (tmp_path / "run.db.spool").exists()
    assert gpuspy("report", "run.db", cwd=tmp_path).returncode == 0
    again = leak(tmp_path)  # never overwrites
    name = again.stderr.splitlines()[-1].split()[-1]
    assert name != "run.db" and (tmp_path / name).exists()
    assert not leak(tmp_path, "-q", "-o", "quiet.db").stderr and (tmp_path / "quiet.db").exists()
    assert not leak(tmp_path, "--no-summary", "-o", "silent.db").stderr


def test_run_out_of_memory(tmp_path):
    done = leak(tmp_path, steps=1000, SIMCUDA_MEMORY="2GiB")
    assert done.returncode == 1
    assert "\ngpuspy: OUT OF MEMORY on GPU 0 at " in done.stderr
    text = gpuspy("report", "--full", "run.db", cwd=tmp_path).stdout
    assert text.index("OUT OF MEMORY on GPU 0") < text.index("Live at the peak") < text.index("Waiting for")
    assert "train_leak.py:18" in text.split("What to do")[0]


def test_run_completes_what_was_killed(tmp_path):
    script = ("import os, signal, train_leak\n"
              "train_leak.train(20)\n"
              "os.kill(os.getpid(), signal.SIGKILL)\n")
    done = gpuspy("run", "--", sys.executable, "-c", script, cwd=tmp_path, env=simulated())
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "run.db.spool").exists()
    with sqlite3.connect(tmp_path / "run.db") as db:
        assert db.execute("SELECT complete FROM process").fetchone() == (0,)
    text = gpuspy("report", "--full", "run.db", cwd=tmp_path).stdout
    assert text.startswith("! the recording is complete up to the program's last call, at ")
    assert "\nKilled by SIGKILL; GPU memory did not run out; peak " in text
    assert "\n  The kernel sends SIGKILL if host memory" in text
    assert "; the kernel sends SIGKILL if host memory runs out (see dmesg)\n" in done.stderr


def test_run_whose_context_does_not_fit(tmp_path):
    """Another process holds the GPU: CUDA is out of memory before the program allocates."""
    script = ("import ctypes, sys\n"
              "lib = ctypes.CDLL('libcudart.so.13')\n"
              "p = ctypes.c_void_p()\n"
              "if len(sys.argv) > 1: lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20))\n"
              "elif lib.cudaSetDevice(0) != 2: sys.exit(3)\n"
              "raise RuntimeError('CUDA error: out of memory')\n")
    held = {"SIMCUDA_MEMORY": "2GiB", "SIMCUDA_OTHER": "1900MiB@4711"}
    done = gpuspy("run", "--", sys.executable, "-c", script, cwd=tmp_path, env=simulated(**held))
    assert "; CUDA ran out of memory before the first allocation; probably the CUDA context did not fit: nvidia-smi" in done.stderr
    text = " ".join(gpuspy("report", "run.db", cwd=tmp_path).stdout.split())
    assert "; CUDA ran out of memory before the first allocation; no GPU memory was allocated" in text
    assert "Probably the CUDA context did not fit: other processes hold the GPU (nvidia-smi lists them)" in text
    done = gpuspy("run", "-o", "b.db", "--", sys.executable, "-c", script, "allocate", cwd=tmp_path, env=simulated())
    assert "; CUDA ran out of memory, but no recorded allocation failed\n" in done.stderr and "context" not in done.stderr


def test_a_long_exception_and_what_follows_it(tmp_path):
    """Whatever the width, no line begins with the mark between the two."""
    gpuspy("run", "--", sys.executable, "-c", "import train_leak\ntrain_leak.train(2)\nraise ValueError('of a length ' * 8)",
           cwd=tmp_path, env=simulated())
    for width in range(60, 132):
        head = gpuspy("report", "run.db", cwd=tmp_path, env={"COLUMNS": width}).stdout.split("\n\n")[1].split("\n")
        assert any("; peak" in line for line in head) or any(line.endswith(";") for line in head), head
        assert not any(line.strip().startswith(";") for line in head) and max(map(len, head)) <= width, head


# ---------------------------------------------------------------- report

@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    done = leak(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("options", [[], ["--full"], ["--native"], ["--top", "1"], ["--params", "10M"]])
def test_report_fits_and_is_plain_in_a_pipe(recorded, width, locale, options):
    done = gpuspy("report", *options, "run.db", cwd=recorded, env={"COLUMNS": width, "LC_ALL": locale})
    assert done.returncode == 0 and (not done.stderr or "--native" in options)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= width
    assert locale != "C" or done.stdout.isascii()
    assert "train_leak.py:1" in done.stdout
    assert len(done.stdout.splitlines()) <= 40 or options or width < 100


def test_the_newest_recording_may_be_one_whose_process_was_killed(tmp_path):
    script = "import os, signal, train_leak\ntrain_leak.train(20)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, timeout=SECONDS,
                   env=environment(**simulated(GPUSPY_DB="killed.db", LD_PRELOAD=BUILD / "libgpuspy.so")))
    with sqlite3.connect(tmp_path / "foreign.db") as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE mine(x)")
    assert (tmp_path / "killed.db.spool").exists()
    done = gpuspy("report", "--html", "killed.db", "killed.db", cwd=tmp_path)
    assert done.returncode == 3 and "is the recording itself" in done.stderr
    done = gpuspy("report", cwd=tmp_path)
    assert done.returncode == 0 and "reading killed.db, the newest recording" in done.stderr and "SIGKILL" in done.stdout


def test_the_help_of_report_is_one_screen():
    assert len(gpuspy("report", "--help").stdout.splitlines()) <= 45


def test_report_has_colour_on_a_terminal_only_if_wanted(recorded):
    def on_terminal(**more):
        pid, terminal = pty.fork()
        if pid == 0:
            env = environment(**{"TERM": "xterm", "LC_ALL": "C.UTF-8", "GPUSPY_PAGER": "cat", **more})
            if "NO_COLOR" not in more:
                env.pop("NO_COLOR", None)
            os.chdir(recorded)
            os.execve(GPUSPY, [GPUSPY, "report", "run.db"], env)
        text = b""
        try:
            while True:
                text += os.read(terminal, 10000)
        except OSError:
            pass
        assert os.waitpid(pid, 0)[1] == 0
        return text
    assert b"\x1b[1m" in on_terminal()
    assert b"\x1b" not in on_terminal(NO_COLOR="1") and b"\x1b" not in on_terminal(TERM="dumb")


def test_report_with_a_budget(recorded):
    text = gpuspy("report", "--params", "10M", "--optimizer", "sgd", "run.db", cwd=recorded).stdout
    assert "Budget: the model's minimum" in text and "76.29 MiB  the model's minimum" in text
    budget = json.loads(gpuspy("report", "--json", "--params", "10M", "run.db", cwd=recorded).stdout)["budget"]
    assert budget["estimate"]["total_bytes"] == 16e7


def test_report_of_a_folder_and_of_several_files(recorded):
    assert gpuspy("report", recorded).returncode == 0
    assert gpuspy("report", "--json", recorded / "run.db", recorded / "run.db").returncode in (0, 3)


def header(path, offset, value):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(value)


def bad_missing(path, good):
    pass


def bad_empty(path, good):
    path.touch()


def bad_text(path, good):
    path.write_text("step,loss\n1,2.5\n" * 1000)


def bad_foreign(path, good):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE t (a)")


def bad_truncated(path, good):
    path.write_bytes(good.read_bytes()[:good.stat().st_size // 2 // 4096 * 4096 + 100])


def bad_header_only(path, good):
    path.write_bytes(good.read_bytes()[:100])


def bad_newer(path, good):
    shutil.copy(good, path)
    header(path, 60, (9999).to_bytes(4, "big"))


def bad_folder(path, good):
    path.mkdir()


def bad_garbage_inside(path, good):
    shutil.copy(good, path)
    header(path, 4096, b"\xff" * (path.stat().st_size - 8192))


def bad_fifo(path, good):
    os.mkfifo(path)


@pytest.mark.parametrize("make", [bad_missing, bad_empty, bad_text, bad_foreign, bad_truncated, bad_header_only, bad_newer,
                                  bad_folder, bad_garbage_inside, bad_fifo], ids=lambda f: f.__name__[4:])
@pytest.mark.parametrize("json_", [False, True])
def test_bad_databases(recorded, tmp_path, make, json_):
    path = tmp_path / "bad.db"
    make(path, recorded / "run.db")
    done = gpuspy("report", *(["--json"] if json_ else []), path)
    message = one_line(done, 3)
    assert "bad.db" in message and not done.stdout
    if make is bad_newer:
        assert "newer" in message


def test_a_read_only_database_is_read(recorded, tmp_path):
    shutil.copy(recorded / "run.db", tmp_path / "run.db")
    os.chmod(tmp_path / "run.db", 0o444)
    os.chmod(tmp_path, 0o555)
    try:
        user = dict(user=65534, group=65534) if os.geteuid() == 0 else {}
        for folder in [p for p in tmp_path.parents if user and p.stat().st_uid == 0 and p.stat().st_mode & 5 != 5]:
            folder.chmod(folder.stat().st_mode | 0o055)  # only their owner may enter the folders that pytest makes
        done = gpuspy("report", tmp_path / "run.db", **user)
        assert done.returncode == 0, done.stderr
        assert "Live at the peak" in done.stdout
    finally:
        os.chmod(tmp_path, 0o755)


def test_a_database_that_may_not_be_read(recorded, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    shutil.copy(recorded / "run.db", tmp_path / "run.db")
    os.chmod(tmp_path / "run.db", 0)
    assert "ermission" in one_line(gpuspy("report", tmp_path / "run.db"), 3)


def test_a_report_into_a_full_disk(recorded):
    with open("/dev/full", "w") as full:
        assert "No space left" in one_line(gpuspy("report", "run.db", cwd=recorded, stdout=full), 3)
        assert gpuspy("report", "--json", "run.db", cwd=recorded, stdout=full).returncode == 3
