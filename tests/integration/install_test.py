"""What is installed works for others: a small project outside (outside/) is built with it and run."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import support

OUTSIDE = support.SOURCE / "tests" / "integration" / "outside"
COMPILERS = {"gcc": ("gcc", "g++"), "clang": ("clang-19", "clang++-19")}
NO_USERFAULTFD = "cannot open a userfaultfd"


def run(*command, **environment):
    done = subprocess.run([str(part) for part in command], text=True, capture_output=True, timeout=support.DEADLINE_S,
                          stdin=subprocess.DEVNULL, env={**os.environ, **environment})
    if NO_USERFAULTFD in done.stderr:
        raise unittest.SkipTest(done.stderr.strip())
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def need_compiler(name):
    support.need(all(shutil.which(each) for each in COMPILERS[name]), f"no {COMPILERS[name][1]} on this machine")
    return COMPILERS[name]


class Installed(unittest.TestCase):
    """One prefix for all tests. No two words in its path by chance: nothing may depend on where it is."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", support.BUILD, "--prefix", cls.prefix)

    def build_outside(self, name, *options):
        """Configures and builds the outside project; returns its build folder."""
        folder = self.folder / name
        run("cmake", "-S", OUTSIDE, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", *options)
        run("cmake", "--build", folder)
        return folder

    def runs(self, folder):
        """Every program of the outside project does what it should."""
        for program in ("pointers-shared", "pointers-static"):
            self.assertRegex(run(folder / program), "^farheap [0-9.]+: right\n$")
        self.assertEqual(run(folder / "counting"), "4194304 of 4194304\n")
        self.assertEqual(run(folder / "hints"), "right\n")

    def test_by_find_package(self):
        for name in COMPILERS:
            with self.subTest(compiler=name):
                c_compiler, cxx_compiler = need_compiler(name)
                self.runs(self.build_outside(name, f"-DCMAKE_C_COMPILER={c_compiler}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                                             f"-DCMAKE_CXX_COMPILER={cxx_compiler}"))


if __name__ == "__main__":
    support.main()
