"""Starts scripts in forks of a Python that has imported PyTorch (prepared/). The fork has the command line of the Python
that it was forked from, and gpuspy's settings are those of its start: one Python for each combination of settings."""
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "prepared"
MOST = 6
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
EARLY = ("GPUSPY_", "LD_", "PYTORCH_")


def settings_of(environment):
    """Settings that libraries read when they are loaded, so before the fork. Of its allocator's settings, PyTorch then
    reads only the backend, and the others at the first use."""
    return frozenset((name, value) for name, value in environment.items()
                     if name.startswith(EARLY) and name != "GPUSPY_DB" and (name != ALLOCATOR or "backend:" in value))


class Prepared:
    def __init__(self, python, environment):
        self.folder = tempfile.TemporaryDirectory()
        self.target = Path(self.folder.name) / "target"  # where the fork writes its recording: a link to the run's folder
        ours, theirs = socket.socketpair()
        library = Path(self.folder.name) / "libleave.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, FOLDER / "leave.c"], check=True)
        environment = dict(environment, PYTHONPATH=str(FOLDER), PREPARED_SOCKET=str(theirs.fileno()), PREPARED_LEAVE=str(library),
                           GPUSPY_DB=str(self.target / "run.db"))
        with theirs:
            self.process = subprocess.Popen([python, str(FOLDER)], env=environment, pass_fds=[theirs.fileno()],
                                            start_new_session=True)
        self.channel, self.answers, self.environment = ours, ours.makefile("r"), environment

    def run(self, folder, command, environment, seconds):
        """What subprocess.run would return; the database is run.db in the folder."""
        self.target.unlink(missing_ok=True)
        self.target.symlink_to(folder)
        outputs = folder / "stdout.txt", folder / "stderr.txt"
        request = {"folder": str(folder), "command": [str(word) for word in command], "environment": environment,
                   "unset": sorted(self.environment.keys() - environment.keys()),
                   "stdout": str(outputs[0]), "stderr": str(outputs[1])}
        self.channel.settimeout(seconds)
        self.channel.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.answers.readline())
        texts = [output.read_text(errors="replace") for output in outputs]
        for output in outputs:
            output.unlink()
        return subprocess.CompletedProcess(command, answer["code"], *texts)

    def end(self):
        self.answers.close()
        self.channel.close()
        self.process.wait()
        self.folder.cleanup()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.end()


class PreparedPythons:
    """One of each combination of settings that are read before the fork; the ones used last stay."""

    def __init__(self):
        self.of, self.seen = {}, set()

    def have_seen(self, environment):
        """Was a Python with these settings requested before? Many are used only once, and starting one for each would
        cost more than it saves."""
        key, before = settings_of(environment), len(self.seen)
        self.seen.add(key)
        return len(self.seen) == before

    def run(self, python, folder, command, environment, seconds):
        key = settings_of(environment)
        prepared = self.of.pop(key, None) or Prepared(python, environment)
        self.of[key] = prepared
        try:
            return prepared.run(folder, command, environment, seconds)
        except (OSError, ValueError):
            self.of.pop(key).kill()
            raise
        finally:
            while len(self.of) > MOST:
                self.of.pop(next(iter(self.of))).end()

    def end(self):
        while self.of:
            self.of.popitem()[1].end()
