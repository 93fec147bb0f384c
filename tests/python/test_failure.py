"""The exception that ends a program is recorded, in every CPython of this machine, without running any of the program's code."""
import json
import os
import subprocess

import pytest
from test_matrix import BUILD, INTERPRETERS, ROOT, SECONDS

BEGIN = """
import sys
sys.path.insert(0, %r)
from minicuda import Runtime, Tensor
kept = Tensor(Runtime(), 1 << 20)
class Own(Exception):
    def __str__(self):
        print("own __str__ runs")
        return "own"
class Module(type):
    pass
def raises(error):
    raise error  # here
""" % str(ROOT / "fixtures" / "python")
LINE = next(n for n, line in enumerate(BEGIN.splitlines(), 1) if "# here" in line)

ENDINGS = [  # what the program does, the exception that is recorded
    ("raises(ValueError('no such shape'))", "ValueError: no such shape"),
    ("raises(KeyError('lr'))", "KeyError: 'lr'"),
    ("raises(OSError(2, 'No such file', 'a.yaml'))", "FileNotFoundError: [Errno 2] No such file: 'a.yaml'"),
    ("raises(RuntimeError('\\n first\\nsecond'))", "RuntimeError: first"),
    ("raises(RuntimeError())", "RuntimeError"),
    ("raises(MemoryError())", "MemoryError"),
    ("raises(RuntimeError('CUDA out of memory. Rejected'))", "RuntimeError: CUDA out of memory. Rejected"),
    ("raises(RuntimeError('CUDA out of memory. preemptively rejected'))", "RuntimeError: CUDA out of memory. preemptively rejected"),
    ("raises(Own('text'))", "Own"),
    ("Own.__module__ = 'tensorflow.python.framework.errors_impl'\ne = Own('text')\n"
     "e._message = '{{function_node __wrapped__Fill}} shapes differ'\nraises(e)",
     "tensorflow.python.framework.errors_impl.Own: shapes differ"),
    ("raises(ValueError('{{ x }} is undefined'))", "ValueError: {{ x }} is undefined"),
    ("raises(RuntimeError(Own('text')))", "RuntimeError"),
    ("raises(RuntimeError('bad token hf_' + 'a1B2' * 9))", "RuntimeError: bad token ***"),
    ("raises(RuntimeError('x' * 5000))", "RuntimeError: " + "x" * 511),
    ("raises(RuntimeError('\\udc80 gr\\u00fc\\u00dfe'))", "RuntimeError"),
    ("sys.excepthook = lambda *a: None\nraises(IndexError('3'))", "IndexError: 3"),
    ("sys.addaudithook(lambda event, a: None)\nraises(TypeError('hooked'))", "TypeError: hooked"),
]
FINE = ["sys.exit('an error of its own')", "sys.exit(3)", "try:\n    raises(ValueError(1))\nexcept ValueError:\n    pass",
        "import threading\nt = threading.Thread(target=raises, args=(ValueError(2),))\nt.start()\nt.join()"]


def found(pairs):
    for name, path in pairs:
        yield pytest.param(path, id=name)


@pytest.fixture
def ended(tmp_path):
    def run(python, program):
        script, database = tmp_path / "program.py", tmp_path / "run.db"
        database.unlink(missing_ok=True)
        script.write_text(BEGIN.lstrip("\n") + program + "\n")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
        bare = dict(environment, LD_LIBRARY_PATH=str(BUILD / "sim"), PYTHONIOENCODING="utf-8:replace")
        recorded = dict(bare, LD_PRELOAD=str(BUILD / "libgpuspy.so"), GPUSPY_DB=str(database), GPUSPY_QUIET="1")
        done = [subprocess.run([python, str(script)], env=e, timeout=SECONDS, capture_output=True) for e in (bare, recorded)]
        assert [d.returncode for d in done] == 2 * [done[0].returncode] and done[0].stdout == done[1].stdout
        assert done[0].stderr == done[1].stderr
        report = [str(BUILD / "gpuspy"), "report", str(database)]
        text = subprocess.run(report, env=environment, timeout=SECONDS, capture_output=True, text=True, check=True).stdout
        [process] = json.loads(subprocess.run(report + ["--json"], env=environment, timeout=SECONDS, capture_output=True,
                                              check=True).stdout)["run"]["processes"]
        return done[0].returncode, process, " ".join(text.split())
    return run


@pytest.mark.parametrize("python", found(INTERPRETERS))
def test_the_exception_that_ends_a_program(ended, python):
    for program, says in ENDINGS:
        code, process, text = ended(python, program)
        assert (code, process["exit_status"], process["exception"]) == (1, 1, says), program
        assert process["exception_place"].endswith("/program.py:%d" % (LINE - 1)), program
        outcome = "no CUDA call ran out of memory" if "emory" in says else "memory did not run out"
        outcome += ": PyTorch refused the request (throw_on_cudamalloc_oom)" if "preemptively" in says else ""
        if len(says) < 100:
            assert "%s at program.py:%d, exited with status 1; %s" % (says, LINE - 1, outcome) in text


@pytest.mark.parametrize("python", found(INTERPRETERS[:1]))
@pytest.mark.parametrize("program", FINE)
def test_other_failures_are_not_reported(ended, python, program):
    code, process, text = ended(python, program)
    assert process["exception"] is None and process["exit_status"] == code
    assert ("Exited with status %d" % code in text) == (code != 0)
