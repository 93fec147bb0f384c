"""Programs of libraries that are not PyTorch: whose memory it is, the user's line, and advice in the library's words.
Stand-ins have the names of the real libraries and allocate in the same way."""
import re
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT, one_line, thread_sanitized

MIB = 1 << 20
PYTORCH = re.compile(r"torch|DataLoader|expandable_segments|\.cpu\(\)|\.to\(device|\.item\(\)|\.detach\(\)", re.I)
START = """
import ctypes
import sys
def make(mib, library=ctypes.CDLL(sys.argv[1])):
    if getattr(library, sys.argv[2])(ctypes.c_size_t(mib << 20)):
        raise MemoryError(mib)
"""
COPIES = """
import ctypes
def copy():
    cuda = ctypes.CDLL("libcudart.so.13")
    n = ctypes.c_size_t(8 << 20)
    p, host = ctypes.c_void_p(), ctypes.create_string_buffer(8 << 20)
    cuda.cudaMalloc(ctypes.byref(p), n)
    for i in range(40):
        cuda.cudaMemcpyAsync(p, host, n, 1, None)
        cuda.cudaStreamSynchronize(None)
        cuda.cudaMemcpyAsync(host, p, n, 2, None)
        cuda.cudaStreamSynchronize(None)
"""

pytestmark = thread_sanitized("owners follow from native frames, which are off there")


@pytest.fixture
def library(tmp_path):
    def build(path, *flags):
        to = tmp_path / "lib" / "python3.11" / "site-packages" / path
        to.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-g", "-shared", "-fPIC", "-o", to, *flags, ROOT / "fixtures" / "python" / "taker.c",
                        f"-L{BUILD / 'sim'}", "-lcudart"], check=True)
        return to
    return build


def report(recording):
    return one_line(recording.gpuspy("report", recording.database).stdout)


@pytest.mark.parametrize("path, size, words", [
    ("onnxruntime/capi/libonnxruntime_providers_cuda.so", 800, "arena_extend_strategy=kSameAsRequested"),
    ("llama_cpp/lib/libggml-cuda.so", 800, "`type_k` and `type_v` with `flash_attn=True`"),
    ("llama_cpp/lib/libggml-cuda.so", 4000, "n_gpu_layers"),  # more than the GPU has: no broadcast made it
    ("faiss/libfaiss.so", 800, "setTempMemory"),
    ("ctranslate2.libs/libctranslate2.so", 800, "max_batch_size"),
    ("xgboost/lib/libxgboost.so", 800, "QuantileDMatrix"),
])
def test_the_library_that_requested_too_much(recording, library, path, size, words):
    script = START + f"make(800)\nmake({size})  # LINE\n"
    recording.python(script, library(path), "take", check=False, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="512MiB")
    (oom,) = recording.report()["oom"]
    assert oom["cause"] in ("capacity", "oversized_request") and oom["stack"][-1]["line"] == len(script.splitlines())
    assert words in oom["advice"][0], oom["advice"]
    text = report(recording)
    assert "broadcast" not in text and not PYTORCH.search(text.replace("contrib.torch_utils", "")), text


def test_a_pool_from_which_the_request_did_not_come(recording, library):
    """It may hold what nothing uses, and no other allocator gets that."""
    pool = library("pycuda/_driver.so", "-Dtake=memory_pool_take")
    script = START + "for n in range(6):\n    make(200)\nsys.argv[2] = 'take_async'\nmake(600)\n"
    recording.python(script, pool, "memory_pool_take", check=False, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="512MiB")
    (oom,) = recording.report()["oom"]
    assert any("PyCUDA held up to 1.17 GiB" in a and "free_held()" in a for a in oom["advice"]), oom["advice"]


def test_indexes_beside_the_request(recording, library):
    """FAISS's memory is not a pool whose arrays were freed: the advice names what it is."""
    own, faiss = library("../../../my/own.so"), library("faiss/libfaiss.so")
    script = START + "make(800, ctypes.CDLL(sys.argv[3]))\nmake(800)\n"
    recording.python(script, own, "take", faiss, check=False, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="512MiB")
    (oom,) = recording.report()["oom"]
    (advice,) = [a for a in oom["advice"] if "FAISS" in a]
    assert advice.startswith("FAISS held up to 800.00 MiB (temporary memory") and "freed" not in advice


