"""The parts that notebooks use: alone, and in Jupyter."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import traceback
import types
import unittest
from unittest import mock

import farheap
import numpy
from far_memory import BUDGET, MIB, flights, only_in_process
from farheap import _notebook


class Shell:
    """Stands in for IPython's, with as much of it as the package touches."""

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
                for wrong in (["--local", "lots"], ["--far", "bogus:"]):
                    with self.assertRaisesRegex(SystemExit, "farheap: error: .*(write for example|the far tiers are)"):
                        _notebook.install_kernel(["--prefix", prefix, *wrong])
                with self.assertRaisesRegex(SystemExit, "cannot be written .* --prefix"):
                    _notebook.install_kernel(["--prefix", os.devnull])
                self.assertEqual(os.listdir(prefix), [])
                _notebook.install_kernel(["--prefix", prefix, "--local", "2G"])
            spec = json.loads(pathlib.Path(prefix, "share/jupyter/kernels/farheap/kernel.json").read_text())
        self.assertEqual(spec["display_name"], "Python (farheap)")
        self.assertTrue(os.access(spec["argv"][0], os.X_OK))
        self.assertEqual(spec["argv"][1:7], ["-m", "farheap", "run", "--local", "2G", "--"])


@only_in_process
@unittest.skipUnless(importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"),
                     "nbclient and ipykernel are not installed")
class Headless(unittest.TestCase):
    """Notebooks in Jupyter itself, without a browser."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        packages = os.pathsep.join(path for path in sys.path if path)
        self.enterContext(mock.patch.dict(os.environ, {
            "JUPYTER_PATH": f"{self.folder}/share/jupyter", "JUPYTER_RUNTIME_DIR": self.folder, "IPYTHONDIR": self.folder,
            "JUPYTER_CONFIG_DIR": self.folder, "PYTHONPATH": packages}))

    def run_cells(self, cells, kernel):
        """The cells' outputs: for each cell its texts, its HTML and the kinds of its pictures."""
        import nbclient
        import nbformat

        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        nbclient.NotebookClient(notebook, timeout=120, startup_timeout=120, kernel_name=kernel).execute()
        return [" ".join(json.dumps(output) for output in cell.outputs) for cell in notebook.cells]

    def test_cells_in_process(self):
        said = self.run_cells((
            "import farheap, numpy as np\n%load_ext farheap",
            f"%%far --local {BUDGET} --far memory:\na = np.arange({16 * MIB}); b = a * 2",
            "print(farheap.is_far(a), int(b[-1]))",
            "farheap.stats()"), "python3")
        self.assertRegex(said[1], "farheap: local .* of 32 MiB, far .* misses")
        self.assertIn(f"True {2 * (16 * MIB - 1)}", said[2])
        self.assertIn("<table>", said[3])

    def test_kernel_under_run(self):
        with contextlib.redirect_stdout(io.StringIO()):
            _notebook.install_kernel(["--prefix", self.folder, "--local", "64M", "--far", "memory:"])
        said = self.run_cells((
            "import farheap, numpy as np\na = np.ones(16 << 20); int(a.sum())",
            "print(farheap.is_far(a), farheap.stats().far_bytes > 16 << 20); farheap.resize('48M')",
            "farheap.stats().budget_bytes"), "farheap")
        self.assertIn(str(16 * MIB), said[0])
        self.assertIn("True True", said[1])
        self.assertIn(str(48 * MIB), said[2])

    def test_example(self):
        """The example notebook as it is, with its pictures."""
        flights()
        if importlib.util.find_spec("matplotlib") is None:
            self.skipTest("matplotlib is not installed")
        path = pathlib.Path(__file__).parents[1] / "examples" / "flights.ipynb"
        cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        said = self.run_cells(cells, "python3")
        self.assertGreaterEqual(sum("image/png" in text for text in said), 2)
        self.assertIn(str(10 * int(flights()["distance"].sum())), said[-1])


if __name__ == "__main__":
    unittest.main()
