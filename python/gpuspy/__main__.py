"""python -m gpuspy: the program `gpuspy`, if it is not on PATH."""
import os
import sys

from gpuspy.reader import GpuspyError, program


def main() -> None:
    try:
        os.execv(program(), ["gpuspy", *sys.argv[1:]])
    except GpuspyError as error:
        sys.exit(f"gpuspy: {error}")


main()
