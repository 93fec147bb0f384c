#!/usr/bin/env bash
# CUDA builds of PyTorch on the simulated GPU, under the recorder: the acceptance run's checks, and
# gpuspy's figures and answers held against PyTorch's own (tests/torch), for every environment that
# scripts/setup-torch.sh made. PyTorch 2.11.0 runs all of it; tests_of() below has what the
# others run. Ends with "N passed, N failed, N skipped".
#
#   tests/torch.sh [NAME]    only pytest's tests whose name contains NAME (T=NAME)
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "${O:-build}")
name=${1:-}
passed=0 failed=0 skipped=0

if ! scripts/setup-torch.sh; then
    echo "test-torch: skipped: PyTorch's CUDA builds cannot be had here" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

python=${PYTHON:-/usr/bin/python3}
workers=()
if "$python" -c "import xdist" 2>/dev/null; then workers=(-n "$(nproc)" --dist loadfile); fi

# A rehearsal of scripts/gpu-acceptance.sh. Its CUDA programs are in tests/e2e/test_gpu_kit.py; figures() compares the other ways
# to train, and other releases, with PyTorch's counters at more moments.
acceptance() {
    local venv=$1 checks=torch_plain,torch_async_backend,torch_graph_pools,torch_item_is_the_line_that_waits,torch_out_of_memory
    checks+=,torch_leak_and_its_line,torch_simulated_beside_real,two_ranks_one_run,nvml_agrees
    PYTHON=$venv/bin/python GPUSPY_BUILD=$build scripts/gpu-acceptance.sh "$venv/acceptance" --simulated --only=$checks >"$venv/acceptance.txt" 2>&1
}

figures() {
    local venv=$1 tests
    shift
    mapfile -t tests < <(tests_of "$venv")
    O=$build TORCH_PYTHON=$venv/bin/python "$python" -m pytest -q --tb=short -o cache_dir="$venv/tests" \
        ${name:+-k "$name"} "$@" "${tests[@]}"
}

# An older PyTorch runs what depends on PyTorch: its allocator, its reporting functions and the CUDA runtime that it is
# linked with (the first line), its operations, optimizers and Python frames (the second), its snapshots (the third), the
# loops that must not be stopped, failures under a limit, and one job of each way to shard. What the analyzer concludes from
# such recordings, which loops are stopped and what a limit does to a scenario is the same code for all versions. Of the newest
# release: is it still imported, does it still train, are its requests, its pools and its allocator's rules still known?
tests_of() {
    local file other="version private_pools fraction whatif
        figures allocator requested processes distributed simulate
        backward categories uses steps waits optimizers
        export"
    case $1 in
    */newest-torch) printf '%s\n' tests/torch/test_{simulate,requested,version,private_pools,fraction,whatif}.py ;;
    */torch-2.11.0) echo tests/torch ;;
    *)
        for file in $other; do echo "tests/torch/test_$file.py"; done
        echo tests/torch/test_simulate_loops.py::test_other_loops_end
        printf 'tests/torch/test_limit.py::test_%s\n' it_fails_where_a_smaller_one_does cudas_own_pool
        printf 'tests/torch/test_estimate_sharded.py::test_each_rank_is_as_estimated[%s]\n' \
            DDP "FSDP, FULL_SHARD" "FSDP2, fully_shard"
        ;;
    esac
}

count() { # FILE WORD: the number before it in the last line
    tail -n 1 "$1" | grep -oE "[0-9]+ $2" | grep -oE '[0-9]+' || echo 0
}

newest=$build/newest-torch
rm -f "$build"/torch-*/{acceptance,figures,again}.txt "$newest"/{figures,again}.txt
venvs=()
for venv in "$build"/torch-*/; do
    [ -e "$venv/done" ] || continue
    venvs+=("${venv%/}")
    [ -n "$name" ] || [[ $venv != */torch-2.11.0/ ]] || acceptance "${venv%/}" &
done
wants_newest() {
    [ -z "$name" ] || [[ "test_simulate test_requested test_version test_private_pools test_fraction test_whatif" == *"$name"* ]] ||
        grep -q "def test_[a-z_]*$name" tests/torch/test_{simulate,requested,version,private_pools,fraction,whatif}.py
}
installed=
if wants_newest; then
    scripts/setup-torch.sh --newest &
    installed=$!
fi
run_figures() { figures "$1" "${workers[@]}" --durations=10 >"$1/figures.txt" 2>&1; }
# The first, which runs as long as the others together, beside them: each only waits now and then, and at its end.
[ ${#venvs[@]} -eq 0 ] || run_figures "${venvs[0]}" &
for venv in "${venvs[@]:1}"; do run_figures "$venv"; done
if [ -n "$installed" ] && wait "$installed"; then
    "$newest/bin/pip" --disable-pip-version-check list 2>/dev/null | grep -E '^torch ' >&2
    venvs+=("$newest")
    run_figures "$newest"
elif [ -n "$installed" ]; then
    echo "test-torch: skipped: the newest PyTorch cannot be had here" >&2
    skipped=1
fi
wait
# On a busy machine a test or what it needs can be late: what failed is tried once more, without other tests beside it, and has
# failed if it fails again.
for venv in ${venvs[@]+"${venvs[@]}"}; do
    [ $(($(count "$venv/figures.txt" failed) + $(count "$venv/figures.txt" error))) -gt 0 ] || continue
    { echo "once more, alone:" && figures "$venv" --last-failed; } >"$venv/again.txt" 2>&1
    sed -i -E -e 's/^(FAILED|ERROR) /late: /' -e '$s/[0-9]+ failed, //' -e '$s/, [0-9]+ errors?//' "$venv/figures.txt"
done
for venv in ${venvs[@]+"${venvs[@]}"}; do
    basename "$venv"
    for file in "$venv"/{acceptance,figures,again}.txt; do
        [ -e "$file" ] || continue
        cat "$file"
        broken=$(($(count "$file" failed) + $(count "$file" error)))
        # a runner that never got to its last line has failed
        [ $(($(count "$file" passed) + $(count "$file" skipped) + broken)) -gt 0 ] ||
            { [ -n "$name" ] && tail -n 1 "$file" | grep -qE 'no tests ran|deselected'; } || broken=1
        passed=$((passed + $(count "$file" passed))) skipped=$((skipped + $(count "$file" skipped)))
        failed=$((failed + broken))
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
