"""The picture of a report for sharing: well-formed SVG with the figures of the report."""
import re
import shutil
import xml.etree.ElementTree as ElementTree

import pytest

from rows import GIB, MIB, Rows


def card(recording, *arguments, code=0):
    done = recording.gpuspy("report", *arguments, recording.database)
    assert done.returncode == code, done.stderr
    return done


def texts(path):
    root = ElementTree.parse(path).getroot()
    assert not [e for e in root.iter() if e.tag.endswith(("script", "image", "a"))]
    return ["".join(e.itertext()) for e in root.iter() if e.tag.endswith("}text")]


def test_a_failure(recording):
    with Rows(recording.database, command='python "<train>&.py"') as r:
        r.device()
        at = r.stack("/home/me/<train>&.py:9 step")
        r.block(1, 20 * GIB, None, at)
        r.oom(2, 8 * GIB, 3 * GIB, 24 * GIB, stack=at)
    card(recording, "--card", "out.svg")
    shown = texts(recording.folder / "out.svg")
    assert shown[0].startswith("OUT OF MEMORY on GPU 0 at ") and "8.00 GiB requested, 3.00 GiB free" in shown
    assert 'python "<train>&.py"' in shown and "GPU 0: 24.00 GiB" in shown and len(shown) <= 16
    verdict = recording.report()["oom"][0]["verdict"]
    assert " ".join(verdict.split()[1:6]) in " ".join(shown) and shown[2].startswith("The live memory")
    action = next(n for n, line in enumerate(shown) if line.startswith("To do: "))
    assert "GPU 0: 24.00 GiB" in shown[action + 1:] and any("context, other processes (at the failure)" in line for line in shown), shown


def test_a_failure_of_a_rank(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, 20 * GIB)
        r.oom(2, 8 * GIB, 3 * GIB, 24 * GIB, stack=r.stack("/home/me/train.py:9 step"))
        r.db.execute("UPDATE process SET rank = 3")
    card(recording, "--card", "out.svg")
    assert texts(recording.folder / "out.svg")[0] == "OUT OF MEMORY on rank 3, GPU 0 at 2.00 s"


def test_pinned_host_memory(recording):
    """The GPU and its size have no part in it."""
    with Rows(recording.database) as r:
        r.device()
        r.block(1, GIB)
        r.oom(2, 8 * MIB, 3 * GIB, 24 * GIB, stack=r.stack("/home/me/train.py:9 step"))
        r.db.execute("UPDATE oom SET space = 2")
    card(recording, "--card", "out.svg")
    shown = texts(recording.folder / "out.svg")
    assert shown[0] == "OUT OF MEMORY: pinned host memory, at 2.00 s" and not any("GPU 0" in line for line in shown), shown


def test_a_run_that_went_well(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, 640 * MIB, 2, r.stack("/home/me/train.py:9 step"))
    card(recording, "--card", "out.svg")
    shown = texts(recording.folder / "out.svg")
    assert shown[0] == "Peak 640.00 MiB" and any("train.py:9  step" in line for line in shown)


def test_what_it_refuses(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB)
    before = recording.database.read_bytes()
    for arguments, code, words in [(("--card", recording.database), 3, "the recording itself"), (("--card", "x.svg", "--json"), 2, "--json"),
                                   (("--card", "none/x.svg"), 3, "the folder 'none' does not exist; create it first"), (("--card", "x.svg", "--html"), 2, "--html"),
                                   (("--card", "x.svg", "--only", "waits"), 2, "--only"),
                                   (("--card", "x.jpg"), 2, "neither in .svg nor in .png")]:
        done = card(recording, *arguments, code=code)
        assert words in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert recording.database.read_bytes() == before and not re.search(r"x\.", " ".join(p.name for p in recording.folder.iterdir()))


@pytest.mark.skipif(not shutil.which("rsvg-convert"), reason="rsvg-convert is not installed (Debian: apt install librsvg2-bin)")
def test_a_png_is_written_beside_files_of_other_names(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB)
    kept = recording.folder / "-x.png.svg"
    kept.write_text("a file of the user")
    card(recording, "--card=-x.png")
    assert (recording.folder / "-x.png").read_bytes().startswith(b"\x89PNG") and kept.read_text() == "a file of the user"
    assert len(list(recording.folder.glob("*x.png*"))) == 2


def test_a_png_by_the_program_that_is_installed(recording):
    """If rsvg-convert is missing, or fails after it has written a part, cairosvg makes the picture."""
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB)
    for name, text in [("cairosvg", "[ \"$*\" = '-f png -o - -' ] && printf 'PNG of ' && head -c 4"), ("rsvg-convert", "printf 'half of a picture'; exit 1")]:
        program = recording.folder / name
        program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
        program.chmod(0o755)
        done = recording.gpuspy("report", "--card", "x.png", recording.database, env={"PATH": str(recording.folder)})
        assert done.returncode == 0, done.stderr
        assert (recording.folder / "x.png").read_bytes() == b"PNG of <svg"


def test_without_a_program_that_draws_a_png(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, MIB)
    done = recording.gpuspy("report", "--card", "x.png", recording.database, env={"PATH": "/nowhere"})
    assert done.returncode == 3 and "librsvg2-bin" in done.stderr and "--card x.svg" in done.stderr
    assert not list(recording.folder.glob("x.png*"))
