"""Fills the GPU with tensors of many sizes, continues after the failure, prints PyTorch's counters, and fails."""
import torch

MIB = 1 << 20
keep, n = [], 0
print(torch.cuda.mem_get_info(), torch.cuda.get_device_properties(0).total_memory)
try:
    while True:
        keep.append(torch.empty((1 + n % 37) * MIB, dtype=torch.uint8, device="cuda"))
        n += 1
        if n % 3 == 0:
            keep.pop(n % len(keep))
except torch.OutOfMemoryError as e:
    print(n, "".join(str(e).split("GPU 0 has")[:1]))
print(torch.cuda.mem_get_info())
counters = torch.cuda.memory_stats()
print({k: v for k, v in counters.items() if k.startswith(("allocated_bytes", "reserved_bytes", "num_", "segment"))})
del keep[:len(keep) // 2]
more = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda"), torch.zeros(900, device="cuda")
print(torch.cuda.memory_allocated(), torch.cuda.memory_stats()["num_alloc_retries"])
for size in (3072, 700):
    try:
        torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
        print(size, "fits")
    except torch.OutOfMemoryError:
        print(size, "does not fit", torch.cuda.memory_allocated())
torch.cuda.set_per_process_memory_fraction(0.5)
torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
