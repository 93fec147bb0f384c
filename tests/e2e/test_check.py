"""gpuspy check: each limit passes and fails, with the right lines; exit codes, the file of limits, JUnit, GitHub."""
import json
import os
import re
import shutil
import sqlite3
import subprocess
import xml.etree.ElementTree as xml

import pytest

from conftest import BUILD, ROOT, SECONDS, Recording, sanitized

MIB = 1 << 20
CLEAN = """
import os, sys
from minicuda import Runtime, Tensor
runtime = Runtime()
steps, what = int(sys.argv[1]), sys.argv[2:]
weights = [Tensor(runtime, 4 << 20) for _ in range(4)]
host, kept = bytes(1 << 20), []

def step(i):
    batch = Tensor(runtime, 1 << 20)
    batch.copy_from(host)  # the copy
    output = Tensor(runtime, 2 << 20)
    output.zero_()
    output.item()  # the wait
    if "leak" in what:
        kept.append(Tensor(runtime, 1 << 20))  # the leak
    if "log" in what and i % 10 == 0:
        batch.item()  # now and then
    if "twice" in what and i in (21, 25):
        batch.item()  # as cudaFree waits where the machine is busy
    if "save" in what and i % 10 == 0:
        for _ in range(20):
            output.item()  # a checkpoint's

for i in range(steps):
    step(i)
if "oom" in what:
    try:
        Tensor(runtime, 1 << 40)
    except RuntimeError:
        sys.exit(1)
if "die" in what:
    os._exit(0)
"""


def line_of(comment, source=CLEAN):
    return 1 + [i for i, line in enumerate(source.splitlines()) if comment in line][0]


