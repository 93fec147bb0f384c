#!/usr/bin/env bash
# Records two runs and prints their reports: (a) an ordinary PyTorch training loop, on the GPU where
# there is one, else its CPU tensors through PyTorch's own reporting; (b) a training loop on a
# simulated 2 GiB GPU that leaks and dies of "CUDA out of memory". Changes nothing outside
# $O/demo.
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
    where="on the CPU: no GPU here, so CPU tensors stand in (--torch-cpu)"
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
echo "(the job ended with status $status)"
[ "$status" -eq 1 ] || { echo "demo: the leaking loop should have died of OOM with status 1" >&2; exit 1; }
title "gpuspy report leak.db"
"$build/gpuspy" report "$demo/leak.db"

title "the same to look at"
"$build/gpuspy" report --html "$demo/leak.html" "$demo/leak.db"

title "what it should have needed"
"$build/gpuspy" estimate --params 1e9
printf '\nThe databases are in %s; look on with:\n  gpuspy tree %s\n  gpuspy report --json %s\n  gpuspy sql %s "select * from sync_sites limit 5"\n' \
    "$demo" "$demo/leak.db" "$demo/leak.db" "$demo/leak.db"
