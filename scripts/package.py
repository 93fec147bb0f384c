#!/usr/bin/env python3
"""Makes dist/gpuspy_VERSION_ARCH.deb or dist/gpuspy-VERSION-1.ARCH.rpm of the wheel's binaries, which need glibc 2.28 and
no other library. Two runs on one commit write the same bytes.

    scripts/package.py deb|rpm BUILD DIST VERSION ARCH [OBJCOPY [GPUSPY]]

GPUSPY is a gpuspy that runs here, for man pages and completions. Below /usr: bin/gpuspy, lib/gpuspy with the recorder, the
simulated driver and the Python package (of Jupyter's kernel), share/man, completions, share/doc/gpuspy.
"""
import gzip
import os
import shutil
import subprocess
import sys
import time
from email.utils import formatdate
from pathlib import Path

import wheel

NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
SUMMARY = "records and explains the GPU memory of a program"
TEXT = ["gpuspy records which line of a program allocated GPU memory, copied data and",
        "waited for the GPU, without changes to the program, and explains afterwards",
        "why it ran out of memory. It reads Python and native call stacks, knows",
        "PyTorch's caching allocator, and has a simulated driver for machines without a",
        "GPU."]
MAINTAINER = "The gpuspy authors <gpuspy@users.noreply.github.com>"

# Before the package is removed: what Python compiled of its files, if root recorded a dry run. rpm runs Lua itself: a
# container without a shell can remove the package, and it needs nothing but glibc.
REMOVE = "rm -rf /usr/lib/gpuspy/sim/python/__pycache__ /usr/lib/gpuspy/python/*/__pycache__"
REMOVE_LUA = """\
for _, folder in ipairs({"sim/python", "python/gpuspy", "python/pytest_gpuspy"}) do
  local cache = "/usr/lib/gpuspy/" .. folder .. "/__pycache__"
  for _, name in ipairs(posix.dir(cache) or {}) do
    os.remove(cache .. "/" .. name)
  end
  posix.rmdir(cache)
end"""


def pack(text):
    return gzip.compress(text, 9, mtime=0)


def below_usr(build, gpuspy, stripped, zsh, version):
    """Path below /usr → (content, mode)."""
    files = {"bin/gpuspy": (stripped.read(build / "gpuspy"), 0o755)}
    for path, (content, _) in wheel.installed(build, stripped).items():
        name = "lib/gpuspy/libgpuspy.so" if path == "lib/libgpuspy.so" else path
        files[name] = (content, 0o644)
    for path, content in wheel.python_packages(version).items():
        files[f"{wheel.PYTHON}/{path}"] = content
    for path, (content, mode) in wheel.documents(gpuspy).items():
        name = path.replace("zsh/site-functions", zsh)
        files[name + ".gz" if name.endswith(".1") else name] = (pack(content) if name.endswith(".1") else content, mode)
    return files


def write_tree(root, files, when):
    shutil.rmtree(root, ignore_errors=True)
    for path, (content, mode) in files.items():
        target = root / "usr" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    for folder, _, names in os.walk(root, topdown=False):
        os.chmod(folder, 0o755)
        for path in [Path(folder, name) for name in names] + [folder]:
            os.utime(path, (when, when))


def copyright_text(build):
    """Machine-readable; then the terms of what is linked in, each as Debian has it."""
    own, *linked = wheel.licenses(build).items()
    lines = own[1].decode().splitlines()
    text = ["Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/", "Upstream-Name: gpuspy",
            "Source: built from gpuspy's sources by make deb", "", "Files: *", f"Copyright: {lines[2].removeprefix('Copyright (c) ')}",
            "License: Expat", "", "License: Expat", *(" " + (line or ".") for line in lines[4:]), ""]
    return "\n".join(text).encode(), {name: content for name, content in linked}


