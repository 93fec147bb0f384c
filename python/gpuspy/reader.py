"""A recording: its report, which the program `gpuspy` computes, and its tables, which SQLite reads."""
import html
import json
import os
import shutil
import sqlite3
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union


class GpuspyError(Exception):
    """What `gpuspy` printed: one line that says what is wrong, and what to do."""


def program() -> str:
    """The `gpuspy` beside the recorder of this process, else that of this environment, else the one on PATH."""
    folders = [Path(sysconfig.get_path("scripts"))]
    for library in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if library.endswith("/libgpuspy.so"):
            folders[:0] = [Path(library).parent, Path(library).parent.parent / "bin"]
    beside = [folder / "gpuspy" for folder in folders
              if (folder / "gpuspy").is_file() and os.access(folder / "gpuspy", os.X_OK)]
    found = str(beside[0]) if beside else shutil.which("gpuspy")
    if not found:
        raise GpuspyError("the program 'gpuspy' is neither in this environment nor on PATH; pip install gpuspy")
    return found


def run_gpuspy(*words: str) -> str:
    """What a command prints. A status of 1 is an answer; others raise GpuspyError."""
    done = subprocess.run([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode not in (0, 1):
        raise GpuspyError(done.stderr.strip() or f"gpuspy {words[0]} ended with status {done.returncode}")
    return done.stdout


def size(n: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(n) < 1024:
            break
        n /= 1024
    else:
        unit = "TiB"
    return f"{n:.0f} B" if unit == "B" else f"{n:.2f} {unit}"


LAYERS = {"device": "CUDA allocations", "tensor": "tensors", "pinned": "pinned host memory"}


class Recording:
    """`path`: a run.db, a folder of one run, or another tool's recording that gpuspy reads."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        self.path = os.fspath(path)
        self._report: Optional[Dict[str, Any]] = None
        if not os.path.exists(self.path):
            raise GpuspyError(f"there is no file '{self.path}'")

    def report(self, *options: str) -> Dict[str, Any]:
        """What `gpuspy report --json` prints; sizes in bytes, times in seconds. Without options it is kept."""
        if options:
            return json.loads(run_gpuspy("report", "--json", *options, self.path))
        if self._report is None:
            self._report = json.loads(run_gpuspy("report", "--json", self.path))
        return self._report

    @property
    def peak(self) -> List[Dict[str, Any]]:
        """The peak of each device and layer, with what was live then."""
        return self.report()["peak"]

    @property
    def ooms(self) -> List[Dict[str, Any]]:
        """Failed allocations, each with its cause and what to do."""
        return self.report()["oom"]

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> List[Dict[str, Any]]:
        """The rows of an SQL query on this file alone (docs/schema.md lists tables and views); nothing is written."""
        db = sqlite3.connect(f"{Path(self.path).resolve().as_uri()}?mode=ro", uri=True)
        try:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(query, parameters)]
        except sqlite3.Error as error:
            raise GpuspyError(f"cannot read '{self.path}': {error}") from None
        finally:
            db.close()

    def table(self, name: str, kind: Optional[str] = None) -> Any:
        """A table or view. `kind`: "arrow", "pandas", "polars" or "rows"; the first that is installed if not given."""
        known = {row["name"] for row in self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}
        if name not in known:
            raise GpuspyError(f"'{self.path}' has no table '{name}'; it has {', '.join(sorted(known))}")
        return convert(self.rows(f'SELECT * FROM "{name}"'), kind)

    def _repr_html_(self) -> str:
        lines = [f"<b>{html.escape(self.path)}</b>"]
        for oom in self.ooms[:1]:
            lines.append(f"<span style='color:#b3261e'>Out of memory</span>: {html.escape(oom['verdict'] or '')}")
            lines += [f"To do: {html.escape(text)}" for text in oom["advice"][:1]]
        for peak in self.peak[:4]:
            where = "" if peak["device"] is None or peak["device"] < 0 else f" on GPU {peak['device']}"
            lines.append(f"Peak {size(peak['bytes'])} of {html.escape(LAYERS.get(peak['layer'], peak['layer']))}{where}")
        for scope in [s for s in self.report()["scopes"] if s["layer"] == "device" and s["device"] >= 0][:4]:
            lines.append(f"Peak {size(scope['peak_bytes'])} in range {html.escape(scope['name'])} on GPU {scope['device']}")
        return "<br>".join(lines)

    def __repr__(self) -> str:
        return f"gpuspy.open({self.path!r})"


def convert(rows: List[Dict[str, Any]], kind: Optional[str]) -> Any:
    def arrow() -> Any:
        import pyarrow
        return pyarrow.Table.from_pylist(rows)

    def pandas() -> Any:
        import pandas
        return pandas.DataFrame(rows)

    def polars() -> Any:
        import polars
        return polars.DataFrame(rows, infer_schema_length=None)

    makers = {"arrow": arrow, "pandas": pandas, "polars": polars, "rows": lambda: rows}
    if kind is not None and kind not in makers:
        raise GpuspyError(f"kind '{kind}' is unknown; give one of {', '.join(makers)}")
    for make in [makers[kind]] if kind else makers.values():
        try:
            return make()
        except ImportError:
            if kind:
                raise GpuspyError(f"kind '{kind}' needs a package that is not installed") from None
    return rows


def open(path: Union[str, "os.PathLike[str]"]) -> Recording:
    """A recording, to be read."""
    return Recording(path)
