"""Malicious recordings of bounded size: no content of the tables that remain of removed rows makes a command crash,
hang, or print invalid JSON."""
import json
import random
import shutil
import sqlite3
import subprocess

import pytest

from conftest import BUILD, ROOT
from rows import GIB, MIB, SECOND, TENSOR, Rows
from test_hostile import assert_views

STEPS, KEPT, EACH = 400, 300, 0.1
VIEWS = ["report {db}", "report --json {db}", "report --html {out} {db}", "leaks --json {db}", "tree {db}",
         "check --max-growth 1MiB/step --max-peak 1GiB {db}", "timeline {db}", "export --format chrome-trace --output {out} {db}",
         "stats --json {db}", "diff --json {db} {good}", "whatif {db}"]
MOST = 9223372036854775807
TABLES = {"removed": "what,kind,stack_id,count,bytes,ns,first_ns", "removed_after": "after_ns,kind,count,bytes",
          "level": "series,device,start_ns,end_ns,low_bytes,high_bytes", "removed_course": "kind,stack_id,first_id,low_bytes",
          "removed_time": "first_id,time_ns",
          "removed_scope": "peak_bytes,peak_ns,entry_bytes,exit_bytes,open_entry_bytes,count,ended_ns,until_ns"}


def bounded(path, removed=KEPT):
    """Steps of which each leaks, with all rows from step KEPT on; the first `removed` ones are removed but for what they
    leaked."""
    with Rows(path, seconds=STEPS * EACH + 1, rank=0) as r:
        db = r.db
        db.executescript((ROOT / "schema" / "keep.sql").read_text())
        r.device()
        work = r.stack("/home/me/train.py:40 main", "/home/me/train.py:12 step")
        keep = r.stack("/home/me/train.py:40 main", "/home/me/train.py:20 remember")
        kinds = {"device": 32, "tensor": TENSOR + 32}
        for i in range(STEPS):
            at = 0.5 + i * EACH
            for k, (layer, shift) in enumerate(((0, 0), (TENSOR, 1 << 40))):
                r.block(at + k / 1000, MIB, None, keep, layer=layer, address=shift + (1 << 32) + i * MIB)
                r.block(at + k / 1000 + 0.01, 4 * MIB, 0.02, work, layer=layer, address=shift + (5 << 32) + i * 4 * MIB)
            r.sync(at + 0.05, 0.02, work)
        db.execute("DELETE FROM allocation_row WHERE life_ns IS NOT NULL AND id <= ?", (removed * 4,))
        db.execute("DELETE FROM sync WHERE id <= ?", (removed,))
        db.execute("INSERT INTO meta VALUES('kept_from_ns',?),('keep',?)", (int((0.5 + KEPT * EACH) * SECOND), 32 * MIB))
        for kind in kinds.values():
            if removed:
                db.execute("INSERT INTO removed VALUES(0,?,?,?,?,?,?)",
                           (kind, work, removed, removed * 4 * MIB, int(removed * 0.02 * SECOND), int(0.51 * SECOND)))
                db.execute("INSERT INTO removed_after VALUES(0,?,?,?)", (kind, removed, removed * 4 * MIB))
            for bucket in range(1, 37):
                db.execute("INSERT INTO removed_course VALUES(?,?,?,?)", (kind, keep, bucket * 32, bucket * 8 * MIB))
        for bucket in range(1, 37):
            db.execute("INSERT INTO removed_time VALUES(?,?)", (bucket * 32, int((0.5 + bucket * 8 * EACH) * SECOND)))
        if removed:
            db.execute("INSERT INTO removed VALUES(2,8,?,?,0,?,?)",
                       (work, removed, int(removed * 0.02 * SECOND), int(0.55 * SECOND)))
        for i in range(KEPT):
            at = 0.5 + i * EACH
            for series in 0, 1:
                db.execute("INSERT INTO level VALUES(?,0,?,?,?,?)", (series, int(at * SECOND), int((at + EACH) * SECOND),
                                                                     i * MIB, (i + 5) * MIB))
        db.execute("INSERT INTO removed_scope VALUES(NULL,'step',1,0,?,5,?,?,NULL,300,9,?)", (GIB, MIB, MIB, 30 * SECOND))


