#!/usr/bin/env bash
# Installs CUDA builds of PyTorch for `make test-torch`: one virtual environment a version, in
# $O/torch-VERSION (some 2 GB each). NVIDIA's own libraries are left out: the simulated CUDA stands in
# for them. Says what it does; does nothing where it is done. Ends with 4 where the packages
# cannot be had (no network, no wheel for this machine).
#
#   scripts/setup-torch.sh [VERSION…]     default: 2.11.0 2.6.0
set -euo pipefail
cd "$(dirname "$0")/.."
build=${O:-build}
python=${PYTHON:-/usr/bin/python3}
versions=("$@")
[ ${#versions[@]} -gt 0 ] || versions=(2.11.0 2.6.0)

scripts/setup.sh torch
for version in "${versions[@]}"; do
    venv=$build/torch-$version
    if [ -e "$venv/done" ]; then continue; fi
    echo "setup: installing PyTorch $version (CUDA build, without NVIDIA's libraries) into $venv" >&2
    rm -rf "$venv"
    mkdir -p "$build"
    "$python" -m venv "$venv"
    log=$venv/pip.log
    # --no-deps: what PyTorch itself needs to be imported, and nothing of CUDA
    # what torch.compile compiles with; one version will do
    triton=()
    [ "$version" != 2.11.0 ] || triton=(triton==3.6.0)
    if ! "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-cache-dir "torch==$version" \
        "${triton[@]}" \
        filelock typing_extensions "sympy<1.14" mpmath networkx jinja2 markupsafe fsspec numpy >"$log" 2>&1; then
        tail -n 5 "$log" >&2
        echo "setup: PyTorch $version cannot be had here" >&2
        rm -rf "$venv"
        exit 4
    fi
    touch "$venv/done"
done
