"""gpuspy metrics: read by Prometheus's own parser, promtool and a real Prometheus, with the queries of the Grafana
dashboard; the server survives whatever a client sends."""
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import readers
from conftest import BUILD, ROOT, SAN, SECONDS, wait_until

PROGRAM = """import os, sys, time
import minicuda
rt = minicuda.Runtime()
leaks = []
host = bytes(1 << 20)
held = minicuda.Tensor(rt, 10 << 30)
try:
    minicuda.Tensor(rt, 10 << 30)
except minicuda.OutOfMemoryError:
    del held
held = minicuda.Tensor(rt, 10 << 30)
del held

def step():
    batch = minicuda.Tensor(rt, 64 << 20)
    batch.copy_from(host)
    batch.item()
    leaks.append(minicuda.Tensor(rt, 2 << 20))

while not os.path.exists("stop"):
    step()
    time.sleep(0.05)
if os.path.exists("die"):
    minicuda.Tensor(rt, 64 << 30)
"""


class Job:
    def __init__(self, recording, name="job", **more):
        self.folder = recording.folder / name
        self.folder.mkdir()
        (self.folder / "train.py").write_text(PROGRAM)
        env = recording.environment(GPUSPY_DB=self.folder / "run.db", SIMCUDA_MEMORY="16GiB", SIMCUDA_TEMPERATURE=63, SIMCUDA_UTILIZATION="37/12",
                                    GPUSPY_QUIET=1, PYTHONPATH=ROOT / "fixtures" / "python", **more)
        self.process = subprocess.Popen([sys.executable, "train.py"], cwd=self.folder, env=env, stderr=subprocess.DEVNULL)

    def end(self, die=False):
        if die:
            (self.folder / "die").touch()
        (self.folder / "stop").touch()
        return self.process.wait(SECONDS)


