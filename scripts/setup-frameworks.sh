#!/usr/bin/env bash
# Installs JAX and Numba for CUDA into $O/frameworks (1.3 GB), for tests/e2e/test_frameworks.py, which is
# skipped without. NVIDIA's own libraries are left out: the simulated CUDA stands in for them. Does nothing
# where it is done. Ends with 4 where the packages cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${O:-build}/frameworks
python=${PYTHON:-/usr/bin/python3}

if [ -e "$folder/done" ]; then exit 0; fi
echo "setup: installing JAX and Numba into $folder" >&2
rm -rf "$folder"
mkdir -p "$folder"
"$python" -m venv "$folder/venv"
# --no-deps: without NVIDIA's libraries, some GB
if ! { "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir \
           numpy scipy ml_dtypes opt_einsum "numba-cuda==0.30.4" "cuda-bindings<13" "cuda-core" &&
       "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps \
           jax==0.10.2 jaxlib==0.10.2 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.12.0.1; } >"$folder/pip.log" 2>&1; then
    tail -n 5 "$folder/pip.log" >&2
    echo "setup: JAX and Numba cannot be had here" >&2
    exit 4
fi
touch "$folder/done"
