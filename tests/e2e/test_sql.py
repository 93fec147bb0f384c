"""gpuspy sql: the queries of docs/schema.md on recordings, compared with the report; what is refused."""
import csv
import io
import json
import os
import pty
import re
import select
import sqlite3
import subprocess
import sys
import time

import pytest
from conftest import BUILD, ROOT, SECONDS, wait_until

PAGE = (ROOT / "docs" / "schema.md").read_text()
QUERIES = dict(re.findall(r"^```sql (\S+)\n(.*?)^```", PAGE, re.S | re.M))


def ask(recording, query, *options, database=None, code=0):
    done = recording.gpuspy("sql", *options, database or recording.database, query)
    assert done.returncode == code, done.stderr
    return done


def rows(recording, query, **more):
    return json.loads(ask(recording, query, "--json", **more).stdout)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One recording with something of everything: a leak, copies, waits, two failures."""
    from conftest import Recording
    recording = Recording(tmp_path_factory.mktemp("sql"))
    recording.python(SCRIPT, SIMCUDA_MEMORY="2GiB")
    recording.report()  # completes it: the script ends with _exit
    return recording


SCRIPT = """import ctypes
import threading
import minicuda

rt = minicuda.Runtime()
kept = []

def weights():
    return minicuda.Tensor(rt, 100 << 20)

def leak():
    kept.append(minicuda.Tensor(rt, 3 << 20))

def step(weight):
    activation = minicuda.Tensor(rt, 200 << 20)
    activation.copy_from(bytes(4096))
    leak()
    activation.item()

def too_much():
    try:
        minicuda.Tensor(rt, 8 << 30)
    except minicuda.OutOfMemoryError:
        pass

held = [weights() for _ in range(3)]
for _ in range(10):
    step(held)
