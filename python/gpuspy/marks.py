"""Names phases of the program in its recording, by NVTX's own interface. A scope that is open at the first CUDA call begins
with the recording. In a program that is not recorded nothing happens, at the cost of one comparison."""
import contextlib
from typing import Any, Iterator

from pytest_gpuspy.recorder import NotFound, Recorder, is_loaded

_recorder: Any = None  # None: not asked yet; False: not recorded


def recorder() -> Any:
    global _recorder
    if _recorder is None:
        try:
            _recorder = Recorder() if is_loaded() else False
        except NotFound:
            _recorder = False
    return _recorder


def mark(name: str) -> None:
    """A moment of that name."""
    if recorder():
        _recorder.mark(name)


@contextlib.contextmanager
def scope(name: str) -> Iterator[None]:
    """A range of that name; the report has the peak of GPU memory within it."""
    if not recorder():
        yield
        return
    number = _recorder.start(name)
    try:
        yield
    finally:
        _recorder.end(number)
