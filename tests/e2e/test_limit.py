"""GPUSPY_LIMIT: a large device with a limit behaves like a device of that size. It is compared with the simulated
driver with that much memory and no limit: programs print the same."""
import json
import subprocess

import pytest

from conftest import BUILD, SECONDS

GIB, MIB = 1 << 30, 1 << 20
SMALL = dict(SIMCUDA_MEMORY="1GiB", SIMCUDA_CONTEXT="100MiB", SIMCUDA_DEVICES=2, GPUSPY_QUIET=1)
CAPPED = SMALL | dict(SIMCUDA_MEMORY="8GiB", GPUSPY_LIMIT="1GiB")
RUNTIMES = ("rt13", "rt12", "rt11", "static")


def limited(recording, *arguments, runtime="rt13", code=0, **environment):
    done = recording.run(BUILD / "limit" / runtime, *arguments, check=False, **environment)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_as_on_a_smaller_device(recording, runtime):
    """Counts, error codes, the runtime's last error, free memory: linear, pitched, small pieces, arrays, pools,
    physical memory on a device that is not the current one, and NULL arguments."""
    small = limited(recording, runtime=runtime, **SMALL)
    assert small.stdout.count("then 2, last error 2, then 0") >= 7 and "says another" not in small.stdout
    assert limited(recording, runtime=runtime, **CAPPED).stdout == small.stdout


def test_memory_of_others_does_not_count(recording):
    small = limited(recording, **SMALL)
    assert limited(recording, **CAPPED, SIMCUDA_OTHER="2GiB").stdout == small.stdout


@pytest.mark.parametrize("runtime", ("rt13", "static"))
def test_threads_get_exactly_what_there_is(recording, runtime):
    small = limited(recording, "threads", runtime=runtime, **SMALL)
    assert small.stdout.splitlines()[1] == "8 threads, 230 pieces"
    for _ in range(5):
        assert limited(recording, "threads", runtime=runtime, **CAPPED).stdout == small.stdout


def test_free_is_never_more_than_the_device_has(recording):
    """Other processes use nearly all of it: the limit must not promise memory that is not there."""
    out = limited(recording, "state", **CAPPED, SIMCUDA_OTHER="7680MiB").stdout
    assert out.startswith(f"start: {8 * GIB - 7680 * MIB - 102 * MIB} of {GIB} free")


@pytest.mark.parametrize("value, total", [("3GiB", 3 * GIB), ("1.5 GiB", 3 * GIB // 2), ("2G", 2 * GIB), ("2147483648B", 2 * GIB), ("2gib", 2 * GIB), ("2147483648", None),
                                          ("0:2GiB", 2 * GIB), ("1:2GiB", 8 * GIB), ("1:2GiB,3GiB", 3 * GIB),
                                          ("8GiB", 8 * GIB), ("80GiB", 8 * GIB), ("2e9", None), ("", 8 * GIB)])
def test_values(recording, value, total):
    done = limited(recording, "state", **CAPPED | {"GPUSPY_LIMIT": value})
    if total is None:
        assert f"GPUSPY_LIMIT={value} is not a size" in done.stderr and "8589934592 in all" in done.stdout
        return
    assert done.stdout.endswith(f"of {total} free, {total} in all\n") and not done.stderr


@pytest.mark.parametrize("value", ["0", "-1GiB", "much", "24Q", "0:1GiB,0:2GiB", "1GiB,2GiB", "1GiB,", ":1GiB", "99:1GiB", "nan",
                                   "1GiB 2", "0x10", "1e400", "9" * 400, "%s%n"])
def test_invalid_values_limit_nothing(recording, value):
    done = limited(recording, "state", **CAPPED | {"GPUSPY_LIMIT": value})
    assert done.stderr.count("\n") == 1 and "devices are not capped" in done.stderr and value[:60] in done.stderr
    assert "8589934592 in all" in done.stdout


def test_disabled_is_uncapped(recording):
    assert "8589934592 in all" in limited(recording, "state", **CAPPED, GPUSPY_DISABLE=1).stdout


def test_the_report_states_so(recording):
    limited(recording, "fatal", code=1, **CAPPED)
    report = json.loads(recording.gpuspy("report", "--json", "--top", "100", recording.database).stdout)
    device, oom = report["devices"][0], report["oom"][0]
    assert (device["total_bytes"], device["physical_bytes"]) == (GIB, 8 * GIB)
    assert oom["fatal"] and oom["capped"] and oom["total_bytes"] == GIB and oom["free_bytes"] == 122 * MIB
    assert oom["requested_bytes"] == 200 * MIB and oom["cause"] == "capacity"
    assert "GPUSPY_LIMIT's cap of 1.00 GiB refused it" in oom["verdict"]
    assert sum(part["bytes"] for part in oom["waterfall"]) == GIB
    text = recording.gpuspy("report", recording.database).stdout
    assert "GPUSPY_LIMIT caps the device at 1.00 GiB (of 8.00 GiB)" in " ".join(text.split("\n")[:6])
    assert recording.sql("SELECT DISTINCT capped FROM ooms") == [(1,)]
    assert recording.sql("SELECT total_bytes, physical_bytes FROM device WHERE device = 0") == [(GIB, 8 * GIB)]


def test_a_real_refusal_is_not_the_caps(recording):
    """Other processes fill the device, so it refuses before the limit does."""
    limited(recording, "fatal", code=1, **CAPPED, SIMCUDA_OTHER="7680MiB")
    oom = json.loads(recording.gpuspy("report", "--json", recording.database).stdout)["oom"][0]
    assert not oom["capped"] and "GPUSPY_LIMIT's cap" not in oom["verdict"]


def test_nothing_is_stated_without_it(recording):
    limited(recording, "fatal", code=1, **SMALL)
    report = json.loads(recording.gpuspy("report", "--json", recording.database).stdout)
    assert report["devices"][0]["physical_bytes"] is None and not report["oom"][0]["capped"]
    assert "GPUSPY_LIMIT" not in recording.gpuspy("report", recording.database).stdout
    assert recording.sql("SELECT DISTINCT capped FROM oom") == [(0,)]


def run(recording, limit, *more):
    program = BUILD / "limit" / "rt13"
    env = {k: v for k, v in recording.environment(**CAPPED | {"SIMCUDA_MEMORY": "80GiB"}).items()
           if k not in ("LD_PRELOAD", "GPUSPY_LIMIT")}
    return subprocess.run([BUILD / "gpuspy", "run", "--no-summary", "--limit", limit, *more, "--", program, "state"], env=env,
                          cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)


@pytest.mark.parametrize("limit, total", [("24GiB", 24 * GIB), ("0:rtx4090-24g,1:40GiB", 24207 * MIB), ("RTX 4090", 24207 * MIB),
                                          ("1:40GiB", 80 * GIB)])
def test_run_knows_gpus_by_name(recording, limit, total):
    done = run(recording, limit)
    assert done.returncode == 0 and done.stdout.endswith(f"{total} in all\n"), done.stderr


@pytest.mark.parametrize("limit", ["gtx", "0:1GiB,0:2GiB", "1GiB,", "0GiB", "70:1GiB", "x" * 3000, "\x1b[31m"])
def test_run_refuses_what_makes_no_sense(recording, limit):
    done = run(recording, limit)
    assert done.returncode == 2 and not done.stdout and done.stderr.count("\n") == 1 and "--limit" in done.stderr
    assert "\x1b" not in done.stderr
