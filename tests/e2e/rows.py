"""Databases like the recorder's, made row by row: runs that cannot be made on this machine (PyTorch on a GPU, eight
ranks, hours), and malicious ones."""
import re
import sqlite3
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DEVICE, TENSOR = 0, 1  # layers
IMPLICIT, STREAM = 4, 0
MIB, GIB, SECOND = 1 << 20, 1 << 30, 10**9


class Rows:
    def __init__(self, path, run="r", pid=100, seconds=10.0, rank=None, complete=1, command="python train.py",
                 host="host", start=0.0, ppid=None, env=None):
        self.db = sqlite3.connect(path)
        self.db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
                              + (ROOT / "schema" / "gpuspy.sql").read_text())
        version = re.search(r"GS_SCHEMA_VERSION (\d+)", (ROOT / "schema" / "store.h").read_text())[1]
        self.db.executescript(f"PRAGMA application_id=0x67707379; PRAGMA user_version={version}")
        self.db.execute("INSERT INTO process(id,run_id,pid,ppid,rank,host,command,cwd,start_real_ns,end_ns,complete) "
                        "VALUES(1,?,?,?,?,?,?,'/home/me',?,?,?)",
                        (run, pid, ppid, rank, host, command, 1700000000000000000 + int(start * SECOND),
                         int(seconds * SECOND), complete))
        if env is not None:
            self.db.executemany("INSERT INTO meta VALUES(?,?)",
                                [("env", "")] + [("env." + name, str(value)) for name, value in env.items()])
        self.db.execute("INSERT INTO api VALUES(1,'cudaMalloc'),(2,'cudaFree'),(3,'cudaMemcpyAsync'),"
                        "(4,'cudaStreamSynchronize')")
        self.events = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.db.execute("INSERT INTO meta VALUES('events',?)", (self.events,))
        self.db.commit()
        self.db.close()

    def device(self, device=0, total=24 * GIB, free=23 * GIB, name="NVIDIA RTX"):
        self.db.execute("INSERT INTO device(process_id,device,name,total_bytes,free_bytes,seen_ns) VALUES(1,?,?,?,?,0)",
                        (device, name, total, free))

    def stack(self, *lines):
        """Innermost last: "train.py:12 step"."""
        parent = None
        for depth, line in enumerate(lines, 1):
            place, function = line.split(" ", 1)
            file, number = place.rsplit(":", 1)
            frame = self.db.execute("INSERT INTO frame(kind,function,file,line) VALUES(0,?,?,?)",
                                    (function, file, number)).lastrowid
            parent = self.db.execute("INSERT INTO stack(parent_id,frame_id,depth) VALUES(?,?,?)",
                                     (parent, frame, depth)).lastrowid
        return parent

    def block(self, at, nbytes, life=None, stack=None, layer=DEVICE, device=0, address=0):
        self.events += 1 + (life is not None)
        self.db.execute("INSERT INTO allocation_row(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) "
                        "VALUES(?,?,?,?,?,0,?)", (layer + (device + 1) * 32 + 4096, address, nbytes,
                                                  int(at * SECOND), None if life is None else int(life * SECOND),
                                                  stack))

    def reserved(self, at, nbytes, device=0):
        self.db.execute("INSERT INTO reserved(process_id,device,time_ns,bytes) VALUES(1,?,?,?)",
                        (device, int(at * SECOND) + 1, nbytes))

    def sync(self, at, blocked, stack=None, kind=STREAM, device=0):
        self.events += 1
        self.db.execute("INSERT INTO sync(process_id,device,kind,api,start_ns,blocked_ns,handle,stack_id,thread_id) "
                        "VALUES(1,?,?,?,?,?,0,?,2)", (device, kind, 2 if kind == IMPLICIT else 4, int(at * SECOND),
                                                      int(blocked * SECOND), stack))

    def oom(self, at, asked, free, total, layer=DEVICE, allocated=None, reserved=None, stack=None, fatal=1):
        self.events += 1
        self.db.execute("INSERT INTO oom(process_id,device,layer,space,api,requested_bytes,free_bytes,total_bytes,"
                        "tensor_allocated,tensor_reserved,time_ns,fatal,stack_id,thread_id) "
                        "VALUES(1,0,?,0,1,?,?,?,?,?,?,?,?,2)",
                        (layer, asked, free, total, allocated, reserved, int(at * SECOND), fatal, stack))
