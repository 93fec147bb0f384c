"""%%gpuspy and %gpuspy report, in a kernel that was started under gpuspy run."""
import os
from pathlib import Path
from typing import Any, Optional

from gpuspy import marks, reader


def database() -> Optional[str]:
    """The recording of this process, completed up to now; None: it is not recorded, or has not called CUDA."""
    if not marks.recorder() or not marks.recorder().flush():
        return None
    named = os.environ.get("GPUSPY_DB", "run.db").replace("%p", str(os.getpid())).replace("%h", os.uname().nodename)
    folder = Path(named).resolve().parent
    for path in sorted(folder.glob("*.db"), key=lambda p: p.stat().st_mtime, reverse=True):
        try:
            if reader.Recording(path).rows("SELECT 1 FROM process WHERE pid = ?", [os.getpid()]):
                return str(path)
        except reader.GpuspyError:
            continue
    return None


def report(words: str) -> Any:
    path = database()
    if path is None:
        return "This kernel is not recorded, or has not called CUDA: start it with gpuspy run -- jupyter lab"
    print(reader.run_gpuspy("report", *words.split(), path))
    return reader.Recording(path)


def register(shell: Any) -> None:
    def gpuspy(line: str, cell: Optional[str] = None) -> Any:
        """%gpuspy report [OPTIONS], or %%gpuspy [NAME] over a cell, whose range the report then names."""
        if cell is not None:
            with marks.scope(line.strip() or "cell"):
                shell.run_cell(cell)
            return None
        words = line.split(None, 1)
        if words[:1] != ["report"]:
            raise reader.GpuspyError("type %gpuspy report, or %%gpuspy over a cell")
        return report(words[1] if len(words) > 1 else "")

    shell.register_magic_function(gpuspy, "line_cell", "gpuspy")
