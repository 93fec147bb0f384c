#!/usr/bin/env bash
# The packages as their users have them: the deb and the rpm unpacked here, and wheel, tarball and deb by an ordinary user. Ends
# with "N passed, N failed". ROOTS=default, which `make test-roots` sets, also installs them in clean roots of the oldest and the
# newest Debian that the mirror has; ROOTS="bullseye sid" chooses the roots, MIRROR where they come from. They stay in $O/roots.
set -uo pipefail
unset MAKEFLAGS MFLAGS # of a make that lends its jobs only to lines that it knows to be make
cd "$(dirname "$0")/.."
build=$(realpath -m "${O:-build}")
python=${PYTHON:-python3}
mirror=${MIRROR:-http://deb.debian.org/debian}
arch=$(uname -m)
version=$(sed -n 's/^VERSION := //p' Makefile)
passed=0 failed=0 skipped=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

skip() { # WHAT WHY
    skipped=$((skipped + 1))
    echo "test-packages: $1 skipped: $2" >&2
}
have() { command -v "$1" >/dev/null; }
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

if ! have dpkg-deb || ! make -j"$(nproc)" --no-print-directory wheel-tools O="$build" >"$scratch/make.txt" 2>&1; then
    tail -n 3 "$scratch/make.txt" >&2
    skip packages "zig or Debian's static libraries cannot be had here"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
kinds="wheel deb"
if have rpmbuild; then kinds+=" rpm"; else skip rpm "install rpm"; fi
if ! make -j"$(nproc)" --no-print-directory $kinds O="$build" >"$scratch/make.txt" 2>&1; then
    tail -n 20 "$scratch/make.txt"
    echo "0 passed, 1 failed"
    exit 1
fi
deb=$(ls dist/gpuspy_"$version"_*.deb | head -n 1) rpm=dist/gpuspy-$version-1.$arch.rpm

program='import ctypes
pointer = ctypes.c_void_p()
assert ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)) == 0'
records() { # GPUSPY
    mkdir "$scratch/run"
    (cd "$scratch/run" && env -i PATH=/usr/bin:/bin "$1" run --simulate t4 -- "$python" -c "$program")
    "$1" report "$scratch/run/run.db" | grep -q "peak 1.00 MiB"
    rm -r "$scratch/run"
}
same_bytes() { # KIND FILE
    cp "$2" "$scratch/first"
    scripts/package.py "$1" "$build/wheel-$arch" "$scratch/again" "$version" "$arch" objcopy "$build/gpuspy"
    cmp "$scratch/first" "$scratch/again/$(basename "$2")"
}
is_clean() { lintian --allow-root --fail-on warning,error "$deb"; }
deb_unpacked() { dpkg-deb -x "$deb" "$scratch/deb"; records "$scratch/deb/usr/bin/gpuspy"; }
deb_removed() { # after root has recorded a dry run
    find "$scratch/deb" -name __pycache__ | grep -q .
    dpkg-deb -e "$deb" "$scratch/control"
    sed "s#/usr/lib/gpuspy#$scratch/deb&#g" "$scratch/control/prerm" | sh
    ! find "$scratch/deb" -name __pycache__ | grep .
}
rpm_unpacked() { mkdir "$scratch/rpm"; rpm2cpio "$rpm" | (cd "$scratch/rpm" && cpio -idm --quiet); records "$scratch/rpm/usr/bin/gpuspy"; }
provides_nothing_else() { ! rpm -qp --provides "$rpm" | grep -v '^gpuspy'; }
rpm_comes_and_goes() { # in a root without a shell, after root has recorded a dry run
    rpm --root "$scratch/root" --initdb
    rpm --root "$scratch/root" --nodeps --ignorearch -i "$rpm"
    test -x "$scratch/root/usr/bin/gpuspy"
    "$python" -m compileall -q "$scratch/root/usr/lib/gpuspy"
    rpm --root "$scratch/root" -e gpuspy
    ! find "$scratch/root/usr" -mindepth 3 ! -path '*/man/man1' | grep . # folders of the system remain
}
needs_glibc_only() { ! rpm -qp --requires "$rpm" | grep -v -e '^glibc' -e '^rpmlib('; }
block() { # LANGUAGE: of docs/install.md, with the folders of this test
    sed -n "/^\`\`\`$1/,/^\`\`\`/p" docs/install.md | grep -v '^```' | sed "s#/apps/#$scratch/apps/#; s#/opt/#$scratch/apps/#g"
}
unpacked() { [ -d "$scratch/apps" ] || { mkdir "$scratch/apps"; tar -C "$scratch/apps" -xzf dist/gpuspy-"$version"-linux-x86_64.tar.gz; }; }
module_file() {
    unpacked
    mkdir -p "$scratch/modules/gpuspy"
    block lua >"$scratch/modules/gpuspy/$version.lua"
    MODULEPATH=$scratch/modules "$lmod" bash load gpuspy >"$scratch/loaded.sh"
    env -i PATH=/usr/bin:/bin bash -ec '. "$1"; [ "$(command -v gpuspy)" = "$2"/apps/gpuspy-*/bin/gpuspy ]; gpuspy --version; man -w gpuspy-report; man -w ls' bash "$scratch/loaded.sh" "$scratch"
}
container_file() { # its ENV lines, for a program that knows nothing of gpuspy
    unpacked
    block dockerfile | sed -n 's/^ENV /export /p' >"$scratch/env.sh"
    (cd "$scratch" && bash -ec 'export LD_LIBRARY_PATH=$(echo apps/*/lib/gpuspy/sim); . ./env.sh; exec "$@"' bash "$python" -c "$program")
    "$scratch"/apps/*/bin/gpuspy report "$scratch/run.db" | grep -q "peak 1.00 MiB"
    rm "$scratch/run.db"
}
has_pages() {
    man -l "$scratch/deb/usr/share/man/man1/gpuspy-report.1.gz" | grep -q EXAMPLES
    test -s "$scratch/deb/usr/share/bash-completion/completions/gpuspy"
}

check "the deb is the same twice" same_bytes deb "$deb"
if have lintian; then check "lintian has nothing to say" is_clean; else skip lintian "install it"; fi
check "the deb records" deb_unpacked
check "the deb's removal leaves nothing that Python compiled" deb_removed
if have man; then check "man page and completion" has_pages; else skip "man pages" "install man-db"; fi
if have rpmbuild; then
    check "the rpm is the same twice" same_bytes rpm "$rpm"
    check "the rpm provides no library" provides_nothing_else
    check "the rpm needs glibc only" needs_glibc_only
    check "the rpm is installed and removed" rpm_comes_and_goes
    if have cpio; then check "the rpm records" rpm_unpacked; else skip "the rpm's files" "install cpio"; fi
fi

if [ "$arch" = x86_64 ]; then # as docs/install.md names the files
    lmod=$(ls /usr/share/lmod/lmod/libexec/lmod 2>/dev/null)
    if [ -n "$lmod" ]; then check "the module file of docs/install.md" module_file; else skip "the module file" "install lmod"; fi
    check "the container file of docs/install.md" container_file
fi

# ---------------------------------------------------------------- clean roots

roots() { # the oldest that the mirror has, and the newest
    for suite in buster bullseye bookworm trixie; do
        curl -sfo /dev/null -m 15 "$mirror/dists/$suite/InRelease" && { echo "$suite sid"; return; }
    done
}
bootstrap() { # SUITE
    [ -e "$build/roots/$1/done" ] && return
    rm -rf "${build:?}/roots/$1"
    mkdir -p "$build/roots"
    debootstrap --variant=minbase --include=python3,python3-venv "$1" "$build/roots/$1" "$mirror" >"$scratch/bootstrap.txt" 2>&1 &&
        touch "$build/roots/$1/done"
}
# What an ordinary user does with all three of them.
write_home() { # FOLDER GPUSPY-OF-THE-DEB
    rm -rf "$1"
    mkdir -p "$1"
    cp dist/*_"$arch".whl dist/*-linux-"$arch".tar.gz "$deb" "$1"
    printf '%s\n' "$program" >"$1/program.py"
    cat >"$1/try.sh" <<EOF
set -e
test "\$(id -u)" = 1234
try() { # GPUSPY PYTHON
    rm -f run.db
    "\$1" run -o run.db --simulate t4 -- "\$2" program.py
    "\$1" report run.db | grep -q "peak 1.00 MiB"
    "\$1" check run.db --max-peak 1MiB
}
tar xzf gpuspy-*.tar.gz
try "\$PWD"/gpuspy-*/bin/gpuspy python3
try $2 python3
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || exit 0 # the wheel is for newer ones
python3 -m venv venv
venv/bin/pip -q --disable-pip-version-check install --no-index gpuspy-*.whl
try venv/bin/gpuspy venv/bin/python
venv/bin/python -c 'import gpuspy; assert gpuspy.open("run.db").peak[0]["bytes"] == 1 << 20'
venv/bin/pip -q --disable-pip-version-check install --no-index --force-reinstall gpuspy-*.whl
venv/bin/pip -q --disable-pip-version-check uninstall -y gpuspy
test -z "\$(find venv -path '*gpuspy*' ! -type d)"
EOF
    chown -R 1234:1234 "$1"
}
# As root: the deb, once. As the user: nothing of this machine.
inside() { # SUITE
    local root=$build/roots/$1
    write_home "$root/home/user" /usr/bin/gpuspy
    unshare -m -p -f --mount-proc="$root/proc" bash -ec '
        mount --rbind /dev "$1/dev"
        chroot "$1" dpkg -i "/home/user/$2"
        chroot --userspec=1234:1234 "$1" env -i HOME=/home/user PATH=/usr/bin:/bin sh -ec "cd; . ./try.sh"
        chroot "$1" dpkg -P gpuspy
        ! test -e "$1/usr/lib/gpuspy"' bash "$root" "$(basename "$deb")"
}
# The same here, with the deb unpacked.
by_user() {
    chmod 755 "$scratch"
    write_home "$scratch/user" "$scratch/deb/usr/bin/gpuspy"
    (cd "$scratch/user" && setpriv --reuid 1234 --regid 1234 --clear-groups env -i HOME="$scratch/user" PATH=/usr/bin:/bin sh -e ./try.sh)
}

if [ "$(id -u)" -eq 0 ]; then
    check "wheel, tarball and deb by an ordinary user" by_user
else
    skip "an ordinary user" "the test is one itself"
fi

if [ -z "${ROOTS:-}" ]; then
    : # make test-roots
elif ! have debootstrap || ! have curl || [ "$(id -u)" -ne 0 ] || ! unshare -m true 2>/dev/null; then
    skip "clean roots" "they need debootstrap, curl, and a root that may mount"
else
    [ "$ROOTS" != default ] || ROOTS=$(roots)
    for suite in $ROOTS; do
        if bootstrap "$suite"; then
            check "wheel, tarball and deb in a clean $suite" inside "$suite"
        else
            skip "a clean $suite" "debootstrap: $(tail -n 1 "$scratch/bootstrap.txt")"
        fi
    done
fi
echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ]
