"""The page as people use it: it shows the figures of `gpuspy report --json`."""
import json
import pickle
import re
import sqlite3
import xml.etree.ElementTree as ElementTree

import pytest

from chromium import Keys

OVER, OVERVIEW = "#plot .over", "#overview canvas"
OPEN = "const d = document.querySelector('#live-table .blocks'); d.open = true; return d.firstChild.textContent"
PEAK = "const s = gpuspyPage.series(); return s.high[s.peak]"


def number(text):
    """The number in "+1.50 KiB", "12.00 MiB", "1,234"."""
    value, unit = re.match(r"([+-]?[\d,.]+) ?([KMGTPE]?i?B)?", text.replace("\u00a0", " ")).groups()
    return float(value.replace(",", "")) * 1024 ** (" KMGTPE".index((unit or " ")[0]) if unit and unit[0] != "B" else 0)


def near(text, wanted):
    return abs(number(text) - wanted) <= 0.006 * max(1024, abs(wanted))


def site(entry):
    s = entry["site"]
    return f"{s['file'].rsplit('/', 1)[-1]}:{s['line']}"


# ---------------------------------------------------------------- the verdict

def test_the_verdict_comes_first(leak, page):
    p, oom = page(leak.page), leak.report_["oom"][0]
    assert p.text("#verdict h1").lower() == oom["verdict"].lower()
    assert p.text("#verdict .tag") == "Out of memory" and f"cause: {oom['cause']}" in p.text("#verdict .kicker")
    reported = p.texts("#verdict .todo li")
    assert reported[0].endswith(oom["measures"][0]["text"].replace("`", ""))  # code has a font of its own
    for advice in leak.report_["advice"][:4]:
        assert any(advice["text"].replace("`", "") in text for text in reported), (advice, reported)
    assert near(p.text("#verdict p").split("Requested ")[1], oom["requested_bytes"])
    assert "Simulated GPU" in p.text("#warnings")
    assert p.driver.title == "OOM: run.db · gpuspy"


def test_without_a_failure_the_peak_is_the_verdict(train, page):
    p = page(train.page)
    peak = max(train.report_["peak"], key=lambda q: q["bytes"])
    assert near(p.text("#verdict h1").split("Peak ")[1], peak["bytes"])
    assert p.find("#oom").is_displayed() is False


def test_lost_events_and_notes_come_first(leak, page):
    lost = leak.changed("lost", ("update process set lost_events = 7, lost_first_ns = 1500000000",))
    assert lost.json()["run"]["lost_events"] == 7
    p = page(lost.html())
    assert p.text("#warnings li").startswith("7 events were lost, the first at 1.50 s")
    assert p.js("return document.getElementById('warnings').compareDocumentPosition(document.getElementById('verdict')) & 4")


@pytest.mark.parametrize("width", [390, 1440])
def test_several_notes_take_one_line_until_they_are_opened(leak, page, width):
    end = leak.report_["run"]["duration_s"]
    noted = leak.changed(f"notes{width}", ("INSERT INTO meta VALUES ('kept_from_ns', ?), ('keep', 33554432)", int(end * 6e8)))
    p = page(noted.html(), width=width, height=900)
    shown = "const w = document.getElementById('warnings'); return [w.innerText, w.offsetHeight]"
    text, high = p.js(shown)
    assert "and 2 more notes" in text and "Simulated GPU" not in text and high < 70, (text, high)
    p.find("#warnings summary").click()
    text, _ = p.js(shown)
    assert "Simulated GPU" in text and "except at peaks and failures" in text and "more notes" not in text


@pytest.mark.parametrize("width", [390, 1440])
def test_figures_of_the_evidence_have_room(leak, page, width):
    p = page(leak.page, width=width, height=900, touch=width < 1000)
    rooms = p.js("""return Array.from(document.querySelectorAll('#oom .pairs'), list => [list.offsetWidth,
        ...Array.from(list.querySelectorAll('dd'), d => d.offsetWidth)]).filter(([all]) => all)""")
    assert rooms and all(room >= 0.4 * total for total, *each in rooms for room in each), rooms


def test_a_failure_that_may_be_handled_is_called_that(leak, page):
    p = page(leak.page)
    shown = "return [document.querySelector('#verdict .tag').textContent, document.querySelector('#oom .tag').textContent]"
    assert p.js(shown) == ["Out of memory", "fatal"]
    assert p.js("return gpuspyPage.outcome({fatal: true, outcome: 'unknown'})") == "perhaps handled"


def test_figures_of_the_evidence_have_words(leak, page):
    p = page(leak.page)
    labels = p.js("return Array.from(document.querySelectorAll('#oom dt')).map(e => e.textContent)")
    assert {"The request to CUDA", "Live at that moment", "The line that grows most"} <= set(labels), labels


# ---------------------------------------------------------------- the chart

def test_the_peak_is_the_reports(leak, train, page):
    for run in (leak, train):
        p = page(run.page)
        for peak in run.report_["peak"]:
            series = p.js("return gpuspyPage.model.series.filter(s => s.layer === arguments[0] && s.device === arguments[1]).map(s => [s.high[s.peak], s.time[s.peak]])",
                          peak["layer"], peak["device"])
            assert len(series) == 1 and series[0][0] == peak["bytes"] and abs(series[0][1] - peak["time_s"]) < 1e-6


def test_a_click_shows_what_was_live_then(leak, page):
    p = page(leak.page)
    p.point(OVER, 0.5, 0.2)  # above the bands, which are half as high at that time: a click on a band would show only its lines
    assert p.state("source") == "moment"
    i, high = p.js("const s = gpuspyPage.series(), i = gpuspyPage.indexAt(s, gpuspyPage.state.moment); return [i, s.high[i]]")
    whole, count = p.js("return [gpuspyPage.live.entries.reduce((n, e) => n + e.bytes, 0), gpuspyPage.live.entries.length]")
    assert whole == high and count > 0
    rows = p.rows("live")
    assert abs(sum(number(row[0]) for row in rows) - high) < 0.01 * high  # all of its lines are shown
    begin, end, share = p.js("const s = gpuspyPage.series(), [a, b] = gpuspyPage.chart.domain; return [s.start[arguments[0]], s.start[arguments[0] + 1], a + (b - a) / 2]", i)
    assert begin <= share * 1.01 and share <= end * 1.01
    assert near(p.text("#flame text").split(", ")[1], high)


