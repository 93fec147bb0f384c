#!/usr/bin/env bash
# Builds the fuzz targets with clang's libFuzzer, address and undefined sanitizers, and runs one after the
# other. Inputs that fail are in build-fuzz/found/NAME; the inputs in build-fuzz/corpus/NAME are where the next run
# starts.
#
#   tests/fuzz/run.sh SECONDS [NAME]    only targets whose name contains NAME
set -uo pipefail
cd "$(dirname "$0")/../.."

seconds=${1:-60} wanted=${2:-}
out=build-fuzz
probe=$(mktemp -d "${TMPDIR:-/tmp}/gpuspy-fuzz-probe.XXXXXX")
trap 'rm -rf "$probe"' EXIT

skip() {
    echo "fuzz: skipped: $1"
    echo "0 passed, 0 failed"
    exit 0
}
command -v clang >/dev/null || skip "there is no clang"
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 8; }' >"$probe/x.c"
clang -fsanitize=fuzzer,address,undefined -o "$probe/x" "$probe/x.c" 2>/dev/null ||
    skip "this clang has no libFuzzer or no sanitizers"

# separately, because a failed build would look like a crash of a target
env -u SECONDS -u MAKEFLAGS -u MAKELEVEL "${MAKE:-make}" --no-print-directory -j"$(nproc)" O=$out CC=clang \
    SAN=address,undefined FUZZ=1 fuzz-programs || exit 1

export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:handle_abort=1:malloc_context_size=12:quarantine_size_mb=16${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export UBSAN_OPTIONS=print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
passed=0 failed=0
for source in tests/fuzz/fuzz_*.c; do
    target=$(basename "$source" .c)
    name=${target#fuzz_}
    [[ $name == *"$wanted"* ]] || continue
    mkdir -p "$out/corpus/$name" "$out/found/$name" "$out/seeds/$name"
    "$out/tests/fuzz/test_$target" --seeds "$out/seeds/$name" || { failed=$((failed + 1)); continue; }
    known=tests/fuzz/found/$name
    [ -d "$known" ] || known=
    log=$out/fuzz/$target.log
    echo "fuzz $name: $seconds s"
    # shellcheck disable=SC2086
    if "$out/fuzz/$target" -max_total_time="$seconds" -max_len=16384 -timeout=20 -rss_limit_mb=4096 \
        -close_fd_mask=3 -print_final_stats=1 -artifact_prefix="$out/found/$name/" \
        "$out/corpus/$name" "$out/seeds/$name" $known >"$log" 2>&1; then
        passed=$((passed + 1))
        grep -E '^#[0-9]+.*(DONE|pulse)' "$log" | tail -n 1
    else
        failed=$((failed + 1))
        grep -vE '^#[0-9]+|^INFO' "$log" | head -n 60
        echo "fuzz $name: FAILED; the whole log: $log; again with: $out/tests/fuzz/test_$target FILE"
    fi
done
[ $((passed + failed)) -gt 0 ] || echo "fuzz: no target has '$wanted' in its name"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
