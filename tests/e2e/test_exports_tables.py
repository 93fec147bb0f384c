"""CSV, JSON lines and OpenMetrics: read by Python's csv, DuckDB, promtool and Prometheus's own client, they have the
figures of the report."""
import csv
import json
import re

import pytest

import readers
from conftest import ROOT
from exports import export, made, one  # noqa: F401
from test_exports_profile import expected

TABLES = {name: ("run_id,host,pid,rank," + columns.replace('"', "").replace("\n", "")).replace(" ", "").split(",")
          for name, columns in re.findall(r'^TABLE\((\w+), ((?:"[^"]*"\s*)+),',
                                          (ROOT / "analyzer" / "export" / "tables.def").read_text(), re.M)}
LAYERS = {"tensor", "device"}


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f, strict=True))


def number(cell):
    return int(cell) if cell else 0


def test_csv_is_complete(made):
    folder = export(made, "csv", out="tables")
    assert sorted(p.name for p in folder.iterdir()) == sorted(f"{name}.csv" for name in TABLES)
    for name, columns in TABLES.items():
        data = (folder / f"{name}.csv").read_bytes()
        assert data.decode().split("\r\n")[0].split(",") == columns and data.endswith(b"\r\n")
        assert not re.search(rb"(?<!\r)\n|[\x00-\x09\x0b\x0c\x0e-\x1f\x7f]", data)
        assert all(None not in row and None not in row.values() for row in rows_of(folder / f"{name}.csv"))


def test_csv_sums_to_the_report(made):
    report = made.report()
    folder = export(made, "csv", out="tables")
    tables = {name: rows_of(folder / f"{name}.csv") for name in TABLES}
    sites = [r for r in tables["sites"] if r["layer"] in LAYERS]
    want = expected(report)
    assert sum(number(r["peak_bytes"]) for r in sites) == want["peak"]
    assert sum(number(r["end_bytes"]) for r in sites) == want["end"]
    assert sum(number(r["allocated_bytes"]) for r in sites) == want["allocated"]
    assert sum(number(r["blocked_ns"]) for r in tables["waits"]) == want["waits"]
    assert sum(number(r["count"]) for r in tables["waits"]) == sum(s["count"] for s in report["sync"])
    assert sum(number(r["bytes"]) for r in tables["copies"]) == want["copies"]
    assert sorted(number(r["bytes"]) for r in tables["peaks"]) == sorted(p["bytes"] for p in report["peak"])
    assert len(tables["ooms"]) == len(report["oom"])
    assert {r["cause"] for r in tables["ooms"]} == {o["cause"] for o in report["oom"]}
    for peak in report["peak"]:
        own = [r for r in tables["timeline"] if r["layer"] == peak["layer"] and number(r["device"]) == max(peak["device"], 0)]
        assert peak["bytes"] in [number(r["bytes"]) for r in own]
        for category, size in peak["by_category"].items():
            assert not size or str(size) in [r["bytes"] for r in tables["categories"] if r["category"] == category]


def test_no_cell_is_a_formula(tmp_path_factory):
    recording = one("hostile", tmp_path_factory)
    folder = export(recording, "csv", out="tables")
    cells = [c for name in TABLES for row in rows_of(folder / f"{name}.csv") for c in row.values()]
    assert any("calc" in c for c in cells)
    assert not [c for c in cells if c.startswith(("=", "+", "-", "@", "\t", "\r"))]


def test_one_table_goes_to_standard_output(tmp_path_factory):
    recording = one("ranks", tmp_path_factory)
    done = recording.gpuspy("export", "-f", "csv", "--tables", "waits", "-o", "-", recording.database)
    assert done.returncode == 0 and done.stdout.startswith("run_id,") and done.stdout.count("\n") == 3
    done = recording.gpuspy("export", "-f", "ndjson", "--tables", "waits", "-o", "-", recording.database)
    assert [json.loads(line)["rank"] for line in done.stdout.splitlines()] == [0, 1]
    done = recording.gpuspy("export", "-f", "csv", "-o", "-", recording.database)
    assert done.returncode == 2 and not done.stdout and "folder" in done.stderr


