"""JAX and Numba themselves on the simulated GPU (scripts/setup-frameworks.sh installs them; skipped without)."""
import subprocess

import pytest
from conftest import BUILD, SAN, SECONDS

PYTHON = BUILD / "frameworks" / "venv" / "bin" / "python"
GIB, MIB = 1 << 30, 1 << 20
pytestmark = [
    pytest.mark.skipif(not (BUILD / "frameworks" / "done").exists(), reason="JAX and Numba are not installed"),
    pytest.mark.skipif(bool(SAN), reason="not beside a sanitizer"),
]
JAX = """
import jax._src.hardware_utils  # JAX looks for /dev/nvidia0
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax
import numpy
a = jax.device_put(numpy.ones((1 << 20,), "f4"))
print((a + 1).block_until_ready().nbytes)
"""
NUMBA = """
import numpy
from numba import cuda
a = cuda.device_array(8 << 20, dtype="f4")
b = cuda.to_device(numpy.ones(1 << 20))
"""


def run(recording, script, **more):
    path = recording.folder / "script.py"
    path.write_text(script)
    recording.run(PYTHON, path, LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}",
                  JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1, JAX_PLATFORMS="cuda", **more)
    answer = recording.report()
    (peak,) = [p for p in answer["peak"] if p["layer"] == "device"]
    return answer, peak


def test_jax_takes_three_quarters(recording):
    answer, peak = run(recording, JAX)
    assert list(peak["by_owner"]) == ["JAX"]
    (took,) = answer["preallocations"]
    assert took["in_advance"] and abs(took["share"] - .75) < .001 and took["bytes"] == peak["bytes"]
    assert took["site"]["line"] == 6
    assert "No CUDA call ran out of memory" in recording.gpuspy("report", recording.database).stdout


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_jaxs_setting_for_its_share_is_stated(recording, name):
    answer, _ = run(recording, JAX, **{name: ".4"})
    (took,) = answer["preallocations"]
    assert took["in_advance"] and abs(took["share"] - .4) < .001 and f"by {name}=.4)" in took["text"]


