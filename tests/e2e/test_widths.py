"""Every view at every width, on a terminal and in a pipe: a call site in the user's own code keeps its file and
line."""
import os
import pty
import re
import select
import subprocess

import pytest
from conftest import BUILD, SECONDS

TRAIN = """
import ctypes
from helpers_of_the_project.allocation_helpers import allocate_buffer_for, read_back_to_host
cuda = ctypes.CDLL("libcudart.so.13")
kept = []

def first_stage_of_the_training_loop(step):
    kept.append(allocate_buffer_for(cuda, (3 + step % 3) << 20))

def second_stage_of_the_training_loop(step):
    kept.append(allocate_buffer_for(cuda, 5 << 20))

def third_stage_of_the_training_loop(step):
    read_back_to_host(cuda, kept[-1], 1 << 20)
    cuda.cudaDeviceSynchronize()

for step in range(40):
    first_stage_of_the_training_loop(step)
    second_stage_of_the_training_loop(step)
    third_stage_of_the_training_loop(step)
    read_back_to_host(cuda, allocate_buffer_for(cuda, 1 << 20), 1 << 16)
"""
HELPERS = """
import ctypes

def allocate_buffer_for(cuda, size):
    pointer = ctypes.c_void_p()
    cuda.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
    return pointer

def read_back_to_host(cuda, pointer, size):
    host = ctypes.create_string_buffer(size)
    cuda.cudaMemcpy(host, pointer, ctypes.c_size_t(size), 2)
"""
MORE = TRAIN.replace("3 + step", "6 + step").replace("5 << 20", "9 << 20").replace("first_stage", "opening_stage")
VIEWS = [["report", "--full"], ["leaks"], ["table"], ["tree"], ["tree", "--what", "waits"], ["stats"], ["timeline"],
         ["check", "--max-peak", "1MiB", "--max-leak", "1KiB", "--max-copies-per-step", "1"]]
WIDTHS = [60, 80, 100, 132, 200]
PLACE = re.compile(r"[\w.]+\.py:\d+")


def project(name, script, text=TRAIN):
    def record(recording):
        folder = recording.folder / "a_folder_with_a_long_name" / "experiments" / name
        (folder / "helpers_of_the_project").mkdir(parents=True)
        (folder / "helpers_of_the_project" / "allocation_helpers.py").write_text(HELPERS)
        (folder / script).write_text(text)
        recording.run("python3", folder / script)
    return record


@pytest.fixture(scope="module")
def recorded(once):
    return once("widths", project("run_of_november", "train_the_model_with_a_long_name.py"))


@pytest.fixture(scope="module")
def long_name(once):
    return once("long_name", project("run", "finetune_the_vision_tower_and_the_projector_of_llama_with_lora.py"))


@pytest.fixture(scope="module")
def another(once):
    return once("other_widths", project("run_of_december", "fine_tune_the_model.py", MORE))


def printed(recording, view, width, terminal):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))} | {"COLUMNS": str(width), "LC_ALL": "C.UTF-8"}
    command = [str(BUILD / "gpuspy"), view[0], *map(str, view[1:]), str(recording.database)]
    if not terminal:
        return subprocess.run(command, env=env | {"NO_COLOR": "1"}, text=True, stdout=subprocess.PIPE, timeout=SECONDS).stdout
    main, other = pty.openpty()
    with subprocess.Popen(command, env=env | {"PAGER": "cat", "TERM": "xterm-256color"}, stdout=other, stderr=other) as process:
        os.close(other)
        text = b""
        while select.select([main], [], [], SECONDS)[0]:
            try:
                piece = os.read(main, 65536)
            except OSError:
                break
            if not piece:
                break
            text += piece
        process.wait()
    os.close(main)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\", "", text.decode()).replace("\r\n", "\n")


