"""The contract of `gpuspy report --json`: every field by name and type, for a run that fails with OOM and one that does
not; and its figures agree with plain SQL on the database and with each other."""
import math
import re
import subprocess

import pytest

NUMBER, TEXT, FLAG = (int, float), str, bool
CERTAINTY = {"recorded", "inferred", "guessed"}
CAUSES = {"capacity", "fragmentation", "leak", "other_process", "oversized_request", "allocator_cap", "pinned_host",
          "preallocation", "outside_allocator"}
FRAME = {"kind": {"python", "native"}, "function": (TEXT, None), "file": (TEXT, None), "line": (int, None)}
SITE = {"file": (TEXT, None), "line": (int, None), "function": (TEXT, None)}
OWNER = {"owner": TEXT, "kind": {"unknown", "torch", "pool", "framework", "communication", "library", "package", "user"},
         "by": (TEXT, None), "bytes": int, "count": int, "by_space": dict, "site": (dict, None)}
BY_STACK = {"bytes": int, "count": int, "frames": [FRAME]}
PHASE = {"startup", "step", "logging", "evaluation", "end", None}
CONTRACT = {
    "schema": int,
    "run": {"command": TEXT, "duration_s": NUMBER, "lost_events": int, "complete": FLAG, "outcome": TEXT,
            "outcome_hint": (TEXT, None), "processes": [{"pid": int, "complete": FLAG}]},
    "devices": [{"index": int, "name": TEXT, "total_bytes": int}],
    "peak": [{"device": int, "layer": {"device", "tensor", "pinned", "host"}, "bytes": int, "time_s": NUMBER,
              "count": int, "by_stack": [BY_STACK], "by_category": dict, "by_owner": dict, "owners": [OWNER]}],
    "memory": [{"device": int, "context_bytes": (int, None), "other_bytes": (int, None)}],
    "preallocations": [{"device": int, "pid": int, "owner": TEXT, "in_advance": FLAG, "layer": {"device", "tensor"},
                        "bytes": int, "share": NUMBER, "text": TEXT, "advice": (TEXT, None), "site": (dict, None)}],
    "ranks": [{"rank": (int, None), "pid": int, "device": int, "gpu": TEXT, "tensor_peak_bytes": (int, None),
               "device_peak_bytes": int, "blocked_s": NUMBER}],
    "rank_findings": [{"kind": {"stray", "shared", "imbalance"}, "ranks": int, "bytes": int, "text": TEXT,
                       "advice": (TEXT, None), "site": (dict, None)}],
    "timeline": [{"device": int, "layer": TEXT, "points": [[NUMBER]]}],
    "oom": [{"time_s": NUMBER, "device": int, "requested_bytes": int, "free_bytes": int, "total_bytes": int,
             "fatal": FLAG, "handled": FLAG, "cause": CAUSES,
             "outcome": {"retried", "handled", "ended_run", "unknown"}, "outcome_why": (TEXT, None),
             "certainty": CERTAINTY, "refuted_by": (TEXT, None), "evidence": dict, "by_owner": dict, "advice": [TEXT], "stack": [FRAME],
             "measures": [{"text": TEXT, "frees_bytes": (int, None), "enough": (bool, None),
                           "certainty": CERTAINTY, "refuted_by": (TEXT, None)}],
             "waterfall": [{"what": TEXT, "category": (TEXT, None), "text": TEXT, "bytes": int, "share": NUMBER,
                            "detail": [{"bytes": (int, None)}], "detail_total": int}]}],
    "leaks": [{"bytes": int, "count": int, "stack": [FRAME]}],
    "steps": [{"pid": int, "source": {"optimizer", "mark", "backward", "period"}, "evidence": TEXT, "n": int, "steady": int,
               "median_s": NUMBER, "first_s": NUMBER, "last_s": NUMBER, "site": (dict, None)}],
    "growth": [{"bytes_per_step": NUMBER, "steps": int, "step": {"step", "allocation"}, "count": int, "jumps": int,
                "graph": FLAG, "certainty": CERTAINTY, "refuted_by": TEXT, "lines": [{"bytes": int, "count": int, "site": (dict, None)}], "newest": (dict, None),
                "under": (dict, None), "stack": [FRAME]}],
    "sync": [{"kind": {"stream", "device", "context", "event", "implicit"}, "count": int, "blocked_s": NUMBER,
              "share": NUMBER, "site": SITE, "advice": (TEXT, None), "pattern": (TEXT, None), "matters": FLAG,
              "calls_per_step": (NUMBER, None), "phase": PHASE, "every_steps": (int, None)}],
    "transfers": [{"direction": {"h2d", "d2h", "d2d", "p2p", "h2h"}, "pinned": (bool, None), "count": int,
                   "bytes": int, "bytes_per_s": (float, None), "site": SITE, "advice": (TEXT, None),
                   "calls_per_step": (NUMBER, None), "phase": PHASE}],
    "fragmentation": [{"device": int, "reserved_bytes": (int, None), "active_bytes": (int, None),
                       "free_bytes": (int, None), "largest_free_bytes": (int, None), "external": (float, None),
                       "utilisation": (float, None)}],
    "churn": list,
    "retries": list,
    "budget": {"estimate": dict, "measured": dict, "difference": dict, "parameter_bytes": (int, None),
               "categories": [{"category": TEXT, "estimate_bytes": (NUMBER, None), "measured_bytes": int,
                               "most_bytes": (int, None), "difference_bytes": (NUMBER, None), "why": (TEXT, None)}]},
    "marks": [{"name": (TEXT, None), "domain": (TEXT, None), "kind": {"push", "start", "moment", "profiler_start",
                                                                      "profiler_stop"},
               "count": int, "open": int, "total_s": NUMBER}],
    "scopes": [{"name": TEXT, "domain": (TEXT, None), "device": int, "pid": int, "rank": (int, None),
                "layer": {"device", "tensor"}, "peak_bytes": int, "peak_time_s": (NUMBER, None), "entry_bytes": int,
                "exit_bytes": (int, None), "count": int, "open": int, "total_s": NUMBER}],
    "samples": [{"device": int, "pid": int, "points": [
        {"time_s": NUMBER, "free_bytes": (int, None), "total_bytes": (int, None), "utilisation": (NUMBER, None),
         "memory_utilisation": (NUMBER, None), "own_bytes": (int, None), "other_bytes": (int, None),
         "other_pid": (int, None), "other_name": (TEXT, None)}]}],
    "advice": list,
}
KEEPS = """
import ctypes
from minicuda import Runtime, Tensor

runtime = Runtime()

def keep(size):
    runtime.check(runtime.lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), size))

def step(i):
    a = Tensor(runtime, 4 << 20)
    a.copy_from(bytes(1 << 20))
    a.zero_()
    return a.item()

for i in range(30):
    step(i)
    if i % 10 == 0:
        keep(3 << 20)
"""