def huge_counts(db):
    db.execute("UPDATE removed SET count=?, bytes=?, ns=?", (MOST, MOST, MOST))


def many_huge_counts(db):
    db.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<2000) "
               "INSERT INTO removed SELECT 0,kind+4096*x,stack_id,?,1,1,first_ns FROM removed,n WHERE what=0", (MOST,))


def a_million_steps_per_row(db):
    db.execute("UPDATE removed SET count=count*1000000007")


def negative_counts(db):
    db.execute("UPDATE removed SET count=-count, bytes=-bytes, ns=-ns, first_ns=-first_ns")


def first_times(db):
    db.execute("UPDATE removed SET first_ns=(CASE kind%3 WHEN 0 THEN ? WHEN 1 THEN ? ELSE 'x' END)", (MOST, -MOST - 1))


def kept_from_the_end_of_time(db):
    db.execute("UPDATE meta SET value=? WHERE key='kept_from_ns'", (MOST,))


def kept_from_the_end_of_time_and_no_times(db):
    kept_from_the_end_of_time(db)
    db.execute("DELETE FROM removed_time")


def kept_from_the_start(db):
    db.execute("UPDATE meta SET value=1 WHERE key='kept_from_ns'")


def kept_from_a_text(db):
    db.execute("UPDATE meta SET value='soon' WHERE key='kept_from_ns'")


def ids_of_courses(db):
    db.execute("INSERT INTO removed_course SELECT kind,stack_id,-first_id,? FROM removed_course", (MOST,))
    db.execute("INSERT INTO removed_course SELECT kind,stack_id,?-first_id,? FROM removed_course WHERE first_id>0", (MOST, -MOST - 1))


def kinds_of_courses(db):
    db.execute("INSERT OR IGNORE INTO removed_course SELECT kind|~4095,stack_id,first_id,? FROM removed_course", (MOST,))
    db.execute("INSERT OR IGNORE INTO removed_course SELECT -1-kind,9223372036854775807-stack_id,first_id,9 FROM removed_course")
    db.execute("INSERT OR IGNORE INTO removed_course SELECT x,stack_id,first_id,? FROM removed_course,(SELECT 4095 AS x UNION "
               "SELECT -9223372036854775807 UNION SELECT 31)", (MOST,))


def unsorted_times(db):
    db.execute("UPDATE removed_time SET time_ns=?-time_ns", (MOST,))


def early_times(db):
    db.execute("UPDATE removed_time SET time_ns=-time_ns WHERE first_id%64")
    db.execute("INSERT INTO removed_time VALUES(-5,5),(?,5),(0,?)", (MOST, MOST))


def odd_levels(db):
    db.execute("UPDATE level SET low_bytes=?, high_bytes=-1 WHERE start_ns%2", (MOST,))
    db.execute("UPDATE OR IGNORE level SET series=99, device=-99 WHERE start_ns%3")
    db.execute("UPDATE OR IGNORE level SET end_ns=-end_ns, start_ns=? WHERE start_ns%5", (MOST,))


def levels_at_the_ends_of_time(db):
    db.execute("INSERT INTO level SELECT DISTINCT series,device,?,?,?,? FROM level", (-MOST - 1, -MOST, 1, MOST))
    db.execute("INSERT INTO level SELECT DISTINCT series,device,?,?,?,? FROM level", (MOST - 1, MOST, 1, MOST))


def levels_in_no_order(db):
    db.execute("UPDATE OR IGNORE level SET start_ns='text' WHERE start_ns > ?", (10 * SECOND,))
    db.execute("UPDATE OR IGNORE level SET start_ns=x'00' WHERE start_ns > ?", (5 * SECOND,))
    db.execute("UPDATE level SET end_ns=1 WHERE typeof(start_ns)='blob'")