class Server:
    def __init__(self, folder, *arguments):
        self.process = subprocess.Popen([str(BUILD / "gpuspy"), "metrics", *map(str, arguments or ["--listen", "127.0.0.1:0"])], cwd=folder,
                                        stderr=subprocess.PIPE, text=True)
        self.line = self.process.stderr.readline() if not arguments or "--listen" in arguments else ""
        self.port = int(re.search(r":(\d+)/metrics", self.line)[1]) if self.line else None

    def get(self, path="/metrics", **headers):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.read().decode(), answer.headers["Content-Type"]

    def openmetrics(self):
        text, kind = self.get(Accept="application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        return text

    def raw(self, data, close=True):
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as s:
            s.sendall(data)
            if close:
                s.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while chunk := s.recv(65536):
                    answer += chunk
            except ConnectionResetError:
                pass
            return answer.decode(errors="replace")

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        rest = self.process.communicate(timeout=SECONDS)[1]
        return self.process.returncode, rest


@pytest.fixture
def job(recording):
    job = Job(recording, SLURM_JOB_ID="4711", RANK=3, KUBERNETES_SERVICE_HOST="10.0.0.1", HOSTNAME='trainer-0"\\\n', POD_NAMESPACE="ml",
              CUDA_VISIBLE_DEVICES="0")
    yield job
    job.process.kill()
    job.process.wait()


@pytest.fixture
def server(recording):
    server = Server(recording.folder)
    yield server
    server.process.kill()
    server.process.communicate()


def own(samples, pid, name, **labels):
    """The values of one process's samples, with the labels that differ between them."""
    common = {"run_id", "pid", "rank", "job_id", "pod", "namespace"}
    return {tuple(sorted((k, v) for k, v in labels_of if k not in common)): value for (n, labels_of), value in samples.items()
            if n == name and dict(labels_of).get("pid") == str(pid) and labels.items() <= dict(labels_of).items()}


def samples_with(server, pid, name):
    def look():
        samples = readers.openmetrics(server.openmetrics())
        return samples if own(samples, pid, name) else None
    return wait_until(look, 0.2)


@pytest.mark.skipif("address" in SAN, reason="AddressSanitizer reserves more address space than the analysis of growth may use")
def test_the_figures_are_those_of_the_job(recording, job, server):
    pid = job.process.pid

    def grows():
        samples = readers.openmetrics(server.openmetrics())
        return samples if any(own(samples, pid, "gpuspy_memory_growth_per_step_bytes").values()) else None
    samples = wait_until(grows, 0.2)
    ((info, value),) = own(samples, pid, "gpuspy_recording_info").items()
    assert value == 1 and "train.py" in dict(info)["command"] and dict(info)["state"] == "recording"
    everyone = [dict(labels) for (name, labels) in samples if dict(labels).get("pid") == str(pid)]
    assert {(d["job_id"], d["rank"], d["pod"], d["namespace"]) for d in everyone} == {("4711", "3", 'trainer-0"\\?', "ml")}
    assert own(samples, pid, "gpuspy_gpu_memory_total_bytes") == {(("gpu", "0"),): 16 << 30}
    assert own(samples, pid, "gpuspy_gpu_temperature_celsius") == {(("gpu", "0"),): 63}
    assert own(samples, pid, "gpuspy_gpu_utilization_ratio") == {(("gpu", "0"),): 0.37}
    (growth,) = own(samples, pid, "gpuspy_memory_growth_per_step_bytes").values()
    assert growth == pytest.approx(2 << 20, rel=0.05)  # the step in progress may not have allocated yet
    assert own(samples, pid, "gpuspy_out_of_memory_total") == {(): 1}
    live, peak = (own(samples, pid, f"gpuspy_memory_{what}_bytes")[(("gpu", "0"), ("layer", "device"))] for what in ("live", "peak"))
    assert 0 < live <= peak and (live % (64 << 20)) % (2 << 20) == 0
    lines = own(samples, pid, "gpuspy_memory_line_bytes")
    assert sum(lines.values()) == live and any("train.py" in dict(l)["file"] + dict(l).get("caller", "") for l in lines)
    copies = own(samples, pid, "gpuspy_copies_total")
    assert copies[(("direction", "h2d"),)] in (copies[(("direction", "d2h"),)], copies[(("direction", "d2h"),)] + 1)
    assert own(samples, pid, "gpuspy_copied_bytes_total")[(("direction", "d2h"),)] == 4 * copies[(("direction", "d2h"),)]
    assert own(samples, pid, "gpuspy_waits_total")[(("kind", "stream"),)] > 0 and own(samples, pid, "gpuspy_wait_seconds_total")
    later = samples_with(server, pid, "gpuspy_time_to_full_seconds")
    assert 0 < own(later, pid, "gpuspy_time_to_full_seconds")[(("gpu", "0"),)] < 3600
    assert own(later, pid, "gpuspy_memory_growth_bytes_per_second")[(("gpu", "0"),)] <= 1.1 * (2 << 20) / 0.05  # a step takes at least so long


def test_a_killed_one_is_shown_for_a_while(recording, job, server):
    samples_with(server, job.process.pid, "gpuspy_recording_active")
    assert job.end(die=True) == 1

    def ended():
        samples = readers.openmetrics(server.openmetrics())
        return samples if own(samples, job.process.pid, "gpuspy_recording_active") == {(): 0} else None
    samples = wait_until(ended, 0.2)
    assert own(samples, job.process.pid, "gpuspy_out_of_memory_total") == {(): 2}


def test_promtool_accepts_both_ways_out(recording, job, tmp_path):
    folder = tmp_path / "collector"
    folder.mkdir()
    server = Server(recording.folder, "--listen", "127.0.0.1:0", "--textfile", folder, "--interval", "1")
    file = folder / "gpuspy.prom"
    wait_until(lambda: file.exists() and f'pid="{job.process.pid}"' in file.read_text())
    text, kind = server.get()
    assert kind == "text/plain; version=0.0.4; charset=utf-8" and "# EOF" not in text and "# UNIT" not in text
    assert file.stat().st_mode & 0o777 == 0o644
    for one in (text, file.read_text()):
        assert f'pid="{job.process.pid}"' in one
    try:
        assert readers.promtool(text) == (0, "") and readers.promtool(file.read_text()) == (0, "")
    finally:
        assert server.end() == (0, "")
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_written_for_a_while(tmp_path):
    folder, away = tmp_path / "collector", tmp_path / "away"
    folder.mkdir()
    server = Server(tmp_path, "--listen", "127.0.0.1:0", "--textfile", folder, "--interval", "1")
    wait_until((folder / "gpuspy.prom").exists)
    folder.rename(away)
    assert "cannot write" in server.process.stderr.readline()
    (away / "gpuspy.prom").unlink()
    away.rename(folder)
    wait_until((folder / "gpuspy.prom").exists)
    assert server.end() == (0, "")


def dashboard_queries():
    dashboard = json.loads((ROOT / "docs" / "grafana.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"])[1]


def test_a_real_prometheus_scrapes_it_and_the_dashboards_queries_answer(recording, job, server, tmp_path):
    program = readers.found(readers.FOLDER / "prometheus" / "usr" / "bin" / "prometheus", "prometheus")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    (tmp_path / "prometheus.yml").write_text(f"""global: {{scrape_interval: 1s}}
scrape_configs: [{{job_name: gpuspy, static_configs: [{{targets: ["127.0.0.1:{server.port}"]}}]}}]
""")
    prometheus = subprocess.Popen([program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"], stderr=subprocess.PIPE, text=True)

    def ask(path, **query):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=SECONDS) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            if e.code == 503:  # it listens before it has read its own files
                raise ConnectionError from e
            raise AssertionError((query, e.read().decode())) from e

    def value(text):
        """Of this job: what else is recorded on this machine may have all of it."""
        text = re.sub(r"\$__(rate_interval|range)", "1m", text).replace("$job_id", "4711").replace("$gpu", ".*")
        return ask("query", query=text)["result"]

    def is_scraped():
        try:
            return value("gpuspy_time_to_full_seconds") and value("gpuspy_memory_growth_per_step_bytes > 0")
        except (urllib.error.URLError, ConnectionError):
            return False
    def empty():
        return [title for title, query in dashboard_queries() if not value(query)]
    try:
        # a rate needs two scrapes; a program without PyTorch has no categories
        wait_until(lambda: is_scraped() and empty() == ["Tensors at the peak, by category"], 0.5)
        (target,) = ask("targets")["activeTargets"]
        assert target["health"] == "up" and target["lastError"] == ""
        (row,) = value(f'gpuspy_memory_live_bytes{{pid="{job.process.pid}"}}')
        assert {k: row["metric"][k] for k in ("job_id", "rank", "gpu", "namespace")} == {"job_id": "4711", "rank": "3", "gpu": "0", "namespace": "ml"}
        kinds = ask("metadata")
        assert kinds["gpuspy_waits"][0]["type"] == "counter" and kinds["gpuspy_memory_live_bytes"][0]["unit"] == "bytes"
    finally:
        prometheus.terminate()
        assert prometheus.communicate(timeout=SECONDS)[1] == ""


BAD = [
    (b"", None), (b"\r\n\r\n", 400), (b"GET /metrics\r\n\r\n", 400), (b"GET  /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\n\r\n", 400), (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    (b"GET /metrics HTTP/2.0\r\nHost: x\r\n\r\n", 505), (b"GET /metrics FTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405), (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 405),
    (b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", 404), (b"GET etc HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400), (b"GET /metrics HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400), (b"GET /me\0trics HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\n\n", 400), (b"GET /metrics HTTP/1.1\r\n" + b"a: b\r\n" * 5000, 431),
    (b"A" * 100_000, 431), (b"GET /" + b"x" * 7000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 404),
    (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200),
    (b"GET /metrics HTTP/1.0\r\n\r\n", 200), (b"GET /metrics?a=b HTTP/1.1\nHost: x\n\n", 200), (b"GET http://h/metrics HTTP/1.1\r\nHost: h\r\n\r\n", 200),
    (b"GET / HTTP/1.1\r\nhost:x\r\n\r\n", 200),
]


@pytest.mark.parametrize("request_bytes, status", BAD, ids=[str(i) for i in range(len(BAD))])
def test_a_client_that_sends_anything(server, request_bytes, status):
    answer = server.raw(request_bytes)
    assert answer.startswith(f"HTTP/1.1 {status} ") if status else answer == ""
    head, _, body = answer.partition("\r\n\r\n")
    if status:
        assert f"Content-Length: {len(body.encode())}\r\n" in head + "\r\n" and "Connection: close" in head
        assert ("Allow: GET, HEAD" in head) == (status == 405)
    assert server.get()[0].startswith("# TYPE gpuspy_recordings gauge\n")


def test_a_head_has_no_body(server):
    answer = server.raw(b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n") and answer.endswith("\r\n\r\n") and re.search(r"Content-Length: [1-9]\d+\r", answer)


def test_slow_clients_delay_nobody_and_are_dropped(server):
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    for s in slow:
        s.sendall(b"GET /metrics HT")
    server.get()
    assert not select.select(slow, [], [], 0)[0], "the scrape waited until they were dropped"
    more = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]  # more than it serves at once
    server.get()
    assert sum(not select.select([s], [], [], 0)[0] for s in more) > 20, "the scrape waited until they were dropped"
    for s in slow + more:
        s.settimeout(SECONDS)
        assert s.recv(10) == b""
        s.close()
    assert "gpuspy_recordings" in server.get()[0]


def test_many_at_once(server):
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(server.get()[0])) for _ in range(50)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(answers) == 50 and all(a.startswith("# TYPE") for a in answers)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_ends_it(server, number):
    held = socket.create_connection(("127.0.0.1", server.port))
    assert server.end(number) == (0, "")
    held.close()
    again = Server(ROOT, "--listen", f"127.0.0.1:{server.port}")  # the port is free again at once
    assert again.end() == (0, "")


def test_only_the_given_address(server):
    with open("/proc/net/tcp") as f:
        listening = [line.split()[1] for line in f if line.split()[3] == "0A"]
    assert [a for a in listening if int(a.split(":")[1] if ":" in a else "0", 16) == server.port] == [f"0100007F:{server.port:04X}"]
    with open("/proc/net/tcp6") as f:
        assert not any(line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A" for line in f)


@pytest.mark.parametrize("arguments, code", [
    (["--listen", "9464"], 2), (["--listen", "127.0.0.1:"], 2), (["--listen", ":9464"], 2), (["--listen", "127.0.0.1:70000"], 2),
    (["--listen", "example.com:80"], 2), (["--listen", "::1:80"], 2), (["--listen", "[::1"], 2), (["--listen", "127.0.0.1:80x"], 2),
    (["--listen", "192.0.2.1:9464"], 3), (["--textfile", "/does/not/exist"], 3), (["--textfile", "/dev/null"], 3),
    (["--interval", "0"], 2), (["--lines", "0"], 2), (["--lines", "101"], 2), (["run.db"], 2), (["--once", "--listen", "127.0.0.1:0"], 2)])
def test_wrong_words(recording, arguments, code):
    done = recording.gpuspy("metrics", *arguments)
    assert done.returncode == code and done.stderr.startswith("gpuspy: metrics: ") or "--lines" in arguments
    assert done.returncode == code and done.stderr.count("\n") <= 2 and done.stdout == ""


def test_a_port_that_is_taken(recording, server):
    done = recording.gpuspy("metrics", "--listen", f"127.0.0.1:{server.port}")
    assert done.returncode == 3 and "Address already in use" in done.stderr


def test_no_more_lines_than_requested(recording, job):
    wait_until(lambda: own(readers.openmetrics(recording.gpuspy("metrics", "--once").stdout), job.process.pid, "gpuspy_memory_line_bytes"))
    text = recording.gpuspy("metrics", "--once", "--lines", "1").stdout
    samples = readers.openmetrics(text)
    assert len(own(samples, job.process.pid, "gpuspy_memory_line_bytes")) == 1 and text.endswith("# EOF\n")


def test_a_recording_that_takes_long_to_analyse_does_not_delay_printing(recording, job):
    """Such as a run of hundreds of millions of events. Here each process that analyses one is stopped."""
    wait_until(lambda: own(readers.openmetrics(recording.gpuspy("metrics", "--once").stdout), job.process.pid, "gpuspy_recording_active"))
    began = time.monotonic()
    once = subprocess.Popen([BUILD / "gpuspy", "metrics", "--once"], text=True, stdout=subprocess.PIPE)
    while once.poll() is None and time.monotonic() - began < 60:
        subprocess.run(["pkill", "-STOP", "-P", str(once.pid)])
        time.sleep(0.002)
    samples = readers.openmetrics(once.communicate(timeout=1)[0])
    assert own(samples, job.process.pid, "gpuspy_recording_active") and once.returncode == 0


def test_a_killed_server_leaves_no_process(recording, job):
    """Not even the one that analyses a recording, which is stopped here so that it is seen."""
    server = Server(recording.folder)

    def children():
        subprocess.run(["pkill", "-STOP", "-P", str(server.process.pid)])
        return subprocess.run(["pgrep", "-P", str(server.process.pid)], text=True, stdout=subprocess.PIPE).stdout.split()
    child = wait_until(children, 0.001)[0]
    server.process.kill()
    server.process.communicate()
    wait_until(lambda: not os.path.exists(f"/proc/{child}") or " Z " in open(f"/proc/{child}/stat").read())


def test_gpus_have_a_name_of_their_own_whatever_the_variable_holds(recording):
    jobs = [Job(recording, f"job{i}", CUDA_VISIBLE_DEVICES=v) for i, v in enumerate(["", "0,0,0", "\x1b[2J\u202e", "," * 2000])]
    try:
        def all_seen():
            samples = readers.openmetrics(recording.gpuspy("metrics", "--once").stdout)
            return samples if all(own(samples, j.process.pid, "gpuspy_recording_info") for j in jobs) else None
        wait_until(all_seen, 0.2)
    finally:
        for j in jobs:
            j.process.kill()
            j.process.wait()


def test_top_finds_it_by_its_pid(recording, job):
    wait_until(lambda: f"{job.process.pid} " in recording.gpuspy("top", "--once", job.process.pid).stdout)


def test_a_container_with_files_and_numbers_of_its_own(recording):
    """Mounts, process ids and shared memory: what a container runtime separates."""
    unshare = ["unshare", "--mount", "--pid", "--ipc", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no namespaces can be made here")
    (recording.folder / "train.py").write_text(PROGRAM)
    env = recording.environment(GPUSPY_DB="/mnt/run.db", SIMCUDA_MEMORY="16GiB", PYTHONPATH=ROOT / "fixtures" / "python", GPUSPY_QUIET=1, LD_PRELOAD="",
                                KUBERNETES_SERVICE_HOST="10.0.0.1", POD_NAME="trainer-0", POD_NAMESPACE="ml")
    inside = f"mount -t tmpfs tmpfs /mnt && exec env LD_PRELOAD={BUILD}/libgpuspy.so {sys.executable} train.py"
    job = subprocess.Popen([*unshare, "sh", "-c", inside], env=env, cwd=recording.folder, stderr=subprocess.DEVNULL)
    try:
        def seen():
            samples = readers.openmetrics(recording.gpuspy("metrics", "--once").stdout)
            return {dict(l)["namespace"] for (name, l) in samples if name == "gpuspy_memory_live_bytes" and dict(l).get("pod") == "trainer-0"}
        assert wait_until(seen, 0.2) == {"ml"}
    finally:
        job.kill()
        job.wait()


def test_the_document_names_every_metric_and_no_other():
    rows = re.findall(r'^    \{"(gpuspy_\w+)",.*?(GAUGE|COUNTER|INFO)', (ROOT / "analyzer/fleet/metrics.c").read_text(), re.M | re.S)
    written = {name + {"COUNTER": "_total", "INFO": "_info", "GAUGE": ""}[kind] for name, kind in rows}
    table = (ROOT / "docs/metrics.md").read_text().split("## Metrics")[1].split("## Prometheus")[0]
    assert written == set(re.findall(r"`(gpuspy_\w+)`", table)) and len(written) > 20
    used = {name for _, query in dashboard_queries() for name in re.findall(r"gpuspy_\w+", query)}
    assert used <= written
