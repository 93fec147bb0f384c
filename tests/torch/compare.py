"""The database of a run, compared with PyTorch's own counters at the moments that moment.py recorded."""
import json
import os
import sqlite3
from collections import Counter

REAL = bool(os.environ.get("REAL_GPU"))
CONTEXT = 512 << 20  # SIMCUDA_CONTEXT's default
LIBRARY = "a library's"
OWN = ("device", LIBRARY, "pool", "vmm", "managed", "array")


class Row:
    __slots__ = ("id", "device", "layer", "space", "api", "address", "bytes", "start", "end")

    def __init__(self, *values):
        for name, value in zip(self.__slots__, values):
            setattr(self, name, value)

    def live(self, at):
        return self.start <= at and (self.end is None or self.end > at)


class Compared:
    def __init__(self, database, moments):
        self.db = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        self.rows = [Row(*r) for r in self.sql("SELECT id, device, layer, space, api, address, bytes, alloc_ns, free_ns "
                                                "FROM allocations ORDER BY id")]
        for r in self.rows:  # the real cuBLAS also allocates, through the driver, while PyTorch calls cudaMalloc
            if r.space == "device" and not r.api.startswith("cudaMalloc"):
                r.space = LIBRARY
        self.mapped = self.sql("SELECT device, address, bytes, map_ns, unmap_ns FROM mappings ORDER BY map_ns, id")
        self.reported = [json.loads(line) for line in open(moments)]
        self.times = dict(self.sql("SELECT name, start_ns FROM marks WHERE name LIKE 'moment %'"))

    def sql(self, query, *arguments):
        return self.db.execute(query, arguments).fetchall()

    def one(self, query, *arguments):
        return self.sql(query, *arguments)[0][0]

    # ------------------------------------------------------------ gpuspy's side

    def at(self, reported):
        return self.times[f"moment {reported['moment']}"]

    def live(self, at, device, layer, spaces=None):
        return [r for r in self.rows if r.layer == layer and r.device == device and (spaces is None or r.space in spaces)
                and r.live(at)]

    def peak(self, since, at, device, layer, spaces=None):
        """The highest total after `since` up to `at`, and the highest number of rows."""
        start = self.live(since, device, layer, spaces)
        changes = []
        for r in self.rows:
            if r.layer != layer or r.device != device or (spaces is not None and r.space not in spaces):
                continue
            if since < r.start <= at:
                changes.append((r.start, 1, r.id, r.bytes))
            if r.end is not None and since < r.end <= at:
                changes.append((r.end, 0, r.id, -r.bytes))
        bytes_ = peak = sum(r.bytes for r in start)
        count = most = len(start)
        for _, _, _, change in sorted(changes):
            bytes_ += change
            count += 1 if change > 0 else -1
            peak, most = max(peak, bytes_), max(most, count)
        return peak, most

    def failures(self, since, at, device):
        return self.one("SELECT count(*) FROM ooms WHERE layer = 'device' AND device = ? AND time_ns > ? AND time_ns <= ?",
                        device, since, at)

    def reserved_by_pool(self, at, device):
        """What the pool last reported as reserved, if nothing was allocated or freed in it since."""
        last = self.sql("SELECT reserved_bytes, time_ns FROM pool WHERE pool <> 0 AND device = ? AND time_ns <= ? "
                        "ORDER BY time_ns DESC LIMIT 1", device, at)
        if not last or any(last[0][1] < t <= at for r in self.rows if r.space == "pool" for t in (r.start, r.end or 0)):
            return None
        return last[0][0]

    def mappings(self, at, device):
        return [(address, size) for d, address, size, start, end in self.mapped
                if d == device and start <= at and (end is None or end > at)]


def joined(pieces):
    """Merges neighbours: [(address, bytes)]."""
    out = []
    for address, size in sorted(pieces):
        if out and out[-1][0] + out[-1][1] == address:
            out[-1] = (out[-1][0], out[-1][1] + size)
        else:
            out.append((address, size))
    return out


def difference(ours, theirs):
    ours, theirs = Counter(map(tuple, ours)), Counter(map(tuple, theirs))
    return {"only gpuspy": sorted((ours - theirs).elements())[:8], "only PyTorch": sorted((theirs - ours).elements())[:8]}


