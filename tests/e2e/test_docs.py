"""The commands in the documentation, --help and the man pages work as written: each line is run by a shell in a folder
with the files that it names. If a launcher is missing, a replacement starts the program. Lines that cannot run are
listed in NOT_HERE with the reason."""
import gzip
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import test_import_nsys
from conftest import BUILD, ROOT, SECONDS
from model_files import KEYS, gguf, gguf_llama, llama, sharded
from rows import GIB, MIB, TENSOR, Rows

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLE = dict(re.findall(r"^COMMAND\((\w+), \w+, (\w+),", (ROOT / "analyzer/command/commands.def").read_text(), re.M))

# Placeholders in the documents, and their replacements here.
PLACES = [(r"\[OPTION\.\.\.\]|\[PYTHON\|PROGRAM\]|\[COMMAND\]", ""), (r"\bCOMMAND\b", "report"), (r"\bFORMAT\b", "folded"),
          (r'"QUERY"', '"select 1"'), (r"\bFILE\b|\bDATABASE\b", "run.db"), (r"\bSHELL\b", "bash"),
          (r"/work/", "./work/")]

# Lines that cannot run here, and why. A line that is in no document any more is an error.
NOT_HERE = [(r"^gpuspy top( (PID|4711))?$", "watches a recording that goes on: test_top.py"),
            (r"^gpuspy (attach|detach)\b", "records a process that runs: test_attach.py"),
            (r"^gpuspy metrics(?! --once)", "serves until it is ended: test_metrics.py"),
            (r"^gpuspy sql run\.db$", "asks at a prompt: test_sql.py"),
            (r"^gpuspy jupyter install", "needs a Python with ipykernel, and writes into it: test_jupyter.py"),
            (r"^gpuspy run$", "names the command, and no program")]

# Programs that start other programs and are not installed: replaced by one that starts the first word that is a
# program.
LAUNCHERS = "torchrun accelerate deepspeed srun mpirun jupyter"
# Programs that read gpuspy's output. If one is missing, its part of the line is left out.
READERS = ["jq", "flamegraph.pl", "go", "man", "less"]
ANSWERS_NO = {"check", "estimate", "doctor"}  # for these, status 1 is a valid answer


# ---------------------------------------------------------------- the lines

def of_document(path):
    """(line, is it a complete command line): code blocks, and text between backquotes."""
    text = path.read_text()
    fenced = re.findall(r"^```[a-z]*\n(.*?)^```", text, re.M | re.S)
    text = re.sub(r"^```[a-z]*\n.*?^```", "", text, flags=re.M | re.S)
    blocks = fenced + ["\n".join(m[4:] for m in re.findall(r"^ {4}.*$", text, re.M))]
    for block in blocks:
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            found = re.search(r"(?:^|[\s'(&|])((?:srun|mpirun)\b[^|&]*? )?gpuspy [^#]*", line)
            if found:
                one = re.sub(r"^[\s'(&|]+", "", re.split(r"\s+#", line[found.start():])[0]).strip()
                yield one[:-1] if one.count("'") % 2 else one, True  # the line is quoted in YAML
    prose = re.sub(r"^ {4}.*$", "", text, flags=re.M)
    for span in re.findall(r"`([^`]+)`", prose):
        if re.match(r"gpuspy [a-z\[]", span):
            yield " ".join(span.split()), False


def of_help(command):
    shown = subprocess.run([BUILD / "gpuspy", command, "--help"], text=True, stdout=subprocess.PIPE, check=True).stdout
    return re.findall(r"^  (\S.*)$", shown.split("\nExamples:\n")[1], re.M)


def lines():
    found = {}
    for path in DOCUMENTS:
        for line, whole in of_document(path):
            found.setdefault(line, (path.name, whole))
    for command in TABLE:
        for line in of_help(command):
            found.setdefault(line, (f"{command} --help", True))
    return [(line, where, whole) for line, (where, whole) in found.items()]


def runnable(line, whole):
    """The line in the form in which it is run here."""
    for pattern, here in PLACES:
        line = re.sub(pattern, here, line)
    words = line.split()
    if not whole and TABLE.get(words[1]) == "FILE" and not any(re.search(r"\.db|/$", word) for word in words[2:]):
        line += " before.db after.db" if words[1] == "diff" else " run.db"  # a command that is only mentioned gets files to read
    if not whole and words[1] == "run" and len(words) > 2 and "--" not in words:
        line += " -- python train.py"
    for reader in READERS:
        if not shutil.which(reader):
            line = re.sub(rf" (\||&&) {re.escape(reader)}\b[^|&>]*", "", line)
    return line


