#!/usr/bin/env python3
"""Prints every text that a person reads, with its file and line, for review: string literals of the C, JavaScript and
Python sources that are sentences or phrases, the tables' texts, the pages' HTML, and the documents.

    scripts/words.py [PART…]    only files whose name contains a PART
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
NOT_WORDS = re.compile(r"^(SELECT|INSERT|PRAGMA|CREATE|UPDATE|DELETE|WITH|FROM|WHERE|ORDER|JOIN|ATTACH|BEGIN)\b")


def sources():
    for folder in "analyzer", "interpose", "schema":
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".c", ".h", ".def", ".js", ".html"}:
                yield path


def without_comments(text):
    """Comments become blank, so that lines keep their numbers."""
    return re.sub(r'/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', lambda m: m[0] if m[0][0] == '"' else re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def literals(path):
    """Adjacent literals are one text."""
    text = without_comments(path.read_text(errors="replace"))
    at, start, joined = 0, None, ""
    for match in LITERAL.finditer(text):
        if start is not None and not text[at:match.start()].strip():
            joined += match[1]
        else:
            if start is not None:
                yield start, joined
            start, joined = text.count("\n", 0, match.start()) + 1, match[1]
        at = match.end()
    if start is not None:
        yield start, joined


def python_literals(path):
    """An f-string is one text, with {} for its values."""
    tree = ast.parse(path.read_text())
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def is_text(words):
    return len(re.findall(r"[A-Za-z]{2,}", words)) >= 2 and " " in words.strip() and not NOT_WORDS.match(words.strip()) \
        and not re.search(r"\.h$|^analyzer/", words)


def main(parts):
    for path in sources():
        name = str(path.relative_to(ROOT))
        if parts and not any(part in name for part in parts):
            continue
        found = enumerate(re.sub(r"<[^>]*>", " ", path.read_text()).splitlines(), 1) if path.suffix == ".html" else literals(path)
        for line, words in found:
            if is_text(words):
                print(f"{name}:{line}: {' '.join(words.split())}")
    for path in sorted(path for folder in ("python", "pytest-gpuspy", "fixtures/simcuda/python") for path in (ROOT / folder).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if not parts or any(part in name for part in parts):
            for line, words in python_literals(path):
                if is_text(words):
                    print(f"{name}:{line}: {' '.join(words.split())}")
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]:
        name = str(path.relative_to(ROOT))
        if not parts or any(part in name for part in parts):
            for line, words in enumerate(path.read_text().splitlines(), 1):
                if words.strip():
                    print(f"{name}:{line}: {words.strip()}")


if __name__ == "__main__":
    main(sys.argv[1:])