def test_what_a_bounded_recording_no_longer_has_is_labelled(leak, page):
    end = leak.report_["run"]["duration_s"]
    kept = leak.changed("bounded", ("INSERT INTO meta VALUES ('kept_from_ns', ?), ('keep', 33554432)", int(end * 6e8)))
    p = page(kept.html())
    assert "except at peaks and failures, they are too low" in p.text("#warnings")
    for share, small in (0.3, True), (0.8, False):
        p.point(OVER, share, 0.2)
        assert ("Too small: GPUSPY_KEEP removed" in p.text("#live-about")) == small, share


def test_two_moments_are_compared(leak, page):
    p = page(leak.page)
    p.point(OVER, 0.3)
    a = p.js("const s = gpuspyPage.series(); return s.high[gpuspyPage.indexAt(s, gpuspyPage.state.moment)]")
    p.point(OVER, 0.7, shift=True)
    b = p.js("const s = gpuspyPage.series(); return s.high[gpuspyPage.indexAt(s, gpuspyPage.state.moment)]")
    assert p.state("source") == "compare" and p.state("pin") < p.state("moment")
    change = p.js("return gpuspyPage.live.entries.reduce((n, e) => n + e.bytes, 0)")
    assert change == b - a and b > a
    assert p.rows("live")[0][0].startswith("+") and near(p.text("#live-about").split(": ")[-1], b - a)
    line = site(leak.report_["growth"][0])
    assert any(line in cell for cell in p.rows("live")[0])
    # the colours of what grew
    assert p.js("const g = Array.from(document.querySelectorAll('#flame g')).pop(); return g.firstChild.getAttribute('fill')") is not None


def test_wheel_drag_and_double_click(leak, page):
    p = page(leak.page)
    full = p.js("return gpuspyPage.chart.full(gpuspyPage.series())")
    p.wheel(OVER, 0.5, -400)
    zoom = p.state("zoom")
    assert full[0] < zoom[0] < zoom[1] < full[1]
    p.drag(OVER, 0.7, 0.4)
    moved = p.state("zoom")
    assert moved[0] > zoom[0] and abs((moved[1] - moved[0]) - (zoom[1] - zoom[0])) < 1e-9 and p.state("moment") is None
    p.point(OVER, 0.5, double=True)
    assert p.state("zoom") is None
    p.drag(OVER, 0.2, 0.6)  # when everything is in view, a drag selects a range
    a, b = p.state("zoom")
    assert abs((a - full[0]) / (full[1] - full[0]) - 0.2) < 0.02 and abs((b - full[0]) / (full[1] - full[0]) - 0.6) < 0.02


def test_a_long_time_of_nothing_is_left_out(early, page):
    p = page(early.page)
    last, end = p.js("const s = gpuspyPage.series(); return [s.time[s.n - 1], gpuspyPage.chart.full(s)[1]]")
    assert early.report_["run"]["duration_s"] > 0.6 and end < 0.5 and p.text("#signs").endswith("ms.")
    assert "nothing changes until" in p.text("#signs") and p.js(PEAK) == 20 << 20 and last > 0


def test_lines_have_one_colour_where_there_are_no_categories(early, page):
    p = page(early.page)
    assert p.state("by") is None and p.texts("#by button[aria-pressed=true]") == ["By line"]
    colour = p.js("return gpuspyPage.chart.colour(gpuspyPage.chart.layers[0])")
    own = "Array.from(document.querySelectorAll('#flame g')).filter(g => g.flameNode.frame && !gpuspyPage.isLibrary(g.flameNode.frame))"
    assert p.js(f"return Array.from(new Set({own}.map(g => g.firstChild.getAttribute('fill'))))") == [colour]
    assert p.texts("table[data-table=live] th")[-1] == "line"  # no column of unknown categories


def test_the_overviews_brush(leak, page):
    p = page(leak.page)
    full = p.js("return gpuspyPage.chart.full(gpuspyPage.series())")
    part = lambda: [(t - full[0]) / (full[1] - full[0]) for t in p.state("zoom")]  # noqa: E731
    p.drag(OVERVIEW, 0.3, 0.6)
    assert part() == pytest.approx([0.3, 0.6], abs=0.02)
    p.drag(OVERVIEW, 0.45, 0.65)  # the window
    assert part() == pytest.approx([0.5, 0.8], abs=0.02)
    p.drag(OVERVIEW, 0.8, 0.9)  # its edge
    assert part() == pytest.approx([0.5, 0.9], abs=0.02)
    p.point(OVERVIEW, 0.5, double=True)
    assert p.state("zoom") is None


def test_the_tooltip_agrees_with_the_model(leak, page):
    p = page(leak.page)
    p.hover(OVER, 0.4)
    high, time = p.js("const s = gpuspyPage.series(), i = gpuspyPage.indexAt(s, gpuspyPage.chart.hover); return [s.high[i], s.time[i]]")
    assert p.find("#tip").is_displayed() and near(p.text("#tip .big"), high)
    amounts = [number(t) for t in p.texts("#tip tr td.n:nth-child(3)")]
    assert amounts and sum(amounts) <= high * 1.01
    p.hover("#verdict h1", 0.5)
    assert not p.find("#tip").is_displayed() and time >= 0


def test_the_legend_hides_and_isolates(train, page):
    p = page(train.page)
    names = p.js("return gpuspyPage.chart.layers.map(l => l.name)")
    assert {"parameters", "optimizer_state", "gradients", "activations"} <= set(names)
    peak = p.js(PEAK)
    p.click("#legend button[data-name=optimizer_state]")
    without = p.js("return gpuspyPage.chart.totals[gpuspyPage.series().peak]")
    state = p.js("return gpuspyPage.chart.layers.find(l => l.name === 'optimizer_state').values[gpuspyPage.series().peak]")
    assert without == peak - state and state > 0
    p.click("#legend button[data-name=parameters]", shift=True)
    assert p.texts("#legend button[aria-pressed=true] .name") == ["parameters"]
    p.click("#legend button[data-name=parameters]", shift=True)
    assert len(p.texts("#legend button[aria-pressed=true]")) == len(names)


def test_categories_at_the_peak_are_the_reports(train, page):
    p = page(train.page)
    peak = max(train.report_["peak"], key=lambda q: q["bytes"])
    shown = p.js("const s = gpuspyPage.series(); return Object.fromEntries(gpuspyPage.chart.layers.map(l => [l.name, l.values[s.peak]]).filter(e => e[1]))")
    assert shown == peak["by_category"]
    p.click("#by button[data-value=site]")
    assert p.js("const s = gpuspyPage.series(); return gpuspyPage.chart.layers.reduce((n, l) => n + l.values[s.peak], 0)") == peak["bytes"]


