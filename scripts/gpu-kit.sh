#!/usr/bin/env bash
# Packs what the acceptance run needs on a machine that has a GPU but no compiler or package
# registry: $O/gpu-kit/ and $O/gpu-kit.tar.gz (at most 60 MiB). There:
#
#   tar xf gpu-kit.tar.gz && gpu-kit/scripts/gpu-acceptance.sh
set -euo pipefail
cd "$(dirname "$0")/.."
build=${O:-build}
kit=$build/gpu-kit
rm -rf "$kit" "$kit.tar.gz"
mkdir -p "$kit/build/lib" "$kit/scripts" "$kit/tests/gpu"
cp "$build/libgpuspy.so" "$build/gpuspy" "$kit/build/"
if [ -d "$build/sim" ]; then cp -a "$build/sim" "$kit/build/"; fi # for dry runs beside real ones
cp scripts/gpu-acceptance.sh "$kit/scripts/"
cp tests/gpu/*.py tests/gpu/*.cu "$kit/tests/gpu/"
cp LICENSE "$kit/"

# Libraries that a bare machine may lack: those of the analyzer in build/lib, for it alone.
ldd "$build/gpuspy" | awk '$2 == "=>" && $1 !~ /^(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl)\.so/ { print $3 }' |
    xargs -r cp -L -t "$kit/build/lib"

tar -C "$build" -czf "$kit.tar.gz" gpu-kit
bytes=$(stat -c %s "$kit.tar.gz")
[ "$bytes" -le $((60 << 20)) ] || { echo "gpu-kit: $bytes bytes are more than 60 MiB" >&2; exit 1; }
echo "$kit.tar.gz: $((bytes >> 10)) KiB; on a machine with a GPU: tar xf gpu-kit.tar.gz && gpu-kit/scripts/gpu-acceptance.sh"
