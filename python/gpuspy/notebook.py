"""%gpuspy attach, detach and report, and %%gpuspy, in a kernel that is recorded or in any other."""
import atexit
import contextlib
import ctypes
import os
import re
import shlex
from typing import Any, Callable, Dict, Iterator, List, Optional

from gpuspy import marks, reader

PR_SET_PTRACER, ANY = 0x59616D61, ctypes.c_ulong(-1)  # prctl(2)
_detached: Optional[str] = None  # the recording that %gpuspy detach ended


def database() -> Optional[str]:
    """The recording of this process, completed up to now; None: it is not recorded, or has not called CUDA."""
    if not marks.recorder() or not marks.recorder().flush():
        return _detached
    path: Optional[str] = marks.recorder().database()
    return path


NOTHING = ("Nothing is recorded: this kernel has not called CUDA yet, or runs without the recorder. %gpuspy attach records it "
           "from now on; gpuspy jupyter install adds a kernel that is recorded from its start")


def report(words: str, _: Any) -> Any:
    """Prints the report of this kernel's recording, or of the named file."""
    options = shlex.split(words)
    named = [word for word in options if not word.startswith("-") and (os.path.exists(word) or word.endswith(".db"))]
    path = named[0] if named else database()
    if path is None:
        print(NOTHING)
        return None
    text = reader.run_gpuspy("report", *options, *([] if named else [path]), with_messages=True)
    print(text)
    return reader.Recording(path)


@contextlib.contextmanager
def traceable() -> Iterator[None]:
    """If ptrace_scope is 1, only processes that this one allows may attach to it. Otherwise prctl fails, which does no harm."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_PTRACER, 0, 0, 0, 0)


def attach(words: str, shell: Any) -> None:
    with traceable():
        print(reader.run_gpuspy("attach", *shlex.split(words), str(os.getpid()), with_messages=True))
    marks.forget_recorder()
    write_earlier_cells(shell)


def detach(words: str, _: Any) -> None:
    global _detached
    path = database()
    with traceable():
        print(reader.run_gpuspy("detach", *shlex.split(words), str(os.getpid()), with_messages=True))
    _detached = path


CELL = re.compile(r".*/(ipykernel_\d+/\d+|ipython-input-[\d-]+)\.py")  # the second in Colab
_written: List[str] = []
_numbers: Dict[str, int] = {}  # of cells by their files


def remove_cells(owner: int) -> None:
    """Runs when the kernel exits, not when a forked child does."""
    if owner != os.getpid():
        return
    with contextlib.suppress(Exception):
        database()  # stores the lines of cells that just ran
    for path in _written:
        with contextlib.suppress(OSError):
            os.unlink(path)
    folder = os.path.dirname(_written[0]) if _written else ""
    if os.path.basename(folder).startswith("ipykernel_"):  # the kernel's own, unlike Colab's
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def next_number(shell: Any) -> int:
    """The number of the cell that is about to run: newer versions of IPython have counted it already, and none has stored its text."""
    count: int = shell.execution_count
    return count - (count > len(shell.history_manager.input_hist_raw))


def write_cell(shell: Any, text: str, number: int) -> None:
    """Writes a cell to the file that ipykernel names in its frames, and writes only for a debugger. The recorder stores its lines
    from there, with the number that IPython shows beside the cell. 0: a cell that a magic runs has none of its own."""
    code = shell.transform_cell(text)
    path = shell.compile.get_code_name(text, code, 0)
    if not CELL.fullmatch(path):
        return
    if number and _numbers.setdefault(path, number) != number:
        marks.mark(f"In [{number}] runs In [{_numbers[path]}] again")
        _numbers[path] = number
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            _written.append(path)
            file.write(text.lstrip() if text.lstrip().startswith("%%") else code)  # a magic's code is one line of the latter
            if number:
                file.write(f"\n# In [{number}]\n")


def write_earlier_cells(shell: Any) -> None:
    """Stores the cells that ran before the extension was loaded or the kernel was recorded: later cells call their functions."""
    with contextlib.suppress(Exception):
        for number, text in enumerate(shell.history_manager.input_hist_raw):
            if number and text and marks.recorder():
                write_cell(shell, text, number)


COMMANDS: Dict[str, Callable[[str, Any], Any]] = {"attach": attach, "detach": detach, "report": report}


def usage_error() -> Any:
    """What IPython prints as one line."""
    try:
        from IPython.core.error import UsageError  # type: ignore[import-not-found,unused-ignore]
        return UsageError
    except ImportError:
        return reader.GpuspyError


def end_cell(shell: Any, result: Any) -> None:
    """Fails the cell around one that failed, so that "Run All" ends there. IPython has shown the error already."""
    def shown_again() -> None:
        shell.events.unregister("post_execute", shown_again)
        del shell.showtraceback

    shell.showtraceback = lambda *_, **__: None
    shell.events.register("post_execute", shown_again)
    result.raise_error()


def register(shell: Any) -> None:
    def before_cell(cell: Any) -> None:
        with contextlib.suppress(Exception):  # a cell must not fail because it is recorded
            if marks.recorder():
                write_cell(shell, cell.raw_cell, next_number(shell) if cell.store_history else 0)

    def after_cell(result: Any) -> None:
        with contextlib.suppress(Exception):
            if result.error_in_exec is not None and result.info.store_history:
                marks.mark(f"In [{result.execution_count}] failed: {type(result.error_in_exec).__name__}")

    def gpuspy(line: str, cell: Optional[str] = None) -> Any:
        """%gpuspy report [FILE] [OPTIONS], %gpuspy attach|detach [OPTIONS], or %%gpuspy [NAME] over a cell, whose range and peak the report then names."""
        if cell is not None:
            with marks.scope(line.strip() or "cell"):
                result = shell.run_cell(cell)
            if not result.success:
                end_cell(shell, result)
            return None
        words = line.split(None, 1)
        if not words or words[0] not in COMMANDS:
            raise usage_error()("type %gpuspy report, %gpuspy attach or %gpuspy detach, or %%gpuspy over a cell")
        try:
            return COMMANDS[words[0]](words[1] if len(words) > 1 else "", shell)
        except reader.GpuspyError as error:
            raise usage_error()(str(error)) from None

    shell.register_magic_function(gpuspy, "line_cell", "gpuspy")
    shell.events.register("pre_run_cell", before_cell)
    shell.events.register("post_run_cell", after_cell)
    atexit.register(remove_cells, os.getpid())
    write_earlier_cells(shell)
