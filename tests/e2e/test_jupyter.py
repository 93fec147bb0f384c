"""gpuspy jupyter install: the kernel's file, and a real kernel if Jupyter is installed
(scripts/setup-validators.sh)."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, sanitized

JUPYTER = BUILD / "validators" / "jupyter" / "bin" / "python"


@pytest.fixture
def python(tmp_path):
    """A Python whose ipykernel is an empty package."""
    site = tmp_path / "site"
    (site / "ipykernel").mkdir(parents=True)
    (site / "ipykernel" / "__init__.py").write_text("")
    program = tmp_path / "bin" / "python3"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec /usr/bin/python3 "$@"\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def install(tmp_path, python):
    def call(*words, gpuspy=BUILD / "gpuspy", **more):
        env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), **more}
        return subprocess.run([gpuspy, "jupyter", *map(str, words)], env=env, cwd=tmp_path, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    return call


def test_a_kernel_of_this_user(install, tmp_path):
    done = install("install")
    folder = tmp_path / "home/.local/share/jupyter/kernels/gpuspy"
    assert done.returncode == 0 and f"rm -r '{folder}'" in done.stdout and done.stderr == ""
    kernel = json.loads((folder / "kernel.json").read_text())
    assert kernel["argv"][1:5] == ["-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert os.path.samefile(kernel["env"]["LD_PRELOAD"], BUILD / "libgpuspy.so")
    assert kernel["display_name"] == "Python 3 (gpuspy)" and kernel["language"] == "python"
    assert install("install").returncode == 0  # replaced


def test_it_keeps_what_the_image_preloads(install, tmp_path):
    """An allocator stays, another recorder does not."""
    (tmp_path / "image").mkdir()
    image = shutil.copy(BUILD / "libgpuspy.so", tmp_path / "image" / "libgpuspy.so")
    done = install("install", LD_PRELOAD=f"libm.so.6 {image}")
    assert done.returncode == 0, done.stderr
    kernel = json.loads((tmp_path / "home/.local/share/jupyter/kernels/gpuspy/kernel.json").read_text())
    own, *others = kernel["env"]["LD_PRELOAD"].split(":")
    assert os.path.samefile(own, BUILD / "libgpuspy.so") and others == ["libm.so.6"]


@pytest.mark.parametrize("words, more, where", [
    (["--prefix", "there"], {}, "there/share/jupyter/kernels/gpuspy"),
    (["--name", "other", "--user"], {}, "home/.local/share/jupyter/kernels/other"),
    ([], {"JUPYTER_DATA_DIR": "data"}, "data/kernels/gpuspy"),
    ([], {"XDG_DATA_HOME": "xdg"}, "xdg/jupyter/kernels/gpuspy")])
def test_where_it_goes(install, tmp_path, words, more, where):
    done = install("install", *words, **more)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / where / "kernel.json").exists()


@pytest.mark.parametrize("words, code, error", [
    ([], 2, "gpuspy jupyter install"), (["remove"], 2, "gpuspy jupyter install"), (["install", "--name", "a/b"], 2, "not a name"),
    (["install", "--name", ".."], 2, "not a name"), (["install", "--user", "--prefix", "x"], 2, "give one of"),
    (["install", "--python", "/usr/bin/python3", "--prefix", "x"], 3, "-m pip install ipykernel"),
    (["install", "--python", "/nowhere/python"], 3, "does not exist"), (["install", "--python", "/bin/true"], 3, "not a Python"),
    (["install", "--prefix", "/proc/self/no"], 3, "cannot create the folder")])
def test_an_error_is_one_line(install, words, code, error):
    done = install(*words)
    if "ipykernel" in error and subprocess.run(["/usr/bin/python3", "-c", "import ipykernel"], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("this Python has ipykernel")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1) and error in done.stderr, done.stderr


def test_no_home(install):
    assert "give --prefix" in install("install", HOME="").stderr


@sanitized("a sanitizer's run time has to come first in the kernel's Python")
def test_a_real_kernel(tmp_path):
    if not JUPYTER.exists():
        pytest.skip("scripts/setup-validators.sh could not fetch Jupyter's kernel")
    subprocess.run([JUPYTER, ROOT / "tests" / "jupyter_kernel.py", BUILD / "gpuspy", tmp_path], check=True, timeout=300)


@sanitized("as above")
def test_a_real_kernel_of_an_installed_prefix(tmp_path):
    if not JUPYTER.exists():
        pytest.skip("scripts/setup-validators.sh could not fetch Jupyter's kernel")
    subprocess.run(["make", "-C", ROOT, "install", f"O={BUILD}", "SAN=", f"PREFIX={tmp_path / 'prefix'}", "DESTDIR="], check=True,
                   stdout=subprocess.DEVNULL)
    assert shutil.which("gpuspy", path=tmp_path / "prefix" / "bin")
    subprocess.run([JUPYTER, ROOT / "tests" / "jupyter_kernel.py", tmp_path / "prefix/bin/gpuspy", tmp_path / "kernel"], check=True,
                   timeout=300)
