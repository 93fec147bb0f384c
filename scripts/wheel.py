#!/usr/bin/env python3
"""Makes dist/gpuspy-VERSION-py3-none-manylinux_2_28_ARCH.whl from build folders whose binaries need no newer glibc
(make wheel), and beside it a tarball of the same, and the
debugging information that was stripped. Two runs on one commit write the same bytes.

    scripts/wheel.py BUILD DIST VERSION ARCH [OBJCOPY]

The wheel puts the programs where `make install` does: bin/gpuspy, lib64/libgpuspy.so, lib64/gpuspy/sim, share/man and the
completions, below the prefix of the environment; lib64, because `pip install --target` leaves out lib. The Python packages are gpuspy, which reads recordings, and pytest's plugin (gpuspy[pytest]).
"""
import base64
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 28)
MIB = 1 << 20
SIZE_MOST = 6 * MIB
PYTHON = "lib/gpuspy/python"  # where a kernel of `gpuspy jupyter install` finds the packages outside of an environment
COMPLETIONS = {"bash": "share/bash-completion/completions/gpuspy", "zsh": "share/zsh/site-functions/_gpuspy",
               "fish": "share/fish/vendor_completions.d/gpuspy.fish"}


def epoch():
    """The commit's time: the only one that goes into the files."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or subprocess.check_output(["git", "-C", ROOT, "log", "-1", "--format=%ct"], text=True))


def output(*command, **more):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, **more).stdout


def newest_glibc(path):
    """The newest version of glibc's symbols that a binary needs."""
    names = output("readelf", "--version-info", "--wide", path).decode()
    return max((tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_(\d+(?:\.\d+)+)", names)), default=(0,))


class Stripped:
    """Binaries without debugging information, which is collected."""

    def __init__(self, objcopy):
        self.objcopy, self.debug = objcopy, {}

    def read(self, path):
        if newest_glibc(path) > GLIBC:
            sys.exit(f"wheel: {path} needs glibc {'.'.join(map(str, newest_glibc(path)))}")
        # a folder of its own: make -j packs the wheel, the deb and the rpm at the same time
        with tempfile.TemporaryDirectory(prefix="gpuspy-") as scratch:
            plain, debug = Path(scratch, "plain"), Path(scratch, f"{path.name}.debug")
            output(self.objcopy, "--only-keep-debug", path, debug)
            output(self.objcopy, "--strip-all", path, plain)
            self.debug[debug.name] = debug.read_bytes()
            return plain.read_bytes()


def installed(build, stripped):
    """What lies below the prefix: path and (content, mode)."""
    files = {"lib/libgpuspy.so": (stripped.read(build / "libgpuspy.so"), 0o755)}
    sim = build / "sim"
    for path in sorted([*sim.glob("*.so*"), *sim.glob("math/*.so.*")]):
        files[f"lib/gpuspy/sim/{path.relative_to(sim)}"] = (stripped.read(path), 0o755)
    for path in sorted((ROOT / "fixtures/simcuda/python").glob("*.py")):
        files[f"lib/gpuspy/sim/python/{path.name}"] = (path.read_bytes(), 0o644)
    return files


def documents(gpuspy):
    """Man pages and completions, which the program of this machine prints, and the docs to which they refer."""
    commands = re.findall(r"^COMMAND\((\w+),", (ROOT / "analyzer/command/commands.def").read_text(), re.M)
    pages = {"gpuspy": output(gpuspy, "help", "--man")}
    pages.update({f"gpuspy-{c.lower()}": output(gpuspy, "help", "--man", c.lower()) for c in commands})
    files = {f"share/man/man1/{name}.1": (page, 0o644) for name, page in pages.items()}
    for shell, path in COMPLETIONS.items():
        files[path] = (output(gpuspy, "help", f"--completion={shell}"), 0o644)
    # beside each other as the pages' links expect; pip leaves a folder behind that has no file of its own
    for page in sorted(path for words in ("*.md", "docs/*.*", "tests/gpu/*.md") for path in ROOT.glob(words)):
        files[f"share/doc/gpuspy/{page.relative_to(ROOT)}"] = (page.read_bytes(), 0o644)
    return files


def python_packages(version):
    def content(path):
        return re.sub(rb'(?m)^__version__ = ".*"$', f'__version__ = "{version}"'.encode(), path.read_bytes())
    return {f"{folder.name}/{path.name}": (content(path), 0o644)
            for folder in (ROOT / "python/gpuspy", ROOT / "pytest-gpuspy/pytest_gpuspy")
            for path in sorted([*folder.glob("*.py"), *folder.glob("py.typed")])}


def licenses(build):
    """gpuspy's own, and those of the libraries that are linked in."""
    return {path.name: path.read_bytes() for path in [ROOT / "LICENSE", *sorted((build / "libs/licenses").glob("*"))]}


def metadata(version):
    lines = ["Metadata-Version: 2.1", "Name: gpuspy", f"Version: {version}",
             "Summary: Which line used the GPU memory: records allocations, copies and waits, explains out of memory",
             "License: MIT", "Requires-Python: >=3.9", "Provides-Extra: pytest", "Requires-Dist: pytest>=6.2; extra == 'pytest'",
             "Classifier: Operating System :: POSIX :: Linux", "Classifier: Framework :: Pytest",
             "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text()]
    return "\n".join(lines).encode()


def contents(build, version, arch, stripped, gpuspy):
    data, info = f"gpuspy-{version}.data", f"gpuspy-{version}.dist-info"
    files = {f"{data}/scripts/gpuspy": (stripped.read(build / "gpuspy"), 0o755)}
    for path, content in {**installed(build, stripped), **documents(gpuspy)}.items():
        files[f"{data}/data/{re.sub('^lib/', 'lib64/', path)}"] = content
    # pip removes a folder whose own files it removes, not one that has only folders
    files[f"{data}/data/lib64/gpuspy/LICENSE"] = ((ROOT / "LICENSE").read_bytes(), 0o644)
    files.update(python_packages(version))
    files[f"{info}/METADATA"] = (metadata(version), 0o644)
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: gpuspy\nRoot-Is-Purelib: false\n"
                              f"Tag: py3-none-manylinux_2_28_{arch}\n".encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (b"[pytest11]\ngpuspy = pytest_gpuspy.plugin\n", 0o644)
    for name, text in licenses(build).items():
        files[f"{info}/licenses/{name}"] = (text, 0o644)
    record = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}"
              for path, (content, _) in files.items()]
    files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,", ""]).encode(), 0o644)
    return files


def write_wheel(path, files, when):
    stamp = time.gmtime(when)[:6]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for name, (content, mode) in files.items():
            entry = zipfile.ZipInfo(name, stamp)
            entry.external_attr, entry.compress_type, entry.create_system = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED, 3
            wheel.writestr(entry, content)


def write_tree(path, files, version, when):
    """A tarball that runs from any folder: what the wheel puts below the prefix."""
    top = path.name[:-len(".tar.gz")]
    places = {f"gpuspy-{version}.data/scripts": "bin", f"gpuspy-{version}.data/data/lib64": "lib", f"gpuspy-{version}.data/data": ".",
              f"gpuspy-{version}.dist-info/licenses": "licenses", "gpuspy": PYTHON + "/gpuspy", "pytest_gpuspy": PYTHON + "/pytest_gpuspy"}
    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, when) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, (content, mode) in sorted(files.items()):
            place = next((place for place in places if name.startswith(place + "/")), None)
            if not place:
                continue
            entry = tarfile.TarInfo(os.path.normpath(f"{top}/{places[place]}/{name[len(place) + 1:]}"))
            entry.size, entry.mtime, entry.mode = len(content), when, mode
            archive.addfile(entry, io.BytesIO(content))


def write_debug(path, debug, when):
    with tarfile.open(path, "w:xz", preset=6) as archive:
        for name, content in sorted(debug.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), when, 0o644
            archive.addfile(entry, io.BytesIO(content))


def main(build, dist, version, arch, objcopy="objcopy", gpuspy=None):
    build, dist = Path(build), Path(dist)
    stripped = Stripped(objcopy)
    files = contents(build, version, arch, stripped, gpuspy or build / "gpuspy")
    dist.mkdir(parents=True, exist_ok=True)
    wheel = dist / f"gpuspy-{version}-py3-none-manylinux_2_28_{arch}.whl"
    write_wheel(wheel, files, epoch())
    write_tree(dist / f"gpuspy-{version}-linux-{arch}.tar.gz", files, version, epoch())
    write_debug(dist / f"gpuspy-{version}-debug-{arch}.tar.xz", stripped.debug, epoch())
    size = wheel.stat().st_size
    if size > SIZE_MOST:
        sys.exit(f"wheel: {wheel} has {size} bytes, more than {SIZE_MOST}")
    print(f"{wheel}: {size / MIB:.2f} MiB")


if __name__ == "__main__":
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
