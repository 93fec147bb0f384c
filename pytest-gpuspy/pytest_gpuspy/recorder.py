"""The recorder in this process: where its library is, starting Python under it, and marking in it which test runs."""
from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, NoReturn

LIBRARY = "libgpuspy.so"
SEPARATORS = re.compile("[ :$]")  # end a path in LD_PRELOAD, or are replaced in it
FOLDER = "PYTEST_GPUSPY_FOLDER"  # where the recordings of this session are; set by the process that began it
OWN = "PYTEST_GPUSPY_OWN"        # its pid: it removes the folder, and prints the table


class NotFound(Exception):
    """One sentence: what was looked for, what to do."""


def beside(program: str) -> list[Path]:
    here = Path(program).resolve().parent
    return [here / LIBRARY, *(here.parent / folder / LIBRARY for folder in ("lib", "lib64", "lib/gpuspy"))]


def programs() -> Iterator[str]:
    """The `gpuspy` that was installed with this package, on PATH or not; then the one on PATH."""
    for folder in list(Path(__file__).resolve().parents)[1:-1]:
        path = folder / "bin" / "gpuspy"
        if path.is_file() and os.access(path, os.X_OK):
            yield str(path)
            break
    found = shutil.which("gpuspy")
    if found:
        yield found


def candidates(start: str) -> Iterator[Path]:
    for program in programs():
        yield from beside(program)
    for base in (Path(__file__).resolve().parent, Path(start).resolve()):
        for folder in (base, *base.parents):
            yield folder / "build" / LIBRARY


def find_library(start: str = ".") -> Path:
    named = os.environ.get("GPUSPY_LIB")
    if named:
        path = Path(named)
        path = path / LIBRARY if path.is_dir() else path
        if not path.is_file():
            raise NotFound(f"GPUSPY_LIB names '{named}', but there is no {LIBRARY} there; name the file that make built")
        return path.resolve()
    for path in candidates(start):
        if path.is_file():
            return path
    raise NotFound(f"{LIBRARY} was not found, neither beside a 'gpuspy' on PATH nor in a build/ folder above; install "
                   "gpuspy with pip, build it with make, or name the library in GPUSPY_LIB")


def preloadable(library: Path) -> str:
    """The loader ends a path at a space or colon: then a link to it, in the folder where `gpuspy run` puts its links."""
    folder = Path(tempfile.gettempdir(), f"gpuspy-{os.geteuid()}")
    link = folder / (hashlib.sha256(os.fsencode(library)).hexdigest()[:16] + ".so")
    if not SEPARATORS.search(str(library)):
        return str(library)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(0o711)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o22 or SEPARATORS.search(str(link)):
        raise NotFound(f"cannot preload '{library}': the loader accepts no path with a space, colon or '$', and no link to it can "
                       f"be made in '{folder}'; install gpuspy elsewhere")
    with contextlib.suppress(FileExistsError):
        link.symlink_to(library)
    return str(link)


def command_line() -> list[str]:
    """What this process was started with, as the kernel has it: the interpreter's own options too."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]
    return [os.fsdecode(word) for word in words]


def start_again(library: Path, folder: str, native: bool) -> NoReturn:
    """Runs this command once more, with the recorder loaded. Does not return."""
    env = dict(os.environ)
    before = [path for path in env.get("LD_PRELOAD", "").replace(" ", ":").split(":") if path]
    env["LD_PRELOAD"] = ":".join([*before, preloadable(library)])
    env["GPUSPY_DB"] = os.path.join(folder, "run.db")
    env["GPUSPY_QUIET"] = "1"
    if not native:
        env.setdefault("GPUSPY_STACKS", "python")
    env[FOLDER] = str(folder)
    env[OWN] = str(os.getpid())  # exec keeps it
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *command_line()[1:]], env)


# ---------------------------------------------------------------- NVTX

TABLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_uint))


class Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("get_table", TABLE)]


LOOK_UP = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
MARK, RANGE_START, RANGE_END = 2, 5, 7  # of NVTX's core functions: MarkA, RangeStartA, RangeEnd
ROOM = 17


class Recorder:
    """Sends NVTX marks to the recorder as any program does, without the NVTX library."""

    def __init__(self) -> None:
        self.library = loaded_library()
        self.flush_function = self.library.gpuspy_flush
        self.pointers = {module: (ctypes.c_void_p * ROOM)() for module in (1, 5)}
        self.tables = {module: (ctypes.c_void_p * ROOM)(*(ctypes.addressof(slots) + i * ctypes.sizeof(ctypes.c_void_p)
                                                          for i in range(ROOM)))
                       for module, slots in self.pointers.items()}
        self.callbacks = Callbacks(ctypes.sizeof(Callbacks), TABLE(self.get_table))
        self.look_up = LOOK_UP(lambda table: ctypes.addressof(self.callbacks) if table == 1 else None)
        begin = self.library.InitializeInjectionNvtx2
        begin.argtypes, begin.restype = [LOOK_UP], ctypes.c_int
        ready = begin(self.look_up)
        mark, start, end = (self.pointers[1][i] or 0 for i in (MARK, RANGE_START, RANGE_END))
        if not (ready and mark and start and end):
            raise NotFound("the recorder takes no marks; is GPUSPY_DISABLE set?")
        self.mark_function = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(mark)
        self.start_function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_char_p)(start)
        self.end_function = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(end)

    def get_table(self, module: int, table: Any, size: Any) -> int:
        if module not in self.tables:
            return 0
        table[0] = ctypes.addressof(self.tables[module])
        size[0] = ROOM
        return 1

    def mark(self, name: str) -> None:
        self.mark_function(name.encode("utf-8", "replace"))

    def start(self, name: str) -> int:
        return int(self.start_function(name.encode("utf-8", "replace")))

    def end(self, number: int) -> None:
        self.end_function(number)

    def flush(self) -> bool:
        """What was done up to now is in the database. False: no CUDA call was made in this process."""
        return bool(self.flush_function())

    def database(self) -> str | None:
        """Where this process is recorded; None: no CUDA call was made in it."""
        try:
            function = self.library.gpuspy_database
        except AttributeError:  # a recorder of before it
            return None
        function.restype = ctypes.c_char_p
        path = function()
        return os.fsdecode(path) if path else None


def loaded_library() -> Any:
    """The recorder in this process: preloaded, or loaded by gpuspy attach, which leaves its names out of the global ones."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "gpuspy_flush"):
        for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
            path = line.partition("/")[2]
            if path.endswith("/" + LIBRARY):
                return ctypes.CDLL("/" + path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    return library


def is_loaded() -> bool:
    return hasattr(loaded_library(), "gpuspy_flush")
