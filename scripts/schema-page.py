#!/usr/bin/env python3
"""Writes the reference part of docs/schema.md from schema/gpuspy.sql and keep.sql, between two marks. The rest of the
page, the queries, is written by hand.

  scripts/schema-page.py            rewrites docs/schema.md
  scripts/schema-page.py --check    exits 1 if docs/schema.md differs from the schema
"""
import re
import sqlite3
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "schema.md"
BEGIN, END = "<!-- from here on: scripts/schema-page.py -->\n", "<!-- up to here -->\n"
VIEWS = ("allocations", "copies", "syncs", "ooms", "marks", "mappings", "calls", "frames", "sites", "leaks",
         "sync_sites", "copy_sites")
KEY = r"([a-z_.N]+(?:, [a-z_]+)*(?:\.NAME)?): "  # of a row of meta, in the comment of its column


def comments(text):
    """By object: the comments before its CREATE and on its line, and those of its columns."""
    said, above, name, column = {}, [], None, None
    for line in text.splitlines():
        code, _, comment = (part.strip() for part in line.partition("--"))
        create = re.match(r"CREATE (?:TABLE|VIEW) (\w+)", code)
        if create:
            name, column = create[1], None
            said[name] = {None: " ".join(above + [comment]).strip()}
            above = []
        elif not code and comment and name and line[0] == " ":  # the rest of the comment above it
            begins = name == "meta" and re.match(KEY, comment)
            said[name][column] = (said[name].get(column, "") + ("\n" if begins else " ") + comment).strip()
        elif not code:
            above = above + [comment] if comment and not comment.endswith("---") else []
            name = None if not comment else name
        elif name:
            word = re.search(r" AS (\w+),?$", code) or re.match(r"(\w+)", code)
            if word:
                column = word[1]
                said[name][column] = comment
            if code.endswith((";", ");")):
                name = None
    return said


def escape(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def words(db, table):
    return ", ".join(f"{number} {word}" for number, word in db.execute(f"SELECT id, word FROM {table} ORDER BY id"))


def reference():
    text = "".join((ROOT / "schema" / name).read_text() for name in ("gpuspy.sql", "keep.sql"))
    said = comments(text)
    db = sqlite3.connect(":memory:")
    db.executescript(text)
    version = re.search(r"GS_SCHEMA_VERSION (\d+)", (ROOT / "schema" / "store.h").read_text())[1]
    names = [(kind, name) for kind, name in db.execute("SELECT type, name FROM sqlite_master WHERE type IN "
                                                       "('table', 'view') ORDER BY rowid")
             if not name.startswith(("recovery_", "sqlite_"))]
    event = (ROOT / "schema" / "event.h").read_text()
    lookups = {}
    for table in ("layer", "space", "direction", "host_memory", "sync_kind", "frame_kind", "sample_source",
                  "mark_kind", "handle_kind", "allocator_fact_kind", "removed_what", "series"):
        plural = {"host_memory": "HOST_MEMORIES",
                  "removed_what": "REMOVED_KINDS", "series": "SERIES", "allocator_fact_kind": "ALLOCATOR_FACTS"}.get(table, table.upper() + "S")
        body = re.search(rf"#define GS_{plural}\(X\)(.*?)(?:\n#define|\n/\*)", event, re.S)[1]
        lookups[table] = re.findall(r'X\(\w+, (\d+), "(\w+)"\)', body)
    out = [f"Schema version {version} (`PRAGMA user_version`). The tables have numbers, whose words are in look-up tables:\n\n"
           "| look-up table | words |\n| --- | --- |\n"]
    out += [f"| `{table}` | {', '.join(f'{n} {word}' for n, word in rows)} |\n" for table, rows in lookups.items()]
    for heading, wanted in (("Views", lambda k, n: n in VIEWS),
                            ("Tables", lambda k, n: n not in VIEWS and n not in lookups)):
        out.append(f"\n## {heading}\n")
        for kind, name in names:
            if not wanted(kind, name):
                continue
            about = said.get(name, {})
            out.append(f"\n### {name}\n")
            if about.get(None):
                out.append(f"\n{escape(about[None])}\n")
            out.append("\n")
            columns = [row[1:3] for row in db.execute(f"PRAGMA table_xinfo({name})")]
            if name in VIEWS:
                out.append(", ".join(f"`{column}`" for column, _ in columns) + "\n")
                continue
            out.append("| column | meaning |\n| --- | --- |\n")
            more = []
            for column, _ in columns:
                meaning, *keys = about.get(column, "").split("\n")
                out.append(f"| `{column}` | {escape(meaning)} |\n")
                rows = [re.fullmatch(KEY + "(.*)", key) for key in keys]
                after = ["\n| key | value |\n| --- | --- |\n"] if rows else []
                after += [f"| {', '.join(f'`{key}`' for key in row[1].split(', '))} | {escape(row[2])} |\n" for row in rows]
                more.extend(after)
            out.extend(more)
    return "".join(out)


def main():
    page = PAGE.read_text()
    head, rest = page.split(BEGIN)
    new = head + BEGIN + reference() + END + rest.split(END)[1]
    if "--check" in sys.argv[1:]:
        if new != page:
            sys.exit("schema-page: docs/schema.md differs from schema/gpuspy.sql; run scripts/schema-page.py")
        return
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