class Checked(Recording):
    def __init__(self, folder):
        super().__init__(folder)
        self.environment_more = {}

    def check(self, *words, database=None, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_", "GITHUB_"))}
        env.update({k: str(v) for k, v in more.items()})
        command = [BUILD / "gpuspy", "check", database or self.database, *words]
        return subprocess.run(list(map(str, command)), env=env, cwd=self.folder, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=SECONDS, errors="replace")

    def json(self, *words, code=None, **more):
        done = self.check("--json", *words, **more)
        assert not done.stderr, done.stderr
        reported = json.loads(done.stdout)
        assert done.returncode == (0 if reported["ok"] else 1)
        assert code is None or done.returncode == code, done.stdout
        for one in reported["checks"]:
            if one["status"] == "failed":
                assert one["value"] > one["limit"] and one["over"] == pytest.approx(one["value"] - one["limit"])
        first = {}
        for one in reported["checks"]:  # failed checks come first
            first.setdefault(one["check"], one)
        return first


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Recordings of the loop above, made once for each choice of options."""
    made = {}

    def get(*words, steps=40, **more):
        key = (steps, *words)
        if key not in made:
            one = made[key] = Checked(tmp_path_factory.mktemp("check"))
            one.done = one.python(CLEAN, steps, *words, check=False, **more)
            assert one.done.returncode == (1 if "oom" in words else 0), one.done.stderr
        return made[key]
    return get


# ---------------------------------------------------------------- each gate, both ways

GATES = {  # option: (value that passes, value that fails, further options, the line reported)
    "max-peak": ("19MiB", "18MiB", (), None),
    "max-pinned": ("0", None, (), None),
    "max-growth": ("1MiB/step", "1000KiB/step", ("leak",), "the leak"),
    "max-leak": ("0", None, (), None),
    "max-syncs-per-step": ("3", "2", (), "the wait"),  # the copy, the two calls of item()
    "max-copies-per-step": ("2", "1.5", (), "the copy"),
    "max-h2d-per-step": ("1MiB", "1023KiB", (), "the copy"),
    "max-retries": ("0", None, (), None),
    "max-lost-events": ("0", None, (), None),
}


@pytest.mark.parametrize("gate", GATES)
def test_a_limit_passes_and_fails(recorded, gate):
    yes, no, words, at = GATES[gate]
    one = recorded(*words)
    done = one.check(f"--{gate}", yes)
    assert done.returncode == 0 and not done.stderr, done.stdout + done.stderr
    assert re.search(rf"^ok +{gate} ", done.stdout, re.M), done.stdout
    assert one.json(f"--{gate}", yes, code=0)[gate]["status"] == "ok"
    if no:
        done = one.check(f"--{gate}", no)
        assert done.returncode == 1 and not done.stderr, done.stdout + done.stderr
        assert re.search(rf"FAILED {gate} .*over the limit of", " ".join(done.stdout.split())), done.stdout
        failed = one.json(f"--{gate}", no, code=1)[gate]
        assert failed["lines"] and all("script.py" in line["place"] for line in failed["lines"])
        if at:
            assert any(f"script.py:{line_of(at)}" in line["place"] for line in failed["lines"])
            assert f"script.py:{line_of(at)}" in done.stdout


def test_flags(recorded):
    assert recorded().json("--no-oom", "--no-leaks", code=0)["no-oom"]["value"] == 0
    leaking = recorded("leak").json("--no-leaks", code=1)["no-leaks"]
    assert leaking["lines"][0]["line"] == line_of("the leak") and leaking["value"] == 40 * MIB
    keeper = f"kept by script.py:{line_of('the leak')} `kept.append(Tensor(runtime, 1 << 20))` (guess)"
    assert keeper in leaking["lines"][0]["note"]
    for columns in (60, 100, 200):
        assert keeper in " ".join(recorded("leak").check("--no-leaks", COLUMNS=columns).stdout.split())
    out = recorded("oom")
    failed = out.json("--no-oom", code=1)["no-oom"]
    assert failed["status"] == "failed" and failed["lines"][0]["note"]
    assert "out of memory" in out.check("--no-oom").stdout


def test_the_lines_of_a_peak_are_all_of_it(recorded):
    peak = recorded().json("--max-peak", "1MiB", code=1)["max-peak"]
    assert sum(line["amount"] for line in peak["lines"]) == peak["value"] == 19 * MIB
    assert peak["over"] == 18 * MIB and peak["device"] == 0


@pytest.mark.parametrize("what", ["log", "twice"])
def test_rare_events_are_not_counted_and_that_is_stated(recorded, what):
    done = recorded(what).json("--max-syncs-per-step", "3", code=0)["max-syncs-per-step"]
    assert done["value"] == pytest.approx(3, abs=0.01) and "now and then" in done["why"]


def test_a_checkpoint_now_and_then_is_not_counted_however_many_its_calls(recorded):
    done = recorded("save").json("--max-syncs-per-step", "3", code=0)["max-syncs-per-step"]
    assert done["value"] == pytest.approx(3, abs=0.01) and "more per step occur now and then" in done["why"]


def test_blocked_share_is_not_known_on_a_simulated_gpu(recorded):
    done = recorded().json("--max-blocked-share", "5%", code=1)["max-blocked-share"]
    assert done["status"] == "unknown" and "simulated" in done["why"]


def test_tensors_and_budget_are_not_known_without_pytorch(recorded):
    reported = recorded().json("--max-tensor-peak", "1GiB", "--max-fragmentation", "5%", "--budget", "params=1e6", code=1)
    assert {reported[gate]["status"] for gate in ("max-tensor-peak", "max-fragmentation", "budget")} == {"unknown"}


# ---------------------------------------------------------------- unknown counts as failure

def test_without_steps_nothing_is_stated_per_step(recording):
    one = Checked(recording.folder)
    one.python("from minicuda import *\nr = Runtime()\nt = Tensor(r, 1 << 20)\nt.item()\n")
    reported = one.json("--max-growth", "1GiB/step", "--max-syncs-per-step", "9", "--no-leaks", "--max-peak", "1GiB", code=1)
    for gate in ("max-growth", "max-syncs-per-step", "no-leaks"):
        assert reported[gate]["status"] == "unknown" and "steps" in reported[gate]["why"]
    assert reported["max-peak"]["status"] == "ok"


def test_few_steps_do_not_show_growth(recorded):
    reported = recorded(steps=7).json("--no-leaks", code=1)["no-leaks"]
    assert reported["status"] == "unknown" and "10 are enough" in reported["why"]


def test_a_killed_program_can_fail_but_not_pass(recorded):
    one = recorded("die")
    reported = one.json("--max-peak", "1GiB", code=1)
    assert reported["complete"]["status"] == "failed" and reported["max-peak"]["status"] == "unknown"
    assert one.json("--max-peak", "1MiB", code=1)["max-peak"]["status"] == "failed"
    reported = one.json("--max-peak", "1GiB", "--allow-incomplete", code=0)
    assert "complete" not in reported and reported["max-peak"]["status"] == "ok"
    assert one.json("--max-leak", "1GiB", "--allow-incomplete", code=1)["max-leak"]["status"] == "unknown"


def test_lost_events(recorded, tmp_path):
    path = tmp_path / "lost.db"
    shutil.copy(recorded().database, path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE process SET lost_events = 3")
    db.close()
    one = recorded()
    reported = one.json("--max-peak", "1GiB", database=path, code=1)
    assert reported["max-lost-events"]["value"] == 3 and reported["max-peak"]["status"] == "unknown"
    one.json("--max-peak", "1GiB", "--max-lost-events", "3", database=path, code=0)
    one.json("--max-peak", "1GiB", "--max-lost-events", "2", "--allow-incomplete", database=path, code=1)
    one.json("--max-peak", "1GiB", "--allow-incomplete", database=path, code=0)


# ---------------------------------------------------------------- programs without Python

@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """A program in C, with the allocations it does not free."""
    folder = tmp_path_factory.mktemp("native")
    (folder / "native.c").write_text("""
#include <stdlib.h>
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int main(int argc, char **argv)
{
    void *p, *q;
    if (cudaMalloc(&p, 1 << 20) || cudaMalloc(&q, 3 << 20)) return 1;
    if (argc < 2) cudaFree(q);
    return cudaFree(p);
}
""")
    subprocess.run(["gcc", "-g", "-o", "native", "native.c", BUILD / "sim" / "libcudart.so.13"], cwd=folder, check=True)
    return folder / "native"


def test_a_program_without_python_is_to_free_all(native, tmp_path):
    one = Checked(tmp_path)
    one.run(native)
    assert one.json("--no-leaks", "--max-leak", "0", code=0)["no-leaks"]["value"] == 0
    two = Checked(tmp_path / "two")
    two.folder.mkdir()
    two.run(native, "leave")
    reported = two.json("--no-leaks", "--max-leak", "3MiB", code=1)
    assert reported["max-leak"]["status"] == "ok" and reported["no-leaks"]["value"] == 3 * MIB
    (line,) = reported["no-leaks"]["lines"]
    assert (line["file"].rsplit("/")[-1], line["line"]) == ("native.c", 8)


# ---------------------------------------------------------------- several processes

RANKS = """
import os, subprocess, sys, time
from minicuda import Runtime, Tensor
runtime = Runtime()
rank = int(os.environ.get("RANK", "0"))
keep = Tensor(runtime, (8 if rank == 0 else 24) << 20)  # the first one has run.db
if rank == 0:
    child = subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": "1"})
for i in range(40):
    batch = Tensor(runtime, 1 << 20)
    batch.copy_from(bytes(1 << 20))
    batch.item()
    if rank == 1:
        batch.item()
    else:
        time.sleep(0.02)  # the other one is long done: the loop is what this process does
if rank == 0:
    sys.exit(child.wait())
"""


def test_each_process_is_judged_separately_and_the_worst_counts(recording):
    one = Checked(recording.folder)
    one.python(RANKS)
    done = one.check("--max-peak", "20MiB", "--max-syncs-per-step", "3")
    assert done.returncode == 1 and "of all 2 processes are complete" in done.stdout
    assert done.stdout.count("FAILED") == 2 and "rank 1" in done.stdout and "26.00 MiB" in done.stdout
    assert "in rank 1: 5 per step" in " ".join(done.stdout.split())
    alone = one.json("--alone", "--max-peak", "20MiB", "--max-syncs-per-step", "3", code=0)
    assert alone["max-peak"]["value"] == 10 * MIB
    folder = one.json("--max-peak", "20MiB", database=one.folder, code=1)
    assert folder["max-peak"]["rank"] is not None
    # both on one GPU: 10 MiB and 26 MiB
    shared = one.json("--per", "device", "--max-peak", "36MiB", code=0)["max-peak"]
    assert shared["value"] == 36 * MIB and [line["amount"] for line in shared["lines"]] == [10 * MIB, 26 * MIB]
    reported = one.json("--per", "device", "--max-peak", "30MiB", code=1)["max-peak"]
    assert reported["status"] == "unknown" and "2 processes" in reported["why"]
    summed_up = one.check("--per", "device", "--max-peak", "30MiB").stdout.splitlines()[-1]
    assert summed_up.endswith(" checks failed, 1 is unknown, which counts as failure") and summed_up.startswith("0 of ")
    assert one.json("--per", "device", "--max-peak", "20MiB", code=1)["max-peak"]["status"] == "failed"


# ---------------------------------------------------------------- words

@pytest.mark.parametrize("words, reported", [
    (["--max-peek", "1GiB"], "did you mean '--max-peak'?"), (["--max-peak", "lots"], "--max-peak: 'lots'"),
    ([], "no limits; give one"), (["--max-peak", "+5%"], "add --baseline"), (["--max-growth", "1MiB/epoch"], "1MiB/epoch"),
    (["--budget", "parms=1e9"], "did you mean 'params'?"), (["--config", "a", "--no-config"], "not both"),
    (["--budget", "params=1e9,optimizer=adamm"], "did you mean"), (["--max-blocked-share", "5"], "percentage"),
])
def test_wrong_words_are_usage(recorded, words, reported):
    done = recorded().check(*words)
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(r"gpuspy: [^\n]+\n", done.stderr) and reported in done.stderr, done.stderr


def test_budget_of_a_models_file(recorded, tmp_path):
    one, path = recorded(), tmp_path / "config.json"
    path.write_text('{"model_type": "gpt2"}')
    for model in (path, tmp_path, "gpt2"):
        assert one.json("--budget", f"optimizer=galore,model={model}", code=1)["budget"]["status"] == "unknown"
    path.write_text('{"model_type": "gpt2", "n_head": 5}')
    (tmp_path / "limits").write_text(f"\nbudget = model={path}\n")
    for words in (["--budget", f"model={path}"], ["--config", tmp_path / "limits"]):
        done = one.check(*words)
        assert done.returncode == 3 and not done.stdout
        assert re.fullmatch(r"gpuspy: check: [^\n]+config.json': num_attention_heads is 5[^\n]+\n", done.stderr), done.stderr
    done = one.check("--budget", "model=gpt22")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "did you mean 'gpt2'?" in done.stderr


def test_bad_input(recorded, tmp_path):
    one = recorded()
    assert one.check("--no-oom", database=tmp_path / "none.db").returncode == 3
    (tmp_path / "text.db").write_text("hello")
    assert one.check("--no-oom", database=tmp_path / "text.db").returncode == 3
    assert one.check("--no-oom", "--config", tmp_path / "none").returncode == 3
    assert one.check("--no-oom", "--junit", tmp_path / "no" / "folder.xml").returncode == 3
    assert one.check("--no-oom", "--max-peak", "+1%", "--baseline", tmp_path / "none.db").returncode == 3
    done = subprocess.run([BUILD / "gpuspy", "check"], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "no recording given" in done.stderr


# ---------------------------------------------------------------- the file of limits

def test_limits_in_a_file(recorded):
    one = recorded()
    found = one.folder / ".gpuspy-check"
    try:
        found.write_text("# limits\nmax-peak = 1MiB\nno-oom = true\n[other*.db]\nmax-peak = 1KiB\n")
        assert one.json(code=1)["max-peak"]["limit"] == MIB
        assert one.json("--max-peak", "1GiB", code=0)["max-peak"]["limit"] == 1 << 30  # the command line wins
        assert one.check("--no-config").returncode == 2
        found.write_text("max-peak = 1MiB\n[run*.db]\nmax-peak = 1GiB\n")
        one.json(code=0)
        found.write_text("max-peak = 1GiB\n[gpu 0]\nmax-peak = 1MiB\n")
        one.json(code=1)
        found.write_text("max-peak = 1GiB\n[gpu 3]\nmax-peak = 1MiB\n")
        one.json(code=0)
        found.write_text("[other*.db]\nmax-peak = 1KiB\n")
        done = one.check()
        assert done.returncode == 2 and "no limit applies" in done.stderr
        found.write_text("max-peak = 1GiB\nmax-peek = 2\n")
        done = one.check()
        assert done.returncode == 2 and ".gpuspy-check:2: 'max-peek' is unknown; did you mean 'max-peak'?" in done.stderr
        other = one.folder / "limits.txt"
        other.write_text("max-peak = 2GiB\n")
        assert one.json("--config", other, code=0)["max-peak"]["limit"] == 2 << 30
    finally:
        found.unlink()


def test_limits_relative_to_a_baseline(recorded):
    one, leaking = recorded(), recorded("leak")
    same = one.json("--baseline", one.database, "--max-peak", "+0%", "--max-syncs-per-step", "+0", code=0)
    assert same["max-peak"]["limit"] == 19 * MIB
    more = leaking.json("--baseline", one.database, "--max-peak", "+5%", code=1)["max-peak"]
    assert more["limit"] == pytest.approx(19 * MIB * 1.05)
    leaking.json("--baseline", one.database, "--max-peak", "+41MiB", code=0)


# ---------------------------------------------------------------- for other programs

def test_junit(recorded, tmp_path):
    junitparser = pytest.importorskip("junitparser")
    one, path = recorded("leak"), tmp_path / "out.xml"
    done = one.check("--max-peak", "1MiB", "--no-leaks", "--no-oom", "--junit", path)
    assert done.returncode == 1
    suites = junitparser.JUnitXml.fromfile(str(path))
    (suite,) = list(suites)
    assert (suite.tests, suite.failures, suite.errors) == (4, 2, 0)
    failed = {case.name: case.result[0] for case in suite if case.result}
    assert list(failed) == ["max-peak (GPU 0)", "no-leaks (GPU 0)"]
    assert "over the limit of 1.00 MiB" in failed["max-peak (GPU 0)"].message
    assert f"script.py:{line_of('the leak')}" in failed["no-leaks (GPU 0)"].text
    # the elements and attributes that the schemas of Jenkins and of Ant have in common, in their order
    root = xml.parse(path).getroot()
    assert root.tag == "testsuites" and not root.attrib
    assert set(root[0].attrib) == {"name", "package", "id", "timestamp", "hostname", "tests", "failures", "errors", "time"}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", root[0].get("timestamp"))
    tags = [child.tag for child in root[0]]
    assert tags == ["properties"] + ["testcase"] * 4 + ["system-out", "system-err"]
    for case in root[0].iter("testcase"):
        assert set(case.attrib) == {"classname", "name", "time"}
        assert all(f.tag == "failure" and set(f.attrib) == {"type", "message"} for f in case)


def unescaped(text, names):
    for code, char in (("%0D", "\r"), ("%0A", "\n"), *((("%3A", ":"), ("%2C", ",")) if names else ()), ("%25", "%")):
        text = text.replace(code, char)
    return text


def test_github(recording):
    name = "odd, 100%:<b>\nfile.py"
    one = Checked(recording.folder)
    (one.folder / name).write_text(CLEAN)
    one.run("/usr/bin/python3", one.folder / name, "40", "leak", PYTHONPATH=ROOT / "fixtures" / "python")
    summary = one.folder / "summary.md"
    done = one.check("--no-leaks", "--no-oom", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=summary,
                     GITHUB_WORKSPACE=one.folder)
    assert done.returncode == 1
    lines = [line for line in done.stdout.splitlines() if line.startswith("::")]
    (error,) = lines
    match = re.fullmatch(r"::error ([^:]*)::(.*)", error)
    properties = dict(pair.split("=", 1) for pair in match[1].split(","))
    assert unescaped(properties["file"], True) == name
    assert int(properties["line"]) == line_of("the leak") and unescaped(properties["title"], True) == "gpuspy check: no-leaks"
    assert "grew by 40.00 MiB" in unescaped(match[2], False)
    text = summary.read_text()
    assert "| :x: | no-leaks |" in text and "<b>" not in text and text.count("\n") < 12
    quiet = one.check("--no-leaks")
    assert "::error" not in quiet.stdout
    assert "::error" in one.check("--no-leaks", "--github").stdout
    # JSON stays JSON: annotations go to the other stream
    both = one.check("--no-leaks", "--json", "--github")
    assert json.loads(both.stdout)["ok"] is False and "::error" in both.stderr


def test_text_is_plain_when_piped_and_fits(recorded):
    for columns in (60, 80, 200):
        done = recorded("leak").check("--max-peak", "1MiB", "--no-leaks", "--max-syncs-per-step", "1", COLUMNS=columns)
        assert "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= columns


def test_hostile_names_get_nowhere(recorded, tmp_path):
    """Escapes, markup, line breaks, invalid UTF-8 and a megabyte of text, as names of a file and of a function."""
    path, one = tmp_path / "odd.db", recorded("leak")
    shutil.copy(one.database, path)
    db = sqlite3.connect(path)
    odd = b"/x\x1b[31m</failure><script>]]>&\r\n::error::%0A\xff\xfe|`" + b"A" * (1 << 20)
    db.execute("UPDATE frame SET function = CAST(? AS TEXT), file = CAST(? AS TEXT) WHERE kind = 0", (odd, odd + b".py"))
    db.commit()
    db.close()
    out, summary = tmp_path / "odd.xml", tmp_path / "summary.md"
    words = ["--max-peak", "1KiB", "--no-leaks", "--max-syncs-per-step", "0", "--max-h2d-per-step", "0"]
    done = one.check(*words, "--all", "--junit", out, database=path, GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=summary)
    assert done.returncode == 1 and not done.stderr
    assert "\x1b" not in done.stdout and "\r" not in done.stdout
    lines = [line for line in done.stdout.split("\n") if line.startswith("::")]
    assert lines and all(re.match(r"::error [^:]*::", line) for line in lines)
    suite = xml.parse(out).getroot()[0]
    assert suite.get("failures") == "4" and {e.tag for e in suite.iter("failure")} == {"failure"}
    assert all(not list(failure) for failure in suite.iter("failure"))
    text = summary.read_text()
    assert "<script>" not in text and "\x1b" not in text and len(text) < 1 << 20
    assert one.check(*words, "--json", database=path).returncode == 1
    json.loads(one.check(*words, "--json", database=path).stdout)


def test_every_limit_is_documented():
    options = re.findall(r'^GATE\(\w+, "([a-z0-9-]+)"', (ROOT / "analyzer" / "check" / "gates.def").read_text(), re.M)
    text = (ROOT / "docs" / "ci.md").read_text()
    assert len(options) >= 15 and [name for name in options if f"`--{name}" not in text] == []