def test_each_device_has_its_own(two, page):
    p = page(two.page)
    peaks = {q["device"]: q for q in two.report_["peak"] if q["layer"] == "device"}
    cards = p.texts("#places button")
    assert [c.split("peak ")[0] for c in cards] == ["GPU 0", "GPU 1"]
    for device in 0, 1:
        assert near(cards[device].split("peak ")[1], peaks[device]["bytes"])
    assert p.js("return gpuspyPage.series().device") == 1 and p.js(PEAK) == peaks[1]["bytes"]  # most is there
    p.click("#places button[data-place='0']")
    assert p.js("return gpuspyPage.series().device") == 0 and p.js(PEAK) == peaks[0]["bytes"]
    assert near(p.text("#live-about"), peaks[0]["bytes"])
    link = p.js("return gpuspyPage.link()")
    p.open(link[1:])
    assert p.js("return gpuspyPage.series().device") == 0
    p.click("#places button[data-place='1']")
    assert p.js("return gpuspyPage.link()") == ""


def test_a_few_bytes_of_host_memory_are_not_offered_beside_the_gpus(two, page):
    pinned = "(SELECT id FROM space WHERE word = 'pinned')"
    tiny = two.changed("tiny", (f"""INSERT INTO allocation_row (kind, address, bytes, alloc_ns, life_ns, stream, alloc_stack_id, free_stack_id)
                                    SELECT kind & ~4095 | {pinned} << 2, 4096, 8, alloc_ns, NULL, 0, alloc_stack_id, 4294967295
                                    FROM allocation_row LIMIT 1""",))
    assert 8 in [q["bytes"] for q in tiny.json()["peak"] if q["device"] < 0]
    assert [c.split("peak ")[0] for c in page(tiny.html()).texts("#places button")] == ["GPU 0", "GPU 1"]


# ---------------------------------------------------------------- the flame graph

def widths(p):
    return p.js("return Array.from(document.querySelectorAll('#flame g'), g => [g.flameNode.name, g.flameNode.value, g.firstChild.width.baseVal.value, g.flameNode.depth])")


def test_a_frames_width_is_its_bytes(train, page):
    p = page(train.page)
    peak = max(train.report_["peak"], key=lambda q: q["bytes"])
    shapes = widths(p)
    scale = shapes[0][2] / shapes[0][1]
    assert shapes[0][1] == peak["bytes"]
    for name, value, width, _ in shapes:
        assert abs(width - value * scale) < 0.02, name
    # what one line of the script has, whatever frames are shown
    wanted = {}
    for row in peak["by_stack"]:
        for frame in row["frames"]:
            if frame["file"] and frame["file"].endswith("train_torch.py") and frame["function"] == "train":
                key = f"train (train_torch.py:{frame['line']})"
                wanted[key] = wanted.get(key, 0) + row["bytes"]
    for mode in ("yours", "python", "native"):
        if not p.js("return Boolean(document.querySelector(`#frames button[data-value=${arguments[0]}]`))", mode):
            continue
        p.click(f"#frames button[data-value={mode}]")
        found = {}
        for name, value, _, _ in widths(p):
            if name in wanted:
                found[name] = found.get(name, 0) + value
        for name, value in found.items():
            assert value == wanted[name], (mode, name)
        assert len(found) >= 2, mode


def test_a_click_zooms_and_escape_goes_back(train, page):
    p = page(train.page)
    name, value, width, _ = max((s for s in widths(p) if s[3] == 3), key=lambda s: s[2])
    p.js("const g = Array.from(document.querySelectorAll('#flame g')).find(g => g.flameNode.depth === 3 && g.flameNode.name === arguments[0]); g.id = 'it'", name)
    p.click("#it")
    all_ = p.js("return document.querySelector('#flame svg').clientWidth")
    assert [s for s in widths(p) if s[0] == name and s[1] == value][0][2] == pytest.approx(all_, abs=1)
    assert name in p.text("#crumbs")
    p.keys(Keys.ESCAPE)
    assert [s for s in widths(p) if s[0] == name and s[1] == value][0][2] == pytest.approx(width, abs=0.1)


def test_the_root_goes_to_the_bottom(train, page):
    p = page(train.page)
    place = "return Array.from(document.querySelectorAll('#flame g')).find(g => !g.flameNode.depth).firstChild.y.baseVal.value"
    assert p.js(place) == 0
    p.click("#root button[data-value=bottom]")
    assert p.js(place) == p.js("return Math.max(...Array.from(document.querySelectorAll('#flame rect'), r => r.y.baseVal.value))") > 0


def test_keys_go_from_call_to_call(train, page):
    p = page(train.page)
    p.js("document.querySelector('#flame svg').focus()")
    p.keys(Keys.ARROW_DOWN)
    p.keys(Keys.ARROW_DOWN)
    depth, label = p.js("const n = document.activeElement; return [n.flameNode.depth, n.getAttribute('aria-label')]")
    assert depth >= 1 and re.search(r", [\d.]+ [KM]iB$", label)
    p.keys(Keys.ENTER)
    assert len(p.state("focus")) == depth


def test_search_adds_up_what_matches(train, page):
    p = page(train.page)
    peak = max(train.report_["peak"], key=lambda q: q["bytes"])
    p.keys("/", "backward")
    p.wait("const n = document.getElementById('matched'); return n !== null && !n.textContent.startsWith('matched 0 B')")
    entries = p.js("return gpuspyPage.live.entries.map(e => [gpuspyPage.flame.path(e.frames, 'yours').map(gpuspyPage.frameText).join('\\n'), e.bytes])")
    wanted = sum(b for names, b in entries if "backward" in names.lower())
    assert 0 < wanted < peak["bytes"] and near(p.text("#matched").removeprefix("matched "), wanted)
    assert all("backward" in " ".join(row).lower() for row in p.rows("live"))
    assert p.js("return document.querySelectorAll('#flame g.hit').length") > 0
    p.keys(Keys.ESCAPE)
    assert p.state("query") == "" and not p.js("return document.getElementById('matched')")


def test_leaks_have_a_flame_graph(kept, page):
    p = page(kept.page)
    p.click("#source button[data-value=end]")
    wanted = sum(x["bytes"] for x in kept.report_["leaks"] if x["layer"] == "device" and x["device"] == 0)
    assert p.js("return gpuspyPage.flame.tree.value") == wanted > 0


# ---------------------------------------------------------------- out of memory

