"""Compares the trace that a fixture program prints with the same lines made from its database."""
import collections
import os
import re
import sqlite3
import subprocess

from conftest import BUILD

PROGRAMS = BUILD / "programs"


def compiled(recording, text, *flags):
    source, program = recording.folder / "program.c", recording.folder / "program"
    source.write_text(text)
    subprocess.run(["gcc", "-O1", "-g", "-w", *flags, "-o", program, source, f"-L{BUILD}/sim", "-lcudart"], check=True)
    return program


ROWS = (
    ("select api, bytes, space, free_ns is null from allocations where layer = 'device'",
     lambda api, size, space, live: f"alloc {api} {size} {space} {'live' if live else 'freed'}"),
    ("select api, direction, bytes, host_memory, async from copies",
     lambda api, way, size, host, late: f"copy {api} {way} {size} {host} {'async' if late else 'sync'}"),
    ("select p.name, bytes, async from memset m left join api p on p.id = m.api",
     lambda api, size, late: f"set {api} {size} {'async' if late else 'sync'}"),
    # how long a free waits depends on the machine, so implicit syncs are not in the trace
    ("select api, kind from syncs where kind <> 'implicit'", lambda api, kind: f"sync {api} {kind}"),
    ("select api, requested_bytes, fatal from ooms",
     lambda api, size, fatal: f"oom {api} {size} {'fatal' if fatal else 'recovered'}"),
    ("select k.word, p.name, destroy_ns is not null from handle h left join handle_kind k on k.id = h.kind "
     "left join api p on p.id = h.api", lambda kind, api, gone: f"{kind} {api} {'gone' if gone else 'kept'}"),
    ("select source from sample where source = 0", lambda source: "sample"),
    ("select bytes, offset, space, unmap_ns is null from mappings",
     lambda size, offset, space, live: f"map {size} {offset} {space} {'mapped' if live else 'unmapped'}"),
    ("select p.name, bytes, freed_ns is null from graph_memory m left join api p on p.id = m.api",
     lambda api, size, live: f"graph-memory {api} {size} {'live' if live else 'freed'}"),
    ("select p.name, used_bytes, reserved_bytes from pool m left join api p on p.id = m.api",
     lambda api, used, reserved: f"pool {api} {used} {reserved}"),
    ("select kind from marks", lambda kind: f"mark {kind}"),
)
COUNTS = "select api, answer, sum(count) from calls group by api, answer"


def rendered(database, counts=False):
    """The trace; with `counts`, also one line for each counted call."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as db:
        lines = [words(*row) for query, words in ROWS for row in db.execute(query)]
        for api, answer, count in db.execute(COUNTS) if counts else ():
            lines += [f"count {api} {answer.replace(' ', '-')}"] * count
    return lines


def expected(stdout):
    """The trace that a program prints, without calls that leave no row."""
    return [line for line in stdout.splitlines() if not line.startswith("call ")]


def difference(got, want):
    got, want = collections.Counter(got), collections.Counter(want)
    return {"recorded but not made": got - want, "made but not recorded": want - got}


def assert_same(got, want):
    gap = difference(got, want)
    assert not any(gap.values()), gap


def run(recording, program, *arguments, counts=False, **more):
    """Runs a program that ends normally. Its trace must equal the recorded one, and its output must not differ from a
    run without gpuspy."""
    done = recording.run(PROGRAMS / program, *arguments, **more)
    assert re.fullmatch(r"gpuspy: [\d,]+ events?.* · run.db · next: gpuspy report run.db\n", done.stderr), done.stderr
    assert not os.path.exists(f"{recording.database}.spool")
    assert_same(rendered(recording.database, counts), expected(done.stdout))
    return done
