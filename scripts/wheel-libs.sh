#!/usr/bin/env bash
# Debian's static libraries and their headers for a wheel of ARCH, in FOLDER. SQLite's symbols are hidden, so that
# libgpuspy.so exports none of them.
#
#   scripts/wheel-libs.sh ARCH FOLDER
set -euo pipefail
arch=$1 folder=$2
here=$(dirname "$0")
declare -A debian=([x86_64]=amd64 [aarch64]=arm64)
packages=(libdw-dev libelf-dev libiberty-dev libjansson-dev libyaml-dev zlib1g-dev liblzma-dev libbz2-dev libsqlite3-dev)

[ -n "${debian[$arch]:-}" ] || { echo "wheel: no wheel for $arch; give ARCH=x86_64 or ARCH=aarch64" >&2; exit 2; }
[ "$(cat "$folder/done" 2>/dev/null)" = "${packages[*]}" ] && exit 0
rm -rf "$folder"
mkdir -p "$folder/packages" "$folder/include"
if [ "${debian[$arch]}" != "$(dpkg --print-architecture)" ] && ! dpkg --print-foreign-architectures | grep -qx "${debian[$arch]}"; then
    as_root=; [ "$(id -u)" -eq 0 ] || as_root=sudo
    $as_root dpkg --add-architecture "${debian[$arch]}" && $as_root apt-get -qq update
fi
fetch() { (cd "$folder/packages" && apt-get -qq download "${packages[@]/%/:${debian[$arch]}}"); }
fetch || { [ "$(id -u)" -eq 0 ] && apt-get -qq update && fetch; }
for package in "$folder"/packages/*.deb; do dpkg -x "$package" "$folder/root"; done
cp "$folder/root/usr/lib/$arch-linux-gnu"/*.a "$folder/"
"$here/hide-symbols.py" "$folder/libsqlite3.a" "$folder/hidden.a"
mv "$folder/hidden.a" "$folder/libsqlite3.a"
cp -r "$folder/root/usr/include/." "$folder/include/"
if [ -d "$folder/include/$arch-linux-gnu" ]; then cp -r "$folder/include/$arch-linux-gnu/." "$folder/include/"; fi
mkdir -p "$folder/licenses"
for doc in "$folder"/root/usr/share/doc/*; do # of bzip2 it is a link to the library's own package, which is installed here
    name=$(basename "$doc" -dev)
    cp -L "$doc/copyright" "$folder/licenses/$name" 2>/dev/null || cp -L "/usr/share/doc/$(basename "$(readlink "$doc")")/copyright" "$folder/licenses/$name"
done
cp /usr/include/ut*.h "$folder/include/" # uthash: headers only
rm -rf "$folder/root" "$folder/packages"
echo "${packages[*]}" >"$folder/done"