def check(value, form, at):
    if isinstance(form, dict):
        assert isinstance(value, dict), at
        for key, inner in form.items():
            assert key in value, f"{at}.{key} is missing"
            check(value[key], inner, f"{at}.{key}")
    elif isinstance(form, list):
        assert isinstance(value, list), at
        for i, item in enumerate(value):
            check(item, form[0], f"{at}[{i}]")
    elif isinstance(form, set):
        assert value in form, f"{at}: {value}"
    else:
        forms = form if isinstance(form, tuple) else (form,)
        right = tuple(f for f in forms if f is not None)
        assert (value is None and None in forms) or isinstance(value, right), f"{at}: {value!r}"
        assert not (isinstance(value, bool) and bool not in right), f"{at}: {value!r}"


RUNS = {"oom": lambda recording: recording.python("train_leak.py", SIMCUDA_MEMORY="2GiB", check=False),
        "keeps": lambda recording: recording.python(KEEPS)}


@pytest.fixture(scope="module", params=RUNS)
def run(once, request):
    recording = once(f"json {request.param}", RUNS[request.param])
    recording.json = recording.report("--top", "1000000")
    return recording


def test_every_field_and_its_type(run):
    check(run.json, CONTRACT, "report")
    full = [k for k in CONTRACT if isinstance(run.json[k], list) and run.json[k]]
    assert {"devices", "peak", "timeline", "sync", "transfers", "fragmentation", "churn", "advice"} <= set(full)
    assert bool(run.json["oom"]) != bool(run.json["leaks"])  # one run has an OOM, the other leaks
    assert run.json["schema"] == 1


