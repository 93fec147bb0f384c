"""%%gpuspy and %gpuspy report, in a kernel that gpuspy jupyter install or gpuspy run started."""
import shlex
from typing import Any, Optional

from gpuspy import marks, reader


def database() -> Optional[str]:
    """The recording of this process, completed up to now; None: it is not recorded, or has not called CUDA."""
    if not marks.recorder() or not marks.recorder().flush():
        return None
    path: Optional[str] = marks.recorder().database()
    return path


NOTHING = ("Nothing is recorded: this kernel has not called CUDA yet, or runs without the recorder; "
           "gpuspy jupyter install adds one that runs with it")


def report(words: str) -> Any:
    path = database()
    if path is None:
        print(NOTHING)
        return None
    print(reader.run_gpuspy("report", *shlex.split(words), path))
    return reader.Recording(path)


def usage_error() -> Any:
    """What IPython prints as one line."""
    try:
        from IPython.core.error import UsageError  # type: ignore[import-not-found,unused-ignore]
        return UsageError
    except ImportError:
        return reader.GpuspyError


def register(shell: Any) -> None:
    def gpuspy(line: str, cell: Optional[str] = None) -> Any:
        """%gpuspy report [OPTIONS], or %%gpuspy [NAME] over a cell, whose range and peak the report then names."""
        if cell is not None:
            with marks.scope(line.strip() or "cell"):
                shell.run_cell(cell)
            return None
        words = line.split(None, 1)
        if words[:1] != ["report"]:
            raise usage_error()("type %gpuspy report, or %%gpuspy over a cell")
        try:
            return report(words[1] if len(words) > 1 else "")
        except reader.GpuspyError as error:
            raise usage_error()(str(error)) from None

    shell.register_magic_function(gpuspy, "line_cell", "gpuspy")
