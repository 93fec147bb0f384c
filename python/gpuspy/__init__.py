"""Reads gpuspy's recordings, and marks phases of a program in them.

    import gpuspy
    run = gpuspy.open("run.db")
    run.peak, run.ooms, run.report(), run.table("allocations")

    with gpuspy.scope("load"):        # no effect in a program that is not recorded
        model = load()

PYTEST_DONT_REWRITE: pytest would warn if a notebook had imported this package before.
"""
from typing import Any

from gpuspy.marks import mark, scope
from gpuspy.reader import GpuspyError, Recording, open
from pytest_gpuspy import __version__

__all__ = ["GpuspyError", "Recording", "mark", "open", "scope", "load_ipython_extension", "__version__"]


def load_ipython_extension(shell: Any) -> None:
    """%load_ext gpuspy"""
    from gpuspy import notebook
    notebook.register(shell)
