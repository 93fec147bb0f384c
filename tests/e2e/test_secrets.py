"""Recordings can be shown to others: no command, format or file contains a secret of the command line."""
import gzip
import os
import sqlite3
import subprocess
import sys

from conftest import BUILD

SECRETS = ("SECRET1abc", "SECRET2 def", "SECRET3", "hf_SECRETSECRETsecretsecret0123456789", "SECRET5")
ARGUMENTS = ("--api-key", SECRETS[0], f"--password={SECRETS[1]}", f"postgres://me:{SECRETS[2]}@host/db", SECRETS[3],
             f'{{"token": "{SECRETS[4]}"}}', "--lr", "3", "--max-tokens", "512")
MASKED = '--api-key *** --password=*** postgres://me:***@host/db *** {"token": "***"} --lr 3 --max-tokens 512'
PROGRAM = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
kept = [ctypes.c_void_p() for _ in range(4)]
for n, p in enumerate(kept):
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(1 << 20 + n)) == 0
lib.cudaDeviceSynchronize()
"""
FORMATS = ("torch-snapshot", "chrome-trace", "folded", "speedscope", "pprof", "csv", "ndjson", "openmetrics")
COMMANDS = (("report",), ("report", "--json"), ("tree",), ("tree", "--json"), ("leaks",), ("leaks", "--json"), ("stats",),
            ("stats", "--json"), ("timeline",), ("timeline", "--json"), ("flame",), ("check", "--max-peak", "1GiB"),
            ("check", "--max-peak", "1GiB", "--json"), ("top", "--once"), ("top", "--once", "--json"))


def leaks(folder):
    """The files of a folder that contain one of the secrets, in any encoding of text."""
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "script.py"):
        data = path.read_bytes()
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        found += [(str(path), s) for s in SECRETS if s.encode() in data or s.encode("utf-16-le") in data]
    return found


def everything(recording):
    """All that gpuspy prints or writes about the recording, as files next to it."""
    out = recording.folder / "out"
    out.mkdir()
    for n, command in enumerate(COMMANDS):
        done = recording.gpuspy(*command, recording.database)
        assert done.returncode in (0, 1), (command, done.stderr)
        (out / f"{n}.txt").write_text(done.stdout + done.stderr)
    done = recording.gpuspy("report", "--html", out / "page.html", recording.database)
    assert done.returncode == 0, done.stderr
    for name in FORMATS:
        done = recording.gpuspy("export", "-f", name, "-o", out / f"as-{name}", recording.database)
        assert done.returncode == 0 or "holds no" in done.stderr, (name, done.stderr)
    done = recording.gpuspy("diff", recording.database, recording.database)
    (out / "diff.txt").write_text(done.stdout + done.stderr)
    (out / "diff.json").write_text(
        recording.gpuspy("diff", "--json", recording.database, recording.database).stdout)
    return out


def stored_command(path):
    with sqlite3.connect(path) as db:
        return db.execute("select command from process").fetchone()[0]


def test_no_output_contains_a_secret(recording):
    done = recording.python(PROGRAM, *ARGUMENTS)
    assert stored_command(recording.database).endswith(f"script.py {MASKED}")
    everything(recording)
    assert leaks(recording.folder) == [] and not any(s in done.stderr for s in SECRETS)
    assert recording.report()["run"]["command"].endswith(MASKED)
    done = recording.gpuspy("sql", recording.database, "SELECT command FROM process")
    assert MASKED in done.stdout


def test_nobody_else_may_read_a_recording(recording):
    for mask in (0o000, 0o022, 0o777):
        text = PROGRAM + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
        done = recording.run("sh", "-c", f'umask {mask:o}; "$0" -c "$1"', sys.executable, text, check=False)
        made = [p for p in recording.folder.iterdir() if p.name.startswith("run.db")]
        assert len(made) > 1, done.stderr
        assert recording.gpuspy("report", recording.database).returncode == 0
        for path in [*made, *recording.folder.glob("run.db*")]:
            assert not path.exists() or path.stat().st_mode & 0o777 == 0o600, (path, oct(path.stat().st_mode))
            path.unlink(missing_ok=True)


def test_no_secret_is_in_the_spool_of_a_killed_process(recording):
    recording.python(PROGRAM + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", *ARGUMENTS, check=False)
    assert list(recording.folder.glob("*.spool")) and leaks(recording.folder) == []
    assert recording.report()["run"]["command"].endswith(MASKED)
    assert leaks(recording.folder) == []


def test_an_old_recording_is_shown_without_its_secrets(recording):
    recording.python(PROGRAM)
    with sqlite3.connect(recording.database) as db:
        db.execute("update process set command = ?", ("python x.py " + " ".join(ARGUMENTS),))
        db.execute("update process set command = replace(command, 'SECRET2 def', 'SECRET2_def')")
    out = everything(recording)
    assert leaks(out) == []
    assert not any("SECRET2" in p.read_text(errors="replace") for p in out.iterdir() if p.is_file())


def test_no_arguments_at_all(recording):
    recording.python(PROGRAM, *ARGUMENTS, GPUSPY_ARGS="0")
    assert stored_command(recording.database) == f"{sys.executable} {recording.folder / 'script.py'}"
    recording.database.unlink()
    recording.run(sys.executable, "-c", PROGRAM, *ARGUMENTS, GPUSPY_ARGS="no")
    assert stored_command(recording.database) == f"{sys.executable} -c"


def test_a_wrong_value_is_reported_and_masking_stays(recording):
    done = recording.python(PROGRAM, *ARGUMENTS, GPUSPY_ARGS="some")
    assert "GPUSPY_ARGS=some is not 0 or 1" in done.stderr
    assert leaks(recording.folder) == []


def test_gpuspy_run_prints_no_secret(recording):
    (recording.folder / "script.py").write_text(PROGRAM)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", recording.database, "--", sys.executable, "script.py", *ARGUMENTS],
                          env=dict(env, LD_LIBRARY_PATH=str(BUILD / "sim")), cwd=recording.folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and "next: gpuspy report" in done.stderr
    assert not any(s in done.stderr + done.stdout for s in SECRETS) and leaks(recording.folder) == []


def test_a_command_line_longer_than_what_is_stored(recording):
    """The end of what is read may contain a part of a secret, which cannot be recognised."""
    script = recording.folder / "script.py"
    start = len(f"{sys.executable}\0{script}\0")
    for before in (3, 10, 20, 36):  # bytes of the secret that are read
        recording.database.unlink(missing_ok=True)
        filler = "y" * (16384 - start - 1 - before)
        recording.python(PROGRAM, filler, SECRETS[3], *ARGUMENTS)
        assert leaks(recording.folder) == [] and "hf_" not in stored_command(recording.database)
