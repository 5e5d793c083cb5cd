"""What the tests of the compile door have in common: the compilers, sources, and a folder for what they make."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import support

CLANG = support.BUILD / "bin" / "farheap-clang"
CLANGXX = support.BUILD / "bin" / "farheap-clang++"
SOURCES = support.SOURCE / "tests" / "compiler"
INCLUDE = support.SOURCE / "include"


def compiled(*arguments, expected=0, environment=None, folder=None):
    done = subprocess.run([str(one) for one in arguments], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **(environment or {})), cwd=folder, timeout=support.DEADLINE_S)
    if done.returncode != expected:
        raise AssertionError(f"{' '.join(map(str, arguments))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def functions_of(text, begin, end):
    """The text of each function, by its name."""
    return {match[1]: match[0] for match in re.finditer(begin + r".*?" + end, text, re.DOTALL | re.MULTILINE)}


class Directory(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.directory = pathlib.Path(cls.kept.name)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()
