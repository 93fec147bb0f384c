"""Collects the tests of a folder: its conftest.py imports pytest_collection."""
import fcntl
import os
import sys
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parent.parent / os.environ.get("O", "build")


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Rewriting the assertions of all tests takes most of a worker's start. The first worker stores the result beside the tests,
    and the others, which wait for it, read that."""
    lock = BUILD / "tests" / "collecting.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    stores_none = sys.dont_write_bytecode
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sys.dont_write_bytecode = False
        yield
    sys.dont_write_bytecode = stores_none
