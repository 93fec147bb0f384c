#!/usr/bin/env python3
"""Notebooks on the simulated GPU: in a kernel that `gpuspy jupyter install` added (magics, scopes, interrupts), and in one
that runs without the recorder until %gpuspy attach.

    tests/jupyter_kernel.py GPUSPY FOLDER      under a Python that has jupyter_client and ipykernel
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel

GPUSPY, FOLDER = sys.argv[1], Path(sys.argv[2]).resolve()
ALLOCATE = """import ctypes, os
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(n):
    p = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n << 20)) == 0
    return p
"""


def simulated():
    """The environment of a program on the simulated GPU; the kernel sets up the recorder itself."""
    shown = subprocess.run([GPUSPY, "run", "-q", "--no-summary", "--simulate", "t4", "--", "env", "-0"], check=True,
                           cwd=FOLDER, stdout=subprocess.PIPE, text=True).stdout
    pairs = [line.partition("=")[::2] for line in shown.split("\0") if "=" in line]
    return {k: v for k, v in pairs if k == "LD_AUDIT" or k.startswith(("SIMCUDA_", "TRITON_"))}


class Notebook:
    def __init__(self, folder, kernel, **environment):
        folder.mkdir(parents=True)
        self.manager, self.client = start_new_kernel(kernel_name=kernel, env={**os.environ, **simulated(), **environment},
                                                     cwd=str(folder))

    def cell(self, code):
        messages = []
        reply = self.client.execute_interactive(code, timeout=120, output_hook=messages.append)
        contents = [m["content"] for m in messages]
        text = "".join(c.get("text", "") + c.get("data", {}).get("text/html", "") + c.get("evalue", "") + "\n".join(c.get("traceback", ()))
                       for c in contents)
        text = re.sub(r"\x1b\[[\d;]*m", "", text)
        return reply["content"]["status"], text

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.client.shutdown()
        for _ in range(600):  # after 2.5 seconds, shutdown_kernel() would end a kernel that is still writing its recording
            if not self.manager.is_alive():
                break
            time.sleep(0.1)
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def report(path, *options):
    return subprocess.run([GPUSPY, "report", *options, str(path)], check=True, stdout=subprocess.PIPE, text=True).stdout


def check_installed_kernel():
    os.environ["JUPYTER_DATA_DIR"] = str(FOLDER / "data")
    notebooks = FOLDER / "notebooks"
    subprocess.run([GPUSPY, "jupyter", "install", "--python", sys.executable], check=True)
    assert "gpuspy" in KernelSpecManager().find_kernel_specs()
    # PATH has no gpuspy: the kernel uses its own
    with Notebook(notebooks, "gpuspy", PATH="/usr/bin:/bin") as notebook:
        cell = notebook.cell
        assert "Nothing is recorded" in cell("%gpuspy report")[1]
        assert cell(ALLOCATE)[0] == "ok"
        assert cell("%%gpuspy load\na = allocate(5)\n_ = cuda.cudaFree(allocate(3))")[0] == "ok"
        assert cell("os.chdir('/')")[0] == "ok"
        assert cell("%%gpuspy\nb = allocate(1)")[0] == "ok"
        for fails, error in ("\n1 / 0", "ZeroDivisionError"), (" outer\n%%gpuspy\n1 = 0", "SyntaxError"):
            status, text = cell("%%gpuspy" + fails)  # "Run All" ends there, with one traceback
            assert status == "error" and error in text and text.count("Cell In[") == 1, text
        status, text = cell("1 / 0")
        assert status == "error" and "Cell In[" in text, text
        status, text = cell("%gpuspy report --only scopes")
        assert status == "ok" and "8.00 MiB" in text and "load" in text and "cell" in text, text
        assert "Peak 8.00 MiB in range load" in text, text
        status, text = cell("%gpuspy rep")
        assert "type %gpuspy report" in text and "Traceback" not in text, text
        status, text = cell("%gpuspy report --nonsense")
        assert "--nonsense" in text and "Traceback" not in text, text
        assert "recorded since it started" in cell("%gpuspy attach")[1]
        notebook.client.execute("import time; time.sleep(60)")
        time.sleep(1)
        notebook.manager.interrupt_kernel()
        assert notebook.client.get_shell_msg(timeout=60)["content"]["ename"] == "KeyboardInterrupt"
        time.sleep(1)  # a request sent too early is dropped with the interrupted cell
        assert cell("print('alive')") == ("ok", "alive\n")
    assert [p.name for p in notebooks.iterdir()] == ["run.db"]
    assert "peak 8.00 MiB" in report(notebooks / "run.db")


def check_running_kernel():
    """%gpuspy attach and detach; the recording has the text of cells, of which ipykernel writes no file."""
    folder = FOLDER / "running"
    subprocess.run([GPUSPY, "jupyter", "install", "--python", sys.executable, "--prefix", FOLDER / "there"], check=True)
    argv = json.loads((FOLDER / "there/share/jupyter/kernels/gpuspy/kernel.json").read_text())["argv"]
    paths = [word.partition("=")[2] for word in argv if "sys" in word]
    with Notebook(folder, "python3", PATH=f"{os.path.dirname(GPUSPY)}:/usr/bin:/bin") as notebook:
        cell = notebook.cell
        for line in paths:
            assert cell(line)[0] == "ok"
        assert cell("%load_ext gpuspy") == ("ok", "")
        status, text = cell("%gpuspy attach")
        assert "has not loaded CUDA" in text, text
        assert cell(ALLOCATE + "first = allocate(7)")[0] == "ok"
        defining = re.search(r"Cell In\[(\d+)\]", cell("def fill(n):\n    return [allocate(n), None.fail()]\nfill.fail()")[1])[1]
        status, text = cell("%gpuspy attach")
        if "ptrace" in text:
            return print("attach is not allowed here:", text)
        assert status == "ok" and "is now recorded" in text, text
        loop = "kept = []\nfor step in range(50):\n    block = allocate(2)\n    kept.append(block)\nkept.fail()"
        numbers = [re.search(r"Cell In\[(\d+)\], line 5", cell(loop)[1])[1] for _ in range(2)]  # as Jupyter names the cell
        assert cell("%%gpuspy load\n\na = allocate(5)")[0] == "ok"
        assert cell("%%time\nb = [allocate(3)]")[0] == "ok"
        assert cell("%time c = allocate(4)")[0] == "ok"
        assert cell("fill(6)")[0] == "error"
        status, text = cell("%gpuspy report --full")
        last = int(numbers[1])
        assert "218.00 MiB" in text and f"kept by In [{last}]:4 kept.append(block)" in text, text
        for line in [f"In [{last}]:3", f"In [{last + 1}]:3", f"In [{last + 2}]:2", f"In [{last + 3}]:1", f"In [{defining}]:2"]:
            assert line in text, (line, text)
        assert f"In [{numbers[0]}]:" not in text and not re.search(r"\d\.py:|<timed", text), text
        assert "wrote run.html" in cell("%gpuspy report --html")[1]
        assert "was recorded to" in cell("%gpuspy detach")[1]
        assert "218.00 MiB" in cell("%gpuspy report")[1]
        pid = notebook.cell("print(os.getpid())")[1].strip()
    assert not Path(tempfile.gettempdir(), f"ipykernel_{pid}").exists()
    grown = json.loads(report(folder / "run.db", "--json"))["growth"]
    assert [h["text"] for g in grown for h in g["holders"]] == ["kept.append(block)"], grown


check_installed_kernel()
check_running_kernel()
print("the kernel records")
