"""A recording: its report, which the program `gpuspy` computes, and its tables, which SQLite reads."""
import html
import io
import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union, cast

from pytest_gpuspy.recorder import programs
from pytest_gpuspy.units import format_bytes


class GpuspyError(Exception):
    """What `gpuspy` printed: one line that states what is wrong, and what to do."""


def program() -> str:
    """The `gpuspy` beside the recorder of this process, else the one installed with this package, else the one on PATH."""
    for library in os.environ.get("LD_PRELOAD", "").replace(" ", ":").split(":"):
        if library.endswith("/libgpuspy.so"):
            here = Path(library).resolve().parent
            for path in (here / "gpuspy", here.parent / "bin" / "gpuspy"):
                if path.is_file() and os.access(path, os.X_OK):
                    return str(path)
    for found in programs():
        return str(found)
    raise GpuspyError("the program 'gpuspy' is neither beside this package nor on PATH; pip install gpuspy")


def run_gpuspy(*words: str, with_messages: bool = False) -> str:
    """What a command prints, its messages on stderr only if requested. A status of 1 is an answer; others raise GpuspyError."""
    done = subprocess.run([program(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode not in (0, 1):
        raise GpuspyError(done.stderr.strip().removeprefix(f"gpuspy: {words[0]}: ") or f"gpuspy {words[0]} ended with status {done.returncode}")
    return done.stdout + done.stderr.strip() if with_messages else done.stdout


def run_json(*words: str) -> Any:
    printed = run_gpuspy(*words)
    try:
        return json.loads(printed)
    except ValueError:
        raise GpuspyError(f"gpuspy {' '.join(words)} did not print one JSON value") from None


LAYERS = {"device": "CUDA allocations", "tensor": "tensors", "pinned": "pinned host memory"}


SCHEMA = 3  # GS_SCHEMA_VERSION of schema/store.h
SQLITE = (3, 31)  # the oldest that reads gpuspy.sql
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|/\*.*?\*/|\?", re.S)


def is_plain(path: str) -> bool:
    """Whether the file alone is the whole run, complete and of today's schema, and this Python's SQLite can read it."""
    name, suffix = os.path.splitext(os.path.abspath(path))
    beside = [f"{path}.spool", f"{path}-wal"]
    family = re.sub(r"\.\d+$", "", name)
    if sqlite3.sqlite_version_info < SQLITE or not os.path.isfile(path) or any(map(os.path.exists, beside)):
        return False
    others = [p for p in Path(family).parent.glob("*" + suffix) if p.name.startswith(os.path.basename(family) + ".")]
    with io.open(path, "rb") as file:
        head = file.read(72)
    return (head.startswith(b"SQLite format 3") and head[18] == 1 and head[68:] == b"gpsy" and
            int.from_bytes(head[60:64], "big") == SCHEMA and len(others) == 1)


def put_values(query: str, values: Sequence[Any]) -> str:
    """The query with an SQL literal instead of each `?`."""
    db, rest = sqlite3.connect(":memory:"), iter(values)
    try:
        def literal(match: "re.Match[str]") -> str:
            return match[0] if match[0] != "?" else str(db.execute("SELECT quote(?)", (next(rest),)).fetchone()[0])
        return QUOTED.sub(literal, query)
    except (RuntimeError, StopIteration):
        raise GpuspyError("the query has more '?' than there are values") from None
    finally:
        db.close()


class Recording:
    """`path`: a run.db, a folder of one run, or another tool's recording that gpuspy reads."""

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        self.path: str = os.fsdecode(path)
        self._report: Optional[Dict[str, Any]] = None
        if not os.path.exists(self.path):
            raise GpuspyError(f"there is no file '{self.path}'")
        if self.path.startswith("-"):  # it is not an option
            self.path = os.path.join(".", self.path)

    def report(self, *options: str) -> Dict[str, Any]:
        """The JSON of `gpuspy report`: sizes in bytes, times in seconds. Without options it is cached, once the
        recording has ended."""
        if options:
            return cast(Dict[str, Any], run_json("report", "--json", *options, self.path))
        if self._report is None:
            report: Dict[str, Any] = run_json("report", "--json", self.path)
            if any(process["recording"] for process in report["run"]["processes"]):
                return report
            self._report = report
        return self._report

    @property
    def peak(self) -> List[Dict[str, Any]]:
        """The peak of each device and layer, with what was live then."""
        return cast(List[Dict[str, Any]], self.report()["peak"])

    @property
    def ooms(self) -> List[Dict[str, Any]]:
        """Failed allocations, each with its cause and what to do."""
        return cast(List[Dict[str, Any]], self.report()["oom"])

    def _database(self) -> str:
        """The file to open. The recordings of a folder must be one run, in one folder."""
        if not os.path.isdir(self.path):
            return self.path
        files = [process["database"] for process in self.report()["run"]["processes"]]
        if len({os.path.dirname(file) for file in files}) != 1:
            raise GpuspyError(f"'{self.path}' has recordings in several folders; open one of them")
        return str(min(files, key=len))  # run.db, beside which the others are run.PID.db

    def rows(self, query: str, parameters: Sequence[Any] = ()) -> List[Dict[str, Any]]:
        """The rows of an SQL query (docs/schema.md lists tables and views), with all processes of the run; nothing is
        written."""
        path = self._database()
        if not is_plain(path):
            return cast(List[Dict[str, Any]], run_json("sql", "--json", path, put_values(query, parameters)))
        try:
            db = sqlite3.connect(f"{Path(path).resolve().as_uri()}?mode=ro", uri=True)
            try:
                db.row_factory = sqlite3.Row
                db.text_factory = lambda text: text.decode(errors="replace")
                return [dict(row) for row in db.execute(query, parameters)]
            finally:
                db.close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            if type(error) is sqlite3.DatabaseError:  # the file is damaged: gpuspy finds out how
                run_gpuspy("sql", path, "SELECT 1")
            raise GpuspyError(f"cannot read '{self.path}': {error}") from None

    def table(self, name: str, kind: Optional[str] = None) -> Any:
        """A table or view. `kind`: "arrow", "pandas", "polars" or "rows"; default: the first that is installed."""
        known = [row["name"] for row in self.rows("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        if name not in known:
            raise GpuspyError(f"'{self.path}' has no table '{name}'; it has {', '.join(sorted(set(known)))}")
        declared = self.rows(f"SELECT name, type FROM pragma_table_xinfo('{name}')")
        return convert(self.rows(f'SELECT * FROM "{name}"'), {column["name"]: column["type"] for column in declared}, kind)

    def _repr_html_(self) -> str:
        lines = [f"<b>{html.escape(self.path)}</b>"]
        try:
            return "<br>".join(lines + self._summary())
        except GpuspyError as error:
            return "<br>".join(lines + [html.escape(str(error))])

    def _summary(self) -> List[str]:
        lines: List[str] = []
        for oom in self.ooms[:1]:
            lines.append(f"<span style='color:#b3261e'>Out of memory</span>: {html.escape(oom['verdict'] or '')}")
            lines += [f"To do: {html.escape(text)}" for text in oom["advice"][:1]]
        for peak in self.peak[:4]:
            where = "" if peak["device"] is None or peak["device"] < 0 else f" on GPU {peak['device']}"
            lines.append(f"Peak {format_bytes(peak['bytes'])} of {html.escape(LAYERS.get(peak['layer']) or str(peak['layer']))}{where}")
        for scope in [s for s in self.report()["scopes"] if s["layer"] == "device" and s["device"] >= 0][:4]:
            lines.append(f"Peak {format_bytes(scope['peak_bytes'])} in range {html.escape(scope['name'])} on GPU {scope['device']}")
        return lines

    def __repr__(self) -> str:
        return f"gpuspy.open({self.path!r})"


def typed_column(name: str, declared: str, values: List[Any]) -> Tuple[type, List[Any]]:
    """The same type in every run, also where all values are NULL; numbers and texts in one column, as in table meta, become
    texts. SQLite knows no type of most of a view's columns: those in seconds are real, the others whole."""
    types: Set[type] = {type(value) for value in values if value is not None} or {str if declared == "TEXT" else int}
    if types <= {int, float}:
        return (float if float in types or name.endswith("_s") else int), values
    if len(types) == 1:
        return types.pop(), values
    return str, [None if value is None else str(value) for value in values]


def convert(rows: List[Dict[str, Any]], declared: Dict[str, str], kind: Optional[str]) -> Any:
    def columns() -> Iterator[Tuple[str, type, List[Any]]]:
        for name, words in declared.items():
            yield (name, *typed_column(name, words, [row[name] for row in rows]))

    def arrow() -> Any:
        import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
        types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string(), bytes: pyarrow.binary()}
        return pyarrow.table({name: pyarrow.array(values, types[kind]) for name, kind, values in columns()})

    def pandas() -> Any:
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        def dtype(kind: type, values: List[Any]) -> Optional[str]:
            if kind is int:
                return "Int64" if None in values else "int64"
            return "float64" if kind is float else None if any(value is not None for value in values) else "object"
        return pandas.DataFrame({name: pandas.Series(values, dtype=dtype(kind, values)) for name, kind, values in columns()})

    def polars() -> Any:
        import polars  # type: ignore[import-not-found,unused-ignore]
        types = {int: polars.Int64, float: polars.Float64, str: polars.Utf8, bytes: polars.Binary}
        return polars.DataFrame([polars.Series(name, values, dtype=types[kind]) for name, kind, values in columns()])

    makers: Dict[str, Callable[[], Any]] = {"arrow": arrow, "pandas": pandas, "polars": polars, "rows": lambda: rows}
    if kind is not None and kind not in makers:
        raise GpuspyError(f"kind '{kind}' is unknown; give one of {', '.join(makers)}")
    for make in [makers[kind]] if kind else makers.values():
        try:
            return make()
        except ImportError as error:
            if kind:
                package = {"arrow": "pyarrow"}.get(kind, kind)
                raise GpuspyError(f"kind '{kind}' needs {package} ({error}): pip install {package}") from None
    return rows


def open(path: Union[str, "os.PathLike[str]"]) -> Recording:
    """A recording, to be read."""
    return Recording(path)