def test_a_request_of_the_pool_itself(recording, library):
    """The pool has freed what it could before that."""
    pool = library("pycuda/_driver.so", "-Dtake=memory_pool_take")
    script = START + "for n in range(6):\n    make(200)\nmake(600)\n"
    recording.python(script, pool, "memory_pool_take", check=False, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="512MiB")
    (oom,) = recording.report()["oom"]
    assert not any("free_held()" in a for a in oom["advice"]), oom["advice"]


def test_code_that_a_package_compiled_is_not_the_users(recording, library):
    """tinygrad's matchers are named "<string>", as is the text of python -c and of the program's own exec()."""
    package = library("tinygrad/libwork.so").parent
    (package / "matcher.py").write_text(
        "space = {}\nexec('def matched(f, n):\\n  return f(n)\\n', space)\ndef realize(f, n):\n  return space['matched'](f, n)\n")
    script = START + ("sys.path.insert(0, sys.argv[3])\nfrom tinygrad.matcher import realize\n"
                      "def step():\n    realize(make, 8)  # LINE\nstep()\nexec('make(4)')\n")
    # `make` is the package's allocation, too
    (package / "make.py").write_text(START.replace("sys.argv[1]", repr(str(package / "libwork.so"))))
    script = script.replace(START, "import sys\nsys.path.insert(0, sys.argv[3])\nfrom tinygrad.make import make\n")
    recording.python(script, package / "libwork.so", "take", package.parent)
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    lines = {(s["site"]["file"].rsplit("/", 1)[-1], s["site"]["line"]): s["bytes"] for s in peak["by_site"]}
    line = script.splitlines().index("    realize(make, 8)  # LINE") + 1
    assert lines == {("script.py", line): 8 * MIB, ("<string>", 1): 4 * MIB}


def test_an_arenas_own_limit(recording, library):
    """No CUDA call fails: ONNX Runtime's exception names the limit."""
    script = START + """make(3)
raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* "
                   "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Available memory of "
                   "63963136 is smaller than requested bytes of 204800000")
"""
    recording.python(script, library("onnxruntime/capi/libonnxruntime_providers_cuda.so"), "take", check=False)
    text = report(recording)
    assert re.search(r"script\.py:\d+: ONNX Runtime's arena reached its provider option gpu_mem_limit", text), text
    assert "emory ran out inside the framework's own pool" in text, text


def test_blocks_that_a_statement_stores(recording, library):
    """Too few to be certain that these are not layers of one pass: the advice names both."""
    package = library("taichi/libtaichi.so").parent
    (package / "make.py").write_text(START.replace("sys.argv[1]", repr(str(package / "libtaichi.so"))) + "    return [mib]\n")
    script = """import sys
sys.path.insert(0, sys.argv[3])
from taichi.make import make
def snapshot():
    return make(32)  # LINE
states = []
for n in range(100):
    states.append(snapshot())
"""
    recording.python(script, "", "take_async", package.parent, check=False, SIMCUDA_MEMORY="2GiB")
    (oom,) = recording.report()["oom"]
    text = " ".join(oom["advice"])
    assert "states.append(snapshot())" in text and re.search("drop the reference", text), oom["advice"]


def test_copies_have_plain_names(recording):
    recording.python(COPIES + "copy()\n")
    text = recording.gpuspy("report", "--full", recording.database).stdout
    assert "copy" in text and not PYTORCH.search(text), text


def test_each_part_that_is_translated_is_an_advice():
    """A reworded advice would lose its translation."""
    table = (ROOT / "analyzer/question/idiom.def").read_text()
    table = table[table.index("*/"):]
    joined = lambda text: re.sub(r'"\s*"', "", text)
    sources = "".join(joined(p.read_text()) for p in (ROOT / "analyzer").rglob("*.[cdh]*")
                      if p.suffix in (".c", ".h", ".def") and p.name != "idiom.def")
    parts = re.findall(r'(?:IDIOM|OFFLOAD|PATTERN)\("((?:[^"\\]|\\.)*)"', joined(table))
    assert len(parts) > 25
    assert [p for p in parts if p not in sources] == []