@pytest.mark.parametrize("name, value", [("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
                                         ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")])
def test_jax_takes_nothing_in_advance(recording, name, value):
    answer, peak = run(recording, JAX, **{name: value})
    assert list(peak["by_owner"]) == ["JAX"] and peak["bytes"] < 64 * MIB
    assert answer["preallocations"] == []


def test_numba_by_the_driver(recording):
    _, peak = run(recording, NUMBA)
    assert peak["by_owner"] == {"Numba": 40 * MIB}
    assert {s["site"]["line"] for s in peak["by_site"]} == {4, 5}


INSIDE = """
import jax._src.hardware_utils
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax
import numpy
kept = []
for step in range(3):
    kept.append(jax.device_put(numpy.ones((1 << 21,), "f4")))
    dropped = jax.device_put(numpy.ones((1 << 20,), "f4"))
    del dropped
kept[0].block_until_ready()
"""


def test_inside_jaxs_pool(recording):
    """With --inside-pools each array is an allocation at its line, and is freed when the array is deleted."""
    path = recording.folder / "script.py"
    path.write_text(INSIDE)
    env = recording.environment(LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}", JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1,
                                JAX_PLATFORMS="cuda")
    env = {k: v for k, v in env.items() if not k.startswith(("LD_PRELOAD", "GPUSPY_"))}
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", recording.database, "--inside-pools", "--", PYTHON, path], env=env,
                          cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    held = {s["site"]["line"]: s["bytes"] for s in peak["by_site"]}
    assert held[8] == 24 * MIB


def run_inside(recording, script, *options, **more):
    path = recording.folder / "script.py"
    path.write_text(script)
    env = recording.environment(LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}", JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1,
                                JAX_PLATFORMS="cuda", SIMCUDA_UNKNOWN="zero", **more)
    env = {k: v for k, v in env.items() if not k.startswith(("LD_PRELOAD", "GPUSPY_"))}
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", recording.database, *options, "--", PYTHON, path], env=env,
                          cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    return done, recording.report(), recording.gpuspy("report", recording.database).stdout


START = """
import jax._src.hardware_utils
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax
import jax.numpy as jnp
"""


def test_jaxs_pool_runs_out(recording):
    """No CUDA call fails: the exception shows it, and the report states whose pool it was."""
    done, _, text = run_inside(recording, START + "x = jnp.ones((1 << 30,), jnp.float32)\nx.block_until_ready()\n",
                               SIMCUDA_MEMORY="4GiB")
    assert done.returncode == 1
    words = " ".join(text.split())
    assert "RESOURCE_EXHAUSTED: Out of memory" in words and "memory ran out inside the framework's own pool" in words
    assert "script.py:6: JAX's pool of 3.00 GiB ran out" in words or "script.py:7: JAX's pool of 3.00 GiB ran out" in words
    assert "JAX preallocated 75 % of GPU 0" in words and "XLA_PYTHON_CLIENT_PREALLOCATE=false" in words


@pytest.mark.parametrize("error", [
    "MemoryError('Unable to allocate 512 TiB for an array')",  # the host's, of NumPy
    "Exception('RESOURCE_EXHAUSTED: Received message larger than max (8392712 vs. 4194304)')",  # gRPC
    "type('ResourceExhausted', (Exception,), {})('429 Quota exceeded for quota metric')",  # a server's quota
    "Exception('OOM when allocating tensor with shape[8] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu')",
])
def test_exceptions_that_are_not_of_the_pool(recording, error):
    _, _, text = run_inside(recording, START + f"jnp.ones((1 << 20,)).block_until_ready()\nraise {error}\n")
    words = " ".join(text.split())
    assert "exited with status 1; no CUDA call ran out of memory" in words and "ran out;" not in words


def test_another_process_leaves_no_room_to_preallocate(recording):
    _, answer, text = run_inside(recording, START + "x = jnp.ones((1 << 20,), jnp.float32)\nx.block_until_ready()\n",
                                 SIMCUDA_MEMORY="4GiB", SIMCUDA_OTHER="3GiB@4242")
    assert answer["oom"][0]["cause"] == "other_process"
    words = " ".join(text.split())
    assert "JAX preallocates 3.00 GiB, but other processes hold 3.00 GiB of the GPU" in words
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in words and "check the shape" not in words


KEPT = START + """
@jax.jit
def layer(x):
    return jnp.tanh(x)
x = jnp.ones((1024, 2048), jnp.float32)
history = []
for step in range(200):
    x = layer(x)
    history.append(x)
"""


def test_jax_reports_a_failure_later(recording):
    """A failed execution makes an array that holds the error: later allocations do not belong to the leak."""
    _, answer, text = run_inside(recording, KEPT, "--inside-pools", SIMCUDA_MEMORY="1536MiB")
    assert answer["oom"][0]["cause"] == "leak"
    words = " ".join(text.split())
    assert "history.append(x)" in words and "jax.device_get(x)" in words and "Recorded with --inside-pools" in words
    assert "detach" not in words and "cuCtxSynchronize" not in words


def test_words_of_numba(recording):
    _, _, text = run_inside(recording, "import numpy\nfrom numba import cuda\nkept = []\nfor i in range(200):\n"
                            "    d = cuda.to_device(numpy.ones(1 << 20))\n    kept.append(d)\n")
    words = " ".join(text.split())
    assert "kept by script.py:6 `kept.append(d)`" in words and "store `x.copy_to_host()`, a copy on the host" in words
    assert "free the block" not in words


DONATED = START + """
@jax.jit
def update(p, m):
    return p * 0.9 - m, m * 0.9
p = jnp.ones((8192, 8192), jnp.float32)
m = jnp.ones((8192, 8192), jnp.float32)
p, m = update(p, m)
p.block_until_ready()
"""


UPDATE = "p, m = update(p, m)"
KEYWORD = DONATED.replace("def update(p, m)", "def update(p, scale)").replace("p * 0.9 - m, m * 0.9", "p * scale, p + scale")


@pytest.mark.parametrize("script, donates", [
    (DONATED, True),
    (DONATED.replace(UPDATE, "p, m = update(p=p, m=m)"), True),
    (DONATED.replace(UPDATE, "q, n = update(p, m)"), False),
    (DONATED.replace(UPDATE, "p = p + update(p, m)[0]"), False),  # it reads p afterwards
    (DONATED.replace(UPDATE, "p = jnp.concatenate([p, m])"), False),  # JAX's own operation
    (KEYWORD.replace(UPDATE, "p, scale = update(p, scale=0.5)"), True),
    (KEYWORD.replace(UPDATE, "scale = update(p, scale=0.5)"), False),  # only the parameter has that name
    (DONATED + "# donate_argnums: not possible\n", True),
])
def test_results_beside_arguments(recording, script, donates):
    """An update whose arguments it replaces: donate them; not if the program binds other names."""
    _, answer, text = run_inside(recording, script, "--inside-pools", SIMCUDA_MEMORY="1400MiB")
    assert answer["oom"][0]["cause"] == "capacity"
    assert ("donate_argnums" in " ".join(answer["oom"][0]["advice"])) == donates


def test_folder_with_a_frameworks_name(recording):
    """A script of Numba in a folder "jax" gets Numba's words."""
    folder = recording.folder / "jax"
    folder.mkdir()
    (folder / "script.py").write_text("import numpy\nfrom numba import cuda\nkept = []\nfor i in range(200):\n"
                                      "    kept.append(cuda.to_device(numpy.ones(1 << 20)))\n")
    recording.run(PYTHON, folder / "script.py", LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}")
    text = " ".join(recording.gpuspy("report", recording.database).stdout.split())
    assert "x.copy_to_host()" in text and "jax" not in text.replace("jax/script.py", "")
