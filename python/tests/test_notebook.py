"""The parts that notebooks use, with as much of IPython as the package touches."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import farheap
import numpy
from far_memory import BUDGET, MIB
from farheap import _notebook


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
            return types.SimpleNamespace(success=False)
        return types.SimpleNamespace(success=True)


class Notebook(unittest.TestCase):
    def setUp(self):
        self.shell = Shell()
        farheap.load_ipython_extension(self.shell)

    def run_cell(self, line, cell):
        with contextlib.redirect_stderr(io.StringIO()):
            self.shell.magics["cell", "far"](line, cell)

    def test_cell(self):
        self.run_cell(f"--local {BUDGET} --far memory:", f"a = np.ones({MIB})")
        self.assertTrue(farheap.is_far(self.shell.names["a"]))
        self.run_cell("", f"b = np.ones({MIB})")
        self.assertTrue(farheap.is_far(self.shell.names["b"]))

    def test_what_goes_wrong(self):
        for line, cell, error in (("--wrong 3", "1", "write for example"), ("", "await x", "`await` of its own")):
            with self.assertRaisesRegex(farheap.FarheapError, error):
                self.run_cell(line, cell)
        with self.assertRaises(_notebook.CellFailed):
            self.run_cell("", "1 / 0")

    def test_kernel(self):
        with tempfile.TemporaryDirectory() as prefix, contextlib.redirect_stdout(io.StringIO()):
            with mock.patch("importlib.util.find_spec", return_value=None), self.assertRaisesRegex(SystemExit, "pip install"):
                _notebook.install_kernel(["--prefix", prefix])
            with mock.patch("importlib.util.find_spec"):
                _notebook.install_kernel(["--prefix", prefix, "--local", "2G"])
            spec = json.loads(pathlib.Path(prefix, "share/jupyter/kernels/farheap/kernel.json").read_text())
        self.assertEqual(spec["display_name"], "Python (farheap)")
        self.assertTrue(os.access(spec["argv"][0], os.X_OK))
        self.assertEqual(spec["argv"][1:7], ["-m", "farheap", "run", "--local", "2G", "--"])


if __name__ == "__main__":
    unittest.main()
