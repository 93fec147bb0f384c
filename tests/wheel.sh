#!/usr/bin/env bash
# The wheel as its users have it: in an environment of its own, without a compiler. Ends with "N passed, N failed".
set -uo pipefail
unset MAKEFLAGS MFLAGS # of a make that lends its jobs only to lines that it knows to be make
cd "$(dirname "$0")/.."
build=$(realpath -m "${O:-build}")
python=${PYTHON:-python3}
passed=0 failed=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

if ! make -j"$(nproc)" --no-print-directory wheel-tools O="$build" >"$scratch/make.txt" 2>&1; then
    tail -n 3 "$scratch/make.txt" >&2
    echo "test-wheel: skipped: zig or Debian's static libraries cannot be had here" >&2
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if ! make -j"$(nproc)" --no-print-directory wheel O="$build" >"$scratch/make.txt" 2>&1; then
    tail -n 20 "$scratch/make.txt"
    echo "0 passed, 1 failed"
    exit 1
fi
wheel=$(ls dist/*_"$(uname -m)".whl)

check() { # NAME COMMAND...
    local name=$1
    shift
    if (set -e; "$@") >"$scratch/out.txt" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAIL $name"
        tail -n 5 "$scratch/out.txt"
    fi
}

no_newer_symbols() { # than glibc 2.28, none of libstdc++'s
    rm -rf "$scratch/files"
    "$python" -m zipfile -e "$wheel" "$scratch/files"
    find "$scratch/files" -type f | while read -r file; do
        newest=$(readelf --version-info --wide "$file" 2>/dev/null | grep -oE 'GLIBC_[0-9.]+' | sort -Vu | tail -n 1)
        [ "$(printf '%s\n' "${newest:-GLIBC_2.0}" GLIBC_2.28 | sort -V | tail -n 1)" = GLIBC_2.28 ] || { echo "$file: $newest"; exit 1; }
        ! readelf --version-info --wide "$file" 2>/dev/null | grep -q GLIBCXX
    done
}
same_bytes() {
    scripts/wheel.py "$build/wheel-$(uname -m)" "$scratch/again" "$(sed -n 's/^VERSION := //p' Makefile)" "$(uname -m)" objcopy "$build/gpuspy"
    cmp "$wheel" "$scratch/again/$(basename "$wheel")"
}
auditwheel() {
    "$build/zig/bin/pip" -q --disable-pip-version-check install auditwheel==6.8.2
    "$build/zig/bin/auditwheel" show "$wheel" | tr '\n' ' ' | grep -q 'consistent with the following platform tag: "manylinux_2_28'
}
program='import ctypes
pointer = ctypes.c_void_p()
assert ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0'
records() { (cd "$scratch" && env -i PATH="$scratch/venv/bin:/usr/bin:/bin" gpuspy run -o run.db --simulate t4 -- python -c "$program"); }
reads() { (cd "$scratch" && env -i PATH=/usr/bin:/bin venv/bin/python -c 'import gpuspy; assert gpuspy.open("run.db").peak[0]["bytes"] == 1 << 20 and gpuspy.__version__ in "'"$(basename "$wheel")"'"'); }
tarball() {
    tar -C "$scratch" -xzf dist/*-linux-"$(uname -m)".tar.gz
    (cd "$scratch" && env -i PATH=/usr/bin:/bin ./gpuspy-*/bin/gpuspy run -o tarball.db --simulate t4 -- "$scratch/venv/bin/python" -c "$program")
    "$scratch"/gpuspy-*/bin/gpuspy report "$scratch/tarball.db" | grep -q "peak 1.00 MiB"
}

follow_links() { # of the documents
    "$python" - "$scratch"/files/*.data/data/share/doc/gpuspy <<'EOF'
import pathlib, re, sys
root = pathlib.Path(sys.argv[1])
pages = [*root.glob("**/*.md")]
dead = [(page.name, link) for page in pages for link in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
        if not (page.parent / link).exists()]
sys.exit(dead or len(pages) < 20)
EOF
}

