"""Every function that the CUDA toolkit's headers declare, one a line, the per-thread exports and the old ones under
their real names:  python3 tests/cuda_names.py /usr/local/cuda/include > tests/cuda13_names.txt

tests/e2e/test_rows.py holds the hook table against this list, and the list against the toolkit where one stands."""
import re
import subprocess
import sys

SOURCE = "".join(f"#include <{name}>\n" for name in ("cuda.h", "cuda_runtime_api.h", "cudaProfiler.h", "cuda_profiler_api.h"))


def names(include):
    text = subprocess.run(["gcc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", f"-I{include}", "-"], input=SOURCE,
                          text=True, check=True, stdout=subprocess.PIPE).stdout
    return sorted(set(re.findall(r"\b(cu(?:da)?[A-Z]\w*) ?\((?! ?\*)[^;{}]*\) ?;", re.sub(r"\s+", " ", text))))


if __name__ == "__main__":
    print("\n".join(names(sys.argv[1])))
