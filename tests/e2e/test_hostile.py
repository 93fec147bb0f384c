"""Malicious recordings, and recordings damaged by a disk, in every view of every command: none crashes, hangs, sends an
escape sequence to the terminal, prints invalid JSON, or ends with an undocumented status."""
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import BUILD, ROOT, SAN
from rows import GIB, MIB, TENSOR, Rows

COMMANDS = re.findall(r"^COMMAND\((\w+),", (ROOT / "analyzer" / "command" / "commands.def").read_text(), re.M)
FORMATS = re.findall(r'^EXPORT(?:_RUN|_FOLDER)?\("([\w-]+)"', (ROOT / "analyzer" / "export" / "exports.def").read_text(), re.M)
SECONDS = 60 if SAN else 20

# The arguments of each command; {db} is the recording, {good} a sound one, {out} a file to write.
VIEWS = {
    "run": [],  # reads no recording
    "attach": [],
    "detach": [],
    "report": ["{db}", "--json {db}", "--native {db}", "--params 1e9 {db}",
               "--model gpt2 --batch 2 --seq 64 {db}",
               "--model gpt2 --batch 2 --seq 64 --gpus 2 --sharding zero3 {folder}", "--html {out} {db}", "{folder}"],
    "export": [f"--format {name} --output {{out}} {{db}}" for name in FORMATS],
    "estimate": [],
    "roofline": [],
    "transfer": [],
    "help": [],
    "top": ["--once {db}", "--json {db}"],
    "diff": ["{db} {good}", "{good} {db}", "--json {db} {db}"],
    "check": ["--max-peak 1GiB --no-leaks --no-oom --max-syncs-per-step 2 --max-growth 1MiB/step {db}",
              "--max-peak 1GiB --json --junit {out} {db}", "--max-peak 'scope:step #=1GiB' {db}"],
    "symbolize": ["--output {out} {db}"],
    "import": ["--output {out} {db}"],  # refused: it is a recording by gpuspy, or damaged
    "whatif": ["{db}", "--json --search {db}", "--set expandable_segments:True --limit 1GiB {db}"],
    "calibrate": ["--output {out} {db}", "--output {out} --json --model gpt2 --batch 2 --seq 64 {db}"],
    "sql": ["{db} 'select * from allocations limit 5'", "--json {db} 'select * from frames limit 50'"],
    "doctor": [],
    "metrics": [],  # reads no file from its arguments
    "jupyter": [],
} | {name: ["{db}", "--json {db}"] for name in ("tree", "table", "stats", "leaks", "timeline", "flame")}

NASTY = ["</script><img src=x onerror=alert(1)><!--", "\x1b[2J\x1b]0;owned\x07\x9b31m", "a;b;c", '=cmd|"/c calc"!A1',
         "line\nbreak\r\ttab", "\u202egnp.exe", "x" * (1 << 20), "'; DROP TABLE frame; --", "%n%s%1000000d", "{{7*7}}",
         "\u0000", "\ud7ff\uffff", "::error file=x::y%0A", "深" * 400]


def sound(path):
    """A run with something of every kind: steps, a leak, an OOM, waits, copies, marks, native frames."""
    with Rows(path, seconds=20, rank=0) as r:
        db = r.db
        r.device()
        module = db.execute("INSERT INTO module(path,build_id) VALUES('/usr/lib/libtorch.so','00ff')").lastrowid
        step = r.stack("/home/me/train.py:40 main", "/home/me/train.py:12 step")
        keep = r.stack("/home/me/train.py:40 main", "/home/me/train.py:20 remember")
        native = db.execute("INSERT INTO frame(kind,module_id,offset) VALUES(1,?,4096)", (module,)).lastrowid
        deep = db.execute("INSERT INTO stack(parent_id,frame_id,depth) VALUES(?,?,3)", (step, native)).lastrowid
        r.block(0.1, 8 * GIB, None, deep, address=1 << 30)
        r.reserved(0.1, 8 * GIB)
        for i in range(40):
            at = 0.5 + i * 0.4
            r.block(at, 64 * MIB, None, keep, layer=TENSOR, address=(1 << 30) + i * 64 * MIB)
            r.block(at + 0.01, 16 * MIB, 0.2, deep, layer=TENSOR, address=(5 << 30) + i * 16 * MIB)
            r.sync(at + 0.3, 0.02, step)
            db.execute("INSERT INTO copy_row(kind,bytes,start_ns,blocked_ns,stream,stack_id) VALUES(?,?,?,?,0,?)",
                       (0 + 1 * 8 + 64 + 3 * 8192, MIB, int((at + 0.1) * 1e9), 1000, step))
            name = db.execute("INSERT INTO mark_name(name) VALUES(?)", (f"step {i}",)).lastrowid
            db.execute("INSERT INTO mark(kind,name,start_ns,life_ns,thread_id) VALUES(0,?,?,?,2)",
                       (name, int(at * 1e9), 350_000_000))
            db.execute("INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source) VALUES(1,0,?,?,?,0)",
                       (int(at * 1e9), 15 * GIB, 24 * GIB))
        r.oom(19, 30 * GIB, GIB, 24 * GIB, stack=keep)