def test_the_waterfall_is_the_reports(leak, page):
    p, oom = page(leak.page), leak.report_["oom"][0]
    shown = p.js("return Array.from(document.querySelectorAll('#oom .fall-row[data-what]'), r => [r.dataset.what, Number(r.dataset.bytes)])")
    assert shown == [[part["what"], part["bytes"]] for part in oom["waterfall"] if part["bytes"] > 0 or part["what"] == "free"]
    assert sum(b for _, b in shown) == oom["total_bytes"]
    part = next(x for x in oom["waterfall"] if x["detail"])
    p.click(f"#oom .fall-row[data-what={part['what']}] button[aria-expanded=false]")
    assert near(p.text("#oom .fall-detail .n"), part["detail"][0]["bytes"])
    measures = p.rows("measures")
    assert [m["text"].replace("`", "") for m in oom["measures"]] == [row[0] for row in measures]
    for measure, row in zip(oom["measures"], measures):
        assert row[1] == "?" if measure["frees_bytes"] is None else near(row[1], measure["frees_bytes"])
        assert row[3] == measure["certainty"]
    shown = p.text("#oom .pairs")
    assert all(str(v)[:30] in shown for v in oom["evidence"].values() if isinstance(v, str))
    p.keys("o")
    moment = p.js("const s = gpuspyPage.series(); return s.time[gpuspyPage.indexAt(s, arguments[0])]", oom["time_s"])
    assert p.state("moment") == pytest.approx(moment)


def test_where_the_devices_memory_was(kept, page):
    p, memory = page(kept.page), kept.report_["memory"][0]
    parts = p.js("return gpuspyPage.deviceParts(gpuspyPage.report.memory[0]).map(x => x[1])")
    shown = [int(n) for n in p.js("return Array.from(document.querySelectorAll('#device [data-bytes]'), n => n.dataset.bytes)")]
    assert shown == parts and sum(parts) == memory["total_bytes"] and memory["live_bytes"] in parts


# ---------------------------------------------------------------- tables

def test_every_list_is_a_table(leak, page):
    p, report = page(leak.page), leak.report_
    wanted = {"peak": sum(len(q["by_site"]) for q in report["peak"]), "leaks": len(report["leaks"]), "growth": len(report["growth"]),
              "sync": len(report["sync"]), "transfers": len(report["transfers"]), "churn": len(report["churn"]), "calls": len(report["calls"]),
              "retries": len(report["retries"]), "fragmentation": len(report["fragmentation"]), "ranks": len(report["ranks"]),
              "owners": sum(len(q["owners"]) for q in report["peak"]), "flushes": len(report["cache_flushes"]), "marks": len(report["marks"]),
              "scopes": len(report["scopes"])}
    shown = {name.removeprefix("tab-"): int(count.split()[-1].replace(",", "")) for name, count in
             p.js("return Array.from(document.querySelectorAll('#tabs button'), b => [b.id, b.textContent])")}
    assert shown == {name: n for name, n in wanted.items() if n}
    for name in shown:
        p.click(f"#tab-{name}")
        rows = p.rows(name)
        assert len(rows) == min(20, wanted[name]) and all(any(cell for cell in row) for row in rows)


def test_figures_of_the_tables(leak, page):
    p, report = page(leak.page), leak.report_
    p.click("#tab-sync")
    longest = max(report["sync"], key=lambda s: s["blocked_s"])
    row = p.rows("sync")[0]
    assert site(longest) in row[5] and row[2] == f"{longest['count']:,}"
    p.click("#tab-transfers")
    largest = max(report["transfers"], key=lambda t: t["bytes"])
    row = p.rows("transfers")[0]
    assert near(row[0], largest["bytes"]) and site(largest) in row[7] and (largest["advice"] or "") in row[8]
    p.click("#tab-growth")
    assert near(p.rows("growth")[0][1], report["growth"][0]["bytes_per_step"])


def test_tables_sort_and_filter(train, page):
    p = page(train.page)
    p.click("#tab-peak")
    column = lambda: [number(row[0]) for row in p.rows("peak")]  # noqa: E731
    assert column() == sorted(column(), reverse=True)
    p.click("#table th:first-child button")
    assert column() == sorted(column()) and p.js("return document.querySelector('#table th').getAttribute('aria-sort')") == "ascending"
    before = len(p.rows("peak"))
    p.keys("/", "train_torch.py:22")
    p.wait("return gpuspyPage.state.query !== ''")
    p.settle()
    assert 0 < len(p.rows("peak")) < before and all("train_torch.py:22" in " ".join(row) for row in p.rows("peak"))
    p.wait("return location.hash.includes('q=train_torch.py')")


def test_a_place_can_be_copied(leak, page):
    p = page(leak.page)
    p.click("#tab-growth")
    p.click("#table .site")
    p.wait("return document.getElementById('toast').textContent !== ''")  # it disappears
    s = leak.report_["growth"][0]["site"]
    assert p.text("#toast") == f"Copied {s['file']}:{s['line']}"


# ---------------------------------------------------------------- keys, light and dark, sizes, links

def test_keys(leak, page):
    p = page(leak.page)
    p.keys("p")
    peak = p.js(PEAK)
    assert near(p.text("#live-about"), peak) and p.state("source") == "peak"
    i = p.js("return gpuspyPage.series().peak")
    p.keys(Keys.ARROW_LEFT)
    now = "return gpuspyPage.indexAt(gpuspyPage.series(), gpuspyPage.state.moment)"
    assert p.js(now) == i - 1 and p.state("source") == "moment"
    assert near(p.js("return document.querySelector(arguments[0]).getAttribute('aria-valuetext')", OVER).split(": ")[1], p.js("return gpuspyPage.series().high[arguments[0]]", i - 1))
    p.keys("+")
    zoom = p.state("zoom")
    p.keys("-", "-")
    assert zoom and p.state("zoom") is None
    first = p.state("table")
    p.keys("t")
    assert p.state("table") not in (None, first)
    by = p.js("return gpuspyPage.stackedBy()")
    p.keys("c")
    assert {by, p.js("return gpuspyPage.stackedBy()")} == {"category", "site"}
    p.keys("?")
    assert p.find("#help").is_displayed()
    p.keys(Keys.ESCAPE)
    assert not p.find("#help").is_displayed()
    p.keys("/", "p")  # a letter typed into the box is text
    assert p.js("return document.activeElement.id") == "search"


def focused(p):
    return p.js("const n = document.activeElement; return [n.tagName, n.id || n.dataset.value || n.textContent]")


