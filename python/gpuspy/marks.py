"""Names phases of the program in its recording, by NVTX's own interface. A scope that is open at the first CUDA call begins
with the recording. In a program that is not recorded nothing happens, at the cost of one comparison. A name that is not text
is recorded as `str` of it: a program must not fail because it is recorded."""
import functools
import inspect
from types import TracebackType
from typing import Any, Callable, List, Optional, Type, TypeVar, cast

from pytest_gpuspy.recorder import NotFound, Recorder, is_loaded

Function = TypeVar("Function", bound=Callable[..., Any])
_recorder: Any = None  # None: not asked yet; False: not recorded


def recorder() -> Any:
    global _recorder
    if _recorder is None:
        try:
            _recorder = Recorder() if is_loaded() else False
        except NotFound:
            _recorder = False
    return _recorder


def forget_recorder() -> None:
    """After gpuspy attach: the next mark looks for the recorder again."""
    global _recorder
    _recorder = None


def mark(name: str) -> None:
    """A moment of that name."""
    if recorder():
        _recorder.mark(str(name))


class scope:
    """A range of that name; the report has the peak of GPU memory within it. Also a decorator; the range of a
    generator or coroutine function ends when the generator or coroutine ends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._open: List[Any] = []

    def __enter__(self) -> None:
        if recorder():
            self._open.append(_recorder.start(str(self.name)))

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], where: Optional[TracebackType]) -> None:
        if self._open:
            _recorder.end(self._open.pop())

    def __call__(self, function: Function) -> Function:
        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with scope(self.name):
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with scope(self.name):
                return (yield from function(*args, **kwargs))

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            with scope(self.name):
                return function(*args, **kwargs)

        return cast(Function, coroutine if inspect.iscoroutinefunction(function) else
                    generator if inspect.isgeneratorfunction(function) else plain)
