"""The driver's part in a case: settings of the process (SETTINGS), acts while it runs (MEETINGS)."""
import fcntl
import os
import shutil
import subprocess


def full_pipe():
    """A full pipe without a reader."""
    ends = os.pipe()
    os.set_blocking(ends[1], False)
    try:
        while True:
            os.write(ends[1], b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(ends[1], True)
    return ends


def root():
    return os.geteuid() == 0


def quiet_run(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


# --- settings: NAME → (weight, what it does to a Place); a case names them like behaviours: tmpfs=500 --------------

def tmpfs(place, kib):
    if root() and quiet_run("mount", "-t", "tmpfs", "-o", f"size={max(kib, 4)}k", "none", str(place.database_folder)):
        place.mounted = place.bounded = True
        place.database_folder.chmod(0o777)


def ext4(place, kib):
    image = place.folder / "image"
    with open(image, "wb") as file:
        file.truncate((2048 + kib) * 1024)
    if root() and quiet_run("mkfs.ext4", "-q", "-O", "^has_journal" if kib % 2 else "has_journal", str(image)) \
            and quiet_run("mount", "-o", "loop", str(image), str(place.database_folder)):
        place.mounted = place.bounded = True
        place.database_folder.chmod(0o777)


def no_folder(place, _):
    place.database_folder.rmdir()
    place.bounded = True


def set_variable(name, values):
    def setting(place, number):
        place.variables[name] = values[number % len(values)]
    return setting


def keep_deepbind(place, _):
    """Calls of a library that was opened with RTLD_DEEPBIND are not recorded then."""
    place.variables["GPUSPY_DEEPBIND"] = "keep"
    place.bounded = True


def flag(name):
    def setting(place, _):
        setattr(place, name, True)
    return setting


SETTINGS = {
    "raw": (3, flag("raw")),                    # a CUDA without locks
    "own_malloc": (1, flag("own_malloc")),
    "tmpfs": (2, tmpfs),                        # the recording on a tmpfs of so many KiB
    "ext4": (1, ext4),                          # on an ext4 of so many KiB
    "no_folder": (0.3, no_folder),
    "stacks": (2, set_variable("GPUSPY_STACKS", ["none", "native", "python"])),
    "deepbind": (0.5, keep_deepbind),
    "lock_order": (1, flag("lock_order")),      # lockorder.c watches
    "stdin_closed": (0.7, flag("stdin_closed")),
    "stdout_closed": (0.7, flag("stdout_closed")),
    "stderr_closed": (0.7, flag("stderr_closed")),
    "stderr_full": (0.7, flag("stderr_full")),  # a full pipe
    "stderr_full_nonblocking": (0.5, flag("stderr_full_nonblocking")),
}


# --- acts while the program runs ---------------------------------------------------------------------------------------

def files(place):
    return [p for p in place.database_folder.glob("*") if p.is_file()]


def truncate(part):
    def act(place):
        for path in files(place):
            os.truncate(path, int(path.stat().st_size * part))
    return act


def delete(which):
    def act(place):
        for path in files(place):
            if which(path):
                path.unlink(missing_ok=True)
    return act


def rename(place):
    for path in files(place):
        if path.suffix == ".db":
            path.rename(path.with_name("moved-" + path.name))


def replace(place):
    for path in files(place):
        path.unlink(missing_ok=True)
        path.write_bytes(b"somebody else's file\n" * 100)


def fill(place):
    if not place.mounted:
        return
    with open(place.database_folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def remove_folder(place):
    if not place.mounted:
        shutil.rmtree(place.database_folder, ignore_errors=True)


def unmount(place):
    if place.mounted:
        quiet_run("umount", "-l", str(place.database_folder))


def read_only(place):
    if place.mounted:
        quiet_run("mount", "-o", "remount,ro", str(place.database_folder))


MEETINGS = {
    "truncate to half": truncate(0.5),
    "truncate to nothing": truncate(0),
    "delete all": delete(lambda path: True),
    "delete the database": delete(lambda path: path.suffix == ".db"),
    "delete the others": delete(lambda path: path.suffix != ".db"),
    "rename": rename,
    "replace": replace,
    "fill": fill,
    "remove the folder": remove_folder,
    "unmount": unmount,
    "read-only": read_only,
}


# --- the descriptors that a program starts with ------------------------------------------------------------------------

def prepare_descriptors(place):
    """Runs in the child before exec; 1 and 2 are the files of the result."""
    if place.stderr_full or place.stderr_full_nonblocking:
        read_end, write_end = place.pipe
        os.dup2(write_end, 2)
        os.set_inheritable(read_end, False)
        if place.stderr_full_nonblocking:
            fcntl.fcntl(2, fcntl.F_SETFL, fcntl.fcntl(2, fcntl.F_GETFL) | os.O_NONBLOCK)
    for name, fd in (("stdin_closed", 0), ("stdout_closed", 1), ("stderr_closed", 2)):
        if getattr(place, name):
            os.close(fd)