def test_the_focus_stays_on_what_was_pressed(leak, page):
    p = page(leak.page)
    for selector in ("#by button[data-value=site]", "#root button[data-value=bottom]", "#tab-sync", "#table th button",
                     "#live-table th button", "#heap-order button[data-value=size]", "#heap-zoom button",
                     "#legend button", "#layer button", "#source button"):
        if not p.js("const n = document.querySelector(arguments[0]); return n && n.offsetParent && (n.focus(), true)", selector):
            continue
        before = focused(p)
        assert before[0] == "BUTTON", selector
        p.keys(Keys.ENTER)
        assert focused(p) == before, selector
    p.js("document.querySelector('#live-table th button').focus()")
    p.keys(Keys.ENTER, Keys.ENTER)  # the same column, twice
    assert p.js("return document.activeElement.closest('th').getAttribute('aria-sort')") in ("ascending", "descending")


def test_the_first_stop_of_the_tab_key_skips_to_the_chart(leak, page):
    p = page(leak.page)
    p.keys(Keys.TAB)
    assert p.js("return document.activeElement.textContent") == "Skip to the chart"
    p.keys(Keys.ENTER)
    assert p.js("return document.activeElement.id") == "memory"
    p.keys(Keys.TAB)
    assert p.js("return document.activeElement.closest('section').id") == "memory"


def test_what_the_list_of_what_was_never_freed_leaves_out(kept, page):
    few, all_ = kept.html("--top", "1"), kept.json()
    peak, largest = all_["peak"][0], all_["leaks"][0]
    p = page(few)
    assert peak["end_bytes"] > largest["bytes"]
    p.js("gpuspyPage.set({source: 'end', table: 'leaks'})")
    p.settle()
    rest = peak["end_bytes"] - largest["bytes"]
    assert near(p.text("#live-about").split("largest call site; ")[1], rest)
    assert p.js("return gpuspyPage.live.entries.reduce((n, e) => n + e.bytes, 0)") == peak["end_bytes"]
    assert "the report lists the 1 largest call site" in p.text("#table")
    p = page(kept.html())  # all of them
    p.js("gpuspyPage.set({source: 'end', table: 'leaks'})")
    p.settle()
    assert "the report lists" not in p.text("#live-about") + p.text("#table")


def test_light_and_dark(train, page):
    p = page(train.page, dark=True)
    back = "return getComputedStyle(document.body).backgroundColor"
    dark = p.js(back)
    assert p.js("return document.documentElement.dataset.theme") == "dark"
    p.click("#theme")
    assert p.js("return document.documentElement.dataset.theme") == "light" and p.js(back) != dark
    pixel = "const c = document.querySelector('#plot .base'); return Array.from(c.getContext('2d').getImageData(c.width - 3, 3, 1, 1).data)"
    assert p.js(pixel)[3] == 0  # the canvas is clear: the card shows through
    p.js("localStorage.clear()")


@pytest.mark.parametrize("width, touch", [(1280, False), (390, True)])
def test_nothing_is_wider_than_the_screen(leak, train, page, width, touch):
    for run in (leak, train):
        p = page(run.page, width=width, touch=touch)
        for tab in p.js("return gpuspyPage.tableNames()"):
            p.js("gpuspyPage.set({table: arguments[0]})", tab)
            p.settle()
            assert p.js("return document.documentElement.scrollWidth") <= width, tab
        assert p.js("return document.querySelector('#plot .over').getBoundingClientRect().right") <= width


def test_a_finger_chooses_a_moment(leak, page):
    p = page(leak.page, width=390, touch=True)
    x, y = p.js("const n = document.querySelector(arguments[0]); n.scrollIntoView({block: 'center', behavior: 'instant'}); const r = n.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]", OVER)
    for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
        p.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    p.settle()
    assert p.state("source") == "moment" and p.state("moment") > 0


def test_a_phone_is_offered_no_mouse_and_no_keys(leak, train, page):
    for run in leak, train:
        p = page(run.page, width=390, height=844, touch=True)
        seen = p.js("""const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), seen = [];
            while (walk.nextNode()) if (walk.currentNode.parentElement.checkVisibility()) seen.push(walk.currentNode.textContent);
            for (const e of document.querySelectorAll("[title]")) seen.push(e.title);
            return seen""")
        assert any(text.startswith("Tap a band") for text in seen)
        mouse = [text for text in seen if re.search(r"\b(click|wheel|hover|shift|double|mouse|press|key)", text, re.I)]
        assert not mouse, mouse


def test_every_stop_of_the_tab_key_is_marked_and_on_the_screen(leak, page):
    p = page(leak.page, width=1440, height=900)
    for stop in range(60):
        p.keys(Keys.TAB)
        at = p.js("""const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
            return e === document.body ? null : {what: e.outerHTML.slice(0, 200), mark: s.outlineStyle, width: parseFloat(s.outlineWidth), size: r.width * r.height}""")
        if not at:
            break
        assert at["mark"] == "solid" and at["width"] >= 2 and at["size"] > 0, at
    assert stop > 20


def test_a_link_leads_to_the_same_view(leak, page):
    p = page(leak.page)
    p.point(OVER, 0.3)
    p.point(OVER, 0.6, shift=True)
    p.wheel(OVER, 0.5, -200)
    p.click("#by button[data-value=site]")
    p.click("#root button[data-value=bottom]")
    p.keys("t")
    names = ("moment", "pin", "zoom", "by", "root", "table", "source")
    before = [p.state(name) for name in names]
    link = p.js("return gpuspyPage.link()")
    p.wait("return location.hash === gpuspyPage.link()")
    about = p.text("#live-about")
    p.open(link[1:])
    assert [p.state(name) for name in names] == [pytest.approx(b) if isinstance(b, float) else pytest.approx(b) if isinstance(b, list) else b for b in before]
    assert p.text("#live-about") == about


def test_every_moment_can_be_linked_to(leak, page):
    p = page(leak.page)
    assert p.js("""const s = gpuspyPage.series(), wrong = [];
        for (let i = 0; i < s.n; i++) {
            gpuspyPage.state.moment = s.time[i];
            const reported = new URLSearchParams(gpuspyPage.link().slice(1)).get("t");
            if (gpuspyPage.indexAt(s, Number(reported)) !== i) wrong.push(i);
        }
        return s.n > 50 ? wrong : "few";""") == []


@pytest.mark.parametrize("fragment", ["p=99&o=constructor&by=x&y=x&r=x&w=x&l=constructor&t=1e300&z=5~1&tab=%00&f=%3Cscript%3E", "t=abc&z=1e9~2e9&p=-1&h=77", "%%%=%E0%A4%A&=&&t="])
def test_a_broken_link_does_no_harm(leak, page, fragment):
    p = page(leak.page, fragment)
    assert p.js("return gpuspyPage.chart.width") > 0 and p.rows("live")


