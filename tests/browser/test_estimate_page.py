"""The page of `gpuspy estimate --html` shows the figures of --json."""
import json
import subprocess

import pytest

from conftest import e2e
from test_page import near

PLAN = ["--model", "llama-3-8b", "--precision", "bf16", "--batch", "4", "--gpus", "8", "--gpu", "h100,4090", "--solve", "batch"]
KEYS = ["forward_end", "backward_end", "step"]


@pytest.fixture(scope="module")
def estimate(tmp_path_factory):
    def run(*words):
        return subprocess.run([e2e.BUILD / "gpuspy", "estimate", *PLAN, *words], text=True, stdout=subprocess.PIPE)
    out = tmp_path_factory.mktemp("estimate") / "out.html"
    run("--html", out)
    return out, json.loads(run("--json").stdout)


def test_it_shows_the_figures_of_the_json(estimate, page):
    file, e = estimate
    p = page(file)
    assert near(p.text("#verdict h1").split("needs ")[1], e["peak"]["bytes"])
    assert [t.split(": ")[1] for t in p.texts("#verdict .tag")] == ["does not fit"] * 2
    totals = p.texts("#bars .phase .n b")
    assert len(totals) == 3 and all(near(t, e["phases"][k]["bytes"]) for t, k in zip(totals, KEYS))
    changes = sorted(e["changes"], key=lambda c: c["cost_class"] == "result")  # another task comes last
    saved = p.texts("#change-table tbody td:first-child")
    assert len(saved) == len(changes) and all(near(t, c["saved"]["bytes"]) for t, c in zip(saved, changes))
    assert p.texts("#change-table .copy") == [c["option"] for c in changes]
    assert len(p.texts("#wire-table tbody tr")) == len(e["wires"])


def test_a_bar_is_as_long_as_its_sum(estimate, page):
    file, e = estimate
    p = page(file)
    widths = p.js("""return Array.from(document.querySelectorAll('#bars .track'), t => [t.clientWidth,
        t.querySelector('.fill').getBoundingClientRect().width,
        t.querySelector('.limit').getBoundingClientRect().left - t.getBoundingClientRect().left])""")
    scale = widths[0][1] / e["phases"]["forward_end"]["bytes"]
    for (track, fill, limit), key in zip(widths, KEYS):
        assert abs(fill - e["phases"][key]["bytes"] * scale) < 2
        assert abs(limit - e["gpus"][0]["total_bytes"] * scale) < 3 and max(fill, limit) <= track


def test_the_verdict_comes_first_and_nothing_is_cut(estimate, page):
    p = page(estimate[0])
    try:
        for width, height, touch in (1440, 900, False), (390, 844, True):
            p.screen(width=width, height=height, touch=touch)
            p.settle()
            tops = p.js("return ['#verdict', '#phases', '#lines', '#gpus'].map(s => document.querySelector(s).getBoundingClientRect().top)")
            assert tops == sorted(tops), tops
            outside = p.js("""return Array.from(document.querySelectorAll('.limits span, #verdict .facts dd'), e => [e.textContent,
                e.getBoundingClientRect().left, e.getBoundingClientRect().right]).filter(e => e[1] < 0 || e[2] > innerWidth)""")
            assert not outside, outside
            assert p.js("const f = document.querySelector('#verdict .facts'); return f.scrollWidth <= f.clientWidth")
    finally:
        p.screen()


def test_a_click_explains(estimate, page):
    file, e = estimate
    p = page(file)
    line = next(line for line in e["lines"] if line["part"] == "activations")
    assert line["formula"] not in p.text("#table")
    row = [i for i, name in enumerate(p.texts("#table tr.part button")) if name == "activations"][0]
    p.js("document.querySelectorAll('#table tr.part button')[arguments[0]].click()", row)
    assert line["formula"] in p.text("#table") and line["source"] in p.text("#table")
    p.click("#explain")
    assert all((line["formula"] or "") in p.text("#table") for line in e["lines"])
    p.click("#explain")
    assert not p.texts("#table .line")


@pytest.mark.parametrize("screen", [{"width": 400, "height": 800, "touch": True}, {"width": 1600, "height": 900, "dark": True}])
def test_it_fits_screens(estimate, page, screen):
    p = page(estimate[0], **screen)
    assert p.js("return document.documentElement.scrollWidth <= innerWidth")
    theme = p.js("return document.documentElement.dataset.theme")
    p.click("#theme")
    assert {theme, p.js("return document.documentElement.dataset.theme")} == {"light", "dark"}
    p.click("#theme")
    p.js("localStorage.clear()")  # pages of one browser share it


def test_how_the_model_is_divided(page, tmp_path):
    words = ["--model", "mixtral-8x7b", "--batch", "1", "--seq", "512", "--gpus", "8", "--tp", "2", "--ep", "4"]
    for more, shown in ([], "tp 2, ep 4"), (["--expert-tp", "1"], "tp 2, ep 4, expert-tp 1"):
        subprocess.run([e2e.BUILD / "gpuspy", "estimate", *words, *more, "--html", tmp_path / "out.html"], stdout=subprocess.DEVNULL)
        facts = page(tmp_path / "out.html").texts("#verdict .facts dd")
        assert shown in facts
