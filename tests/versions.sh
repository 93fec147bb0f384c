#!/usr/bin/env bash
# Recorders and analyzers of different versions against each other: older commits are built in $O/versions, one of each
# form of the database and of the spool. What an older recorder wrote, to its end or until kill -9, this analyzer reads, or says
# which gpuspy completes it; what this recorder writes, an older analyzer reads, or refuses in one line. COMMITS chooses others.
# Ends with "N passed, N failed".
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "${O:-build}")
python=${PYTHON:-python3}
# schema 1 and spool 2; schema 2 and spools 4, 5, 6; schema 3
commits=${COMMITS:-408937a b0c1c63 b86f898 c4518e2 cfd4249}
passed=0 failed=0 skipped=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

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
make_version() { # COMMIT → build/versions/COMMIT/build
    local tree=$build/versions/$1
    [ -e "$tree/done" ] && return
    rm -rf "$tree"
    mkdir -p "$tree"
    git archive "$1" | tar -x -C "$tree" && make -s -C "$tree" all sim O=build SAN= >"$tree/make.txt" 2>&1 && touch "$tree/done"
}

program='import ctypes, os, signal, sys
cuda = ctypes.CDLL("libcudart.so.13")
def allocate(n):
    pointer = ctypes.c_void_p()
    assert cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(n << 20)) == 0
    return pointer
kept = [allocate(1) for _ in range(7)]
cuda.cudaFree(allocate(5))
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)'
record() { # BUILD DATABASE WORDS...
    local from=$1 database=$2
    shift 2
    (cd "$scratch" && env LD_PRELOAD="$from/libgpuspy.so" LD_LIBRARY_PATH="$from/sim" GPUSPY_DB="$database" GPUSPY_QUIET=1 \
        "$python" -c "$program" "$@") || [ "$*" = die ]
}
has_peak() { # BUILD DATABASE
    "$1/gpuspy" report --json "$2" >"$scratch/report.json"
    "$python" -c 'import json, sys
peaks = [p for p in json.load(open(sys.argv[1]))["peak"] if p["layer"] == "device"]
assert [p["bytes"] for p in peaks] == [12 << 20], peaks' "$scratch/report.json"
}
refuses() { # BUILD DATABASE: exit status 3, one line; older ones did not name a version yet
    local status=0
    "$1/gpuspy" report "$2" >"$scratch/stdout" 2>"$scratch/stderr" || status=$?
    cat "$scratch/stderr"
    [ "$status" = 3 ] && [ ! -s "$scratch/stdout" ] && [ "$(wc -l <"$scratch/stderr")" = 1 ]
}
schema() { sed -n 's/^#define GS_SCHEMA_VERSION \([0-9]*\).*/\1/p' "$1/schema/store.h"; }

finished() { record "$1" "$scratch/finished.db"; has_peak "$build" "$scratch/finished.db"; }
killed() { # the spool of another version stays for the gpuspy that recorded it
    record "$1" "$scratch/killed.db" die 2>/dev/null
    if ! has_peak "$build" "$scratch/killed.db" 2>/dev/null; then
        "$build/gpuspy" report "$scratch/killed.db" | tr -s '\n ' ' ' | grep "complete it with the gpuspy that recorded it"
        "$1/gpuspy" report "$scratch/killed.db"
        has_peak "$build" "$scratch/killed.db"
    fi
}
backward() { # TREE: of the same schema it reads, a newer one it refuses
    record "$build" "$scratch/new.db"
    if [ "$(schema "$1")" = "$(schema .)" ]; then has_peak "$1/build" "$scratch/new.db"; else refuses "$1/build" "$scratch/new.db"; fi
}
tomorrow() { # one more than today: the line names what to install
    record "$build" "$scratch/next.db"
    "$python" -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute(f"PRAGMA user_version = {int(sys.argv[2]) + 1}")
db.execute("UPDATE meta SET value = ? WHERE key = ?", ("9.9.9", "gpuspy_version"))
db.commit()' "$scratch/next.db" "$(schema .)"
    refuses "$build" "$scratch/next.db"
    grep -q "made by a newer gpuspy" "$scratch/stderr"
}

check "a schema of tomorrow is refused" tomorrow
for commit in $commits; do
    if ! git cat-file -e "$commit^{commit}" 2>/dev/null || ! make_version "$commit"; then
        skipped=$((skipped + 1))
        echo "test-versions: $commit skipped: not in this clone, or it does not build here" >&2
        continue
    fi
    tree=$build/versions/$commit
    rm -f "$scratch"/*.db*
    check "this analyzer reads what $commit recorded" finished "$tree/build"
    check "this analyzer reads what $commit recorded until kill -9" killed "$tree/build"
    check "what is recorded now, read by $commit" backward "$tree"
done
echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ]
