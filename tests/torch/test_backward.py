"""The call to backward() behind allocations of autograd's own threads: compared with the script's marked lines."""
import json
import subprocess

import pytest

from conftest import BUILD, HERE

SCRIPT = HERE / "backward.py"


def line(mark):
    [at] = [n for n, text in enumerate(SCRIPT.read_text().split("\n"), 1) if text.endswith(f"# mark: {mark}")]
    return at


@pytest.fixture
def sites(once):
    """For one kind of script: what was allocated at its peak, {(line or None, operation): bytes}."""
    def get(kind, **more):
        report = once(f"backward {kind} {more}", SCRIPT, kind, **more).report()
        [peak] = [p for p in report["peak"] if p["layer"] == "tensor"]
        found = {}
        for s in peak["by_site"]:
            site = s["site"] or {"line": None, "operation": None}
            key = (site["line"], site["operation"])
            found[key] = found.get(key, 0) + s["bytes"]
        return report, found
    return get


@pytest.mark.parametrize("kind, mark", [("plain", "plain"), ("grad", "grad"), ("custom", "custom"), ("ckpt", "again"),
                                        ("ckpt_re", "again"), ("hooked", "hooked")])
def test_the_line_that_called_it(sites, kind, mark):
    _, found = sites(kind)
    assert found[line(mark), "AddmmBackward0"] >= 512 * 512 * 4
    assert not any(at is None for at, _ in found)


def test_sql_names_the_line(record):
    query = "SELECT DISTINCT site(alloc_stack_id) AS line FROM allocations WHERE layer = 'tensor'"
    lines = json.loads(subprocess.run([BUILD / "gpuspy", "sql", "--json", record(SCRIPT, "plain").database, query],
                                      stdout=subprocess.PIPE, check=True).stdout)
    lines = [row["line"] for row in lines]
    assert f"backward.py:{line('plain')} backward (AddmmBackward0)" in lines and not any("Backward0::" in text for text in lines)


def test_each_of_two_lines_has_its_own(sites):
    _, found = sites("two_lines")
    assert found[line("first"), "AddmmBackward0"] and found[line("second"), "AddmmBackward0"]


def test_without_native_frames(sites):
    _, found = sites("plain", GPUSPY_STACKS="python")
    assert found[line("plain"), None] >= 2 * 512 * 512 * 4
    assert not any(at is None for at, _ in found)


@pytest.mark.parametrize("kind, mark", [("given", "given"), ("threads", "both")])
def test_nothing_is_stated_if_it_cannot_be_determined(sites, kind, mark):
    report, found = sites(kind)
    assert (line(mark), "AddmmBackward0") not in found
    [peak] = [p for p in report["peak"] if p["layer"] == "tensor"]
    assert sum(s["bytes"] for s in peak["by_site"] if s["site"] and s["site"]["line"] is None and
               "AddmmBackward0" in s["site"]["function"]) >= 2 * 512 * 512 * 4


def test_out_of_memory(sites):
    report, _ = sites("failing")
    [oom] = report["oom"]
    assert (oom["site"]["line"], oom["site"]["operation"]) == (line("failing"), "EmbeddingBackward0")


def test_a_wait_in_a_hook_keeps_its_line(sites):
    report, _ = sites("hooked")
    [wait] = [s for s in report["sync"] if s["site"]["line"] == line("hook")]
    assert wait["site"]["caller"]["line"] == line("hooked")
