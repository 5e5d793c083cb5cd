"""What an editor, a type checker and help() see of the package; and the words of its commands."""

import importlib.util
import inspect
import os
import pathlib
import pydoc
import re
import subprocess
import sys
import tempfile
import unittest

import farheap
from farheap._commands import _OPTIONS_WITH_VALUE, PROGRAMS, with_interpreter
from farheap._statistics import own_environment

PACKAGE = pathlib.Path(farheap.__file__).parent

# A program as a user writes it; the lines that end in "wrong" must be found, and no others.
TYPED = """
from typing import Iterator
import farheap

class Rows:
    def __len__(self) -> int:
        return 3

with farheap.memory(local="2G", far="zmem:"):
    pass
with farheap.memory(local=1 << 30):
    pass
with farheap.memory(budget="2G"):  # wrong
    pass

@farheap.memory(local="2G")
def job(count: int) -> float:
    return farheap.stats().waited_s + count

counted: farheap.Statistics = farheap.stats()
name: str = counted.far_bytes  # wrong
parts: Iterator[Rows] = farheap.scan(Rows(), rows=2)
numbers: Iterator[int] = farheap.scan(Rows())  # wrong
farheap.resize("3G")
farheap.resize(2.5)  # wrong
far: bool = farheap.is_far(Rows())
with farheap.watch(0.1):
    traced: farheap.Trace = farheap.trace("job.py", "-x", local="64M", show=False)
    print(traced.report.name, traced.exit_code + 1)
job("3")  # wrong
"""


class Interface(unittest.TestCase):
    def test_everything_public_is_documented(self):
        shown = pydoc.plain(pydoc.render_doc(farheap))
        for name in farheap.__all__:
            with self.subTest(name):
                item = getattr(farheap, name)
                first = inspect.getdoc(item).splitlines()[0]
                self.assertGreater(len(first), 20)
                self.assertIn(first, shown)
                if inspect.isfunction(item):
                    signature = inspect.signature(item)
                    self.assertIsNot(signature.return_annotation, inspect.Signature.empty)
                    for parameter in signature.parameters.values():
                        self.assertIsNot(parameter.annotation, inspect.Parameter.empty, parameter)
                        if parameter.name != "arguments":
                            self.assertRegex(inspect.getdoc(item), rf"\b{parameter.name}\b")
        self.assertEqual([name for name in dir(farheap) if not name.startswith("_") and name not in farheap.__all__
                          and not inspect.ismodule(getattr(farheap, name))], ["load_ipython_extension"])

    @unittest.skipIf(importlib.util.find_spec("mypy") is None, "mypy is not installed")
    def test_types(self):
        self.assertTrue((PACKAGE / "py.typed").exists())
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "program.py")
            program.write_text(TYPED)

            def check(*what):
                return subprocess.run([sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--cache-dir",
                                       folder, *what], capture_output=True, text=True,
                                      env=own_environment(), cwd=folder)

            own = check("-p", "farheap")
            self.assertEqual(own.returncode, 0, own.stdout + own.stderr)
            said = check(program)
        found = sorted({int(line) for line in re.findall(r"^program\.py:(\d+): error", said.stdout, re.M)})
        wrong = [number for number, line in enumerate(TYPED.splitlines(), 1) if line.endswith("wrong")]
        self.assertEqual(found, wrong, said.stdout + said.stderr)


class Commands(unittest.TestCase):
    def test_options_with_values(self):
        """Those of the commands, which this module has to know to find where the program begins."""
        there = set()
        for command in ("run", "trace"):
            text = subprocess.run([PROGRAMS / "farheap", command, "--help"], capture_output=True, text=True, check=True,
                                  env=own_environment()).stdout
            for names in re.findall(r"^  (-\S+) \S", text, re.M):
                there.update(names.split(","))
        there -= {"-h", "--help", "--local-each", "--verbose"}
        self.assertEqual(there, set(_OPTIONS_WITH_VALUE))

    def test_programs(self):
        python = sys.executable
        for words, expected in (
                ("run job.py -x", ["run", "--", python, "job.py", "-x"]),
                ("run --local 2G --verbose job.py", ["run", "--local", "2G", "--verbose", "--", python, "job.py"]),
                ("run --local=2G -m job -- -x", ["run", "--local=2G", "--", python, "-m", "job", "--", "-x"]),
                ("run --far zmem: -c pass", ["run", "--far", "zmem:", "--", python, "-c", "pass"]),
                ("run -", ["run", "--", python, "-"]),
                ("run -- ls -l", ["run", "--", "ls", "-l"]),
                ("trace -o folder job.py", ["trace", "-o", "folder", "--", python, "job.py"]),
                ("run --help", ["run", "--help"]),
                ("run", ["run"]), ("stats 5", ["stats", "5"]), ("", [])):
            with self.subTest(words):
                self.assertEqual(with_interpreter(words.split()), expected)

    def test_a_package_without_its_programs(self):
        done = subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[1]); import pathlib\n"
                               "from farheap import _commands\n_commands.PROGRAMS = pathlib.Path('/nonexistent')\n"
                               "_commands.run_farheap()", PACKAGE.parent], capture_output=True, text=True,
                              env={**os.environ, "LD_PRELOAD": ""})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "cannot be executed: No such file or directory; .* start Python in another folder")


if __name__ == "__main__":
    unittest.main()
