"""Names in a recording may be any text: the page shows them as text."""
import pytest

from chromium import Keys

MARKUP = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1><svg onload=window.broken=1>"
NAMES = {
    "markup": MARKUP,
    "attribute": "\"' onmouseover=window.broken=1 style=position:fixed x='",
    "comment": "<!--<script>--!><!-- ]]> &lt;b&gt; &#60;script&#62; ${window.broken=1} `\\u003cscript>",
    "escapes": "\x1b]0;owned\x07\x1b[31mred\x1b[2J\r\n\x00tail",
    "direction": "safe\u202egnp.exe\u2066\u200b\ufeff",
    "long": "n" * (1 << 20),
    "prototype": "__proto__",
    "empty": "",
}


def texts(p):
    return p.js("return document.body.innerText + Array.from(document.querySelectorAll('[title],[aria-label]'), n => (n.getAttribute('title') || '') + (n.getAttribute('aria-label') || '')).join(' ')")


@pytest.mark.parametrize("kind", NAMES)
def test_names_are_text(leak, page, kind):
    name = NAMES[kind]
    run = leak.changed(f"name-{kind}", ("update frame set function = ? || coalesce(function, ''), file = ? || '/' || coalesce(file, '') where kind = 0", name, name),
                       ("update process set command = ?, host = ?", name + " command", name), ("update device set name = ?", name + " GPU"))
    p = page(run.html())
    p.keys("p", "t", "t", "c")
    p.click("#source button:last-child")
    for tab in p.js("return gpuspyPage.tableNames()"):
        p.js("gpuspyPage.set({table: arguments[0]})", tab)
        p.settle()
    p.hover("#plot .over", 0.5)
    p.hover("#flame rect", 0.3)
    p.keys("/", "script", Keys.ESCAPE)
    assert p.js("return window.broken") is None
    assert p.js("return document.querySelectorAll('img, iframe, object, embed, link, [onerror], [onload], [onmouseover]').length") == 0
    assert p.js("return Array.from(document.scripts).filter(s => !s.closest('body')).length") == 0
    assert p.js("return document.documentElement.scrollWidth") <= 1280
    reported = texts(p)
    assert not set(reported) & set("\x00\x07\x1b\u202e\u2066\u200b\ufeff")
    assert len(reported) < 400_000  # no name of a megabyte is repeated
    if kind in ("markup", "attribute", "comment"):
        assert name[:20] in p.text("#facts .facts")


def test_names_of_marks_are_text(leak, page):
    names = list(NAMES.values())
    run = leak.changed("marks", *(("insert into mark_name(id, name) values(?, ?)", 100 + i, name) for i, name in enumerate(names)),
                       *(("insert into mark(id, kind, name, start_ns, life_ns, thread_id) values(?, ?, ?, ?, ?, 2)", 100 + i, i % 3 * 2, 100 + i, i * 1000000, 900000000)
                         for i in range(len(names))))
    p = page(run.html())
    assert p.js("return gpuspyPage.model.marks.length") == len(names)
    p.hover("#plot .over", 0.02, 0.8)
    p.click("#tab-marks")
    assert len(p.rows("marks")) == len(names) and any(MARKUP[:40] in " ".join(row) for row in p.rows("marks"))
    assert p.js("return window.broken") is None and p.js("return document.images.length") == 0
    assert len(texts(p)) < 100_000


def test_a_search_is_text(leak, page):
    p = page(leak.page, "q=" + "%3Cimg%20src%3Dx%20onerror%3Dwindow.broken%3D1%3E")
    assert "<img src=x" in p.text("#live-table") and p.js("return window.broken") is None and p.js("return document.images.length") == 0


def test_the_page_requests_nothing_and_runs_nothing_else(leak, page):
    p = page(leak.page)
    policy = p.js("return document.querySelector('meta[http-equiv=Content-Security-Policy]').content")
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    # what the policy does not allow does not run: checks the test above
    p.js("const s = document.createElement('script'); s.textContent = 'window.broken = 1'; document.body.append(s)")
    assert p.js("return window.broken") is None
    assert any("Content Security Policy" in reported for reported in p.complaints())


DAMAGE = {
    "negative times": ["update allocation_row set alloc_ns = -alloc_ns", "update sync set start_ns = -start_ns, blocked_ns = -5"],
    "no time passes": ["update allocation_row set alloc_ns = 7, life_ns = 0", "update process set end_ns = 7"],
    "the end of time": ["update allocation_row set alloc_ns = 9223372036854775807 - id", "update oom set time_ns = 9223372036854775807"],
    "huge sizes": ["update allocation_row set bytes = 4611686018427387904 where id % 3 = 0"],
    "sizes below zero": ["update allocation_row set bytes = -bytes where id % 2 = 0"],
    "one address": ["update allocation_row set address = 4096"],
    "a circle of calls": ["update stack set parent_id = (select max(id) from stack)"],
    "no frames": ["delete from frame"],
    "no stacks": ["delete from stack"],
    "words for numbers": ["update frame set line = 'x', function = 5", "update device set total_bytes = 'many'"],
    "no device": ["delete from device"],
    "nothing at all": ["delete from allocation_row", "delete from oom", "delete from sync", "delete from copy_row"],
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_recordings_are_drawn(leak, page, kind):
    run = leak.changed("damaged-" + kind.replace(" ", "-"), *((statement,) for statement in DAMAGE[kind]))
    out = run.folder / "run.html"
    done = run.gpuspy("report", "--html", out, run.database)
    assert done.returncode in (0, 3), done.stderr  # refused with a line, or drawn
    if done.returncode:
        assert len(done.stderr.strip().splitlines()) == 1 and not out.exists()
        return
    p = page(out)
    p.keys("p", "t", "o", "+", "-", Keys.ARROW_LEFT)
    for selector in ("#plot .over", "#map canvas"):
        if p.find(selector).is_displayed():
            p.hover(selector, 0.4)
    if p.find("#plot .over").is_displayed():
        p.point("#plot .over", 0.5)
        p.point("#plot .over", 0.8, shift=True)
    assert "NaN" not in texts(p) and "undefined" not in texts(p) and "Infinity" not in texts(p)
    assert p.text("#verdict h1")
