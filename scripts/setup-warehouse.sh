#!/usr/bin/env bash
# An environment with what runs the queries of docs/warehouse.md, from PyPI: DuckDB, and ClickHouse as a library
# (chdb). In $O/warehouse; does nothing where it stands. What cannot be had is left out; without DuckDB it fails.
set -uo pipefail
cd "$(dirname "$0")/.."
venv=${O:-build}/warehouse
[ -e "$venv/done" ] && exit 0
mkdir -p "${O:-build}"
exec 9>"$venv.lock" # tests run side by side
flock 9
[ -e "$venv/done" ] && exit 0
python=${PYTHON:-/usr/bin/python3}
log=$(mktemp "${TMPDIR:-/tmp}/gpuspy-warehouse.XXXXXX")
trap 'rm -f "$log"' EXIT
if ! "$python" -m venv "$venv" >"$log" 2>&1 ||
    ! timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check duckdb pytz >>"$log" 2>&1; then
    echo "setup-warehouse: DuckDB cannot be had: $(tail -n 1 "$log")" >&2
    exit 1
fi
timeout 300 "$venv/bin/pip" install -q --disable-pip-version-check chdb >>"$log" 2>&1 ||
    echo "setup-warehouse: chdb cannot be had, so ClickHouse's queries are not run: $(tail -n 1 "$log")" >&2
touch "$venv/done"