def test_what_people_ask_for_is_answered_with_a_command():
    """Each paragraph with one of these frequent questions is followed by a command, which test_line runs."""
    text = (ROOT / "docs/import.md").read_text()
    asked = text[text.index("## Common requests"):text.index("## What a snapshot shows")]
    parts = re.split(r"\n(?=\*\*)", asked)[1:]
    named = [re.findall(r"/(?:issues|pull)/(\d+)", part) for part in parts]
    assert sum(named, []) == ["32101", "158364", "176290", "3628", "120245", "147660", "106606", "29554", "173049"]
    assert all(re.search(r"^    gpuspy ", part, re.M) for part in parts)


# ---------------------------------------------------------------- where they run

def recording(path, **more):
    with Rows(path, seconds=30, **more) as r:
        r.device()
        keep = r.stack("/home/me/train.py:42 main", "/home/me/train.py:20 remember")
        step = r.stack("/home/me/train.py:42 main", "/home/me/train.py:12 step")
        r.block(0.1, 8 * GIB, None, step, address=1 << 30)
        for i in range(30):
            r.block(0.5 + i * 0.4, 64 * MIB, None, keep, layer=TENSOR, address=(1 << 30) + i * 64 * MIB)
            r.block(0.51 + i * 0.4, 16 * MIB, 0.2, step, layer=TENSOR, address=(5 << 30) + i * 16 * MIB)
            r.sync(0.8 + i * 0.4, 0.02, step)
        r.db.execute("INSERT INTO copy_row(kind,bytes,start_ns,blocked_ns,stream,stack_id) VALUES(?,?,?,?,0,?)",
                     (0 + 1 * 8 + 64 + 3 * 8192, MIB, 10**9, 1000, step))
        r.db.execute("INSERT INTO mark_name VALUES(1, 'load')")
        r.db.execute("INSERT INTO mark(kind,name,start_ns,life_ns,thread_id) VALUES(0,1,1,1000000000,2)")
        r.oom(19, 30 * GIB, GIB, 24 * GIB, stack=keep)


