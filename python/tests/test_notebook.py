"""The parts that notebooks use, with as much of IPython as the package touches."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import farheap
from far_memory import BUDGET, MIB, flights, only_in_process
from farheap import _notebook
from notebook_shell import Shell


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

    @only_in_process
    def test_example(self):
        """The cells of the example notebook run, in a process of their own: their far tier is not that of the tests."""
        flights()  # skips where the data is not
        folder = pathlib.Path(__file__).parent
        done = subprocess.run([sys.executable, folder / "notebook_shell.py", folder.parent / "examples" / "flights.ipynb"],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("MiB, far: True", done.stdout)
        self.assertIn(str(10 * int(flights()["distance"].sum())), done.stdout)  # the last cell's

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
