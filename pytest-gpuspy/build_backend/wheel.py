"""Makes the wheel of this pure Python package, with only the standard library (PEP 517, PEP 660)."""
import base64
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME, PACKAGE = "pytest_gpuspy", "pytest_gpuspy"


def project(key):
    """A line of pyproject.toml; Python 3.8 reads no TOML."""
    for line in (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith(key + " = "):
            return line.split(" = ", 1)[1].strip().strip('"')
    raise ValueError(f"pyproject.toml does not define {key}")


def metadata():
    lines = ["Metadata-Version: 2.1", "Name: pytest-gpuspy", f"Version: {project('version')}",
             f"Summary: {project('description')}", f"Requires-Python: {project('requires-python')}",
             "Requires-Dist: pytest>=6.2", "Classifier: Framework :: Pytest",
             "Description-Content-Type: text/markdown", "", (ROOT / "README.md").read_text(encoding="utf-8")]
    return "\n".join(lines)


def info():
    return f"{NAME}-{project('version')}.dist-info"


def files_of_info():
    return {
        f"{info()}/METADATA": metadata(),
        f"{info()}/WHEEL": "Wheel-Version: 1.0\nGenerator: pytest-gpuspy\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info()}/entry_points.txt": f"[pytest11]\ngpuspy = {PACKAGE}.plugin\n",
        f"{info()}/top_level.txt": PACKAGE + "\n",
    }


def write(directory, files):
    name = f"{NAME}-{project('version')}-py3-none-any.whl"
    records = []
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, text in files.items():
            data = text.encode("utf-8")
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            records.append(f"{path},sha256={digest},{len(data)}")
            wheel.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), data)
        records.append(f"{info()}/RECORD,,")
        wheel.writestr(zipfile.ZipInfo(f"{info()}/RECORD", (2020, 1, 1, 0, 0, 0)), "\n".join(records) + "\n")
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {f"{PACKAGE}/{path.name}": path.read_text(encoding="utf-8")
             for path in sorted((ROOT / PACKAGE).glob("*.py"))}
    return write(wheel_directory, {**files, **files_of_info()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return write(wheel_directory, {f"{NAME}.pth": f"{ROOT}\n", **files_of_info()})


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{project('version')}"
    paths = ["pyproject.toml", "README.md", "build_backend/wheel.py",
             *(f"{PACKAGE}/{path.name}" for path in sorted((ROOT / PACKAGE).glob("*.py")))]
    with tarfile.open(Path(sdist_directory) / f"{base}.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            archive.add(ROOT / path, f"{base}/{path}")
        data = metadata().encode("utf-8")
        member = tarfile.TarInfo(f"{base}/PKG-INFO")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return f"{base}.tar.gz"
