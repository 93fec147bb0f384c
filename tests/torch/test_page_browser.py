"""The page of a PyTorch run in Chromium: categories, address map and marks are those of the report. See
tests/browser."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "browser"))
import chromium  # noqa: E402

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("O", "build"))
BUILD = BUILD if BUILD.is_absolute() else ROOT / BUILD


@pytest.fixture(scope="module")
def driver():
    if chromium.MISSING:
        pytest.skip(chromium.MISSING)
    driver = chromium.start()
    yield driver
    driver.quit()


@pytest.fixture
def died(once):
    """Out of memory: the batch is too large (ooms.py)."""
    more = dict(SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB")
    run = once(" ".join(("ooms", "capacity", *more.values())), HERE / "ooms.py", "capacity", **more)
    run.html = run.folder / "page.html"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    for output in (["--html", run.html], ["--json", "--top", "1000"]):
        done = subprocess.run([BUILD / "gpuspy", "report", *output, run.database], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
    run.reported = json.loads(done.stdout)
    return run


@pytest.fixture
def page(driver, died):
    page = chromium.Page(driver, died.html).open()
    yield page
    assert page.complaints() == []


def test_categories_over_time(page, died):
    peak = next(p for p in died.reported["peak"] if p["layer"] == "tensor")
    assert page.js("return gpuspyPage.state.layer") == "tensor"
    shown = page.js("const s = gpuspyPage.series(); return Object.fromEntries(gpuspyPage.chart.layers.map(l => [l.name, l.values[s.peak]]).filter(e => e[1]))")
    assert shown == peak["by_category"] and sum(shown.values()) == peak["bytes"]
    page.click("#source button[data-value=peak]")
    rows = {}
    for label, _, size in page.js("return gpuspyPage.live.entries.map(e => [e.label, e.category, e.bytes])"):
        rows[label] = rows.get(label, 0) + size
    wanted = {}
    for row in peak["by_stack"]:
        key = f"{Path(row['site']['file']).name}:{row['site']['line']}"
        wanted[key] = wanted.get(key, 0) + row["bytes"]
    for place, size in wanted.items():
        assert sum(b for label, b in rows.items() if label.startswith(place + " ")) == size, place


def test_the_address_map(page, died):
    assert page.texts("#heap-at button") == ["At the peak", "At the OOM"]
    states = {s["moment"]: s for s in died.reported["allocator"]}
    for number, at in enumerate(("peak", "oom")):
        page.click(f"#heap-at button[data-value='{number}']")
        reported = states[at]
        maps = page.js("const m = gpuspyPage.heap.maps()[arguments[0]]; return [m.segments.length, m.segments.reduce((n, s) => n + s.bytes, 0),"
                       " m.segments.reduce((n, s) => n + s.blocks.reduce((k, b) => k + (b.pending ? 0 : b.bytes), 0), 0)]", number)
        assert maps == [reported["segments"], reported["reserved_bytes"], reported["allocated_bytes"]]
        largest = page.js("return Math.max(0, ...gpuspyPage.heap.maps()[arguments[0]].segments.flatMap(s => gpuspyPage.heap.holes(s).map(h => h.bytes)))", number)
        assert largest == reported["largest_free_bytes"]
        assert page.text("#heap-about").startswith(f"{reported['segments']} segments of ")
    # what is under the pointer is what is drawn there
    box = page.js("""
        const map = document.querySelector('#map canvas').getBoundingClientRect();
        for (const b of gpuspyPage.heap.boxes) for (const k of b.piece.of.segment.blocks) {
            const x = b.x + b.px(k.offset - b.piece.from + k.bytes / 2);
            if (k.bytes < b.px(1) * 0 + 1 || b.px(k.bytes) < 8 || k.offset < b.piece.from || k.offset + k.bytes > b.piece.to || k.pending) continue;
            return [x / map.width, (b.y + 7) / map.height, gpuspyPage.bytes(k.bytes), gpuspyPage.model.site(k.stack), k.category, gpuspyPage.categoryColour(k.category)];
        }""")
    page.hover("#map canvas", box[0], box[1])
    assert page.text("#tip .big") == box[2] and box[3] in page.text("#tip") and box[4].replace("_", " ") in page.text("#tip")
    colour = page.js("const c = document.querySelector('#map canvas'); return Array.from(c.getContext('2d').getImageData(arguments[0] * c.width, arguments[1] * c.height, 1, 1).data)", box[0], box[1])
    assert "#" + "".join(f"{v:02x}" for v in colour[:3]) == box[5]
    page.click("#heap-order button[data-value=empty]")
    waste = page.js("return gpuspyPage.heap.boxes.map(b => b.piece.of.bytes - b.piece.of.used)")
    assert waste == sorted(waste, reverse=True)


def test_the_failure(page, died):
    oom = died.reported["oom"][0]
    shown = page.js("return Array.from(document.querySelectorAll('#oom .fall-row[data-what]'), r => Number(r.dataset.bytes))")
    assert sum(shown) == oom["total_bytes"]
    page.keys("o")
    time, size = page.js("const s = gpuspyPage.series(), i = gpuspyPage.indexAt(s, gpuspyPage.state.moment); return [s.time[i], s.high[i]]")
    held = sum(part["bytes"] for part in oom["waterfall"] if part["what"] == "tensors")
    assert abs(time - oom["time_s"]) < 0.05 * died.reported["run"]["duration_s"] and abs(size - held) <= 0.02 * held
