#!/usr/bin/env bash
# Installs what gpuspy needs to be built, tested and shown, on Debian and Ubuntu. Says what it does,
# does nothing where nothing is missing.
#
#   scripts/setup.sh          everything: build, tests, demo, bench
#   scripts/setup.sh build    only what `make` needs
set -euo pipefail

build="gcc make binutils libsqlite3-dev uthash-dev libdw-dev libelf-dev libjansson-dev libunwind8"
tests="g++ clang libcmocka-dev libunwind-dev python3 python3-pytest python3-torch sqlite3 valgrind"
bench="heaptrack"
[ "${1:-all}" = build ] && wanted=$build || wanted="$build $tests $bench"

missing=()
for package in $wanted; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: these Debian packages, or your system's equivalents, are needed: ${missing[*]}" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup: not root and no sudo; install: ${missing[*]}" >&2; exit 1; }
    sudo=sudo
fi
echo "setup: installing ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
if ! $sudo apt-get install -y --no-install-recommends "${missing[@]}" >/tmp/gpuspy-setup.$$ 2>&1; then
    # A machine that never fetched its package lists, or has old ones.
    $sudo apt-get update >>/tmp/gpuspy-setup.$$ 2>&1 || true
    if ! $sudo apt-get install -y --no-install-recommends "${missing[@]}" >>/tmp/gpuspy-setup.$$ 2>&1; then
        tail -n 20 /tmp/gpuspy-setup.$$ >&2
        echo "setup: apt-get could not install them; the whole log: /tmp/gpuspy-setup.$$" >&2
        exit 1
    fi
fi
rm -f /tmp/gpuspy-setup.$$
echo "setup: done" >&2
