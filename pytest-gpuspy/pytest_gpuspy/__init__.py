"""Limits on the GPU memory, leaks and waits of tests, measured by gpuspy.

PYTEST_DONT_REWRITE: pytest would warn if a program had imported this package before."""
__version__ = "0.1.0"
