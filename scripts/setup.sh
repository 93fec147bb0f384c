#!/usr/bin/env bash
# Installs what gpuspy needs to be built, tested and shown, on Debian and Ubuntu. Says what it does,
# does nothing where nothing is missing.
#
#   scripts/setup.sh          everything: build, tests, demo, bench
#   scripts/setup.sh build    only what `make` needs
#   scripts/setup.sh torch    what scripts/setup-torch.sh needs
#   scripts/setup.sh packages what tests/packages.sh and tests/arm64.sh try everything with
set -euo pipefail

build="gcc make binutils libsqlite3-dev uthash-dev libdw-dev libelf-dev libiberty-dev libjansson-dev libyaml-dev zlib1g-dev node-d3"
tests="g++ python3-venv clang dwz libdebuginfod1 libjemalloc2 libcmocka-dev libunwind-dev python3 python3-pytest python3-pyte python3-pytest-xdist python3-pytest-forked python3-junitparser python3-torch sqlite3 valgrind git man-db zsh fish chromium chromium-driver python3-selenium clang-format golang-go gfortran libdevel-nytprof-perl python3-prometheus-client nodejs"
bench="heaptrack"
packages="rpm cpio lintian lmod debootstrap curl jq qemu-user binutils-aarch64-linux-gnu"
# Only some tests want these, which skip without, and not every system has them: of each line one is enough.
optional=("libclang-rt-dev libclang-rt-14-dev" # clang's sanitizers: under names that differ by release
    "musl-tools")

what=${1:-all}
case $what in
build) wanted=$build ;;
packages) wanted=$packages ;;
torch) wanted="python3 python3-venv python3-dev gcc" ;; # the last two for Triton
all) wanted="$build $tests $bench" ;;
*) echo "usage: scripts/setup.sh [all|build|torch|packages]" >&2 && exit 2 ;;
esac

installed() { dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null | grep -qx installed; }
missing=()
for package in $wanted; do
    installed "$package" || missing+=("$package")
done
extra=() # lines of which nothing is installed
[ "$what" = all ] && for line in "${optional[@]}"; do
    for package in $line; do
        if installed "$package"; then continue 2; fi
    done
    extra+=("$line")
done
if [ ${#missing[@]} -eq 0 ] && [ ${#extra[@]} -eq 0 ]; then exit 0; fi

if ! command -v apt-get >/dev/null; then
    [ ${#missing[@]} -eq 0 ] && exit 0
    echo "setup: these Debian packages, or your system's equivalents, are needed: ${missing[*]}" >&2
    exit 1
fi
sudo=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
        [ ${#missing[@]} -eq 0 ] && exit 0
        echo "setup: not root and no sudo; install: ${missing[*]}" >&2
        exit 1
    fi
    sudo=sudo
fi

log=$(mktemp "${TMPDIR:-/tmp}/gpuspy-setup.XXXXXX")
get() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" >>"$log" 2>&1; }

if [ ${#missing[@]} -gt 0 ]; then
    echo "setup: installing ${missing[*]}" >&2
    # The second try is for a machine that never fetched its package lists, or has old ones.
    if ! get "${missing[@]}" && ! { $sudo apt-get update >>"$log" 2>&1 && get "${missing[@]}"; }; then
        tail -n 20 "$log" >&2
        echo "setup: apt-get could not install them; the whole log: $log" >&2
        exit 1
    fi
fi
for line in "${extra[@]}"; do
    for package in $line; do
        echo "setup: trying $package (some tests skip without)" >&2
        if get "$package"; then break; fi
    done
done
rm -f "$log"
echo "setup: done" >&2
