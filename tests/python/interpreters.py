"""Every CPython of this machine from 3.8 up: PATH, /usr, pyenv, and GPUSPY_TEST_PYTHONS (a glob of
directories)."""
import glob
import os
import re
import subprocess
import sys

QUESTION = """
import platform, sys, sysconfig
free = not getattr(sys, "_is_gil_enabled", lambda: True)()
print(platform.python_implementation(), sys.version_info[0] * 100 + sys.version_info[1],
      platform.python_version() + "t" * free)
"""


def candidates():
    places = os.environ.get("PATH", "").split(os.pathsep) + ["/usr/bin", "/usr/local/bin"]
    places += glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))
    places += glob.glob(os.environ.get("GPUSPY_TEST_PYTHONS", ""))
    yield sys.executable
    for place in places:
        if os.path.basename(place) == "shims":
            continue
        for path in sorted(glob.glob(os.path.join(place, "python3*"))):
            if re.fullmatch(r"python3(\.\d+t?)?", os.path.basename(path)):
                yield path


def ask(python, question):
    try:
        return subprocess.run([python, "-c", question], text=True, timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return []


def order(item):
    return [int(n) for n in re.findall(r"\d+", item[0])]


def found():
    """[(id, path)], one for each executable; the id is its version."""
    seen = {}
    for path in candidates():
        real = os.path.realpath(path)
        if real in seen:
            continue
        answer = seen[real] = ask(real, QUESTION)
        if len(answer) != 3 or answer[0] != "CPython" or int(answer[1]) < 308:
            seen[real] = None
    named = []
    for real, answer in seen.items():
        if answer:
            n = sum(name.split("#")[0] == answer[2] for name, _ in named)
            named.append((answer[2] + ("#%d" % (n + 1) if n else ""), real))
    return sorted(named, key=order)
