"""Device memory profiles of JAX, imported unchanged, and compared with a protobuf reader in this file."""
import collections
import gzip
import json
import random
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, SECONDS, gpuspy, imported

TOOL = BUILD / "gpuspy"
SHARED = ROOT.parent / "shared" / "recordings" / "jax"
REAL = sorted(SHARED.glob("*/*.prof")) if SHARED.is_dir() else []


# --- protobuf ------------------------------------------------------------------------------------


def varint(n):
    out = b""
    n &= (1 << 64) - 1
    while True:
        out += bytes([n & 127 | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def read_varint(data, i):
    n = shift = 0
    while True:
        byte = data[i]
        i += 1
        n |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return n, i


def fields(data):
    i = 0
    while i < len(data):
        key, i = read_varint(data, i)
        if key & 7 == 0:
            value, i = read_varint(data, i)
        else:
            assert key & 7 == 2
            n, i = read_varint(data, i)
            value, i = data[i:i + n], i + n
        yield key >> 3, value


def integers(value):
    if isinstance(value, int):
        return [value]
    out, i = [], 0
    while i < len(value):
        n, i = read_varint(value, i)
        out.append(n)
    return out


def samples_of(data):
    """[(count, bytes, kind, device, [(function, file, line), …])]"""
    texts = [v.decode() for n, v in fields(data) if n == 6]
    functions, locations, samples = {}, {}, []
    for number, value in fields(data):
        if number == 5:
            f = dict(fields(value))
            functions[f[1]] = texts[f.get(2, 0)], texts[f.get(4, 0)]
        elif number == 4:
            lines = [dict(fields(v)) for n, v in fields(value) if n == 4]
            locations[dict((n, v) for n, v in fields(value) if n == 1)[1]] = lines
    for number, value in fields(data):
        if number != 2:
            continue
        values, ids, labels = [], [], {}
        for n, v in fields(value):
            if n == 1:
                ids += integers(v)
            elif n == 2:
                values += integers(v)
            else:
                label = dict(fields(v))
                labels[texts[label[1]]] = texts[label[2]]
        frames = [(*functions[line[1]], line.get(2)) for i in ids for line in locations[i]]
        samples.append((*values, labels.get("kind"), labels.get("device"), frames))
    return samples


class Profile:
    def __init__(self):
        self.texts, self.body, self.locations = {"": 0}, b"", {}

    def text(self, text):
        return self.texts.setdefault(text, len(self.texts))

    def location(self, function, file, line):
        key = function, file, line
        if key not in self.locations:
            n = self.locations[key] = len(self.locations) + 1
            self.body += field(5, field(1, n) + field(2, self.text(function)) + field(4, self.text(file)))
            self.body += field(4, field(1, n) + field(4, field(1, n) + field(2, line)))
        return self.locations[key]

    def sample(self, count, size, frames, kind="buffer", device="cuda:0", packed=True):
        ids = [self.location(*f) for f in frames]
        body = field(1, b"".join(map(varint, ids))) if packed else b"".join(field(1, i) for i in ids)
        body += field(2, varint(count) + varint(size)) if packed else field(2, count) + field(2, size)
        body += field(3, field(1, self.text("kind")) + field(2, self.text(kind)))
        if device:
            body += field(3, field(1, self.text("device")) + field(2, self.text(device)))
        self.body += field(2, body)

    def data(self, types=(("allocations", "count"), ("space", "bytes"))):
        head = b"".join(field(1, field(1, self.text(a)) + field(2, self.text(b))) for a, b in types)
        return head + self.body + b"".join(field(6, t.encode()) for t in self.texts)

    def write(self, path, **settings):
        path.write_bytes(gzip.compress(self.data(**settings)))
        return path


HERE, LIBRARY = ("main", "/home/u/train.py", 12), ("bind", "/usr/lib/python3/site-packages/jax/core.py", 272)


# --- tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", REAL, ids=lambda f: f.name[:8])
def test_real_profiles(tmp_path, file):
    samples = samples_of(gzip.open(file).read())
    db = imported(file, tmp_path)
    rows = db.execute("SELECT device, layer, bytes, alloc_stack_id, free_ns FROM allocation").fetchall()
    assert sum(r[2] for r in rows) == sum(s[1] for s in samples)
    assert len(rows) == sum(s[0] for s in samples if s[1])
    assert {r[0] for r in rows} == {0} and {r[1] for r in rows} == {1} and {r[4] for r in rows} == {None}

    stacks = {}

    def frames_of(stack):
        if stack not in stacks:
            parent, kind, *frame = db.execute("SELECT parent_id, kind, function, file, line FROM stack s JOIN frame f ON "
                                              "f.id = s.frame_id WHERE s.id = ?", (stack,)).fetchone()
            stacks[stack] = (tuple(frame), *(frames_of(parent) if parent else ()))
        return stacks[stack]

    got, want = collections.Counter(), collections.Counter()
    for _, _, size, stack, _ in rows:
        got[frames_of(stack) if stack else ()] += size
    for count, size, kind, _, frames in samples:
        if size:
            want[(*([("[executable]", None, None)] if kind == "executable" else []), *frames)] += size
    assert got == want
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert report["run"]["lacks"] == ["waits", "copies", "history", "times", "segments", "pinned"] and not report.get("steps")
    assert report["memory"][0]["tensor_peak_bytes"] == sum(s[1] for s in samples)


def test_lines_and_counts(tmp_path):
    profile = Profile()
    profile.sample(3, 1000, [LIBRARY, HERE])
    profile.sample(1, 5 << 20, [LIBRARY, ("loss", "/home/u/train.py", 40), HERE], packed=False)
    profile.sample(1, 0, [HERE])
    file = profile.write(tmp_path / "memory.prof")
    db = imported(file, tmp_path)
    assert db.execute("SELECT bytes FROM allocation ORDER BY id").fetchall() == [(334,), (333,), (333,), (5 << 20,)]
    assert db.execute("SELECT count(DISTINCT address) FROM allocation").fetchone()[0] == 4
    report = json.loads(gpuspy("report", "--json", file).stdout)
    lines = next(p for p in report["peak"] if p["layer"] == "tensor")["by_line"]
    assert [(s["bytes"], s["site"]["file"], s["site"]["line"], s["site"]["function"]) for s in lines] == \
        [(5 << 20, "/home/u/train.py", 40, "loss"), (1000, "/home/u/train.py", 12, "main")]
    text = " ".join(gpuspy("report", file).stdout.split())
    assert "Whether memory ran out is unknown" in text and "no addresses, times, frees, waits or copies" in text


def test_devices(tmp_path):
    profile = Profile()
    for device in "gpu:1", "cuda:3", "CudaDevice(id=5)", "TFRT_CPU_0", "cpu:0":
        profile.sample(1, 512, [HERE], device=device)
    profile.sample(1, 4096, [HERE], kind="executable", device=None)
    file = profile.write(tmp_path / "p.pb.gz")
    rows = imported(file, tmp_path).execute("SELECT device, layer, sum(bytes) FROM allocation GROUP BY 1, 2 ORDER BY 1").fetchall()
    assert rows == [(-1, 2, 1024), (1, 1, 512 + 4096), (3, 1, 512), (5, 1, 512)]
    text = " ".join(gpuspy("report", file).stdout.split())
    assert "4.00 KiB of executables name no device: they are counted on GPU 1, the first in the profile" in text


def test_devices_that_are_no_gpus_keep_their_names(tmp_path):
    profile = Profile()
    for k in range(2):
        profile.sample(1, 512, [HERE], device=f"TPU_{k}(process=0,(0,0,0,{k}))")
    file = profile.write(tmp_path / "p.pb.gz")
    assert imported(file, tmp_path).execute("SELECT device, name FROM device").fetchall() == [(0, "TPU_0"), (1, "TPU_1")]
    text = " ".join(gpuspy("report", file).stdout.split())
    assert "the profile is of devices that are not GPUs; they are called GPU here" in text and "GPU 1: TPU_1" in text
    profile = Profile()
    profile.sample(1, 512, [HERE])
    assert "are not GPUs" not in gpuspy("report", profile.write(tmp_path / "q.pb.gz")).stdout


@pytest.mark.parametrize("numbers, name", [((160, 163, 161), "CudaDevice(id={})"), ((64,), "cuda:{}"), ((5, 900), "TPU_{}(process=3)"),
                                           ((8, 63), "cuda:{}"), ((1 << 70,), "gpu:{}"), (range(100, 170), "cuda:{}")])
def test_the_devices_of_a_process_of_a_large_job(tmp_path, numbers, name):
    """JAX numbers the devices of all processes; a profile has those of its process."""
    profile = Profile()
    for number in numbers:
        profile.sample(1, 512 * (number % 1000 + 1), [HERE], device=name.format(number))
    profile.sample(1, 4096, [HERE], kind="executable", device=None)
    file = profile.write(tmp_path / "p.prof")
    rows = imported(file, tmp_path).execute("SELECT device, sum(bytes) FROM allocation GROUP BY 1 ORDER BY 1").fetchall()
    shown = sorted(list(numbers)[:64])
    places = shown if max(shown) < 64 else list(range(len(shown)))
    assert rows == [(place, 512 * (number % 1000 + 1) + 4096 * (place == places[0])) for place, number in zip(places, shown)]
    text = " ".join(gpuspy("report", "--full", file).stdout.split())
    first, last = shown[0], shown[-1]
    renamed = (f"device {min(first, (1 << 64) - 1)} of the profile is called GPU 0 here" if len(shown) == 1 else
               f"devices {first} to {last} of the profile are called GPU 0 to {len(shown) - 1} here")
    assert (renamed in text) is (last >= 64) and ("left out 6 samples of more than 64 devices" in text) is (len(numbers) > 64)
    assert ("GPU 1: TPU_900" in text) is name.startswith("TPU") and "name no device, and no array" not in text


def test_executables_of_a_cpu(tmp_path):
    profile = Profile()
    profile.sample(1, 512, [HERE], device="TFRT_CPU_0")
    profile.sample(1, 4096, [HERE], kind="executable", device=None)
    file = profile.write(tmp_path / "p.prof")
    assert imported(file, tmp_path).execute("SELECT device, layer, sum(bytes) FROM allocation").fetchall() == [(-1, 2, 4608)]
    assert "counted as CPU memory" in " ".join(gpuspy("report", file).stdout.split())


VIEWS = [("report",), ("report", "--html", "out.html"), ("tree",), ("timeline",), ("leaks",), ("stats",), ("table",), ("flame",),
         ("check", "--max-peak", "1TiB"), ("export",), ("sql",)]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_reading_command_takes_the_file_itself(tmp_path, view):
    profile = Profile()
    for line in range(20):
        profile.sample(2, 4096 * line, [LIBRARY, ("f", "/home/u/train.py", line)])
    profile.write(tmp_path / "p.prof")
    (tmp_path / "temporary").mkdir()
    query = ["SELECT count(*) FROM allocations"] if view == ("sql",) else []
    code = 1 if view[0] in ("check", "timeline") else 0  # these need CUDA allocations or their course over time, which are unknown
    gpuspy(*view, "p.prof", *query, cwd=tmp_path, code=code, TMPDIR=str(tmp_path / "temporary"))
    assert not list((tmp_path / "temporary").iterdir())


MOMENT = "a JAX device memory profile records one moment, without times and frees"


def test_data_missing_in_a_profile_is_unknown(tmp_path):
    profile = Profile()
    profile.sample(1, 4096, [HERE])
    file = profile.write(tmp_path / "p.prof")
    for what in "waits", "copies":
        assert f"{what} are unknown: a JAX device memory profile does not record {what}" in gpuspy("tree", "--what", what, file, code=1).stderr
    assert MOMENT in gpuspy("tree", "--what", "oom", file, code=1).stderr


def words(*command, code=0):
    done = gpuspy(*command, code=code)
    return " ".join((done.stdout + done.stderr).split())


def test_no_view_claims_a_peak_a_time_or_a_leak(tmp_path):
    profile = Profile()
    profile.sample(3, 12288, [HERE])
    file = profile.write(tmp_path / "p.prof")
    report = words("report", file)
    assert "Whether memory ran out is unknown; 12.00 KiB live on GPU 0" in report
    assert "no call waited" not in words("report", "--full", file)
    for view in report, words("tree", file), words("stats", file), words("leaks", file):
        for claim in "at the peak", "peak 1", "at 0 s", "Never freed", "at the end", "ifetime", "frees 0", "per second":
            assert claim not in view, (claim, view)
    assert f"gpuspy cannot judge which memory leaks: {MOMENT}" in words("leaks", file)
    assert f"memory over time is unknown: {MOMENT}" in words("timeline", file, code=1)
    gates = "no-oom", "no-leaks", "max-leak=1GiB", "max-growth=1GiB/step"
    assert words("check", *(f"--{gate}" for gate in gates), file, code=1).count(f"cannot be judged: {MOMENT}") == len(gates)
    unseen = words("check", "--max-pinned=1GiB", "--max-retries=1", "--max-fragmentation=10%", file, code=1)
    assert unseen.count("UNKNOWN") == 3
    assert json.loads(gpuspy("report", "--json", file).stdout)["leaks"] == []
    assert json.loads(gpuspy("tree", "--json", file).stdout)["moments_s"] == [None]
    metrics = gpuspy("export", "--format=openmetrics", "--output=-", file).stdout
    assert re.search(r"^gpuspy_end_bytes{.*} 12288$", metrics, re.M)
    assert not re.search(r"^gpuspy_(duration|peak|allocat)\w*{", metrics, re.M)
    profiles = json.loads(gpuspy("export", "--format=speedscope", "--output=-", file).stdout)["profiles"]
    assert [profile["name"] for profile in profiles] == ["live"]


def test_two_profiles_are_compared_without_a_peak_or_an_end(tmp_path):
    for name, size in ("a.prof", 4096), ("b.prof", 8192):
        profile = Profile()
        profile.sample(1, size, [HERE])
        profile.write(tmp_path / name)
    text = words("diff", tmp_path / "a.prof", tmp_path / "b.prof")
    assert "Live memory grew by 4.00 KiB" in text
    for claim in "out of memory", "at the end", "duration":
        assert claim not in text, (claim, text)


def test_executables_of_unknown_size(tmp_path):
    profile = Profile()
    profile.sample(1, 4096, [HERE])
    profile.sample(2, (1 << 64) - 2, [HERE], kind="executable", device=None)
    file = profile.write(tmp_path / "p.prof")
    assert "the size of 2 executables is unknown" in words("report", file)
    assert imported(file, tmp_path).execute("SELECT sum(bytes) FROM allocation").fetchall() == [(4096,)]


def test_two_profiles_side_by_side(tmp_path):
    for name, size in ("a.prof", 5), ("b.prof", 9):
        profile = Profile()
        profile.sample(1, size << 20, [HERE])
        profile.write(tmp_path / name)
    text = gpuspy("diff", "a.prof", "b.prof", cwd=tmp_path).stdout
    assert "+4.00 MiB" in text and "train.py:12" in text


def test_another_profile_is_refused(tmp_path):
    profile = Profile()
    profile.sample(1, 4096, [HERE])
    for types in (("samples", "count"), ("cpu", "nanoseconds")), (("inuse_objects", "count"), ("inuse_space", "bytes")), ():
        file = profile.write(tmp_path / "cpu.prof", types=types)
        done = gpuspy("report", file, code=3)
        assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr
    assert "cannot convert this format" in gpuspy("import", file, code=3).stderr


def test_hostile_numbers(tmp_path):
    profile = Profile()
    for count, size in (1 << 62, 1 << 40), (-1, 100), (5, -100), (0, 300), (1, 1 << 63), (1000, 10), (1 << 20, 1 << 30):
        profile.sample(count, size, [HERE])
    profile.sample(1, 700, [("f" * 100_000, "g" * 100_000, -5)] * 3000)
    file = profile.write(tmp_path / "p.prof")
    db = imported(file, tmp_path)
    total = sum(n for _, n in ((0, 1 << 40), (0, 300), (0, 10), (0, 1 << 30), (0, 700)))
    assert db.execute("SELECT sum(bytes) FROM allocation").fetchone()[0] == total
    assert "left out 3 samples with impossible values" in " ".join(gpuspy("report", file).stdout.split())


def test_damaged_files_get_one_line(tmp_path):
    profile = Profile()
    for line in range(60):
        profile.sample(line % 3, 4096 * line, [LIBRARY, ("f", "/home/u/train.py", line)], packed=line % 2 == 0)
    whole = profile.data()
    random.seed(4)
    for i in range(200):
        data = bytearray(whole[:random.randrange(1, len(whole))] if i % 3 else whole)
        for _ in range(i % 3 == 0 and random.randrange(1, 30)):
            data[random.randrange(len(data))] = random.randrange(256)
        if i % 2:
            data = bytearray(gzip.compress(bytes(data)))
        if i % 7 == 6:
            del data[len(data) // 2:]
        file = tmp_path / "damaged.prof"
        file.write_bytes(bytes(data))
        done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True, errors="replace", timeout=SECONDS)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode:
            assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr
        else:
            json.loads(done.stdout)


@pytest.mark.parametrize("devices", [8, 16])
@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_screen_has_the_devices_and_the_largest_line(tmp_path, width, devices):
    profile = Profile()
    for device in range(devices):
        for layer in range(6):
            frames = [LIBRARY, ("layer", f"/home/u/project/model/block_{layer}.py", 40), HERE]
            profile.sample(2, (layer + 1) << 20, frames, device=f"gpu:{device}")
    profile.sample(1, 4096, [HERE], kind="executable", device=None)
    file = profile.write(tmp_path / "a_long_name_of_an_experiment_device_memory_profile_after_step_1000.prof")
    text = gpuspy("report", file, COLUMNS=str(width)).stdout
    assert len(text.splitlines()) <= 40, text
    assert ("\nLive on each GPU\n" if devices == 8 else "\nLive, the fullest first\n") in text, text
    assert "block_5.py:40" in text and "\nNext\n" in text, text