def foreign(work):
    """Small recordings by other tools."""
    block = {"address": 1 << 40, "size": MIB, "state": "active_allocated", "frames": []}
    segment = {"address": 1 << 40, "total_size": MIB, "device": 0, "blocks": [block]}
    pinned = {**segment, "address": 3 << 40, "device": -1, "blocks": [{**block, "address": 3 << 40}]}
    for name in "snapshot before after".split():
        trace = [{"action": action, "addr": (2 << 40) + k * MIB, "size": MIB, "time_us": 250_000 * k, "frames": []}
                 for k in range(20) for action in ("alloc", "free_requested", "free_completed")] if name == "snapshot" else []
        (work / f"{name}.pickle").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [trace], "host_segments": [pinned]}))
    (work / "snapshot.pickle.gz").write_bytes(gzip.compress((work / "snapshot.pickle").read_bytes()))
    memory = {"Device Type": 1, "Device Id": 0, "Addr": 1 << 40, "Bytes": MIB, "Total Allocated": MIB, "Total Reserved": MIB}
    events = [{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1, "args": memory}]
    for rank in 0, 3:
        (work / f"rank{rank}.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    for day in "monday", "tuesday":
        (work / "snapshots" / day).mkdir(parents=True)
        for rank in 0, 1:
            shutil.copy(work / "snapshot.pickle", work / f"snapshots/{day}/rank{rank}.pickle")
    test_import_nsys.usual(work / "report1.sqlite")


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


def models(work):
    """Small files of each kind."""
    tensors = llama(2, 64, 4, 2, 128, 100)
    (work / "config.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100}')
    sharded(work, tensors, 2)
    gguf(work / "model-Q4_K_M.gguf", KEYS, gguf_llama())


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """The folder of a user; each line runs in a copy."""
    tmp_path = tmp_path_factory.mktemp("docs")
    work, tools = tmp_path / "work", tmp_path / "tools"
    for one in (work / "runs/monday", work / "runs/tuesday", tools, tmp_path / "home/symbols", tmp_path / "home/venv/bin"):
        one.mkdir(parents=True)
    for name in "run before after a b main".split():
        recording(work / f"{name}.db", run=name)
    for rank in (0, 3):
        for name in ("", "monday/", "tuesday/"):
            recording(work / f"runs/{name}run{rank or ''}.db", run=f"job{name}", rank=rank, pid=200 + rank)
    (work / "qlora.yml").write_text("base_model: meta-llama/Meta-Llama-3-8B\nadapter: qlora\nlora_r: 32\nmicro_batch_size: 2\n"
                                    "sequence_len: 2048\nbf16: auto\noptimizer: adamw_bnb_8bit\ngradient_checkpointing: true\n")
    (work / "fsdp.yaml").write_text("distributed_type: FSDP\nfsdp_config: {fsdp_version: 2}\nmixed_precision: bf16\nnum_processes: 8\n")
    (work / "sft.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 2\nmax_length: 2048\n")
    (work / "queries.sql").write_text("select count(*) from allocations;\n")
    (work / ".gpuspy-check").write_text("max-peak = 100GiB\n")
    models(work)
    foreign(work)
    (work / "train.py").write_text("import sys\nsys.path.insert(0, %r)\nfrom minicuda import Runtime, Tensor\n"
                                   "Tensor(Runtime(), 1 << 20).item()\n" % str(ROOT / "fixtures/python"))
    executable(tools / "python", f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    shutil.copy(tools / "python", tmp_path / "home/venv/bin/python")
    executable(work / "solver", "#!/bin/sh\nexec python train.py\n")
    for name in LAUNCHERS.split():
        executable(tools / name, '#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in gpuspy|./solver) exec "$@";; '
                                 '*.py) exec python "$@";; esac; shift; done; exec python train.py\n')
    return tmp_path


@pytest.fixture
def folder(filled, tmp_path):
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return tmp_path / "work"


def typed(line, folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    env.update(PATH=f"{BUILD}:{folder.parent / 'tools'}:{env['PATH']}", HOME=str(folder.parent / "home"), XDG_CONFIG_HOME="",
               LD_LIBRARY_PATH=str(BUILD / "sim"), SLURM_JOB_ID="42", d=".", TMPDIR=str(folder), **more)
    return subprocess.run(["bash", "-o", "pipefail", "-c", line.replace('"/tmp/', '"./')], cwd=folder, env=env, text=True, timeout=SECONDS,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, errors="replace")


LINES = lines()


def not_here(line):
    return next((reason for pattern, reason in NOT_HERE if re.search(pattern, line)), None)


@pytest.mark.parametrize("line, where, whole", [pytest.param(*one, id=one[0][:80]) for one in LINES])
def test_line(folder, line, where, whole):
    reason = not_here(line)
    if reason:
        pytest.skip(reason)
    here = runnable(line, whole)
    done = typed(here, folder)
    command = re.search(r"gpuspy (\w+)", here)[1]
    assert done.returncode == 0 or (done.returncode == 1 and command in ANSWERS_NO), (where, here, done.stdout, done.stderr)
    assert not re.search(r"gpuspy: (cannot|unknown)", done.stderr), (where, here, done.stderr)


def test_there_are_lines():
    """Each command has some, and so has each document that should."""
    commands = {re.search(r"gpuspy ([a-z]+)", line)[1] for line, _, _ in LINES if re.search(r"gpuspy ([a-z]+)", line)}
    assert commands >= set(TABLE)
    assert {where for _, where, _ in LINES} >= {"README.md", "launchers.md", "export.md", "symbols.md", "ci.md", "terminal.md"}


def test_nothing_is_excused_in_vain():
    for pattern, reason in NOT_HERE:
        assert any(re.search(pattern, line) for line, _, _ in LINES), (pattern, reason)


@pytest.mark.parametrize("command", TABLE)
def test_man_page_has_the_examples(command):
    page = subprocess.run([BUILD / "gpuspy", "help", "--man", command], text=True, stdout=subprocess.PIPE, check=True).stdout
    plain = page.replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\").replace("\\(dq", '"')
    for line in of_help(command):
        assert line in plain, line


def test_readme_has_the_figures_of_the_estimate():
    shown = subprocess.run([BUILD / "gpuspy", "estimate", "--params", "1e9"], text=True, stdout=subprocess.PIPE, check=True).stdout
    claimed = re.search(r"a total of (\S+ GiB):.*?peak is (\S+ GiB),.*?temporaries of (\S+ GiB)", (ROOT / "README.md").read_text(), re.S)
    assert claimed, "README.md explains the figures of estimate"
    for words, size in zip((r"total", r"optimizer step", r"temporaries"), claimed.groups()):
        assert re.search(rf"{words} +{re.escape(size)}\b", shown), (words, size, shown)


def test_links_lead_to_documents_that_packages_have():
    links = [(path, link) for path in DOCUMENTS for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())]
    assert len(links) > 50
    assert [(path.name, link) for path, link in links if not (path.parent / link).is_file()] == []
    outside = {link for path, link in links if path.parent.name == "docs" and link.startswith("../")}
    assert all(link.startswith("../tests/gpu/") for link in outside), outside  # figures, beside the sources only


def test_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 7 * 1024
