"""docs/always-on.md as written: each way records a program that runs out of memory, and its page is written."""
import os
import re
import shlex
import shutil
import subprocess

import pytest
from conftest import BUILD, ROOT, SECONDS, wait_until

TEXT = (ROOT / "docs/always-on.md").read_text()
PROGRAM = ("import ctypes\ncuda, address = ctypes.CDLL('libcudart.so.13'), ctypes.c_void_p()\n"
           "cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1000))\n"
           "raise SystemExit(cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 45)))\n")


def section(title):
    return re.search(rf"\n## {title}\n(.*?)(?=\n## )", TEXT, re.S)[1]


def block(title):
    return "".join(line[4:] for line in re.search(r"(^    .*\n)+", section(title), re.M)[0].splitlines(True))


def here(text, folder):
    """The paths of the document, below the test's folder."""
    for path, below in ("/opt/gpuspy", "opt"), ("/gpuspy/", "pod/"), ("/gpuspy", "pod"), ("/runs", "runs"), ("/var/", "var/"):
        text = re.sub(rf"(?<![\w/.]){path}", f"{folder}/{below}", text)
    return text


@pytest.fixture
def folder(tmp_path):
    for name in "bin", "lib":
        (tmp_path / "opt" / name).mkdir(parents=True)
    shutil.copy(BUILD / "gpuspy", tmp_path / "opt" / "bin")
    shutil.copy(BUILD / "libgpuspy.so", tmp_path / "opt" / "lib")
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def run(folder, *words, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "SIMCUDA_"))}
    env.update(LD_LIBRARY_PATH=str(BUILD / "sim"), GPUSPY_MIN_FREE="0", **more)
    return subprocess.run([str(word) for word in words], cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=SECONDS)


def has_page(folder):
    """The command after an out-of-memory error runs on its own."""
    wait_until(lambda: any("</html>" in path.read_text() for path in folder.glob("*.html")))
    return len(list(folder.glob("*.db"))) == 1


def test_a_container_image(folder):
    text = here(block("Container image"), folder)
    keep, = re.findall(r"^ENV GPUSPY_KEEP=(\S+)$", text, re.M)
    words = re.findall(r'"([^"]*)"', re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
    done = run(folder, *words, "python3", "train.py", GPUSPY_KEEP=keep)
    assert done.returncode == 2, done.stderr
    of_host, = (folder / "runs").iterdir()
    assert has_page(of_host)


def test_a_pod(folder):
    yaml = pytest.importorskip("yaml")
    spec = yaml.safe_load(here(block("Kubernetes pod"), folder))["spec"]
    init, = spec["initContainers"]
    train, = spec["containers"]
    assert {mount["name"] for c in (init, train) for mount in c["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    for mount in train["volumeMounts"]:
        os.makedirs(mount["mountPath"])
    values = {"metadata.name": "pod-7", "metadata.namespace": "team"}
    assert [entry["valueFrom"]["fieldRef"]["fieldPath"] for entry in init["env"]] == ["metadata.name"]
    done = run(folder, *init["command"], POD_NAME=values["metadata.name"])
    assert done.returncode == 0, done.stderr
    env = {}
    for entry in train["env"]:
        env[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda name: env[name[1]], entry["value"]) if "value" in entry else values[
            entry["valueFrom"]["fieldRef"]["fieldPath"]]
    assert run(folder, "python3", "train.py", **env).returncode == 2
    assert has_page(folder / "runs" / "pod-7")


@pytest.mark.parametrize("gpus, job", [("0,1", "77"), ("", "78")])
def test_a_slurm_prolog(folder, gpus, job):
    script = folder / "prolog.sh"
    script.write_text(here(re.search(r"```sh\n(.*?)```", section("Slurm prolog"), re.S)[1], folder))
    if shutil.which("shellcheck"):
        assert run(folder, "shellcheck", script).stdout == ""
    done = run(folder, "sh", script, CUDA_VISIBLE_DEVICES=gpus, SLURM_JOB_ID=job)
    assert done.returncode == 0, done.stderr
    env = dict(line.removeprefix("export ").split("=", 1) for line in done.stdout.splitlines())
    assert run(folder, "python3", "train.py", **env).returncode == 2
    recordings = list(folder.glob("var/tmp/*/*/run.db"))
    assert len(recordings) == (gpus != "") and all(path.parent.name == job for path in recordings)
    assert all(path.parent.stat().st_mode & 0o77 == 0 for path in recordings)


def test_a_systemd_drop_in(folder):
    text = here(block("systemd drop-in"), folder)
    unit = folder / "train.service"
    unit.write_text("[Service]\nExecStart=/usr/bin/true\n")
    (folder / "train.service.d").mkdir()
    (folder / "train.service.d" / "gpuspy.conf").write_text(text)
    if shutil.which("systemd-analyze"):
        done = run(folder, "systemd-analyze", "verify", unit)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    state, = re.findall(r"^StateDirectory=(.*)$", text, re.M)
    (folder / "var" / "lib" / state).mkdir(parents=True)
    words = [word for line in re.findall(r"^Environment=(.*)$", text, re.M) for word in shlex.split(line.replace("%%", "%"))]
    assert run(folder, "python3", "train.py", **dict(word.split("=", 1) for word in words)).returncode == 2
    assert has_page(folder / "var" / "lib" / state)