def test_a_budget(run):
    budget = run.report("--params", "1e8")["budget"]
    check(budget, {"estimate": {"weights_bytes": int, "gradients_bytes": int, "optimizer_bytes": int,
                                "total_bytes": int},
                   "measured": {"peak_bytes": int}, "difference": {"bytes": int, "share": float}}, "budget")
    assert budget["estimate"]["total_bytes"] == 16 * 10**8
    assert budget["difference"]["bytes"] == budget["measured"]["peak_bytes"] - 16 * 10**8


def peak_by_hand(rows):
    """A free comes before an allocation of the same time."""
    events = [(at, 1, bytes_) for at, _, bytes_ in rows] + [(free, 0, -bytes_) for _, free, bytes_ in rows
                                                          if free is not None]
    live = count = 0
    best = (0, 0)
    for _, alloc, bytes_ in sorted(events):
        live, count = live + bytes_, count + (1 if alloc else -1)
        best = max(best, (live, count), key=lambda b: b[0])
    return best, live


def test_the_peak_is_that_of_the_rows(run):
    for peak in run.json["peak"]:
        assert peak["layer"] == "device"
        rows = run.sql("SELECT alloc_ns, free_ns, bytes FROM allocations WHERE device = ? AND layer = 'device' "
                       "AND space NOT IN ('pinned', 'host')", peak["device"])
        (bytes_, _), end = peak_by_hand(rows)
        assert (peak["bytes"], peak["end_bytes"]) == (bytes_, end)
        assert peak["allocations"] == len(rows) and peak["allocated_bytes"] == sum(r[2] for r in rows)
        for shares in peak["by_stack"], peak["by_site"]:
            assert sum(s["bytes"] for s in shares) == peak["bytes"]
            assert sum(s["count"] for s in shares) == peak["count"]
        assert sum(peak["by_category"].values()) == peak["bytes"]
        assert sum(peak["by_owner"].values()) == sum(o["bytes"] for o in peak["owners"]) == peak["bytes"]
        line = next(t for t in run.json["timeline"] if t["device"] == peak["device"])
        assert max(p[1] for p in line["points"]) == peak["bytes"]
        assert [p[0] for p in line["points"]] == sorted(p[0] for p in line["points"])
        assert [peak["time_s"], peak["bytes"]] in line["points"]


def test_waits_sum_to_the_rows(run):
    """Waits are the rows of sync plus copies that blocked the host: see analyzer/question/sync.c."""
    (waited,), = run.sql("SELECT sum(blocked_ns) / 1e9 FROM syncs")
    (copied,), = run.sql("SELECT total(blocked_ns) / 1e9 FROM copies WHERE (async = 0 OR host_memory = 'pageable') "
                         "AND (direction = 'd2h' OR (direction = 'h2d' AND bytes > 65536))")
    assert math.isclose(sum(s["blocked_s"] for s in run.json["sync"]), waited + copied, rel_tol=1e-9)
    assert math.isclose(run.json["sync_share"] * run.json["run"]["duration_s"], waited + copied, rel_tol=1e-6)


def test_transfers_sum_to_the_rows(run):
    found = {}
    for t in run.json["transfers"]:
        key = (t["direction"], t["host_memory"], t["async"])
        found[key] = tuple(map(sum, zip(found.get(key, (0, 0)), (t["count"], t["bytes"]))))
        assert t["pinned"] == {"pinned": True, "pageable": False}.get(t["host_memory"])
    rows = run.sql("SELECT direction, host_memory, async, count(*), sum(bytes) FROM copies GROUP BY 1, 2, 3")
    assert found == {(d, h, bool(a)): (n, b) for d, h, a, n, b in rows}