thread = threading.Thread(target=too_much, name="loader")
thread.start()
thread.join()
import os
os._exit(0)
"""


def test_the_page_agrees_with_the_schema():
    subprocess.run([sys.executable, str(ROOT / "scripts" / "schema-page.py"), "--check"], check=True)


def test_the_page_has_ten_queries():
    assert len(QUERIES) >= 10


@pytest.mark.parametrize("name", QUERIES)
def test_each_query_runs(trained, name):
    done = ask(trained, QUERIES[name], "--csv")
    assert next(csv.reader(io.StringIO(done.stdout)))


def test_the_peak_is_the_reports(trained):
    peak = [p for p in trained.report()["peak"] if p["layer"] == "device"][0]
    got = rows(trained, QUERIES["peak"].replace("('tensor')", "('device')"))
    assert {row["peak_bytes"] for row in got} == {peak["bytes"]}
    assert sum(row["bytes"] for row in got) == peak["bytes"] and sum(row["count"] for row in got) == peak["count"]
    assert got[0]["time_s"] == pytest.approx(peak["time_s"], abs=1e-6)
    assert {row["line"].split(" in ")[1] for row in got} == {"weights", "leak", "step"}


def test_live_at_the_end_are_the_leaks(trained):
    leaks = {(leak["site"]["line"]): (leak["bytes"], leak["count"]) for leak in trained.report("--top", "50")["leaks"]}
    got = {int(re.search(r":(\d+)", row["line"])[1]): (row["bytes"], row["count"])
           for row in rows(trained, QUERIES["leaks"]) if row["layer"] == "device"}
    assert got == leaks and (300 << 20, 3) in got.values() and (30 << 20, 10) in got.values()
    late = QUERIES["live-at"].replace("1500000000", str(1 << 60))
    assert sum(row["bytes"] for row in rows(trained, late)) == sum(leak[0] for leak in leaks.values())
    assert rows(trained, QUERIES["live-at"].replace("1500000000", "0")) == []


def test_copies_are_the_reports(trained):
    report = {(t["direction"], t["count"], t["bytes"]) for t in trained.report()["transfers"]}
    got = {(row["direction"], row["count"], row["bytes"]) for row in rows(trained, QUERIES["copies"])}
    assert got == report == {("h2d", 10, 40960), ("d2h", 10, 40)}


def test_sizes_and_churn_and_threads(trained):
    sizes = {row["low"]: (row["count"], row["bytes"]) for row in rows(trained, QUERIES["sizes"]) if row["layer"] == "device"}
    assert sizes[128 << 20] == (10, 2000 << 20) and sizes[2 << 20] == (10, 30 << 20)
    churn = rows(trained, QUERIES["churn"])
    assert (churn[0]["count"], churn[0]["bytes"], churn[0]["mean_bytes"]) == (10, 2000 << 20, 200 << 20)
    threads = rows(trained, QUERIES["threads"])
    assert threads[0]["allocations"] == 23 and threads[0]["copies"] == 20
    assert sum(row["waits"] for row in threads) == trained.sql("select count(*) from sync")[0][0]


def test_failures_are_the_reports(trained):
    report = trained.report()["oom"]
    got = rows(trained, QUERIES["failures"])
    assert [row["requested_bytes"] for row in got] == [oom["requested_bytes"] for oom in report] == [8 << 30]
    assert got[0]["line"].endswith("in too_much") and got[0]["fatal"] == int(report[0]["fatal"])


def test_waits_within_a_range_and_memory_by_step(recording):
    """On rows made by hand, whose figures are obvious."""
    recording.run(BUILD / "tests/programs/marks") if (BUILD / "tests/programs/marks").exists() else recording.python(SCRIPT)
    with sqlite3.connect(recording.database) as db:
        db.executescript("delete from mark; delete from mark_name; delete from sync; delete from allocation_row;"
                         "insert into mark_name values (900, 'step 1'), (901, 'other');"
                         "insert into mark(id, kind, name, start_ns, life_ns, thread_id) values"
                         " (1, 0, 900, 1000, 500, 2), (2, 0, 900, 2000, 500, 2), (3, 0, 901, 5000, 500, 2);"
                         "insert into sync(process_id, device, kind, start_ns, blocked_ns, thread_id) values"
                         " (1, 0, 0, 1100, 10, 2), (1, 0, 0, 2100, 20, 2), (1, 0, 0, 5100, 40, 2), (1, 0, 0, 1200, 80, 3);"
                         "insert into allocation_row(kind, address, bytes, alloc_ns, life_ns) values"
                         f" ({1 + 32}, 16, 512, 1100, 10), ({1 + 32}, 16, 1024, 1200, NULL), ({1 + 32}, 2048, 4096, 2100, 1000)")
    waits = rows(recording, QUERIES["syncs-in-range"])
    assert [(row["count"], row["blocked_s"]) for row in waits] == [(2, pytest.approx(30e-9))]
    steps = rows(recording, QUERIES["steps"])
    assert [(row["step"], row["bytes"], row["of_this_step"]) for row in steps] == [(1, 1024, 1024), (2, 5120, 4096)]


def test_functions(trained):
    one = rows(trained, "select bytes(1610612736) b, bytes(NULL) n, seconds(12500000) s, site(NULL) x, site(-1) y, "
                        "site(1 << 60) z, stack_text('a') t")[0]
    assert one == {"b": "1.50 GiB", "n": None, "s": "12.5 ms", "x": None, "y": None, "z": None, "t": None}
    text = rows(trained, "select stack_text(alloc_stack_id) t from allocations where bytes = 3 << 20 limit 1")[0]["t"]
    assert [line.rsplit(" in ", 1)[1] for line in text.splitlines()] == ["<module>", "step", "leak", "Tensor.__init__"]


@pytest.mark.parametrize("query", [
    "delete from sync", "update process set pid = 1", "insert into meta values (1, 2)", "drop table sync", "vacuum",
    "create table x (a)", "create temp table x (a)", "attach 'y.db' as y", "pragma journal_mode = delete",
    "pragma user_version = 9", "begin", "select load_extension('x')", "drop view leaks", "reindex", "pragma writable_schema = 1",
])
def test_statements_that_write_are_refused(trained, query):
    before = trained.database.read_bytes()
    done = ask(trained, query, code=2)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1 and "refused" in done.stderr
    assert trained.database.read_bytes() == before
    assert sorted(path.name for path in trained.folder.iterdir()) == ["run.db", "script.py"]


def test_exit_codes(trained, tmp_path):
    assert "no such column" in ask(trained, "select nope", code=2).stderr
    assert "no recording given" in trained.gpuspy("sql").stderr
    assert trained.gpuspy("sql").returncode == 2
    assert trained.gpuspy("sql", tmp_path / "none.db", "select 1").returncode == 3
    (tmp_path / "text.db").write_text("hello")
    assert trained.gpuspy("sql", tmp_path / "text.db", "select 1").returncode == 3
    assert trained.gpuspy("sql", "--json", "--csv", trained.database, "select 1").returncode == 2


def test_csv_and_json_of_odd_values(trained):
    query = "select 'a,\"b\"\nc' as x, x'00ff' as y, 1.5 as z, NULL as n, char(27) || '[31m' as e, 1 as x"
    parsed = list(csv.reader(io.StringIO(ask(trained, query, "--csv").stdout)))
    assert parsed == [["x", "y", "z", "n", "e", "x"], ['a,"b"\nc', "x'00ff'", "1.5", "", "?[31m", "1"]]
    assert rows(trained, query) == [{"x": 'a,"b"\nc', "y": "x'00ff'", "z": 1.5, "n": None, "e": "?[31m", "x:6": 1}]
    assert "\x1b" not in ask(trained, query).stdout


def test_queries_from_standard_input(trained):
    done = subprocess.run([str(BUILD / "gpuspy"), "sql", "--csv", str(trained.database)], text=True, stdout=subprocess.PIPE,
                          input="select 1 as a;\n-- a comment\nselect 2 as b;\nselect x;\nselect 3;", stderr=subprocess.PIPE)
    assert done.stdout.split() == ["a", "1", "b", "2"] and done.returncode == 2


def test_commands_of_the_prompt_from_standard_input(trained):
    def piped(text):
        return subprocess.run([str(BUILD / "gpuspy"), "sql", str(trained.database)], text=True, input=text, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    assert "allocations" in piped(".tables\n").stdout and ".mode" in piped(".help\n").stdout
    done = piped(".mode csv\nselect 1 as a,\n 2 as b;\n.quit\nselect x;\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "a,b\n1,2\n", "")
    assert piped("select 5 as n").stdout.split()[-1] == "5"  # without a semicolon
    assert "gpuspy sql FILE .tables" in piped("select * from nosuch;").stderr


def test_an_older_recording_has_todays_views(recording):
    with sqlite3.connect(recording.database) as db:
        db.executescript((ROOT / "tests" / "e2e" / "schema_1.sql").read_text())
        db.executescript("pragma application_id = 1735422841; pragma user_version = 1;"
                         "insert into process(id, run_id, pid, complete, end_ns) values (1, 'r', 7, 1, 100);"
                         "insert into frame(id, kind, function, file, line) values (1, 0, 'f', '/x/a.py', 3);"
                         "insert into stack(id, frame_id, depth) values (1, 1, 1);")
        db.executescript("insert into layer values (0, 'device'); insert into space values (0, 'device');")
        kind = 0 + 0 * 4 + 1 * 32
        db.execute("insert into allocation(kind, address, bytes, alloc_ns, alloc_stack_id) values (?, 16, 64, 5, 1)", (kind,))
    for name, query in QUERIES.items():
        ask(recording, query, "--json")
    done = ask(recording, QUERIES["leaks"], "--json")
    assert [(row["line"], row["bytes"]) for row in json.loads(done.stdout)] == [("a.py:3 in f", 64)]
    assert "older gpuspy" in done.stderr and "mark" in done.stderr


def test_a_files_own_views_are_not_used(recording):
    recording.python(SCRIPT, SIMCUDA_MEMORY="2GiB")
    with sqlite3.connect(recording.database) as db:
        db.executescript("drop view leaks; create view leaks as with recursive x(a) as (select 1 union all select a + 1 from x) "
                         "select a from x;")
    assert rows(recording, "select sum(bytes) b from leaks")[0]["b"] == 330 << 20


def test_processes_of_a_run_are_one_database(recording):
    script = """import os, sys
