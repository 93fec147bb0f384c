"""web/model.js in the browser: its figures for a recording are those of the JSON report, and its answers agree with
each other."""
import pytest

MODEL = "const m = gpuspyModel(JSON.parse(document.getElementById('gpuspy-data').textContent));"


@pytest.fixture(params=["leak", "train", "kept", "bare"])
def run(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def ask(run, page):
    p = page(run.page)
    return lambda script, *arguments: p.js(MODEL + script, *arguments)


def test_every_moment_sums(ask):
    assert ask("""
        const wrong = [];
        const sum = (list) => list.reduce((a, e) => a + e.bytes, 0);
        for (const s of m.series) {
          const forward = [], indexes = s.time.map((t, i) => i);
          for (const i of indexes) {
            const list = m.at(s, i);
            forward.push(JSON.stringify(list.map((e) => [e.line.index, e.bytes, e.count])));
            if (sum(list) !== s.high[i] || s.low[i] > s.high[i]) wrong.push([s.label, i]);
            if (list.some((e, k) => e.bytes < 0 || e.count < 1 || (k && e.bytes > list[k - 1].bytes))) wrong.push([s.label, i, "order"]);
          }
          const again = gpuspyModel(JSON.parse(document.getElementById('gpuspy-data').textContent)); /* in another order */
          for (const i of indexes.reverse().filter((i) => i % 7 === 0)) {
            if (JSON.stringify(again.at(s.index, i).map((e) => [e.line.index, e.bytes, e.count])) !== forward[i]) wrong.push([s.label, i, "again"]);
          }
        }
        return m.series.length ? wrong : "nothing";""") == []


def test_layers_sum_to_the_whole(ask):
    assert ask("""
        const wrong = [];
        for (const s of m.series) for (const by of ["category", "site", "line"]) for (const top of [0, 1, 3]) {
          const stacked = m.stacked(s, by, top);
          if (stacked.keys.length !== stacked.values.length || (top && stacked.keys.length > top + 1)) wrong.push([by, top, stacked.keys]);
          if (stacked.values.some((v) => v.length !== s.n || v.some((x) => x < 0))) wrong.push([by, top, "less than nothing"]);
          for (let i = 0; i < s.n; i++) {
            if (stacked.values.reduce((a, v) => a + v[i], 0) !== s.high[i]) wrong.push([s.label, by, top, i]);
          }
        }
        return wrong;""") == []


def test_the_peak_is_the_reports(run, ask):
    found = ask("""return m.series.map((s) => [s.pid, s.device, s.layer, s.high[s.peak], s.time[s.peak],
        m.at(s, s.peak).map((e) => [e.line.stack, e.line.category, e.bytes, e.count, m.frames(e.line.stack)])])""")
    assert len(found) == len(run.report_["peak"])
    for pid, device, layer, high, time, lines in found:
        (peak,) = [p for p in run.report_["peak"] if (p["pid"], p["device"], p["layer"]) == (pid, device, layer)]
        assert high == peak["bytes"] and abs(time - peak["time_s"]) < 1e-9 and sum(n for *_, n, _ in lines) == peak["count"]
        categories, stacks, frames = {}, {}, {}
        for stack, category, nbytes, _, where in lines:
            categories[category] = categories.get(category, 0) + nbytes
            stacks[stack] = stacks.get(stack, 0) + nbytes
            frames[stack] = [(f["function"], f["file"], f["line"]) for f in reversed(where)]
        assert {k: v for k, v in categories.items() if v} == peak["by_category"]
        assert sorted(stacks.values(), reverse=True) == [s["bytes"] for s in peak["by_stack"]]
        for stack, nbytes in stacks.items():
            assert any(s["bytes"] == nbytes and frames[stack] == [(f["function"], f["file"], f["line"]) for f in s["frames"]]
                       for s in peak["by_stack"]), (stack, frames[stack])


def test_the_report_is_whole(run, page, tmp_path):
    p = page(run.changed(f"whole-{tmp_path.name}").html("--top", "1000"))
    reported = p.js(MODEL + "return JSON.stringify(m.report)")
    import json
    reported, wanted = json.loads(reported), dict(run.report_)
    for report in (reported, wanted):  # the copy is elsewhere
        for process in report["run"]["processes"]:
            process.pop("database")
    assert reported == wanted


def test_a_moment_is_found_by_its_time(ask):
    assert ask("""
        const wrong = [];
        for (const s of m.series) {
          for (let i = 0; i < s.n; i++) {
            if (i + 1 < s.n && s.time[i + 1] === s.time[i]) continue;
            if (m.index(s, s.time[i]) !== i) wrong.push(i);
            if (i + 1 < s.n && m.index(s, (s.time[i] + s.time[i + 1]) / 2) !== i && s.time[i + 1] - s.time[i] > 1e-8) wrong.push([i]);
          }
          if (m.index(s, -1) !== 0 || m.index(s, 1e12) !== s.n - 1 || m.at(s, -1).length || m.at(s, s.n).length || m.at(s, NaN).length) wrong.push(s.label);
        }
        return wrong;""") == []


def test_what_is_too_small_for_a_line_does_not_jump_at_the_peak(leak, page):
    """A path that has a line only at the peak belongs to "others" there too."""
    keys, whole, others = page(leak.page).js("""
        const data = JSON.parse(document.getElementById('gpuspy-data').textContent), m = gpuspyModel(data);
        const s = m.series.find((s) => s.lines.length > 2 && s.lines.every((l) => l.stack >= 0)), before = m.stacked(s, "site", 0);
        for (const l of s.lines) if (l.site !== before.keys[0]) { l.stack = -1; l.merged = 1 + l.index; l.site = l.label = l.merged + " smaller call sites"; }
        const after = m.stacked(s, "site", 5);
        return [after.keys, Array.from(s.high), Array.from(after.values[0]).map((v, i) => v + (after.values[1] ? after.values[1][i] : 0))];""")
    assert len(keys) == 2 and keys[1] == "others" and whole == others


def test_differences_and_trees(ask):
    assert ask("""
        const wrong = [];
        const sum = (list) => list.reduce((a, e) => a + e.bytes, 0);
        for (const s of m.series) {
          const a = m.at(s, Math.floor(s.n / 3)), b = m.at(s, s.peak), d = m.difference(a, b);
          if (sum(d) !== sum(b) - sum(a) || d.some((e) => !e.bytes && !e.count)) wrong.push([s.label, "difference"]);
          if (m.difference(b, b).length) wrong.push([s.label, "itself"]);
          for (const native of [false, true]) {
            const nodes = [m.tree(b, { native })];
            if (nodes[0].value !== sum(b)) wrong.push([s.label, "root"]);
            while (nodes.length) {
              const node = nodes.pop(), below = node.children.reduce((x, c) => x + c.value, 0);
              if (below > node.value || "by" in node) wrong.push([s.label, node.name]);
              if (node.children.some((c, i) => i && c.value > node.children[i - 1].value)) wrong.push([s.label, node.name, "order"]);
              if (!native && node.frame && node.frame.native && m.frames(b[0].line.stack).some((f) => !f.native)) wrong.push([node.name, "native"]);
              nodes.push(...node.children);
            }
          }
        }
        return wrong;""") == []


def test_events_and_calls(run, ask):
    events, calls, steps = ask("return [m.events, m.calls, m.steps.map((s) => [s.n, s.stride, Array.from(s.starts)])]")
    assert [e["time"] for e in events] == sorted(e["time"] for e in events)
    ooms = [e for e in events if e["kind"] == "oom"]
    assert sorted((e["time"], e["text"]) for e in ooms) == sorted((o["time_s"], o["verdict"]) for o in run.report_["oom"])
    assert sum(e["count"] for e in events if e["kind"] == "sync") == sum(s["count"] for s in run.report_["sync"])
    assert sum(e["bytes"] for e in events if e["kind"] == "copy") == sum(t["bytes"] for t in run.report_["transfers"])
    assert all(sum(p["count"] for p in c["points"]) == c["count"] for c in calls)
    assert all(e["text"] and "undefined" not in e["text"] and e["end"] >= e["time"] for e in events)
    for (n, stride, starts), step in zip(steps, run.report_["steps"]):
        assert n == step["n"] and starts == sorted(starts) and len(starts) == (n + stride - 1) // stride + 1


def test_blocks_lie_in_their_segments(run, ask):
    maps = ask("return m.maps")
    assert maps or not any(p["device"] >= 0 and p["bytes"] for p in run.report_["peak"])
    for one in maps:
        address = live = 0
        for s in one["segments"]:
            at = 0
            assert s["address"] >= address
            address = s["address"] + s["bytes"]
            for b in s["blocks"]:
                assert at <= b["offset"] and b["bytes"] > 0 and b["category"]
                at = b["offset"] + b["bytes"]
                live += b["bytes"]
            assert at <= s["bytes"]
        if one["at"] == "peak" and not one["note"]:
            assert live == run.report_["peak"][one["index"]]["bytes"]
