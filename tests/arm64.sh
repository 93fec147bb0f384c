#!/usr/bin/env bash
# aarch64 without such a machine: the wheel's binaries (make wheel ARCH=aarch64) and the unit tests under qemu-user, and a
# Python program for arm64 recorded on the simulated driver, to its end and after kill -9. Ends with "N passed, N failed".
# Needs Debian's qemu-user and binutils-aarch64-linux-gnu.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "${O:-build}") wheel=$(realpath -m "${O:-build}")/wheel-aarch64
root=$wheel/root
passed=0 failed=0
qemu=$(command -v qemu-aarch64) && command -v aarch64-linux-gnu-objcopy >/dev/null ||
    { echo "test-arm64: skipped: install qemu-user and binutils-aarch64-linux-gnu" >&2; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

# qemu-user shows its own process where these look at theirs: the program's name and maps, pids in shared memory.
unlike=" test_recover test_spool_file test_stack_memory test_stack_native test_api "

fetch() { # the C library and Python for arm64, to run; cmocka to link
    [ -e "$root/done" ] && return
    mkdir -p "$root/packages"
    (cd "$root/packages" && apt-get -qq download {libc6,libgcc-s1,python3.11-minimal,libpython3.11-minimal,libpython3.11-stdlib,libexpat1,zlib1g,libffi8,libcmocka-dev,libcmocka0}:arm64) || return
    for package in "$root"/packages/*.deb; do dpkg -x "$package" "$root"; done
    cp "$root"/usr/include/cmocka* "$wheel/libs/include/"
    cp -P "$root"/usr/lib/aarch64-linux-gnu/libcmocka.so* "$wheel/libs/"
    touch "$root/done"
}

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$wheel/test.txt" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 5 "$wheel/test.txt"
    fi
}

run() { timeout 300 "$qemu" -L "$root" "$@"; }

record() { # DATABASE PYTHON-CODE
    run -E LD_PRELOAD="$wheel/libgpuspy.so" -E LD_LIBRARY_PATH="$wheel/sim" -E GPUSPY_DB="$1" "$root/usr/bin/python3.11" -c "$2"
}

query() { "$build/gpuspy" report --json "$1" | jq -e "$2"; }

program='import ctypes, os, sys
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(size):
    pointer = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
    return pointer
kept = [allocate(3 << 20) for _ in range(30)]
cuda.cudaFree(allocate(1 << 20))
cuda.cudaDeviceSynchronize()
'

make --no-print-directory wheel ARCH=aarch64 O="$build" >/dev/null && fetch || { echo "test-arm64: the aarch64 build failed" >&2; exit 1; }
make --no-print-directory units O="$wheel" CC="$wheel/cc" HIDE_LIBS= CFLAGS="-O2 -g -isystem $wheel/libs/include" \
    SQLITE_STATIC="$wheel/libs/libsqlite3.a" LDFLAGS="-L$wheel/libs" \
    ANALYZER_LIBS="$(printf "$wheel/libs/lib%s.a " dw elf iberty jansson yaml z lzma bz2 sqlite3) -lm -lpthread -ldl" >/dev/null || exit 1
for test in tests/unit/test_*.c; do
    name=$(basename "$test" .c)
    [[ $unlike == *" $name "* ]] || check "$name" run "$wheel/tests/unit/$name"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
check "a Python program" record "$scratch/run.db" "$program"
check "its peak, by line" query "$scratch/run.db" '.peak[0] | .bytes == 95420416 and .by_stack[0].frames[-1].line == 7'
check "its waits" query "$scratch/run.db" '[.sync[].kind] | contains(["device"])'
record "$scratch/killed.db" "$program
os.kill(os.getpid(), 9)" >/dev/null 2>&1
check "kill -9 loses nothing" query "$scratch/killed.db" '.peak[0].bytes == 95420416 and (.run.complete | not)'
check "the analyzer" run "$wheel/gpuspy" report "$scratch/run.db"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
