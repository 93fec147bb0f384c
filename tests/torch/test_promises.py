"""What a measure promises holds when it is followed: a script of promises/ runs out of memory, its report makes the promise, and
the same script with FOLLOW=1, which follows the advice, gets to its end.

    # measure: a part of the measure's text       # enough: unknown   the report must not call it enough
    # falls: no       the second run needs other memory at its peak (another batch), so only its success counts
If it falls: the live bytes of the second run never exceed what the first one left after the promise, within 10 %."""
import re

import pytest
from conftest import HERE

SCRIPTS = sorted((HERE / "promises").glob("*.py"))


def header(script):
    return dict(re.findall(r"^# (\w+): +(.+)$", script.read_text(), re.M))


def tensor_peak(report):
    return max(peak["bytes"] for peak in report["peak"] if peak["layer"] == "tensor")


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_the_advice_does_what_it_promises(record, script):
    reported = header(script)
    first = record(script, SIMCUDA_MEMORY="4GiB")
    (oom, *_) = [o for o in first.report()["oom"] if o["fatal"]]
    (measure, *_) = [m for m in oom["measures"] if re.search(reported["measure"], m["text"])] or [None]
    assert measure, [m["text"] for m in oom["measures"]]
    assert measure["certainty"] in ("recorded", "inferred")
    assert measure["enough"] is (None if reported.get("enough") == "unknown" else True), measure["text"]
    second = record(script, FOLLOW=1, SIMCUDA_MEMORY="4GiB")
    assert second.code == 0, second.stderr[-2000:]
    if reported.get("falls") != "no":
        left = oom["evidence"]["live_bytes"] - measure["frees_bytes"] + oom["requested_bytes"]
        assert tensor_peak(second.report()) <= left + 0.1 * measure["frees_bytes"], (measure["text"], left)