# ---------------------------------------------------------------- how it is changed

def names(db):
    for i, nasty in enumerate(NASTY):
        db.execute("UPDATE frame SET function=?, file=? WHERE id=(SELECT id FROM frame LIMIT 1 OFFSET ?)",
                   (nasty, "/" + nasty, i % 5))
        name = db.execute("INSERT INTO mark_name(name) VALUES(?)", (nasty,)).lastrowid
        db.execute("INSERT INTO mark(kind,name,start_ns,life_ns,thread_id) VALUES(0,?,?,1000,2)", (name, i * 1000))
        db.execute("INSERT OR REPLACE INTO meta VALUES(?,?)", ("env." + nasty[:100], nasty))
    db.execute("UPDATE process SET command=?, host=?, cwd=?, exe=?, run_id=?", [NASTY[1] + n for n in NASTY[:4]] + [NASTY[0]])
    db.execute("UPDATE device SET name=?", (NASTY[1] + NASTY[0],))
    db.execute("UPDATE module SET path=?, build_id=?", (NASTY[0] + NASTY[4], NASTY[1]))
    db.execute("UPDATE api SET name=?", (NASTY[1],))


def bytes_of_no_text(db):
    for table, column in [("frame", "function"), ("frame", "file"), ("process", "command"), ("device", "name"),
                          ("mark_name", "name"), ("module", "path")]:
        db.execute(f"UPDATE {table} SET {column}=CAST(x'ff00fe1b5b324ac3283c2f7363726970743e' AS TEXT)")


def cycles(db):
    db.execute("UPDATE stack SET parent_id=id WHERE id%2=0")
    db.execute("UPDATE stack SET parent_id=(SELECT max(id) FROM stack) WHERE id%2=1")
    db.execute("UPDATE stack SET depth=-7")


def a_stack_without_end(db):
    frame = db.execute("SELECT max(id) FROM frame").fetchone()[0]
    first = db.execute("SELECT max(id) FROM stack").fetchone()[0]
    db.executemany("INSERT INTO stack VALUES(?,?,?,?)", ((first + i, first + i - 1, frame, i) for i in range(1, 20000)))
    db.execute("UPDATE allocation_row SET alloc_stack_id=?", (first + 19999,))


def nothing_there(db):
    db.execute("UPDATE stack SET frame_id=frame_id+1000000")
    db.execute("UPDATE allocation_row SET alloc_stack_id=99999999 WHERE id%2")
    db.execute("UPDATE frame SET module_id=777")


def times(db):
    db.execute("UPDATE allocation_row SET alloc_ns=-alloc_ns WHERE id%3=0")
    db.execute("UPDATE allocation_row SET alloc_ns=9223372036854775807 WHERE id%7=1")
    db.execute("UPDATE allocation_row SET life_ns=-5000000000 WHERE id%3=1")
    db.execute("UPDATE sync SET start_ns=-1, blocked_ns=-9223372036854775807 WHERE id%2")
    db.execute("UPDATE copy_row SET start_ns=9223372036854775807, blocked_ns=9223372036854775807 WHERE id%2")
    db.execute("UPDATE mark SET start_ns=-9223372036854775807, life_ns=9223372036854775807 WHERE id%2")
    db.execute("UPDATE oom SET time_ns=-3")
    db.execute("UPDATE process SET end_ns=-1, start_real_ns=-9223372036854775807")


def a_long_run(db):
    db.execute("UPDATE process SET end_ns=9223372036854775806")
    db.execute("UPDATE allocation_row SET life_ns=9223372036854775807-alloc_ns WHERE id%5=0")