def write_deb(build, dist, version, arch, files, when):
    root = build / "deb"
    own, linked = copyright_text(build)
    doc = "share/doc/gpuspy"
    changes = (f"gpuspy ({version}) unstable; urgency=medium\n\n  * Built from the sources of this version.\n\n"
               f" -- {MAINTAINER}  {formatdate(when)}\n")
    files.update({f"{doc}/copyright": (own, 0o644), f"{doc}/changelog.gz": (pack(changes.encode()), 0o644)})
    files.update({f"{doc}/linked/{name}": (text, 0o644) for name, text in linked.items()})
    files["share/lintian/overrides/gpuspy"] = ((wheel.ROOT / "scripts/lintian-overrides").read_bytes(), 0o644)
    write_tree(root, files, when)
    control = [f"Package: gpuspy", f"Version: {version}", f"Architecture: {NAMES[arch]}", f"Maintainer: {MAINTAINER}",
               f"Installed-Size: {sum(len(content) + 1023 for content, _ in files.values()) // 1024}",
               "Depends: libc6 (>= 2.28)", "Suggests: python3", "Section: devel", "Priority: optional",
               f"Description: {SUMMARY}", *(" " + line for line in TEXT), ""]
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text("\n".join(control))
    sums = wheel.output("md5sum", *sorted(p.relative_to(root) for p in root.glob("usr/**/*") if p.is_file()), cwd=root)
    (root / "DEBIAN/md5sums").write_bytes(sums)
    (root / "DEBIAN/prerm").write_text(f"#!/bin/sh\nset -e\n{REMOVE}\n")
    for path in *sorted((root / "DEBIAN").iterdir()), root / "DEBIAN":
        os.chmod(path, 0o755 if path.is_dir() or path.name == "prerm" else 0o644)
        os.utime(path, (when, when))
    target = dist / f"gpuspy_{version}_{NAMES[arch]}.deb"
    wheel.output("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, target,
                 env={**os.environ, "SOURCE_DATE_EPOCH": str(when)})
    return target


SPEC = """\
%global debug_package %{{nil}}
%global _build_id_links none
%global __os_install_post %{{nil}}
%global _buildhost localhost
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _binary_payload w9.xzdio
Name: gpuspy
Version: {version}
Release: 1
Summary: {summary}
License: MIT
# The simulated libraries must not satisfy what asks for NVIDIA's.
AutoReqProv: no
Requires: glibc >= 2.28
%description
{text}
%preun -p <lua>
{remove}
%files
%defattr(-,root,root,-)
{files}
%changelog
* {date} {maintainer} - {version}-1
- Built from the sources of this version.
"""


def write_rpm(build, dist, version, arch, files, when):
    files.update({f"share/licenses/gpuspy/{name}": (text, 0o644) for name, text in wheel.licenses(build).items()})
    top = (build / "rpm").absolute()
    root = top / "root"
    write_tree(root, files, when)
    # Also the shells' folders, which no other package may have: rpm removes only folders that a package lists.
    kept = {"gpuspy", "bash-completion", "fish", "zsh"}
    own = sorted(p for p in root.glob("usr/**/*") if p.is_dir() and kept & set(p.relative_to(root).parts))
    listed = [f"%dir /{p.relative_to(root)}" for p in own] + [f"/usr/{path}" for path in sorted(files)]
    (top / "gpuspy.spec").write_text(SPEC.format(version=version, summary=SUMMARY, text="\n".join(TEXT), files="\n".join(listed), remove=REMOVE_LUA,
                                                 maintainer=MAINTAINER, date=time.strftime("%a %b %d %Y", time.gmtime(when))))
    # rpmbuild empties its build root first: the files come from a copy
    spec = (top / "gpuspy.spec").read_text().replace("%files", f"%install\ncp -a {root}/. %{{buildroot}}/\n%files", 1)
    (top / "gpuspy.spec").write_text(spec)
    wheel.output("rpmbuild", "-bb", "--quiet", "--target", arch, "--define", f"_topdir {top}/build", "--define", f"_rpmdir {top}",
                 top / "gpuspy.spec", env={**os.environ, "SOURCE_DATE_EPOCH": str(when), "LC_ALL": "C", "TZ": "UTC"},
                 stderr=subprocess.STDOUT)
    target = dist / f"gpuspy-{version}-1.{arch}.rpm"
    shutil.move(top / arch / target.name, target)
    return target


def main(kind, build, dist, version, arch, objcopy="objcopy", gpuspy=None):
    build, dist = Path(build), Path(dist)
    stripped = wheel.Stripped(objcopy)
    zsh = "zsh/vendor-completions" if kind == "deb" else "zsh/site-functions"
    files = below_usr(build, gpuspy or build / "gpuspy", stripped, zsh, version)
    dist.mkdir(parents=True, exist_ok=True)
    target = {"deb": write_deb, "rpm": write_rpm}[kind](build, dist, version, arch, files, wheel.epoch())
    print(f"{target}: {target.stat().st_size / wheel.MIB:.2f} MiB")


if __name__ == "__main__":
    if len(sys.argv) < 6 or sys.argv[1] not in ("deb", "rpm"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