def levels_that_round_up(db):
    db.execute("DELETE FROM level")
    for i in range(64):
        db.execute("INSERT INTO level VALUES(0,0,?,?,?,?)", (i << 54, (i + 1) << 54, i << 22, i << 23))
    db.execute("UPDATE level SET end_ns=end_ns-1 WHERE end_ns=?", (1 << 60,))
    db.execute("INSERT INTO level VALUES(0,0,?,?,1,2)", ((1 << 60) - 1, 1 << 60))


def types(db):
    for table, columns in TABLES.items():
        for i, column in enumerate(columns.split(",")):
            value = ["'text'", "x'00ff'", "1e300", "'0x7fffffffffffffff'", "-0.0", "9e999"][i % 6]
            if column != "first_id" or table != "removed_time":  # an INTEGER PRIMARY KEY accepts nothing else
                db.execute(f"UPDATE OR IGNORE {table} SET {column}={value} WHERE abs(random())%2=0")


def missing_tables(db):
    for table in TABLES:
        db.execute(f"DROP TABLE {table}")


def tables_that_never_end(db):
    for table, columns in TABLES.items():
        db.execute(f"DROP TABLE {table}")
        db.execute(f"CREATE VIEW {table} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT "
                   + ",".join(f"x AS {c}" for c in columns.split(",")) + ",1 AS domain,'x' AS name,1 AS series,1 AS device FROM n"
                   if table == "removed_scope" else
                   f"CREATE VIEW {table} AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n) SELECT "
                   + ",".join(f"x AS {c}" for c in columns.split(",")) + " FROM n")


def no_rows_at_all(db):
    db.execute("DELETE FROM allocation_row")


def a_full_table_of_courses(db):
    db.execute("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<300000) "
               "INSERT INTO removed_course SELECT 32,1+x%4,10000+x,x%977 FROM n")


CHANGES = [huge_counts, many_huge_counts, a_million_steps_per_row, negative_counts, first_times, kept_from_the_end_of_time,
           kept_from_the_end_of_time_and_no_times, kept_from_the_start, kept_from_a_text, ids_of_courses, kinds_of_courses,
           unsorted_times, early_times, odd_levels, levels_at_the_ends_of_time,
           levels_in_no_order, levels_that_round_up, types, missing_tables, tables_that_never_end,
           no_rows_at_all, a_full_table_of_courses]


def any_values(seed):
    r = random.Random(seed)
    values = [0, 1, -1, 2, 7, 63, 64, 4095, 1 << 31, 1 << 32, 1 << 59, 1 << 60, 1 << 62, MOST - 1, MOST, -MOST - 1]

    def change(db):
        for table, columns in TABLES.items():
            for column in columns.split(","):
                if r.random() < 0.4:
                    db.execute(f"UPDATE OR IGNORE {table} SET {column}=? WHERE abs(random())%?=0",
                               (r.choice(values), r.choice([1, 2, 10])))
        if r.random() < 0.5:
            db.execute("UPDATE meta SET value=? WHERE key='kept_from_ns'", (r.choice(values),))
    return change


def through_the_views(tmp_path, good, database):
    calls = []
    for n, line in enumerate(VIEWS):
        out = tmp_path / f"out.{n}"
        calls.append([word.format(db=database, good=good, out=out) for word in line.split()])
    assert_views(calls, tmp_path)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.db"
    bounded(path)
    return path


def changed(tmp_path, good, change):
    bad = tmp_path / "bad.db"
    shutil.copy(good, bad)
    db = sqlite3.connect(bad, isolation_level=None)
    db.execute("BEGIN")
    change(db)
    db.execute("COMMIT")
    db.close()
    return bad


def test_a_sound_one(tmp_path, good):
    through_the_views(tmp_path, good, good)
    done = subprocess.run([BUILD / "gpuspy", "report", "--json", good], stdout=subprocess.PIPE, check=True)
    report = json.loads(done.stdout)
    assert report["growth"] and report["growth"][0]["steps"] >= KEPT


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_content(tmp_path, good, change):
    through_the_views(tmp_path, good, changed(tmp_path, good, change))


@pytest.mark.parametrize("seed", range(4))
def test_any_values(tmp_path, good, seed):
    through_the_views(tmp_path, good, changed(tmp_path, good, any_values(seed)))