def test_the_resolution_is_stated(leak, page):
    p = page(leak.page)
    assert p.text("#resolution") == p.js("return gpuspyPage.model.resolution.text") != ""


def test_paper_is_white(leak, page):
    p = page(leak.page, dark=True)
    p.js("dispatchEvent(new Event('beforeprint'))")
    assert p.js("return document.documentElement.dataset.theme") == "light"
    p.js("dispatchEvent(new Event('afterprint'))")
    assert p.js("return document.documentElement.dataset.theme") == "dark"


# ---------------------------------------------------------------- recordings with little to show

def test_nothing_was_allocated(nothing, page):
    p = page(nothing.page)
    assert "No GPU memory was allocated" in p.text("#verdict h1") and "gpuspy doctor" in p.text("#verdict")
    assert not p.find("#memory").is_displayed() and not p.find("#live").is_displayed()
    p.keys("p", "o", "t", "+", Keys.ARROW_LEFT, Keys.ESCAPE)


def test_missing_stacks_are_stated(bare, page):
    p = page(bare.page)
    assert "GPUSPY_STACKS=none" in p.text("#live-about")
    assert p.js("return gpuspyPage.flame.tree.value") == p.js(PEAK)


def test_a_pinned_moment_is_compared_without_shift(leak, page):
    p = page(leak.page)
    p.point(OVER, 0.3)
    a = p.state("moment")
    p.click("#pin")
    assert p.text("#live-about").endswith("Orange is what grew, blue is what shrank.") and "Nothing differs" in p.text("#flame")
    p.point(OVER, 0.6)
    assert p.state("source") == "compare" and p.state("pin") == a < p.state("moment")
    p.point(OVER, 0.5)  # the comparison is over
    assert p.state("source") == "moment" and p.state("pin") is None


# ---------------------------------------------------------------- next to an estimate

@pytest.mark.parametrize("plan", [["--params", "1e6"], ["--model", "gpt2", "--batch", "2", "--seq", "64"]], ids=" ".join)
def test_the_budget_has_its_sums(train, page, plan):
    """As below the table of gpuspy report: the sums of the categories, and the time of the peak."""
    done = train.gpuspy("report", "--json", *plan, train.database)
    budget = json.loads(done.stdout)["budget"]
    planned = "--model" in plan
    out = train.folder / "budget.html"
    assert train.gpuspy("report", "--html", out, *plan, train.database).returncode == 0
    p = page(out)
    p.click("#tab-budget")
    rows = p.rows("budget")
    sums = budget["levels"] if planned else [{"what": "the minimum, and the peak",
                                              "estimate_bytes": budget["estimate"]["total_bytes"]}]
    assert len(rows) == len(budget["categories"]) + len(sums) + (0 if planned else len(budget["levels"]))
    for row, level in zip(rows[len(budget["categories"]):], sums):
        assert row[0] == level["what"] and near(row[1], level["estimate_bytes"]), (row, level)
    note = p.text("#table .note")
    assert ("Activations are not included" in note) != planned
    if planned:
        assert near(note.split("device: ")[1], budget["estimate"]["peak_bytes"]) and "measured" in note, note


@pytest.mark.parametrize("name", ["leak", "kept", "two"])
def test_facts_verdict_and_chart_are_on_one_screen(name, request, page):
    view = page(request.getfixturevalue(name).page, width=1440, height=900)
    verdict, chart, facts, legend = (view.js(f"const r = document.getElementById('{part}').getBoundingClientRect();"
                                             "return [r.left, r.top, r.right, r.bottom]") for part in ("verdict", "memory", "facts", "legend"))
    assert verdict[2] < chart[0] and abs(verdict[1] - chart[1]) < 1 and facts[3] <= verdict[1]
    assert verdict[3] <= 900 and legend[3] <= 900 and facts[3] - facts[1] < 30 and view.js("return document.querySelector('#facts .facts').lastChild.getBoundingClientRect().width") > 50
    view = page(request.getfixturevalue(name).page, width=1280, height=720)
    command, value = view.js("const c = document.querySelector('#facts .facts').lastChild; return [c, c.lastChild].map(e => e.getBoundingClientRect().right)")
    assert value <= command + 1 <= 1266 and view.js("return document.querySelector('#facts .facts').lastChild.lastChild.getBoundingClientRect().width") > 50


def test_the_chart_is_beside_the_verdict_on_a_small_screen(leak, page):
    view = page(leak.page, width=1024, height=700)
    verdict, chart = (view.js(f"const r = document.querySelector('{part}').getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]")
                      for part in ("#verdict", "#memory canvas.base"))
    assert verdict[2] <= chart[0] and chart[2] <= 1024 and chart[1] < 350 and chart[3] <= 700
    assert view.js("return document.documentElement.scrollWidth") <= 1024


def test_a_long_name_of_a_gpu_leaves_room_for_the_command(leak, page):
    for name, shown in ("NVIDIA GeForce RTX 4090 (simulated)", "RTX 4090 (simulated), "), ("Quadro of a vendor with a very long name " * 3, "Quadro"):
        run = leak.changed(shown[:4], ("UPDATE device SET name = ?", name), ("UPDATE process SET command = 'python train.py'",))
        view = page(run.html(), width=1440, height=900)
        assert view.texts("#facts dd")[0].startswith(shown)
        edge, right, needs, has = view.js("""const f = document.querySelector('#facts .facts'), c = f.lastChild.lastChild;
            return [f.getBoundingClientRect().right, c.getBoundingClientRect().right, c.scrollWidth, c.clientWidth]""")
        assert right <= edge + 1 and needs <= has + 1, name


def test_native_functions_have_no_parameters_beside_their_line(leak, page):
    view = page(leak.page)
    for function, shown in {"Simulation::step(std::vector<float, std::allocator<float> >&)": "Simulation::step",
                            "void fill<std::vector<int> >(int) const": "fill", "(anonymous namespace)::load(char const*)": "(anonymous namespace)::load",
                            "A::operator()(int) const": "A::operator()(int) const", "main": "main"}.items():
        assert view.js("return gpuspyPage.siteText({file: '/x/sim.cpp', line: 26, function: arguments[0], kind: 'native'})", function) == "sim.cpp:26 in " + shown


