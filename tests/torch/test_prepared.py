"""A run in a fork of a prepared Python gives the same recording as in a process of its own: the same events with the
same stacks, from the script's outermost frame inwards, and the same report."""
import sqlite3

import pytest
from conftest import HERE

RUNS = {  # name: script, words, environment
    "training": (HERE / "steps.py", ["fused"], {}),
    "waits and copies": (HERE / "waits.py", [], {}),
    "out of memory": (HERE / "ooms.py", ["capacity"], {"SIMCUDA_MEMORY": "1GiB", "SIMCUDA_CONTEXT": "100MiB"}),
    "settings": (HERE / "allocations.py", ["varying"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,roundup_power2_divisions:8"}),
}
EVENTS = ("SELECT layer, space, api, bytes, requested_bytes, stream, free_ns IS NULL, alloc_stack_id, free_stack_id FROM allocations",
          "SELECT direction, host_memory, bytes, api, async, stream, stack_id, NULL FROM copies",
          "SELECT kind, api, stack_id, NULL FROM syncs WHERE kind <> 'implicit'",  # recorded only if it took long
          "SELECT layer, space, api, requested_bytes, free_bytes, total_bytes, fatal, capped, stack_id, NULL FROM ooms",
          "SELECT kind, name, domain, NULL, NULL FROM marks")


def events_of(database, script):
    db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    frames = {row[0]: row[1:] for row in db.execute("SELECT id, kind, function, file, line, module, offset FROM frames")}
    stacks = {row[0]: row[1:] for row in db.execute("SELECT id, parent_id, frame_id FROM stack")}

    def frames_up_to_the_script(stack):
        """Its outermost frame is the module's; a thread of PyTorch's has no such frame."""
        found = []
        while stack in stacks:
            stack, frame = stacks[stack]
            found.append(frames[frame])
            if frames[frame][:3] == ("python", "<module>", str(script)):
                break
        return tuple(found)
    return [sorted((*row[:-2], *map(frames_up_to_the_script, row[-2:])) for row in map(tuple, db.execute(query))) for query in EVENTS]


@pytest.mark.parametrize("name", RUNS)
def test_a_fork_is_recorded_as_a_process_of_its_own(record, name):
    script, words, environment = RUNS[name]
    runs = [record(script, *words, fresh=fresh, **environment) for fresh in (True, False)]
    assert runs[0].code == runs[1].code
    own, forked = (events_of(run.database, script) for run in runs)
    assert sum(map(len, own)) > 100
    if name == "out of memory":  # which operation needs the next segment depends on when autograd's thread has freed a block
        own, forked = ([sorted(str(row[:-2]) for row in rows) for rows in events] for events in (own, forked))
    assert forked == own
    reports = [run.report() for run in runs]
    for key in ("peak", "leaks", "growth", "oom", "churn", "retries", "fragmentation"):
        counted = [[(x.get("bytes"), x.get("count"), x.get("site")) for x in report[key]] for report in reports]
        if name == "out of memory":
            counted = [len(rows) if key == "oom" else None for rows in counted]
        assert counted[0] == counted[1], key
