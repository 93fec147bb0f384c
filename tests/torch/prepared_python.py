"""Starts scripts in forks of a Python that has imported PyTorch (prepared/). Only for scripts of one process: the fork
has the command line of the Python that it was forked from."""
import json
import os
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "prepared"
MOST = 3
# Read when the libraries are loaded, so before the fork.
EARLY = ("GPUSPY_", "LD_", "PYTORCH_")


class Prepared:
    def __init__(self, python, environment):
        self.databases = tempfile.TemporaryDirectory()
        ours, theirs = socket.socketpair()
        environment = dict(environment, PYTHONPATH=str(FOLDER), PREPARED_SOCKET=str(theirs.fileno()),
                           GPUSPY_DB=f"{self.databases.name}/%p.db")
        with theirs:
            self.process = subprocess.Popen([python, str(FOLDER)], env=environment, pass_fds=[theirs.fileno()],
                                            start_new_session=True)
        self.channel, self.answers = ours, ours.makefile("r")

    def run(self, folder, command, environment, seconds):
        """What subprocess.run would return; the database is in the folder, under the name that the environment has."""
        outputs = folder / "stdout.txt", folder / "stderr.txt"
        request = {"folder": str(folder), "command": [str(word) for word in command], "environment": environment,
                   "stdout": str(outputs[0]), "stderr": str(outputs[1])}
        self.channel.settimeout(seconds)
        self.channel.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.answers.readline())
        recorded = Path(self.databases.name) / f"{answer['process']}.db"
        if recorded.exists():
            recorded.rename(environment["GPUSPY_DB"])
        texts = [output.read_text(errors="replace") for output in outputs]
        for output in outputs:
            output.unlink()
        return subprocess.CompletedProcess(command, answer["code"], *texts)

    def end(self):
        self.answers.close()
        self.channel.close()
        self.process.wait()
        self.databases.cleanup()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.end()


class PreparedPythons:
    """One of each environment that is read before the fork; the ones used last stay."""

    def __init__(self):
        self.of = {}

    def run(self, python, folder, command, environment, seconds):
        key = tuple(sorted((k, v) for k, v in environment.items() if k.startswith(EARLY) and k != "GPUSPY_DB"))
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
