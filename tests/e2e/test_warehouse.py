"""docs/warehouse.md: DuckDB and ClickHouse run its queries on the recordings of
several runs, exported into one folder."""
import json
import re
import subprocess
import sys

import pytest
from conftest import BUILD, ROOT, SECONDS
from rows import GIB, MIB, TENSOR, Rows

PAGE = (ROOT / "docs" / "warehouse.md").read_text()
BLOCKS = re.findall(r"^```(?:sql|python) (\w+) ?(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
QUERIES = {kind: {name: text for k, name, text in BLOCKS if k == kind and name} for kind in ("duckdb", "clickhouse")}
VIEWS = "".join(text for kind, name, text in BLOCKS if kind == "duckdb" and not name)
RUNNER = """
import json, sys
kind, work = sys.argv[1], json.load(sys.stdin)
if kind == "duckdb":
    import duckdb
    db = duckdb.connect()
    db.execute(work["views"])
    ask = lambda sql: [list(map(str, row)) for row in db.execute(sql).fetchall()]
else:
    from chdb import session
    s = session.Session()
    ask = lambda sql: [[str(v) for v in json.loads(line)] for line in
                       str(s.query(sql.strip().rstrip(";"), "JSONCompactEachRow")).splitlines()]
print(json.dumps({name: ask(sql) for name, sql in work["queries"].items()}))
"""


def rank(path, run, rank, mib, line=12, waited=1.0, oom=False, start=0.0):
    path.parent.mkdir(exist_ok=True)
    with Rows(path, run=run, rank=rank, pid=100 + rank, host=f"node{rank // 2}", start=start) as rows:
        rows.device(rank)
        build = rows.stack("/home/me/train.py:9 <module>", f"/home/me/train.py:{line} build")
        step = rows.stack("/home/me/train.py:9 <module>", "/home/me/train.py:30 step")
        rows.block(0.1, (mib + 24) * MIB, stack=build, device=rank)
        rows.block(0.2, mib * MIB, stack=build, layer=TENSOR, device=rank, address=1 << 40)
        for i in range(10):
            rows.block(1 + i * 0.5, 8 * MIB, 0.3, step, layer=TENSOR, device=rank, address=2 << 40)
            rows.sync(1.4 + i * 0.5, waited / 10, step, device=rank)
        if oom:
            rows.oom(9, 30 * GIB, GIB, 24 * GIB, stack=build)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """Two runs of four ranks; the second holds more on rank 2, and runs out of memory on rank 3."""
    folder = tmp_path_factory.mktemp("runs")
    for run, start in ("monday", 0), ("tuesday", 86400):
        for i in range(4):
            late = run == "tuesday" and i == 2
            rank(folder / run / f"run.{i}.db", run, i, 1500 if late else 1000, waited=0.1 if late else 2.0,
                 oom=run == "tuesday" and i == 3, start=start)
        done = subprocess.run([str(BUILD / "gpuspy"), "export", "--format", "ndjson", "-o", "warehouse", run], cwd=folder,
                              text=True, capture_output=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
    return folder


def answers(warehouse, kind, module):
    python = BUILD / "validators" / "venv" / "bin" / "python"
    if not python.exists() or subprocess.run([str(python), "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{module} is not installed: scripts/setup-validators.sh fetches it")
    done = subprocess.run([str(python), "-c", RUNNER, kind], cwd=warehouse, text=True, capture_output=True, timeout=200,
                          input=json.dumps({"views": VIEWS, "queries": QUERIES[kind]}))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_file_for_each_process_of_each_run(warehouse):
    for table in "processes", "peaks", "sites", "ooms", "steps":
        assert len(list((warehouse / "warehouse" / table).glob("*.ndjson"))) == 8


def test_duckdb(warehouse):
    got = answers(warehouse, "duckdb", "duckdb")
    assert set(got) == set(QUERIES["duckdb"]) and len(got) >= 10
    assert [row[0] for row in got["runs"]] == ["tuesday", "monday"] and [row[3] for row in got["runs"]] == ["4", "4"]
    assert int(got["runs"][0][4]) == 1524 * MIB
    skew = {row[0]: row[1:] for row in got["skew"]}
    assert int(skew["tuesday"][2]) == (1500 + 8) * MIB and skew["tuesday"][3] == "2"
    assert float(skew["monday"][0]) == float(skew["monday"][1]) == 1008 * MIB
    late = [row for row in got["stragglers"] if row[0] == "tuesday"][0]
    assert late[1] == "2" and float(late[2]) == pytest.approx(0.1) and float(late[3]) == pytest.approx(2)
    assert got["lines"][0][:4] == ["/home/me/train.py", "12", "build", "2"]
    assert ["tuesday", "/home/me/train.py", "build"] == got["grown"][0][:3] and int(got["grown"][0][4]) == 500 * MIB
    assert got["ooms"][0][1:5] == ["/home/me/train.py", "12", "1", "1"] and int(got["ooms"][0][5]) == 30 * GIB
    assert len(got["parts"]) == 2 and (warehouse / "sites.parquet").stat().st_size > 0
    assert max(int(float(row[2])) for row in got["together"] if row[0] == "tuesday") == (3 * 1024 + 1524) * MIB


def test_clickhouse(warehouse):
    got = answers(warehouse, "clickhouse", "chdb")
    assert set(got) == set(QUERIES["clickhouse"])
    skew = {row[0]: row[1:] for row in got["skew"]}
    assert int(skew["tuesday"][2]) == 1508 * MIB and skew["tuesday"][3] == "2"
    assert got["lines"][0][:4] == ["/home/me/train.py", "12", "build", "2"]
    assert [row[1] for row in got["stragglers"] if row[0] == "tuesday"][0] == "2"
    assert got["ooms"][0][1:] == ["/home/me/train.py", "12", "1"]


def test_spark(warehouse, tmp_path):
    done = subprocess.run([sys.executable, "-c", "import pyspark"], capture_output=True)
    if done.returncode:
        pytest.skip("pyspark is not installed in the Python that runs the tests")
    code = "from pyspark.sql import SparkSession\nspark = SparkSession.builder.master('local[1]').getOrCreate()\n"
    code += next(text for kind, _, text in BLOCKS if kind == "spark")
    code += "\nprint('SKEW', {r.run_id: (r.most, r.rank) for r in skew.collect()})\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=warehouse, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"'tuesday': ({1508 * MIB}, 2)" in done.stdout