def test_what_is_left_sums_to_the_rows(run):
    (bytes_, count), = run.sql("SELECT total(bytes), count(*) FROM allocations WHERE free_ns IS NULL")
    assert sum(x["bytes"] for x in run.json["leaks"]) == bytes_
    assert sum(x["count"] for x in run.json["leaks"]) == count


def test_the_parts_sum_to_the_device(run):
    for m in run.json["memory"]:
        assert m["live_bytes"] + m["outside_bytes"] + m["free_bytes"] == m["total_bytes"]
        assert m["live_bytes"] == next(p["bytes"] for p in run.json["peak"] if p["device"] == m["device"])
    for o in run.json["oom"]:
        assert o["live_bytes"] + o["outside_bytes"] + o["free_bytes"] == o["total_bytes"]
        assert sum(x["bytes"] for x in o["live"]) == o["evidence"]["live_bytes"]
        assert o["waterfall"] and all(x["bytes"] > 0 for x in o["waterfall"])


def test_one_number_of_events(run):
    """The line at exit, meta, the text and the JSON have the same number, which is that of the rows."""
    reported = int(re.search(r"gpuspy: ([\d,]+) events", run.reported)[1].replace(",", ""))
    (meta,), = run.sql("SELECT value FROM meta WHERE key = 'events'")
    rows = sum(run.sql(f"SELECT count(*) FROM {t}")[0][0] for t in (
        "copy", "memset", "sync", "oom", "sample WHERE source <> 2", "mark", "mark WHERE life_ns > 0"))
    (allocs, frees, handles, gone), = run.sql(
        "SELECT (SELECT count(*) FROM allocation), (SELECT count(life_ns) FROM allocation), "
        "(SELECT count(*) FROM handle), (SELECT count(destroy_ns) FROM handle)")
    text = run.gpuspy("report", run.database).stdout
    assert reported == meta == run.json["run"]["events"] == rows + allocs + frees + handles + gone
    assert f"{reported:,} events" in text


def test_the_verdict_and_the_oom_agree(run):
    for o in run.json["oom"]:
        (requested, free, total, at), = run.sql(
            "SELECT requested_bytes, free_bytes, total_bytes, time_ns / 1e9 FROM ooms WHERE fatal")
        assert (o["requested_bytes"], o["free_bytes"], o["total_bytes"]) == (requested, free, total)
        assert math.isclose(o["time_s"], at)
        assert o["cause"] == "leak" and o["evidence"]["growing_site"] in o["verdict"]
        assert re.search(r"\w\.py:\d+", o["verdict"]) and re.search(r"\w\.py:\d+", o["advice"][0])


def test_every_advice_has_a_place_and_one_thing_to_do(run):
    for a in run.json["advice"]:
        check(a, {"topic": TEXT, "impact": NUMBER, "text": TEXT}, "advice")
        assert re.search(r"\w\.py:\d+", a["text"]), a
    impacts = [a["impact"] for a in run.json["advice"]]
    assert impacts == sorted(impacts, reverse=True)
    assert len({a["text"] for a in run.json["advice"]}) == len(impacts)


def test_a_cut_list_keeps_the_heaviest(run):
    top = run.report("--top", "1")
    for name, weight in ("sync", "blocked_s"), ("transfers", "bytes"):
        assert top[name] == run.json[name][:1] and len(top[name]) == 1
        assert top[name][0][weight] == max(x[weight] for x in run.json[name])


def test_jq_reads_it(run):
    """stdout contains JSON only, without NaN, which strict readers refuse."""
    text = run.gpuspy("report", "--json", run.database).stdout
    assert "NaN" not in text and "Infinity" not in text
    done = subprocess.run(["/usr/bin/python3", "-c", "import json, sys; json.load(sys.stdin)"], input=text, text=True)
    assert done.returncode == 0
