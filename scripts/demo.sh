#!/usr/bin/env bash
# Records two runs and prints their reports: (a) an ordinary PyTorch training loop, on the GPU if there
# is one, else its CPU tensors (--torch-cpu); (b) a training loop on a simulated 2 GiB GPU that leaks
# memory and fails with "CUDA out of memory". Writes only to $O/demo.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${O:-build}" && pwd)
demo=$build/demo
python=${PYTHON:-/usr/bin/python3}
[ -x "$python" ] || python=$(command -v python3)
rm -rf "$demo"
mkdir -p "$demo"

title() { printf '\n━━━ %s\n\n' "$*"; }

options=()
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    where="on this machine's GPU"
else
    where="on the CPU, because this machine has no GPU (--torch-cpu)"
    options+=(--torch-cpu)
fi
title "(a) a PyTorch training loop $where"
echo "\$ gpuspy run -o torch.db ${options[*]} -- python train_torch.py"
"$build/gpuspy" run -o "$demo/torch.db" "${options[@]}" -- "$python" fixtures/python/train_torch.py 100
title "gpuspy report torch.db"
"$build/gpuspy" report --top 5 "$demo/torch.db"

title "(b) a training loop on a simulated 2 GiB GPU that keeps too much alive"
echo "\$ LD_PRELOAD=libgpuspy.so python train_leak.py"
status=0
env LD_LIBRARY_PATH="$build/sim" SIMCUDA_MEMORY=2GiB GPUSPY_DB="$demo/leak.db" \
    LD_PRELOAD="$build/libgpuspy.so" "$python" fixtures/python/train_leak.py || status=$?
echo "(the program ended with status $status)"
[ "$status" -eq 1 ] || { echo "demo: the leaking loop should have failed with status 1 (out of memory)" >&2; exit 1; }
title "gpuspy report leak.db"
"$build/gpuspy" report "$demo/leak.db"

title "the same report as a page"
"$build/gpuspy" report --html "$demo/leak.html" "$demo/leak.db"

title "memory that a model of 1e9 parameters needs"
"$build/gpuspy" estimate --params 1e9
here=${demo#"$PWD"/}
printf '\nThe databases are in %s. More to try, after: export PATH=%s:$PATH\n' "$here" "$build"
printf '  gpuspy tree %s\n  gpuspy report --json %s\n  gpuspy sql %s "select * from sync_sites limit 5"\n' \
    "$here/leak.db" "$here/leak.db" "$here/leak.db"
