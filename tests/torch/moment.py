"""In a script: moment("name") writes what PyTorch says of its memory now, at a point that the recording can
name, too: an NVTX mark, and the sample that cudaMemGetInfo leaves. One JSON object a line, in $MOMENTS; where the
folder $SNAPSHOTS is given, PyTorch's whole memory snapshot in it, by the moment's number."""
import gc
import json
import os
import pickle

import torch

NATIVE = torch.cuda.get_allocator_backend() == "native"
made = 0
situation = ""  # the situation of the moments


def pools(stats, name, what):
    return stats.get(f"{name}.all.{what}", 0)


def of_device(device, segments):
    stats = torch.cuda.memory_stats(device)
    reported = {name: {"current": pools(stats, name, "current"), "peak": pools(stats, name, "peak")}
            for name in ("allocated_bytes", "reserved_bytes", "allocation", "segment", "active_bytes", "inactive_split_bytes")}
    reported.update(retries=stats.get("num_alloc_retries", 0), ooms=stats.get("num_ooms", 0),
                made=pools(stats, "allocation", "allocated"),
                mallocs=stats.get("num_device_alloc", 0), frees=stats.get("num_device_free", 0))
    if segments is not None:
        own = [s for s in segments if s["device"] == device]
        reported["segments"] = sorted((s["address"], s["total_size"]) for s in own)
        reported["layers"] = [{"stream": s["stream"], "type": s["segment_type"], "private": tuple(s["segment_pool_id"]) != (0, 0),
                           "reserved": s["total_size"], "allocated": s["allocated_size"], "active": s["active_size"],
                           "expandable": s["is_expandable"]} for s in own]
        reported["blocks"] = sorted((b["address"], b["size"]) for s in own for b in s["blocks"]
                                if b["state"] == "active_allocated")
    return reported


def moment(name):
    global made
    made += 1
    collecting = gc.isenabled()
    gc.disable()  # what is freed during this would belong to no moment
    torch.cuda.nvtx.mark(f"moment {made}")
    segments = torch.cuda.memory_snapshot() if NATIVE else None
    if NATIVE and "SNAPSHOTS" in os.environ:
        with open(f"{os.environ['SNAPSHOTS']}/{made}", "wb") as out:
            pickle.dump(torch.cuda.memory._snapshot(), out)
    reported = {"moment": made, "situation": situation, "name": name, "devices": []}
    for device in range(torch.cuda.device_count()):
        figures = of_device(device, segments)
        figures["free"], figures["total"] = torch.cuda.mem_get_info(device)
        torch.cuda.reset_peak_memory_stats(device)
        reported["devices"].append(figures)
    if hasattr(torch.cuda, "host_memory_stats"):
        host = torch.cuda.host_memory_stats()
        reported["pinned"] = {k: host.get(k, 0) for k in ("allocated_bytes.current", "active_bytes.current", "segment.current")}
    with open(os.environ["MOMENTS"], "a") as out:
        print(json.dumps(reported), file=out)
    if collecting:
        gc.enable()