def test_functions_of_a_command_line_that_a_package_calls(recording, library):
    """Trainers and thread pools call the program's functions. Of `python -c`, these are in "<string>"."""
    package = library("trainer/libwork.so").parent
    (package / "fit.py").write_text("def fit(step):\n    for n in range(3):\n        step(8)\n")
    code = START + "sys.path.insert(0, sys.argv[3])\nfrom trainer.fit import fit\nfit(make)\n"
    recording.run(sys.executable, "-c", code, package / "libwork.so", "take", package.parent)
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    lines = {(s["site"]["file"], s["site"]["line"]) for s in peak["by_site"]}
    assert lines == {("<string>", 1 + next(n for n, line in enumerate(code.splitlines()) if "getattr" in line))}


@pytest.mark.parametrize("folder", ["cupy", "torch", "onnxruntime", "xgboost"])
def test_a_folder_of_the_programs_own(recording, library, folder):
    """It has a library's name, and contains the program's library and the environment with another one."""
    packaged = library(f"../../../{folder}/lib/python3.11/site-packages/solver/libsolver.so")
    own = library(f"../../../{folder}/lib/own.so")
    script = START + "make(16)\nmake(8, ctypes.CDLL(sys.argv[3]))\n"
    recording.python(script, packaged, "take", own)
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    assert peak["by_owner"] == {"solver": 16 * MIB, "own.so": 8 * MIB}


def test_waits_in_a_folder_with_a_librarys_name(recording, library):
    """The environment is in a project's folder called faiss: another package's waits are not FAISS's."""
    package = library("../../../faiss/lib/python3.11/site-packages/solver/libsolver.so").parent
    (package / "copy.py").write_text(COPIES)
    recording.python("import sys\nsys.path.insert(0, sys.argv[1])\nfrom solver.copy import copy\ncopy()\n", package.parent)
    assert recording.report()["sync"]
    assert "StandardGpuResources" not in report(recording) and "search and add more vectors" not in report(recording)


@pytest.mark.parametrize("path, kept, words", [
    ("cuda/bindings/cydriver.so", False, "free each block after its last use"),
    ("cuda/bindings/cydriver.so", True, "(free the block, if no object does)"),
    ("cuda/core/_buffer.so", True, "drop the reference after each step, or"),
])
def test_bare_pointers_and_objects_of_cuda_python(recording, library, path, kept, words):
    """Nothing frees what a pointer of cuda.bindings refers to; a Buffer of cuda.core frees its memory."""
    package = library(path).parent
    (package / "make.py").write_text(START.replace("sys.argv[1]", repr(str(library(path)))) + "    return [mib]\n")
    script = ("import sys\nsys.path.insert(0, sys.argv[3])\nfrom make import make\nkept = []\nfor step in range(900):\n"
              "    block = make(4)\n" + ("    kept.append(block)\n" if kept else ""))
    recording.python(script, "", "take", package, check=False, SIMCUDA_MEMORY="2GiB", SIMCUDA_CONTEXT="512MiB")
    (oom,) = recording.report()["oom"]
    assert words in oom["advice"][0] and oom["stack"][-1]["line"] == 6, oom["advice"]


OFFLOADS = """
int cudaMalloc(void **, unsigned long); int cudaFree(void *); int cudaMemcpy(void *, const void *, unsigned long, int);
int map(unsigned long n)
{
    static char host[1 << 20];
    void *p;
    int rc = cudaMalloc(&p, n);
    cudaMemcpy(p, host, sizeof host, 1);
    return rc + cudaFree(p);
}
"""


@pytest.mark.parametrize("name, own", [("libgomp-plugin-nvptx.so.1", True), ("libsolver.so", False)])
def test_a_program_that_offloads_calls_no_cuda_function(recording, tmp_path, name, own):
    (tmp_path / "map.c").write_text(OFFLOADS)
    subprocess.run(["cc", "-g", "-shared", "-fPIC", "-o", tmp_path / name, tmp_path / "map.c", f"-L{BUILD / 'sim'}",
                    "-lcudart"], check=True)
    recording.python("import ctypes, sys\nl = ctypes.CDLL(sys.argv[1])\nfor n in range(300): l.map(ctypes.c_size_t(4 << 20))\n",
                     tmp_path / name)
    text = report(recording)
    assert ("target enter data" in text) == own and ("cudaMallocAsync" in text) != own, text