@pytest.mark.parametrize("width", [390, 1280, 1440])
def test_without_a_warning_the_verdict_comes_first_too(leak, page, width):
    """As on a real GPU with a complete recording: a page without notes above the facts."""
    real = leak.changed(f"real{width}", ("UPDATE device SET name = 'NVIDIA A100-SXM4-40GB'",))
    view = page(real.html(), width=width, height=900)
    assert view.js("return document.getElementById('warnings').children.length") == 0
    tops = view.js("return ['verdict', 'memory', 'live', 'oom', 'tables'].map(part => document.getElementById(part).getBoundingClientRect().top)")
    assert tops == sorted(tops) and tops[0] < 150, tops


def test_without_memory_the_verdict_has_the_whole_width(leak, page):
    view = page(leak.page, width=1440, height=900)
    view.js("document.getElementById('memory').hidden = true")
    verdict, tables = (view.js(f"return document.getElementById('{part}').getBoundingClientRect().width") for part in ("verdict", "tables"))
    assert verdict == tables


def test_only_fatal_failures_of_many_have_a_line(leak, page):
    """A program that handles errors in each step has hundreds of them, whose lines would hide the curve."""
    columns = [row[1] for row in sqlite3.connect(leak.database).execute("PRAGMA table_info(oom)") if row[1] != "id"]
    assert {"time_ns", "fatal"} < set(columns)
    copied = ", ".join({"time_ns": "time_ns / 40 * n", "fatal": "0"}.get(name, name) for name in columns)
    many = leak.changed("many", (f"WITH RECURSIVE count(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM count WHERE n < 30) "
                                 f"INSERT INTO oom({', '.join(columns)}) SELECT {copied} FROM oom, count",))
    view = page(many.html(), width=1440, height=900)
    failures, lines, fatal = view.js("""const {events} = gpuspyPage.lanes.of(gpuspyPage.chart.series);
        return [events.filter(e => e.kind === "oom").length, gpuspyPage.lanes.lined(events).length, events.filter(e => e.fatal).length]""")
    assert failures > 20 and lines == fatal < 3 and "with a line: fatal" in view.text("#signs")


