"""Other libraries through which Python uses the GPU. Prints the library's own counters at the end. others.py
jax|cupy|triton|numba"""
import json
import sys


def run_jax():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(w, x):
        return w - 1e-3 * jax.grad(lambda v: jnp.mean((x @ v) ** 2))(w)

    w, x = jnp.ones((2048, 2048)), jnp.ones((512, 2048))
    for _ in range(20):
        w = step(w, x)
    w.block_until_ready()
    stats = jax.devices()[0].memory_stats() or {}
    return {"version": jax.__version__, "peak_bytes_in_use": stats.get("peak_bytes_in_use"),
            "pool_bytes": stats.get("pool_bytes"), "bytes_limit": stats.get("bytes_limit")}


def run_cupy():
    import cupy
    pool = cupy.get_default_memory_pool()
    held = [cupy.zeros((1 << 20) * n, dtype=cupy.float32) for n in (1, 2, 3, 5)]
    del held[1]
    total = float(sum(float(a.sum()) for a in held))
    cupy.cuda.runtime.memGetInfo()
    return {"version": cupy.__version__, "total_bytes": pool.total_bytes(), "used_bytes": pool.used_bytes(), "sum": total}


def run_triton():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        tl.store(out + at, tl.load(x + at, mask=mask) + tl.load(y + at, mask=mask), mask=mask)

    n, launches = 1 << 20, 100
    x, y = torch.ones(n, device="cuda"), torch.ones(n, device="cuda")
    out = torch.empty_like(x)
    for _ in range(launches):
        add[(n // 1024,)](x, y, out, n, BLOCK=1024)
    torch.cuda.synchronize()
    return {"version": triton.__version__, "launches": launches, "right": bool((out == 2).all())}


def run_numba():
    import numba
    import numpy
    from numba import cuda

    @cuda.jit
    def double(a):
        i = cuda.grid(1)
        if i < a.size:
            a[i] *= 2

    a = cuda.to_device(numpy.ones(1 << 20, dtype=numpy.float32))
    double[4096, 256](a)
    return {"version": numba.__version__, "sum": float(a.copy_to_host().sum())}


if __name__ == "__main__":
    print(json.dumps({"jax": run_jax, "cupy": run_cupy, "triton": run_triton, "numba": run_numba}[sys.argv[1]]()), flush=True)
