"""ns per capture by Python depth, in each CPython of this machine. bench_stack.py LIBSTACKPROBE [inside]"""
import ctypes
import os
import subprocess
import sys

PYTHON, NATIVE, BOTH = 1, 2, 3
DEPTHS = 1, 20, 50


def inside(path):
    probe = ctypes.CDLL(path)
    probe.probe_bench.restype = ctypes.c_double
    probe.probe_missing.restype = ctypes.c_char_p
    if not probe.probe_open(BOTH, 0):
        print("  no stacks: %s" % probe.probe_missing())
        return
    frame, outer = sys._getframe(), 0
    while frame:
        frame, outer = frame.f_back, outer + 1

    def down(n, what):
        return down(n - 1, what) if n > 0 else probe.probe_bench(what, 300)

    cells = ["%8.0f" % down(depth - outer - 1, what) for what in (PYTHON, BOTH) for depth in DEPTHS]
    print("  %-22s%s" % (sys.version.split()[0], "".join(cells)), flush=True)


def main(path):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
    import interpreters
    print("%-24s%24s%24s" % ("Python, ns a capture", "Python frames", "with native above"))
    print("  %-22s%s" % ("depth", "".join("%8d" % d for d in DEPTHS * 2)), flush=True)
    for _, python in interpreters.found():
        subprocess.run([python, os.path.abspath(__file__), path, "inside"])


if __name__ == "__main__":
    if len(sys.argv) > 2:
        inside(sys.argv[1])
    else:
        main(os.path.abspath(sys.argv[1]))
