#!/usr/bin/env bash
# Runs gpuspy against the real CUDA of a machine with a GPU, and against the frameworks that are
# installed there, and compares its figures with theirs. Installs nothing; what is missing is skipped,
# with the reason. About five minutes.
#
#   scripts/gpu-acceptance.sh [OUT] [--only=CHECK,…] [--simulated]
#
# OUT (build/gpu-acceptance): results.json, results.md and the recorded databases. From the kit of
# `make gpu-kit` it runs the same way, without a compiler for gpuspy itself. PYTHON names the
# interpreter that has the frameworks.
set -euo pipefail
from=$PWD
cd "$(dirname "$0")/.."
out=$PWD/build/gpu-acceptance
options=()
for word in "$@"; do
    case $word in
    --*) options+=("$word") ;;
    /*) out=$word ;;
    *) out=$from/$word ;;
    esac
done
export GPUSPY_BUILD=${GPUSPY_BUILD:-$PWD/build}
case ${PYTHON:=python3} in /*) ;; */*) PYTHON=$from/$PYTHON ;; esac
for file in libgpuspy.so gpuspy; do
    [ -e "$GPUSPY_BUILD/$file" ] || { echo "gpu-acceptance: no $GPUSPY_BUILD/$file: run make first" >&2; exit 3; }
done
mkdir -p "$out"
case $GPUSPY_BUILD in
*[[:space:]:]*) # which would separate two libraries of LD_PRELOAD
    link=$(mktemp -d)
    trap 'rm -rf "$link"' EXIT
    ln -s "$GPUSPY_BUILD" "$link/build"
    GPUSPY_BUILD=$link/build
    ;;
esac
for option in ${options[@]+"${options[@]}"}; do
    [ "$option" != --simulated ] || export LD_LIBRARY_PATH="$GPUSPY_BUILD/sim:$GPUSPY_BUILD/sim/math${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
"$PYTHON" tests/gpu/acceptance.py "$out" ${options[@]+"${options[@]}"}