def differences(run, expandable=False, asynchronous=False):
    """All differences of a run: [(situation, moment's name, device, what, gpuspy's, PyTorch's)]."""
    wrong = []
    since = -1
    for reported in run.reported:
        at = run.at(reported)
        samples = run.sql("SELECT device, time_ns, free_bytes, total_bytes FROM sample WHERE source = 0 AND time_ns >= ? "
                          "ORDER BY time_ns, id LIMIT 64", at)
        for device, theirs in enumerate(reported["devices"]):
            def hold(what, ours, wanted):
                if ours != wanted:
                    wrong.append((reported["situation"], reported["name"], device, what, ours, wanted))

            if asynchronous:  # each tensor is an allocation of CUDA's pool, and PyTorch reports the pool's own figures
                pools = run.live(at, device, "device", ("pool",))
                hold("allocated", sum(r.bytes for r in pools), theirs["allocated_bytes"]["current"])
                hold("allocated peak", run.peak(since, at, device, "device", ("pool",))[0],
                     theirs["allocated_bytes"]["peak"])
            else:
                tensors = run.live(at, device, "tensor")
                peak, most = run.peak(since, at, device, "tensor")
                hold("allocated", sum(r.bytes for r in tensors), theirs["allocated_bytes"]["current"])
                hold("allocated peak", peak, theirs["allocated_bytes"]["peak"])
                hold("blocks", len(tensors), theirs["allocation"]["current"])
                hold("most blocks", most, theirs["allocation"]["peak"])
                blocks = [(r.address, r.bytes) for r in tensors]
                if sorted(blocks) != [tuple(b) for b in theirs["blocks"]]:
                    wrong.append((reported["situation"], reported["name"], device, "block map", difference(blocks, theirs["blocks"]), ""))
                space = ("vmm",) if expandable else ("device",)
                segments = run.live(at, device, "device", space)
                hold("reserved", sum(r.bytes for r in segments), theirs["reserved_bytes"]["current"])
                peak = run.peak(since, at, device, "device", space)[0]
                # pieces made before one that failed: PyTorch counts them only if all could be made
                if not expandable or peak < theirs["reserved_bytes"]["peak"] or not run.failures(since, at, device):
                    hold("reserved peak", peak, theirs["reserved_bytes"]["peak"])
                if expandable:
                    ours, wanted = joined(run.mappings(at, device)), joined(theirs["segments"])
                else:
                    ours, wanted = sorted((r.address, r.bytes) for r in segments), [tuple(s) for s in theirs["segments"]]
                if ours != wanted:
                    wrong.append((reported["situation"], reported["name"], device, "segment map", difference(ours, wanted), ""))
                hold("made", sum(r.layer == "tensor" and r.device == device and r.start <= at for r in run.rows), theirs["made"])
                if theirs["mallocs"] and not expandable:
                    own = [r for r in run.rows if r.layer == "device" and r.device == device and r.space == "device"]
                    hold("cudaMalloc calls", sum(r.start <= at for r in own), theirs["mallocs"])
                    hold("cudaFree calls", sum(r.end is not None and r.end <= at for r in own), theirs["frees"])
            hold("ooms", run.one("SELECT count(*) FROM ooms WHERE layer = 'tensor' AND device = ? AND time_ns <= ?", device, at),
                 theirs["ooms"])
            sample = next((s for s in samples if s[0] == device), None)
            if sample is None:
                wrong.append((reported["situation"], reported["name"], device, "sample", None, "one"))
                continue
            hold("free", sample[2], theirs["free"])
            hold("total", sample[3], theirs["total"])
            if asynchronous:
                reserved = run.reserved_by_pool(at, device)
                if reserved is not None:
                    hold("reserved", reserved, theirs["reserved_bytes"]["current"])
            else:
                own = sum(r.bytes for r in run.live(at, device, "device", OWN))
                if not REAL:  # on a real GPU it grows with every loaded module, and other processes may use the GPU
                    hold("context", theirs["total"] - theirs["free"] - own, CONTEXT)
        since = at
    return wrong