def first_places(text):
    """The file and line that each row names first."""
    return {found.group() for line in text.splitlines() if (found := PLACE.search(line))}


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_no_width_cuts_a_place(recorded, view, terminal):
    whole = first_places(printed(recorded, view, 300, terminal))
    assert whole, printed(recorded, view, 300, terminal)
    for width in WIDTHS:
        text = printed(recorded, view, width, terminal)
        assert whole <= first_places(text), f"{width} columns\n{text}"


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_a_long_name_is_whole(long_name, view):
    whole = first_places(printed(long_name, view, 300, False))
    assert any(place.startswith("finetune_the_vision_tower_and_the_projector_of_llama_with_lora.py:") for place in whole)
    for width in WIDTHS[1:]:
        text = printed(long_name, view, width, False)
        assert whole <= first_places(text), f"{width} columns\n{text}"


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_no_line_is_wider_than_the_screen(recorded, view):
    """The name of the script has 36 columns, with its line 39."""
    for width in WIDTHS:
        text = printed(recorded, view, width, False)
        lines = [re.sub("[│├└] ", "", line) for line in text.splitlines() if str(recorded.folder) not in line]  # commands to type
        assert max(map(len, lines)) <= width, text


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_no_width_cuts_a_place_of_a_comparison(recorded, another, terminal):
    test_no_width_cuts_a_place(recorded, ["diff", "--min", "1B", another.database], terminal)


@pytest.mark.parametrize("width", [40, *WIDTHS])
@pytest.mark.parametrize("view", [*VIEWS, ["table", "--what", "waits"]], ids=" ".join)
def test_no_line_ends_with_a_blank(recorded, view, width):
    text = printed(recorded, view, width, False)
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


@pytest.mark.parametrize("width", [40, *WIDTHS])
def test_no_line_of_a_comparison_ends_with_a_blank(recorded, another, width):
    test_no_line_ends_with_a_blank(recorded, ["diff", "--min", "1B", another.database], width)


def test_the_list_of_a_piped_flame_graph_fits(recorded):
    test_no_width_cuts_a_place(recorded, ["flame"], False)
    for width in WIDTHS[1:]:
        text = printed(recorded, ["flame"], width, False)
        assert max(map(len, text.splitlines())) <= width, text


@pytest.mark.parametrize("table", ["lines", "syncs", "copies"])
def test_top_is_never_wider_than_the_screen_and_keeps_the_line(recorded, long_name, table):
    view = ["top", "--once", "--table", table]
    test_no_width_cuts_a_place(recorded, view, False)
    for width in WIDTHS:
        text = printed(recorded, view, width, False)
        assert max(map(len, text.splitlines())) <= width, text
        assert [line for line in text.splitlines() if line != line.rstrip()] == []
    if table != "copies": # a module with a short name copies
        test_a_long_name_is_whole(long_name, view)


def test_a_comparison_keeps_a_long_name(recorded, long_name):
    for by in "line", "file":
        view = ["diff", "--min", "1B", "--by", by, recorded.database]
        for width in WIDTHS[1:]:
            text = printed(long_name, view, width, False)
            rows = text.partition("By " + by)[2].partition("By category")[0]
            assert "finetune_the_vision_tower_and_the_projector_of_llama_with_lora.py" in rows, text
            assert not re.search(r"\w…\w*\.py|\.py…", rows), text


def test_the_amounts_of_a_check_are_aligned(recorded, long_name):
    for recording in recorded, long_name:
        for width in WIDTHS:
            text = printed(recording, ["check", "--max-peak", "1MiB"], width, False)
            ends = {found.end(1) for line in text.splitlines() if (found := re.match(r" +([\d.]+ (B|KiB|MiB))  \S", line))}
            assert len(ends) == 1, text


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_the_report_is_one_screen(recorded, terminal):
    for width in WIDTHS:
        text = printed(recorded, ["report"], width, terminal)
        lines = text.splitlines()
        assert len(lines) <= 40, text
        assert not re.search(r"…[^/\s]*\.py\b|\.py(?!:\d)", "\n".join(lines[1:])), text


OUT_OF_MEMORY = """
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")
kept = []
while True:
    kept.append(ctypes.c_void_p())
    assert cuda.cudaMalloc(ctypes.byref(kept[-1]), ctypes.c_size_t(96 << 20)) == 0
"""


def test_a_failure_fits_the_width(once):
    def record(recording):
        script = recording.folder / "train_the_model_with_a_name.py"
        script.write_text(OUT_OF_MEMORY)
        return recording.run("python3", script, SIMCUDA_MEMORY="1GiB", check=False)
    failed = once("narrow_failure", record)
    for width in WIDTHS:
        text = printed(failed, ["report"], width, False)
        assert "train_the_model_with_a_name.py:7" in text.partition("Of the GPU")[2], text
        lines = [line for line in text.partition("\nNext")[0].splitlines() if str(failed.folder) not in line]
        assert max(map(len, lines)) <= width, text
        assert width < 80 or len(text.splitlines()) <= 40, text