def test_one_moment_is_no_curve(leak, page, tmp_path):
    """A snapshot without a history: what was live, without a chart of times that nobody recorded."""
    block = {"address": 1 << 30, "size": 2 << 20, "requested_size": 2 << 20, "state": "active_allocated",
             "frames": [{"filename": "/home/me/train.py", "line": 3, "name": "main"}]}
    segment = {"address": 1 << 30, "total_size": 2 << 20, "allocated_size": 2 << 20, "active_size": 2 << 20, "stream": 0, "device": 0,
               "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [block]}
    (tmp_path / "one.pickle").write_bytes(pickle.dumps({"segments": [segment], "device_traces": [[]]}))
    out = tmp_path / "one.html"
    done = leak.gpuspy("report", "--html", out, tmp_path / "one.pickle")
    assert done.returncode == 0, done.stderr
    view = page(out, width=1440, height=900)
    assert view.js("return [document.getElementById('memory').hidden, document.getElementById('live').hidden]") == [True, False]
    assert "train.py:3" in view.text("#live-table")
    assert "2.00 MiB live, in tensors." in view.text("#live") and "peak" not in view.text("#live")
    assert re.match(r"This is a PyTorch snapshot; .*\.$", view.text("#warnings li"))


@pytest.mark.parametrize("value, text", [(164.125, "164.12"), (164.375, "164.38"), (0.875, "0.88"), (1.005, "1.00"), (9.995, "9.99"), (7, "7.00")])
def test_figures_are_rounded_as_in_the_terminal(leak, page, value, text):
    assert page(leak.page).js("return gpuspyPage.fixed(arguments[0], 2)", value) == text == f"{value:.2f}"


def test_a_band_leads_to_its_lines_and_their_allocations(leak, page):
    """A click on the largest band: its line alone; at the failure each of its allocations, as many as the report has."""
    view = page(leak.page)
    name, x, y = view.js("""
        const chart = gpuspyPage.chart, i = gpuspyPage.indexAt(chart.series, chart.series.time[chart.series.n - 1] * 0.6);
        const layer = chart.shown.slice().sort((a, b) => b.values[i] - a.values[i])[0], at = chart.shown.indexOf(layer);
        const below = chart.shown.slice(0, at).reduce((sum, l) => sum + l.values[i], 0);
        const r = document.querySelector('#plot .over').getBoundingClientRect();
        return [layer.name, r.left + chart.x(chart.series.time[i]) - r.left, chart.y(below + layer.values[i] / 2)];""")
    view.js("""const over = document.querySelector('#plot .over'), r = over.getBoundingClientRect();
        for (const type of ["pointerdown", "pointerup"])
            over.dispatchEvent(new PointerEvent(type, {pointerId: 1, clientX: r.left + arguments[0], clientY: r.top + arguments[1], bubbles: true}));""", x, y)
    view.settle()
    assert name in view.text("#band") and view.js("return gpuspyPage.state.source") == "moment"
    assert view.js("return document.querySelectorAll('#live-table tbody tr').length") == 1
    blocks = int(view.rows("live")[0][3])
    assert blocks > 12 and view.js(OPEN) == f"{blocks} single allocations"
    view.settle()
    assert view.js("return document.querySelectorAll('#live-table .blocks ul > li').length") == 12
    assert view.text("#live-table .blocks > p") == f"and {blocks - 12} more" and "train_leak.py:18" in view.text("#live-table .blocks li")
    view.js("gpuspyPage.set({source: 'oom', moment: null})")
    view.settle()
    assert view.js("return document.querySelectorAll('#live-table tbody tr').length") == 1
    summary = view.js(OPEN)
    growing = leak.report_["growth"][0]
    count = next(line["count"] for line in leak.report_["oom"][0]["live"] if line["site"]["line"] == growing["site"]["line"]) \
        if leak.report_["oom"][0].get("live") else None
    assert re.fullmatch(r"[0-9,]+ single allocations", summary) and (count is None or summary.startswith(f"{count:,} "))
    view.settle()
    first = view.js("return document.querySelector('#live-table .blocks ul li').textContent")
    assert re.match(r"6\.00 MiB · allocated at [0-9.]+ m?s · freed after [0-9.]+ m?s", first) and "train_leak.py:18" in first
    view.click("#band button")
    view.settle()
    assert view.js("return document.querySelectorAll('#live-table tbody tr').length") > 1


def test_every_moment_has_its_single_allocations(train, page):
    """Whatever moment of the chart is clicked, each of its lines opens the allocations that were live then."""
    view = page(train.page)
    compared = view.js("""
        const {model, blocks, live} = gpuspyPage, series = gpuspyPage.series();
        let compared = 0;
        for (let i = 0; i < series.n; i += Math.ceil(series.n / 25)) {
            gpuspyPage.set({moment: series.time[i], source: "moment"});
            live.update();
            for (const row of live.rows) {
                const {list, all} = blocks.of("moment", row), bytes = list.reduce((sum, b) => sum + b.bytes, 0);
                const wrong = list.filter(b => b.allocated > series.time[i] || (b.lived !== null && b.allocated + b.lived <= series.time[i] - 1e-9));
                if (list.length < Math.min(12, row.count) || wrong.length || all && bytes !== row.bytes || !model.frames(list[0].stack).length)
                    return [i, row.label, list.length, row.count, bytes, row.bytes, wrong.length];
                compared++;
            }
        }
        return compared;""")
    assert isinstance(compared, int) and compared > 100, compared


def test_by_line_merges_the_call_paths_of_a_line(paths, page):
    """Each line is one band, however many call paths it has, and none is hidden in "others"."""
    view = page(paths.page)
    view.click("#by button:last-child")
    stacks, bands = view.js("""const s = gpuspyPage.series(), chart = gpuspyPage.chart;
        return [new Set(s.lines.map((l) => l.stack)).size,
                chart.shown.map((l) => [l.words, Boolean(l.other), l.values[gpuspyPage.peakIndex(s)]])];""")
    assert stacks > 500 and 3 <= len(bands) <= 4 and not any(other for _, other, _ in bands), bands
    assert len({words for words, _, _ in bands}) == len(bands) and all(words.startswith("script.py:") for words, _, _ in bands)
    peak = next(p for p in paths.report_["peak"] if p["layer"] == "device" and p["device"] == 0)
    assert sum(size for _, _, size in bands) == peak["bytes"]


def test_the_chart_is_saved_as_svg_and_png(leak, page):
    view = page(leak.page)
    root = ElementTree.fromstring(view.js("return gpuspyPage.svg()"))
    texts = [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("A leak: CUDA allocations at train_leak.py:18") for text in texts)
    assert any(text.startswith("peak ") for text in texts) and "the device: 2.00 GiB" in texts
    assert set(view.js("return gpuspyPage.chart.shown.map(l => l.words)")) <= set(texts)
    colours = {e.get("fill") for e in root.iter("{http://www.w3.org/2000/svg}path")}
    assert set(view.js("return gpuspyPage.chart.shown.map(l => gpuspyPage.chart.colour(l))")) <= colours
    head = view.driver.execute_async_script("""const done = arguments[0];
        gpuspyPage.png().then((blob) => blob.arrayBuffer()).then((b) => done(Array.from(new Uint8Array(b).slice(0, 24))));""")
    assert bytes(head[:8]) == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(bytes(head[16:20]), "big") == 2 * int(root.get("width"))


def test_the_tooltip_does_not_cover_the_legend(leak, page):
    view = page(leak.page, width=1440, height=900)
    for share in (0.1, 0.5, 0.9):
        view.js("""const over = document.querySelector('#plot .over'), r = over.getBoundingClientRect();
            over.dispatchEvent(new PointerEvent("pointermove", {clientX: r.left + r.width * arguments[0], clientY: r.bottom - 30, bubbles: true}));""", share)
        assert view.js("return document.getElementById('tip').getBoundingClientRect().bottom <= "
                       "document.getElementById('legend').getBoundingClientRect().top && !document.getElementById('tip').hidden")

    view.js("window.scrollTo(0, 200)")
    view.wait("return document.getElementById('tip').hidden")


def test_a_failure_that_did_not_end_the_program_is_named_by_its_outcome(leak, page):
    run = leak.changed("not_fatal", ("UPDATE oom SET fatal = 0",))
    (oom, *_) = run.json()["oom"]
    words = {"retried": "Succeeded on a retry", "handled": "Out of memory, handled"}
    assert not oom["fatal"] and page(run.html()).text("#verdict .tag") == words[oom["outcome"]]


CONTRAST = """
    const pixel = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
    const parse = (text) => { pixel.clearRect(0, 0, 1, 1); pixel.fillStyle = text; pixel.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255]; };
    const light = ([r, g, b]) => { const l = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
        return 0.2126 * l(r) + 0.7152 * l(g) + 0.0722 * l(b); };
    const over = (top, below) => top.slice(0, 3).map((v, i) => v * (top[3] ?? 1) + below[i] * (1 - (top[3] ?? 1)));
    const bad = [];
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
        const node = walk.currentNode.parentElement;
        if (!walk.currentNode.textContent.trim() || !node.checkVisibility({checkVisibilityCSS: true}) || node.closest("script, style, svg, .visually-hidden, :disabled")) continue;
        const layers = [];
        let opacity = 1;
        for (let e = node; e; e = e.parentElement) { layers.push(parse(getComputedStyle(e).backgroundColor)); opacity *= Number(getComputedStyle(e).opacity); }
        let back = parse(getComputedStyle(document.documentElement).backgroundColor).slice(0, 3);
        for (const layer of layers.reverse()) back = over(layer, back);
        const colour = parse(getComputedStyle(node).color), front = over([...colour.slice(0, 3), (colour[3] ?? 1) * opacity], back);
        const [a, b] = [light(front), light(back)].sort((x, y) => y - x), contrast = (a + 0.05) / (b + 0.05);
        if (contrast < 4.5) bad.push([walk.currentNode.textContent.trim().slice(0, 40), node.className, contrast.toFixed(2)]);
    }
    for (const name of ["soft", "faint", "ink", "bad", "accent", "more"]) { /* of what is written on canvases */
        const probe = document.createElement("i");
        const rgb = (colour) => { probe.style.color = colour; document.body.append(probe); const c = parse(getComputedStyle(probe).color); probe.remove(); return c; };
        const [a, b] = [light(rgb(gpuspyPage.ink[name])), light(rgb(gpuspyPage.ink.card))].sort((x, y) => y - x);
        if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(["canvas", name, ((a + 0.05) / (b + 0.05)).toFixed(2)]);
    }
    return bad;"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["leak", "train", "two"])
def test_all_text_can_be_read(name, dark, request, page):
    """WCAG 2.2, 1.4.3: 4.5 to 1, in both themes."""
    view = page(request.getfixturevalue(name).page, dark=dark)
    view.js("document.querySelectorAll('details').forEach((d) => { d.open = true; }); document.querySelector('#legend button').click()")
    view.settle()
    bad = view.js(CONTRAST)
    assert not bad, bad