def sizes(db):
    db.execute("UPDATE allocation_row SET bytes=9223372036854775807 WHERE id%2")
    db.execute("UPDATE allocation_row SET bytes=-5 WHERE id%5=0")
    db.execute("UPDATE allocation_row SET address=-1 WHERE id%3=0")
    db.execute("UPDATE copy_row SET bytes=9223372036854775807")
    db.execute("UPDATE oom SET requested_bytes=-1, free_bytes=9223372036854775807, total_bytes=0")
    db.execute("UPDATE device SET total_bytes=-1, free_bytes=9223372036854775807")
    db.execute("UPDATE sample SET free_bytes=-9223372036854775807, total_bytes=0")
    db.execute("UPDATE reserved SET bytes=-9223372036854775807")


def kinds(db):
    db.execute("UPDATE allocation_row SET kind=9223372036854775807 WHERE id%3=0")
    db.execute("UPDATE allocation_row SET kind=-1 WHERE id%3=1")
    db.execute("UPDATE copy_row SET kind=-1 WHERE id%2")
    db.execute("UPDATE sync SET kind=99, api=-1, device=-9223372036854775807")
    db.execute("UPDATE mark SET kind=99, name=-1")
    db.execute("UPDATE oom SET layer=77, space=-1, device=1000000, fatal=17")
    db.execute("UPDATE frame SET kind=200, line=-9223372036854775807")
    db.execute("UPDATE process SET rank=-9223372036854775807, pid=-1, complete=55")
    db.execute("UPDATE device SET device=2147483648")


def types(db):
    for table, columns in [("allocation_row", "kind,address,bytes,alloc_ns,life_ns,alloc_stack_id"), ("frame", "function,file,line,kind"),
                           ("process", "pid,rank,end_ns,complete,start_real_ns,lost_events"), ("oom", "requested_bytes,time_ns,device"),
                           ("sync", "kind,start_ns,blocked_ns"), ("device", "device,name,total_bytes"), ("stack", "depth")]:
        for i, column in enumerate(columns.split(",")):
            value = ["'text'", "x'00ff'", "1e300", "'0x7fffffffffffffff'", "-0.0", "9e999"][i % 6]
            db.execute(f"UPDATE OR IGNORE {table} SET {column}={value} WHERE rowid%2=0")
    db.execute("INSERT OR REPLACE INTO meta VALUES('lost_events','many'),('events',-5),('damaged_records',1e300)")


def no_rows(db):
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall():
        db.execute(f"DELETE FROM {table}")


def missing_tables(db):
    for table in "frame", "copy_row", "mark", "sample", "device":
        db.execute(f"DROP TABLE {table}")


def other_columns(db):
    for table in "allocation_row", "sync", "stack":
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
        db.execute(f"CREATE TABLE {table} (wrong)")


def tables_that_never_end(db):
    for table, columns in [("frame", "id,kind,function,file,line,module_id,offset"), ("oom", "id,process_id,device")]:
        db.execute(f"DROP TABLE {table}")
        db.execute(f"CREATE VIEW {table} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT "
                   + ",".join(f"x AS {c}" for c in columns.split(",")) + " FROM n")


def lost(db):
    db.execute("UPDATE process SET complete=0, lost_events=9223372036854775807, lost_first_ns=-1, end_ns=NULL")


def still_recording(db):
    db.execute("UPDATE process SET complete=NULL, end_ns=NULL, pid=1")


def two_of_all(db):
    db.execute("INSERT INTO process SELECT 2,run_id,pid,ppid,rank,host,command,cwd,exe,python_version,start_real_ns,"
               "end_ns,complete,0,NULL FROM process")
    db.execute("UPDATE mapping SET allocation_id=1")
    db.execute("UPDATE allocation_row SET address=4096")


ROWS = [names, bytes_of_no_text, cycles, a_stack_without_end, nothing_there, times, a_long_run, sizes, kinds, types,
        no_rows, missing_tables, other_columns, tables_that_never_end, lost, still_recording, two_of_all]


def cut(data, r):
    return data[:r.randrange(100, len(data))]


def overwritten(data, r):
    data = bytearray(data)
    for _ in range(r.randrange(1, 200)):
        data[r.randrange(100, len(data))] = r.randrange(256)
    return bytes(data)


def pages_swapped(data, r):
    pages = [data[i:i + 4096] for i in range(4096, len(data), 4096)]
    r.shuffle(pages)
    return data[:4096] + b"".join(pages)


def a_page_of_ff(data, r):
    at = r.randrange(1, len(data) // 4096) * 4096
    return data[:at] + b"\xff" * 4096 + data[at + 4096:]


def another_header(data, r):
    data = bytearray(data)
    for i in range(16, 100):
        if r.random() < 0.1:
            data[i] = r.randrange(256)
    return bytes(data)


# ---------------------------------------------------------------- how the commands react

ESCAPES = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]|\r(?!\n)|[\u202a-\u202e\u2066-\u2069]")
WRITES_RAW = {"export"}  # for programs, not for people: the tests of each format read the output