def test_lines_of_json(made):
    folder = export(made, "ndjson", out="lines")
    assert sorted(p.name for p in folder.iterdir()) == sorted(TABLES)
    n = len(made.report()["run"]["processes"])
    for name, columns in TABLES.items():
        files = list((folder / name).iterdir())
        assert len(files) == n and all(re.fullmatch(r"[\w.-]+-[\w.-]+-\d+\.ndjson", f.name) for f in files)
        for f in files:
            for line in f.read_text().splitlines():
                assert list(json.loads(line)) == columns


def test_duckdb_reads_a_folder_of_many_runs(tmp_path_factory):
    recording, other = one("ranks", tmp_path_factory), one("sound", tmp_path_factory)
    lake = export(recording, "ndjson", out="lake")
    done = other.gpuspy("export", "-f", "ndjson", "-o", lake, other.database)
    assert done.returncode == 0, done.stderr
    total = expected(recording.report())["peak"] + expected(other.report())["peak"]
    sums = readers.duckdb(f"select sum(peak_bytes)::bigint from read_json('{lake}/sites/*.ndjson') "
                          "where layer in ('tensor', 'device')")
    assert sums == [[total]]
    waits = readers.duckdb(f"select rank, sum(blocked_ns)::bigint from read_json('{lake}/waits/*.ndjson') "
                           "where run_id = 'job' group by rank order by rank")
    assert waits == [[0, 200_000_000], [1, 400_000_000]]
    for name, columns in TABLES.items():
        described = readers.duckdb(f"describe select * from read_json('{lake}/{name}/*.ndjson')")
        if readers.duckdb(f"select count(*) from read_json('{lake}/{name}/*.ndjson')") != [[0]]:
            assert [c[0] for c in described] == columns
    csvs = export(recording, "csv", out="tables")
    assert readers.duckdb(f"select count(*), sum(bytes)::bigint from read_csv('{csvs}/timeline.csv')")[0][0] > 40


def test_docs_describe_each_column():
    text = (ROOT / "docs" / "export.md").read_text()
    for name, columns in TABLES.items():
        section = re.search(rf"^### {name}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
        assert section, name
        for column in columns[4:]:
            assert f"`{column}`" in section[1], (name, column)


# ---------------------------------------------------------------- OpenMetrics

def value_of(samples, name, **labels):
    found = [v for (n, l), v in samples.items() if n == name and set(labels.items()) <= l]
    assert found, (name, labels)
    return sum(found)


def test_openmetrics(made):
    report = made.report()
    text = export(made, "openmetrics").read_text()
    samples = readers.openmetrics(text)
    assert text.endswith("# EOF\n") and len({n for n, _ in samples}) > 12
    want = expected(report)
    for layer in {p["layer"] for p in report["peak"]}:
        assert value_of(samples, "gpuspy_peak_bytes", layer=layer) == sum(p["bytes"] for p in report["peak"] if p["layer"] == layer)
    if want["waits"]:
        assert round(value_of(samples, "gpuspy_wait_seconds") * 1e9) == want["waits"]
        assert value_of(samples, "gpuspy_waits") == sum(s["count"] for s in report["sync"])
    if want["copies"]:
        assert value_of(samples, "gpuspy_copied_bytes") == want["copies"]
    if report["oom"]:
        assert value_of(samples, "gpuspy_out_of_memory_failures") == len(report["oom"])
    assert value_of(samples, "gpuspy_run_info") == len(report["run"]["processes"])


def test_promtool_reports_nothing(made):
    assert readers.promtool(export(made, "openmetrics").read_text()) == (0, "")


def test_ranks_are_labels(tmp_path_factory):
    samples = readers.openmetrics(export(one("ranks", tmp_path_factory), "openmetrics").read_text())
    assert value_of(samples, "gpuspy_wait_seconds", rank="1", device="1") == pytest.approx(0.4)
    assert value_of(samples, "gpuspy_wait_seconds", rank="0", device="0") == pytest.approx(0.2)
