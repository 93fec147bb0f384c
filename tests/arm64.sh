#!/usr/bin/env bash
# aarch64 without such a machine: the wheel's binaries (make wheel ARCH=aarch64) and the unit tests under qemu-user, and a
# Python program for arm64 recorded on the simulated driver, to its end and after kill -9; and a training loop of PyTorch's CUDA
# build for aarch64. Ends with "N passed, N failed".
# PARTS="unit pages simulator doors python torch kit" chooses some of them; TESTS="test_spool test_api" some unit tests.
# SHORT=1 builds and tests the recorder only. BENCH=1 only builds what `make bench` runs for aarch64.
# Needs Debian's qemu-user, binutils-aarch64-linux-gnu and jq.
set -uo pipefail
unset MAKEFLAGS MFLAGS # of a make that lends its jobs only to lines that it knows to be make
cd "$(dirname "$0")/.."
build=$(realpath -m "${O:-build}") wheel=$(realpath -m "${O:-build}")/wheel-aarch64
root=$wheel/root
passed=0 failed=0 jobs=${JOBS:-$(nproc)}
qemu=$(command -v qemu-aarch64) && command -v aarch64-linux-gnu-objcopy >/dev/null && command -v jq >/dev/null ||
    { echo "test-arm64: skipped: install qemu-user, binutils-aarch64-linux-gnu and jq" >&2; echo "0 passed, 0 failed, 1 skipped"; exit 0; }

