#!/usr/bin/env bash
# Installs CUDA builds of PyTorch for `make test-torch`: one virtual environment per version, in
# $O/torch-VERSION (some 2 GB each). NVIDIA's own libraries are left out: the simulated CUDA stands in
# for them. Prints what it does; does nothing where it is done. Ends with 4 where the packages
# cannot be had (no network, no wheel for this machine).
#
#   scripts/setup-torch.sh [VERSION…]     default: 2.11.0 2.6.0
#   scripts/setup-torch.sh --newest       the newest release that pip finds, in $O/newest-torch
set -euo pipefail
cd "$(dirname "$0")/.."
build=${O:-build}
python=${PYTHON:-/usr/bin/python3}
newest=$build/newest-torch

# What PyTorch needs to be imported, as it says itself, and nothing of CUDA.
needs() {
    "$newest/bin/python" - <<'EOF'
import importlib.metadata
from pip._vendor.packaging.requirements import Requirement
for text in importlib.metadata.requires("torch"):
    need = Requirement(text)
    if not need.name.startswith(("nvidia-", "cuda-", "triton")) and (not need.marker or need.marker.evaluate({"extra": ""})):
        print(f"{need.name}{need.specifier}")
EOF
}

install_newest() {
    local log=$newest/pip.log
    local pip=("$newest/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --upgrade)
    [ -x "$newest/bin/pip" ] || "$python" -m venv "$newest"
    "${pip[@]}" --no-deps torch >"$log" 2>&1 && needs >"$newest/needs.txt" 2>>"$log" &&
        "${pip[@]}" -r "$newest/needs.txt" numpy >>"$log" 2>&1 && touch "$newest/done"
}

if [ "${1:-}" = --newest ]; then
    scripts/setup.sh torch
    echo "setup: installing the newest PyTorch (CUDA build, without NVIDIA's libraries) into $newest" >&2
    if ! install_newest; then
        tail -n 5 "$newest/pip.log" >&2
        echo "setup: the newest PyTorch cannot be had here" >&2
        [ -e "$newest/done" ] || rm -rf "$newest"
        [ -e "$newest/done" ] || exit 4 # an earlier one will do
    fi
    exit 0
fi

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
