"""The texts that `make words` prints contain none of the phrases that a review replaced."""
import re
import subprocess
import sys

from conftest import ROOT

REPLACED = {  # a phrase, what to write instead
    r"\b[Aa]sk(s|ed) for\b": "request",
    r"\b(told|hears?|heard|said)\b": "record, report, state",
    r"\bsurely\b": "low, high",
    r"\bwhat grows is\b": "memory that grows is",
    r"(%s|%u|%zu|%d|\d) a (step|second)\b": "per step",
    r"\b([Aa]n|[Tt]he|[Nn]o|[Ff]atal|last) out of memory\b": "out-of-memory error",
    r"\b(unknown|smaller|other) places?\b": "call site",
    r"\bstands? for\b": "represents, means",
    r"\b[Ww]hat is no\b": "files that are not",
    r"\bcomes? by\b": "occurs, gets",
    r"\b[Hh]ow sure\b": "how exact",
    r"\bin the place of\b": "instead of",
}


def test_replaced_phrases_do_not_come_back():
    done = subprocess.run([sys.executable, ROOT / "scripts" / "words.py"], capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) > 5000
    assert re.search(r"^python/gpuspy/notebook\.py:\d+: ", done.stdout, re.M)  # its messages, too
    found = [f"{line} (write: {better})" for line in done.stdout.splitlines() for phrase, better in REPLACED.items()
             if re.search(phrase, line.split(": ", 1)[-1])]
    assert not found, "\n".join(found)