def view(words, folder):
    """Runs one view; returns a description of the error, or nothing."""
    command = " ".join(words)
    try:
        done = subprocess.run([str(BUILD / "gpuspy"), *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=SECONDS, cwd=folder,
                              env={k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))})
    except subprocess.TimeoutExpired:
        return f"{command}: hangs"
    error = done.stderr.decode(errors="replace")
    if done.returncode not in ((0, 1, 2, 3) if words[0] == "sql" else (0, 1, 3)):  # the query may be invalid for it
        return f"{command}: ended with {done.returncode}: {error[-3000:]}"
    if ESCAPES.search(error):
        return f"{command}: stderr has an escape: {error[:300]!r}"
    if any(len(line) > 20000 for line in error.splitlines()):
        return f"{command}: a line of {max(map(len, error.splitlines()))} characters on stderr"
    if done.returncode in (2, 3) and (not error or "not an error" in error):
        return f"{command}: nothing says why: {error}"
    if words[0] in WRITES_RAW:
        return None
    try:
        text = done.stdout.decode()
    except UnicodeDecodeError as e:
        return f"{command}: {e}"
    if "--json" in words and done.returncode not in (2, 3):
        try:
            json.loads(text, parse_constant=lambda x: 1 / 0)
        except (ValueError, ZeroDivisionError) as e:
            return f"{command}: no JSON: {e}: {text[:300]}"
    elif ESCAPES.search(text):
        at = ESCAPES.search(text).start()
        return f"{command}: stdout has an escape: {text[max(0, at - 200):at + 50]!r}"
    return None


def assert_views(calls, tmp_path):
    """Each of the commands ends in time, without a crash and with a clear error, if any."""
    with ThreadPoolExecutor(2) as two:
        wrong = [w for w in two.map(lambda words: view(words, tmp_path), calls) if w]
    assert not wrong, "\n".join(wrong)


def through_every_view(tmp_path, good, database):
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    shutil.copy(database, folder / "run.db")
    calls = []
    for command in COMMANDS:
        for n, line in enumerate(VIEWS[command]):
            out = tmp_path / f"out.{command}.{n}"
            mine = tmp_path / f"{command}.{n}.db"  # completing a recording may write to it
            shutil.copy(database, mine)
            quoted = re.findall(r"'[^']*'|\S+", line)
            calls.append([command] + [w.strip("'").format(db=mine, good=good, out=out, folder=folder) for w in quoted])
    assert_views(calls, tmp_path)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.db"
    sound(path)
    return path


def test_every_command_is_here():
    assert set(COMMANDS) <= set(VIEWS)


def test_a_sound_one(tmp_path, good):
    """All views accept a sound recording, so that failures of the others are due to their damage."""
    through_every_view(tmp_path, good, good)
    done = subprocess.run([str(BUILD / "gpuspy"), "report", "--json", good], stdout=subprocess.PIPE)
    report = json.loads(done.stdout)
    assert report["oom"] and report["sync"] and report["transfers"] and report["growth"] and report["peak"]


@pytest.mark.parametrize("change", ROWS, ids=lambda f: f.__name__)
def test_rows(tmp_path, good, change):
    bad = tmp_path / "bad.db"
    shutil.copy(good, bad)
    db = sqlite3.connect(bad, isolation_level=None)
    db.execute("PRAGMA writable_schema=ON")
    db.execute("BEGIN")
    change(db)
    db.execute("COMMIT")
    db.close()
    through_every_view(tmp_path, good, bad)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change", [cut, overwritten, pages_swapped, a_page_of_ff, another_header], ids=lambda f: f.__name__)
def test_pages(tmp_path, good, change, seed):
    bad = tmp_path / "bad.db"
    bad.write_bytes(change(good.read_bytes(), random.Random(f"{change.__name__} {seed}")))
    through_every_view(tmp_path, good, bad)


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"hello\n" * 100, b"\x1b[2J" * 1000])
def test_files_of_another_kind(tmp_path, good, content):
    bad = tmp_path / "bad.db"
    bad.write_bytes(content)
    through_every_view(tmp_path, good, bad)
    assert subprocess.run([str(BUILD / "gpuspy"), "report", bad], stderr=subprocess.DEVNULL).returncode == 3
