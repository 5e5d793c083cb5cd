"""Where the program's output goes."""

import sys


def in_jupyter() -> bool:
    """Whether the program is cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return hasattr(shell, "kernel")
