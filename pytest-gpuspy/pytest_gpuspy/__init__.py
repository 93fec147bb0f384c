"""Limits on the GPU memory, leaks and waits of tests, measured by gpuspy."""
__version__ = "0.1.0"