check "no symbol is newer than glibc 2.28's" no_newer_symbols
check "the documents' links lead to files" follow_links
check "the same commit gives the same bytes" same_bytes
check "auditwheel" auditwheel
check "pip install" bash -c "'$python' -m venv '$scratch/venv' && '$scratch/venv/bin/pip' -q --disable-pip-version-check install --no-index '$wheel'"
check "it records" records
check "Python reads it" reads
with_uv() {
    "$scratch/uv/bin/uv" -q venv --offline --python "$python" "$scratch/uvenv"
    VIRTUAL_ENV=$scratch/uvenv "$scratch/uv/bin/uv" -q pip install --offline --no-index "$wheel"
    "$scratch/uvenv/bin/gpuspy" --version
    "$scratch/uvenv/bin/python" -c "import gpuspy"
}
if "$python" -m venv "$scratch/uv" && "$scratch/uv/bin/pip" -q --disable-pip-version-check --timeout 10 --retries 1 install uv >"$scratch/out.txt" 2>&1; then
    check "uv pip install" with_uv
else
    echo "test-wheel: uv cannot be had here" >&2
fi
kernel() { "$scratch/venv/bin/python" tests/jupyter_kernel.py "$scratch/venv/bin/gpuspy" "$scratch/kernel"; }
if "$scratch/venv/bin/pip" -q --disable-pip-version-check --timeout 10 --retries 1 install ipykernel jupyter_client >"$scratch/out.txt" 2>&1; then
    check "a Jupyter kernel records" kernel
else
    echo "test-wheel: Jupyter's kernel cannot be had here" >&2
fi
tables() { (cd tests/e2e && TMPDIR=$scratch O=$build "$scratch/venv/bin/python" -m pytest -q -p no:cacheprovider -k "kind or mixed" -W error test_python.py); }
if "$scratch/venv/bin/pip" -q --disable-pip-version-check --timeout 10 --retries 1 install pytest pandas polars pyarrow >"$scratch/out.txt" 2>&1; then
    check "tables for pandas, polars and pyarrow" tables
else
    echo "test-wheel: pandas, polars and pyarrow cannot be had here" >&2
fi
imported_before() { # as in a notebook
    (cd "$scratch" && venv/bin/python -c 'import gpuspy, pytest; pytest.main(["-p", "no:cacheprovider", "venv/share"])' | tee pytest.txt)
    grep "no tests ran" "$scratch/pytest.txt"
    ! grep "already imported" "$scratch/pytest.txt"
}
types() { "$build/zig/bin/mypy" --strict --python-executable "$scratch/venv/bin/python" -p gpuspy -p pytest_gpuspy; }
if "$scratch/venv/bin/pip" -q --disable-pip-version-check --timeout 10 --retries 1 install pytest >"$scratch/out.txt" 2>&1 &&
    "$build/zig/bin/pip" -q --disable-pip-version-check --timeout 10 --retries 1 install mypy==2.4.1 >"$scratch/out.txt" 2>&1; then
    check "mypy --strict on what is installed" types
    check "pytest starts where gpuspy was imported before" imported_before
else
    echo "test-wheel: mypy cannot be had here" >&2
fi
check "man pages and completions" test -e "$scratch/venv/share/man/man1/gpuspy-report.1" -a -e "$scratch/venv/share/bash-completion/completions/gpuspy"
check "pytest's plugin is registered" "$scratch/venv/bin/python" -c 'from importlib.metadata import entry_points as e; assert any(p.value == "pytest_gpuspy.plugin" for p in e(group="pytest11"))'
upgrade() { # from an older version, and away again
    scripts/wheel.py "$build/wheel-$(uname -m)" "$scratch/older" 0.0.1 "$(uname -m)" objcopy "$build/gpuspy"
    "$python" -m venv "$scratch/upgraded"
    local pip=("$scratch/upgraded/bin/pip" -q --disable-pip-version-check)
    "${pip[@]}" install --no-index "$scratch"/older/*.whl
    "${pip[@]}" install --no-index --upgrade --find-links dist gpuspy
    "$scratch/upgraded/bin/python" -c 'from importlib.metadata import version; assert version("gpuspy") != "0.0.1"'
    "$scratch/upgraded/bin/gpuspy" --version
    "${pip[@]}" uninstall -y gpuspy
    [ -z "$(find "$scratch/upgraded" -name '*gpuspy*')" ]
}
check "an upgrade, and its removal" upgrade
target() { # pip leaves out lib there
    "$scratch/venv/bin/pip" -q --disable-pip-version-check install --no-index --target "$scratch/a target" "$wheel"
    (cd "$scratch" && env -i PATH=/usr/bin:/bin PYTHONPATH="$scratch/a target" TMPDIR="$scratch" "$python" -m gpuspy run -o target.db --simulate t4 -- "$python" -c "$program")
}
check "pip install --target" target
check "the tarball runs from any folder" tarball
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
