#!/usr/bin/env bash
# CUDA builds of PyTorch on the simulated GPU, under the recorder: the acceptance run's checks, and
# gpuspy's figures held against PyTorch's own (tests/torch), for every environment that
# scripts/setup-torch.sh made. Ends with "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
build=${O:-build}
passed=0 failed=0 skipped=0

if ! scripts/setup-torch.sh "$@"; then
    echo "test-torch: skipped: PyTorch's CUDA builds cannot be had here" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
for venv in "$build"/torch-*/; do
    [ -e "$venv/done" ] || continue
    echo "$(basename "$venv")"
    PYTHON=$venv/bin/python GPUSPY_BUILD=$(realpath "$build") scripts/gpu-acceptance.sh "$venv/acceptance" --simulated |
        tee "$venv/acceptance.txt"
    read -r p f s < <(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed, \([0-9]*\) skipped$/\1 \2 \3/p' "$venv/acceptance.txt")
    passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1})) skipped=$((skipped + ${s:-0}))
    O=$(realpath "$build") TORCH_PYTHON=$(realpath "$build")/$(basename "$venv")/bin/python \
        "${PYTHON:-/usr/bin/python3}" -m pytest -q --tb=short -p no:cacheprovider tests/torch | tee "$venv/figures.txt"
    count() { tail -n 1 "$venv/figures.txt" | grep -oE "[0-9]+ $1" | grep -oE '[0-9]+' || echo 0; }
    passed=$((passed + $(count passed))) skipped=$((skipped + $(count skipped)))
    broken=$(($(count failed) + $(count error)))
    [ $(($(count passed) + broken)) -gt 0 ] || broken=1
    failed=$((failed + broken))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