fetch() { # the C library and Python for arm64, to run; cmocka to link
    [ -e "$root/done" ] && return
    rm -rf "$root"
    mkdir -p "$root/packages"
    (cd "$root/packages" && apt-get -qq download {libc6,libgcc-s1,libstdc++6,python3.11-minimal,libpython3.11-minimal,libpython3.11-stdlib,libexpat1,zlib1g,libffi8,libcmocka-dev,libcmocka0}:arm64) || return
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

fetch_python() { # SUITE VERSION: another Debian's Python, with the C library that it needs
    local to=$wheel/root-$2 suite=$1 version=$2
    [ -e "$to/done" ] && return
    rm -rf "$to"
    mkdir -p "$to"/apt/{lists,archives}/partial "$to/packages" "$to/usr/lib"
    ln -s usr/lib "$to/lib"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" >"$to/apt/sources.list"
    local apt=(apt-get -qq -o "Dir::State::lists=$to/apt/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$to/apt"
        -o "Dir::Etc::sourcelist=$to/apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Architecture=arm64 -o APT::Architectures=arm64)
    "${apt[@]}" update || return
    (cd "$to/packages" && "${apt[@]}" download libc6 libgcc-s1 zlib1g libexpat1 libzstd1 "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib" \
        "$("${apt[@]}" -s install "libpython$version-stdlib" | sed -n 's/^Inst \(libffi[0-9]*\) .*/\1/p')") || return
    for package in "$to"/packages/*.deb; do dpkg-deb --fsys-tarfile "$package" | tar -x -C "$to" --keep-directory-symlink || return; done
    touch "$to/done"
}

# Cases of the simulator's tests that fail here: qemu's madvise(MADV_REMOVE) succeeds and does nothing;
# a Python for arm64 is not where the test looks.
declare -A unlike_case=([test_copies]=test_set_to_zero [test_libraries]=test_ctypes)
simulator() { # NAME: all its cases pass but that one
    local text
    text=$(RUNNER="$qemu -L $root" CMOCKA_MESSAGE_OUTPUT=TAP run -E EMULATED=1 -E LD_LIBRARY_PATH="$wheel/sim" "$wheel/tests/sim/$1" 2>&1)
    echo "$text"
    grep -q '^ok ' <<<"$text" && ! grep '^not ok ' <<<"$text" | grep -v '# SKIP' | grep -qvw "${unlike_case[$1]:-none}"
}

doors() { # every entry point; the rest of that file runs Python or gcc
    (cd tests/e2e && EMULATOR="$qemu -L $root" ANALYZER="$build/gpuspy" O="$wheel" /usr/bin/python3 -m pytest -q -p no:cacheprovider test_doors.py \
        -k "entry_point or reference or several or one_event or runtime_of_its_own or (hands_out and not newer_driver) or reported_once or (without_a_hook and False)")
}

run() { limit 300 -L "$root" "$@"; }

limit() { # SECONDS WORDS... of the processor's time: beside other work an hour may pass
    (ulimit -t "$1" && shift && exec timeout 3600 "$qemu" "$@")
}

record() { # DATABASE PYTHON-CODE [ROOT VERSION]
    limit 300 -L "${3:-$root}" -E LD_PRELOAD="$wheel/libgpuspy.so" -E LD_LIBRARY_PATH="$wheel/sim" -E GPUSPY_DB="$1" "${3:-$root}/usr/bin/python${4:-3.11}" -c "$2"
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

fail() { echo "test-arm64: $1" >&2; echo "0 passed, 1 failed"; exit 1; }
tests=(tests/unit/test_*.c) short=() target=wheel recorder="wheel-build WHEEL_PARTS=libgpuspy.so"
parts=${PARTS:-unit pages simulator doors python torch kit}
[ -z "${PARTS:-}" ] || target=wheel-build
if [ -n "${SHORT:-}" ]; then # what reorders memory, and what knows the processor's registers
    tests=(tests/unit/test_{spool,stack,store}*.c tests/unit/test_{mask,ranges}.c)
    short=(ANALYZER_LIB= UNIT_SRC="${tests[*]}")
    target=$recorder
    parts=${PARTS:-unit pages python}
fi
[ -z "${TESTS:-}" ] || { read -ra tests <<<"$TESTS" && tests=("${tests[@]/#/tests/unit/}") && tests=("${tests[@]/%/.c}") && short+=(UNIT_SRC="${tests[*]}"); }
for part in $parts; do
    case " unit pages simulator doors python torch kit " in *" $part "*) ;; *) fail "PARTS: no part is named $part" ;; esac
done
[ -z "${BENCH:-}" ] || target=$recorder
if ! make -j"$jobs" --no-print-directory wheel-tools ARCH=aarch64 O="$build" >/dev/null || ! fetch >/dev/null; then
    echo "test-arm64: skipped: zig or Debian's libraries for arm64 cannot be had here" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
make -j"$jobs" --no-print-directory $target ARCH=aarch64 O="$build" >/dev/null || fail "the aarch64 build failed"
make --no-print-directory bench-call O="$wheel" CC="$wheel/cc" >/dev/null || fail "the bench's program does not build"
[ -z "${BENCH:-}" ] || exit 0

# ---------------------------------------------------------------- unit tests

build_units() {
    make -j"$jobs" --no-print-directory units "${short[@]}" O="$wheel" CC="$wheel/cc" HIDE_LIBS= CFLAGS="-O2 -g -isystem $wheel/libs/include" \
        SQLITE_STATIC="$wheel/libs/libsqlite3.a" \
        LDFLAGS="-L$wheel/libs -Wl,--allow-shlib-undefined -Wl,--as-needed $root/lib/aarch64-linux-gnu/libgcc_s.so.1" \
        ANALYZER_LIBS="$(printf "$wheel/libs/lib%s.a " dw elf iberty jansson yaml z lzma bz2 sqlite3) -lm -lpthread -ldl" >/dev/null || fail "the unit tests do not build"
}
part_unit() {
    build_units
    for test in "${tests[@]}"; do
        name=$(basename "$test" .c)
        check "$name" run -E EMULATED=1 -E O="$wheel" "$wheel/tests/unit/$name" # skips what qemu-user does in another way
    done
}
# A kernel's pages may have 64 KiB. qemu-user knows its own of 4 KiB beside them: SVE's loads, as in glibc's memcpy, then fail
# in the rest of a page that all others can read.
part_pages() {
    build_units
    for name in test_stack_{id,memory,native,python,unwind} test_store_{index,memory}; do
        check "$name, pages of 64 KiB" run -p 65536 -cpu max,sve=off -E EMULATED=1 -E O="$wheel" "$wheel/tests/unit/$name"
    done
}

# ---------------------------------------------------------------- the simulated driver, and every door

build_doors() {
    scripts/hide-symbols.py "$wheel/sim/libcudart_static.a" "$wheel/cudart_hidden.a" # zig's linker has no --exclude-libs
    make -j"$jobs" --no-print-directory sim-tests $(printf "${wheel#"$PWD"/}/doors/%s " {rt13,rt12,rt11,static}{,.so} {entrypoint,finder,blas}.so rdynamic plt host nesting newer/libcuda.so.1) \
        O="$wheel" CC="$wheel/cc" HIDE_LIBS= CFLAGS="-O2 -g -isystem $wheel/libs/include" LDFLAGS="-L$wheel/libs" \
        DOOR_STATIC="$wheel/cudart_hidden.a" >/dev/null || fail "the simulator's tests do not build"
}
part_simulator() {
    build_doors
    for test in tests/sim/test_*.c; do check "$(basename "$test" .c), simulator" simulator "$(basename "$test" .c)"; done
}
part_doors() {
    build_doors
    check "every door" doors
}

# ---------------------------------------------------------------- Python programs

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
native() { # qemu shows itself as the program, so its names come from here
    run -E LD_PRELOAD="$wheel/libgpuspy.so" -E GPUSPY_DB="$scratch/native.db" "$wheel/bench/bench_call" cuda 3 1000
    local offsets
    offsets=$("$build/gpuspy" report --json "$scratch/native.db" | jq -r '.peak[0].by_stack[0].frames[:6][].offset') || return
    printf '%x\n' $offsets | aarch64-linux-gnu-addr2line -fe "$wheel/bench/bench_call" | sed -n 'p;n' | tee /dev/stderr | tr '\n' ' ' |
        grep -qx 'batch descend descend descend descend main '
}
die='os.kill(os.getpid(), 9)'
part_python() {
    check "a Python program" record "$scratch/run.db" "$program"
    check "its peak, by line" query "$scratch/run.db" '.peak[0] | .bytes == 95420416 and .by_stack[0].frames[-1].line == 7'
    check "its waits" query "$scratch/run.db" '[.sync[].kind] | contains(["device"])'
    record "$scratch/killed.db" "$program${die}" >/dev/null 2>&1
    check "kill -9 loses nothing" query "$scratch/killed.db" '.peak[0].bytes == 95420416 and (.run.complete | not)'
    check "a native stack" native
    for python in "bullseye 3.9" "sid 3.14" "sid 3.15"; do
        set -- $python
        [ -z "${SHORT:-}" ] || continue
        if ! fetch_python "$1" "$2" >"$scratch/apt.txt" 2>&1; then
            echo "test-arm64: Python $2 for arm64 cannot be had here: $(tail -n 1 "$scratch/apt.txt")" >&2
            continue
        fi
        check "Python $2" record "$scratch/$2.db" "$program" "$wheel/root-$2" "$2"
        check "Python $2: its peak, by line" query "$scratch/$2.db" '.peak[0] | .bytes == 95420416 and .by_stack[0].frames[-1].line == 7'
    done
    [ -n "${SHORT:-}" ] || check "the analyzer" run "$wheel/gpuspy" report "$scratch/run.db"
}

# ---------------------------------------------------------------- PyTorch

torch=2.11.0
fetch_torch() { # the wheel's parts that `import torch` needs, without NVIDIA's libraries
    local site=$wheel/torch-$torch pip=("$build/zig/bin/pip" -q --disable-pip-version-check)
    [ -e "$site/done" ] && return
    rm -rf "$site"
    "${pip[@]}" install --no-deps --no-cache-dir --target "$site" --only-binary=:all: --python-version 3.11 \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 "torch==$torch" \
        filelock typing_extensions "sympy<1.14" mpmath networkx jinja2 markupsafe fsspec numpy && touch "$site/done"
}
loop='import torch
model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = []
for step in range(6):
    loss = model(torch.randn(32, 256).cuda()).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    kept.append(loss)
print(torch.cuda.max_memory_allocated())'
train() {
    limit 1200 -L "$root" -E LD_PRELOAD="$wheel/libgpuspy.so" -E LD_LIBRARY_PATH="$wheel/sim:$wheel/sim/math" \
        -E PYTHONPATH="$wheel/torch-$torch" -E GPUSPY_DB="$scratch/torch.db" "$root/usr/bin/python3.11" -c "$loop" >"$scratch/peak.txt"
}
same_peak() { query "$scratch/torch.db" "[.peak[] | select(.layer == \"tensor\") | .bytes] == [$(tail -n 1 "$scratch/peak.txt")]"; }
part_torch() {
    if ! fetch_torch >"$scratch/pip.txt" 2>&1; then
        echo "test-arm64: PyTorch $torch for aarch64 cannot be had here" >&2
        return
    fi
    check "a training loop of PyTorch $torch" train
    check "the peak of its tensors is what PyTorch prints" same_peak
    check "its steps, by the optimizer" query "$scratch/torch.db" '[.steps[].n] == [6]'
}

# ---------------------------------------------------------------- the acceptance kit

fetch_kit() { # a qemu without libraries, which the kernel starts for every program; and what the kit's Python needs
    [ -e "$wheel/qemu/done" ] && return
    rm -rf "$wheel/qemu"
    mkdir -p "$wheel/qemu"
    (cd "$wheel/qemu" && apt-get -qq download qemu-user-static libsqlite3-0:arm64 && dpkg -x libsqlite3-0_*.deb "$root" &&
        dpkg --fsys-tarfile qemu-user-static_*.deb | tar -x ./usr/bin/qemu-aarch64-static && rm ./*.deb) && touch "$wheel/qemu/done"
}
# In a user namespace of its own, the kernel (6.7 or newer) starts arm64's programs by qemu, also those that programs start.
under_binfmt() { # COMMAND...
    local magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00' mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    mkdir -p "$wheel/binfmt"
    unshare -Urm bash -c 'mount -t binfmt_misc none "$1" && printf %s "$2" >"$1/register" && shift 2 && exec "$@"' - \
        "$wheel/binfmt" ":arm64:M::$magic:$mask:$wheel/qemu/usr/bin/qemu-aarch64-static:F" env QEMU_LD_PREFIX="$root" "$@"
}
kit() { # KIT=torch_plain,two_ranks_one_run: only these checks
    under_binfmt env PYTHON="$root/usr/bin/python3.11" PYTHONPATH="$wheel/torch-$torch" GPUSPY_BUILD="$wheel" \
        scripts/gpu-acceptance.sh "$scratch/kit" --simulated ${KIT:+--only="$KIT"}
}
part_kit() {
    if ! fetch_torch >"$scratch/pip.txt" 2>&1 || ! fetch_kit >"$scratch/apt.txt" 2>&1 ||
        ! under_binfmt "$root/usr/bin/python3.11" -c 'import subprocess, sys; subprocess.check_call([sys.executable, "-c", ""])' >"$scratch/apt.txt" 2>&1; then
        echo "test-arm64: the acceptance kit is left out: no PyTorch, no static qemu, or the kernel has no binfmt_misc for users: $(tail -n 1 "$scratch/apt.txt")" >&2
        return
    fi
    check "the acceptance kit" kit
}

for part in $parts; do "part_$part"; done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
