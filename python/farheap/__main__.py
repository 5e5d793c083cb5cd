"""``python -m farheap``: the command ``farheap``, which runs a Python script with this interpreter; and ``kernel``."""

import sys

from ._commands import execute, with_interpreter
from ._notebook import install_kernel

if __name__ == "__main__":
    if sys.argv[1:2] == ["kernel"]:
        install_kernel(sys.argv[2:])
    else:
        execute("farheap", with_interpreter(sys.argv[1:]))
