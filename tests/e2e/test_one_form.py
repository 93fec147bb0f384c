"""Times, sizes and plurals have one form: the terminal (analyzer/base/units.c), the page (core_text.js) and Python write
the same, and no other code formats a time itself."""
import importlib
import json
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT
from rows import MIB, Rows

SCRIPT = """
const fs = require("fs");
(0, eval)("var gpuspyPage = {};" + fs.readFileSync(process.argv[1], "utf8"));
const page = globalThis.gpuspyPage, asked = JSON.parse(fs.readFileSync(0, "utf8"));
console.log(JSON.stringify({
    bytes: asked.bytes.map(page.bytes),
    seconds: asked.ns.map(n => page.seconds(n / 1e9)),
    moments: asked.moments.map(([s, span]) => page.moment(s, span)),
    ticks: asked.ticks.map(([s, step]) => page.tick(s, step)),
    plurals: [0, 1, 2, 12345].map(n => page.plural(n, "step"))
}));
"""
node = pytest.mark.skipif(not shutil.which("node"), reason="node is not installed")
MOMENTS = [[157.04, 10], [157.04, 100], [157, 1000], [3727, 1000], [0.5, 2], [59.999, 1000],
           [262920, 20000], [262920, 1e6]]
TICKS = [[150, 30], [120, 60], [3900, 300], [3630, 30], [12, 2], [262920, 60]]


def page_says(sizes, times):
    asked = {"bytes": sizes, "ns": times, "moments": MOMENTS, "ticks": TICKS}
    done = subprocess.run(["node", "-e", SCRIPT, str(ROOT / "analyzer" / "web" / "core_text.js")], text=True,
                          input=json.dumps(asked), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


@node
def test_the_page_writes_what_the_terminal_writes(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB, 1)
    sizes = sorted({int(1.37 ** k) for k in range(130)} | {2 ** k - 1 for k in range(52)} | {0, -1, -(5 << 20)})
    times = sorted({int(1.21 ** k) for k in range(220)} | {59_949_999_999, 59_950_000_000, 3_599_500_000_000,
                                                             86_369_900_000_000, 86_370_000_000_000, 263_000_000_000_000})
    query = "select " + ", ".join([f"bytes({n}) as b{i}" for i, n in enumerate(sizes)])
    more = "select " + ", ".join([f"seconds({n}) as s{i}" for i, n in enumerate(times)])
    done = [json.loads(recording.gpuspy("sql", "--json", recording.database, q).stdout)[0] for q in (query, more)]
    page = page_says(sizes, times)
    assert list(done[0].values()) == page["bytes"]
    sys.path.insert(0, str(ROOT / "pytest-gpuspy"))
    assert [importlib.import_module("pytest_gpuspy.units").format_bytes(n) for n in sizes] == page["bytes"]
    sys.path.pop(0)
    assert list(done[1].values()) == page["seconds"]


@node
def test_moments_are_times(recording):
    page = page_says([], [])
    assert page["moments"] == ["2 min 37.04 s", "2 min 37.0 s", "2 min 37 s", "1 h 02 min 07 s", "500 ms", "1 min 00 s",
                               "3 d 1 h 02 min 00 s", "3 d 1 h"]
    assert page["ticks"] == ["2 min 30 s", "2 min", "1 h 05 min", "1 h 00 min 30 s", "12 s", "3 d 1 h 02 min"]
    assert page["plurals"] == ["0 steps", "1 step", "2 steps", "12,345 steps"]


def test_only_units_formats_times():
    own = re.compile(r'%[-+ 0#]*[\d*]*(\.[\d*]+)?[fg] ?(s|ms|us|ns|min|h)\b|µs')
    found = [f"{path.relative_to(ROOT)}:{n}: {line.strip()}" for path in sorted((ROOT / "analyzer").rglob("*.[ch]"))
             for n, line in enumerate(path.read_text().splitlines(), 1)
             if own.search(line) and path.name != "units.c" and not line.strip().startswith(("/*", "*"))]
    assert found == []


@pytest.mark.parametrize("events, words", [(1, "1 event"), (2, "2 events")])
def test_a_plural_only_for_several_events(recording, events, words):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB, 1 if events == 2 else None)
    text = recording.gpuspy("report", recording.database).stdout
    assert re.search(rf", {words}(,|$)", text, re.M), text
