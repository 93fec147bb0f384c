"""Pairs of cudaMalloc and cudaFree through ctypes, DEPTH Python frames deep; prints the nanoseconds of one pair, median
over batches and mean: bench_call.py LIBRARY DEPTH PAIRS"""
import ctypes
import sys
import time

BATCH = 1000


def batch(malloc, free, pointer):
    reference = ctypes.byref(pointer)
    start = time.perf_counter_ns()
    for _ in range(BATCH):
        malloc(reference, 4096)
        free(pointer)
    return (time.perf_counter_ns() - start) / BATCH


def descend(depth, *arguments):
    return descend(depth - 1, *arguments) if depth > 0 else batch(*arguments)


def main():
    library = ctypes.CDLL(sys.argv[1])
    depth, batches = int(sys.argv[2]), int(sys.argv[3]) // BATCH
    library.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    library.cudaFree.argtypes = [ctypes.c_void_p]
    pointer = ctypes.c_void_p()
    each = sorted(descend(depth - 3, library.cudaMalloc, library.cudaFree, pointer) for _ in range(batches))
    print(f"{each[len(each) // 2]:.1f} {sum(each) / len(each):.1f}")


main()
