#!/usr/bin/env bash
# Builds everything, and the fuzz targets' objects, with clang, for which a warning is an error, too. Ends with "N passed, N failed, N skipped".
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${O:-build}")/compilers/clang

if ! command -v clang >/dev/null; then
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if env -u MAKEFLAGS -u MFLAGS -u CFLAGS make -j"$(nproc)" CC=clang CFLAGS=-O0 O="$folder" all fuzz-objects; then
    echo "1 passed, 0 failed, 0 skipped"
else
    echo "FAIL clang"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