import minicuda
rt = minicuda.Runtime()
held = minicuda.Tensor(rt, int(sys.argv[1]) << 20)
if sys.argv[1] == "1":
    import subprocess
    subprocess.run([sys.executable, sys.argv[0], "2"], check=True)
os._exit(0)
"""
    recording.python(script, "1", GPUSPY_RUN_ID="together")
    assert len(list(recording.folder.glob("run*.db"))) == 2
    got = rows(recording, "select process_id, bytes, site(alloc_stack_id) s from allocations order by process_id")
    assert [(row["process_id"], row["bytes"]) for row in got] == [(1, 1 << 20), (2, 2 << 20)]
    assert {row["s"].split(" ")[0] for row in got} == {"minicuda.py:38"}
    joined = rows(recording, "select p.pid, count(*) n from allocations a join process p on p.id = a.process_id "
                             "join sites s on s.stack_id = a.alloc_stack_id group by 1")
    assert len(joined) == 2 and {row["n"] for row in joined} == {1}
    for query in QUERIES.values():
        ask(recording, query)
    assert len(rows(recording, "select * from allocations", database=recording.database)) == 2
    assert len(json.loads(recording.gpuspy("sql", "--json", "--alone", recording.database, "select * from allocations").stdout)) == 1


def test_tables_and_columns_without_a_prompt(trained):
    listed, columns = (trained.gpuspy("sql", "--csv", trained.database, query).stdout for query in (".tables", ".schema syncs"))
    assert "syncs,view" in listed and "blocked_ns," in columns


def used(pid):
    """CPU time of a process in seconds."""
    return sum(map(int, open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_prompt_and_ctrl_c(trained):
    """Ctrl-C ends a query that would not end, but not the program."""
    pid, fd = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(str(BUILD / "gpuspy"), ["gpuspy", "sql", str(trained.database)])
    seen = b""

    def until(text, seconds=SECONDS):
        nonlocal seen
        deadline = time.monotonic() + seconds
        while text not in seen and time.monotonic() < deadline:
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    seen += os.read(fd, 65536)
                except OSError:
                    break
        assert text in seen, seen
        seen = seen[seen.index(text) + len(text):]

    until(b"gpuspy> ")
    os.write(fd, b"select bytes(2048) as a;\r")
    until(b"2.00 KiB")
    until(b"gpuspy> ")
    os.write(fd, b".schema syncs\r")
    until(b"blocked_ns")
    until(b"gpuspy> ")
    os.write(fd, b"with recursive x(a) as (select 1 union all select a + 1 from x) select count(*) from x;\r")
    before = used(pid)
    wait_until(lambda: used(pid) > before + 0.05)  # it has begun
    os.write(fd, b"\x03")
    until(b"interrupted")
    until(b"gpuspy> ")
    os.write(fd, b".quit\r")
    ended = wait_until(lambda: (gone := os.waitpid(pid, os.WNOHANG))[0] and gone)
    os.close(fd)
    assert ended == (pid, 0)
