"""As much of IPython as the package touches; as a program, it runs the cells of a notebook: notebook_shell.py NOTEBOOK."""

import contextlib
import importlib.util
import json
import os
import pathlib
import sys
import traceback
import types
from unittest import mock

import farheap
import numpy


class Shell:
    """Stands in for IPython's."""

    def __init__(self):
        self.magics = {}
        self.names = {"np": numpy}

    def register_magic_function(self, function, magic_kind, magic_name):
        self.magics[magic_kind, magic_name] = function

    def transform_cell(self, cell):
        return cell

    def should_run_async(self, cell, *, transformed_cell):
        return "await" in transformed_cell

    def run_cell(self, cell):
        try:
            exec(cell, self.names)
        except Exception:  # noqa: BLE001  shown to the user
            traceback.print_exc()
            return types.SimpleNamespace(success=False)
        return types.SimpleNamespace(success=True)


@contextlib.contextmanager
def pictures():
    """matplotlib without a screen, or something in its place where it is not installed."""
    if importlib.util.find_spec("matplotlib") is not None:
        with mock.patch.dict(os.environ, MPLBACKEND="agg"):
            yield
        return
    package, pyplot = mock.MagicMock(), mock.MagicMock()
    package.pyplot = pyplot
    pyplot.subplots.return_value = mock.MagicMock(), mock.MagicMock()
    with (mock.patch.dict(sys.modules, {"matplotlib": package, "matplotlib.pyplot": pyplot}),
          mock.patch("pandas.DataFrame.plot", mock.MagicMock())):
        yield


def run_notebook(path):
    """Returns whether every cell of code has run."""
    shell = Shell()
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        first, _, rest = cell.partition("\n")
        if first.startswith("%%far"):
            shell.magics["cell", "far"](first.removeprefix("%%far"), rest)
            continue
        if first == "%load_ext farheap":
            farheap.load_ipython_extension(shell)
            cell = rest
        if not shell.run_cell(cell).success:
            return False
    return len(cells) > 0


if __name__ == "__main__":
    with pictures():
        sys.exit(0 if run_notebook(pathlib.Path(sys.argv[1])) else 1)
