#!/usr/bin/env python3
"""A notebook in a kernel that `gpuspy jupyter install` added, on the simulated GPU: magics, scopes, interrupts.

    tests/jupyter_kernel.py GPUSPY FOLDER      under a Python that has jupyter_client and ipykernel
"""
import os
import subprocess
import sys
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


def main():
    os.environ["JUPYTER_DATA_DIR"] = str(FOLDER / "data")
    notebooks = FOLDER / "notebooks"
    notebooks.mkdir(parents=True)
    subprocess.run([GPUSPY, "jupyter", "install", "--python", sys.executable], check=True)
    assert "gpuspy" in KernelSpecManager().find_kernel_specs()
    # PATH has no gpuspy: the kernel uses its own
    environment = {**os.environ, **simulated(), "PATH": "/usr/bin:/bin"}
    manager, client = start_new_kernel(kernel_name="gpuspy", env=environment, cwd=str(notebooks))

    def cell(code):
        messages = []
        reply = client.execute_interactive(code, timeout=120, output_hook=messages.append)
        contents = [m["content"] for m in messages]
        text = "".join(c.get("text", "") + c.get("data", {}).get("text/html", "") + c.get("evalue", "") for c in contents)
        return reply["content"]["status"], text

    try:
        assert cell("%load_ext gpuspy") == ("ok", "")
        assert "Nothing is recorded" in cell("%gpuspy report")[1]
        assert cell(ALLOCATE)[0] == "ok"
        assert cell("%%gpuspy load\na = allocate(5)\n_ = cuda.cudaFree(allocate(3))")[0] == "ok"
        assert cell("os.chdir('/')")[0] == "ok"
        assert cell("%%gpuspy\nb = allocate(1)")[0] == "ok"
        status, text = cell("%gpuspy report --only scopes")
        assert status == "ok" and "8.00 MiB" in text and "load" in text and "cell" in text, text
        assert "Peak 8.00 MiB in range load" in text, text
        status, text = cell("%gpuspy rep")
        assert "type %gpuspy report" in text and "Traceback" not in text, text
        status, text = cell("%gpuspy report --nonsense")
        assert "--nonsense" in text and "Traceback" not in text, text
        client.execute("import time; time.sleep(60)")
        time.sleep(1)
        manager.interrupt_kernel()
        assert client.get_shell_msg(timeout=60)["content"]["ename"] == "KeyboardInterrupt"
        time.sleep(1)  # a request sent too early is dropped with the interrupted cell
        assert cell("print('alive')") == ("ok", "alive\n")
    finally:
        client.stop_channels()
        manager.shutdown_kernel()
    assert [p.name for p in notebooks.iterdir()] == ["run.db"]
    report = subprocess.run([GPUSPY, "report", str(notebooks / "run.db")], check=True, stdout=subprocess.PIPE, text=True)
    assert "peak 8.00 MiB" in report.stdout, report.stdout
    print("the kernel records")


main()
