"""The Python package as a user meets it: the wheel in a fresh virtual environment, beside NumPy and pandas."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
import zipfile

import support

BUDGET = str(32 * support.MIB)

# Fills three times the budget, and says what it found in it.
JOB = """
import sys
blocks = [bytes([i]) * (1 << 20) for i in range(96)]
print(sum(block[i] for i, block in enumerate(blocks)), sys.argv[1:], sys.executable)
"""


# As a user who may not open a userfaultfd that serves system calls, too.
ORDINARY_USER = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
"""
NO_PERMISSION = ORDINARY_USER + """
import farheap, numpy
try:
    with farheap.memory(local="32M"):
        print("permitted")
except farheap.FarheapError as error:
    print(error)
"""
RUN_DOOR = ORDINARY_USER + """
os.execv(sys.executable, [sys.executable, "-m", "farheap", "run", "--local", "32M", "--far", "memory:", "-c",
    "import numpy; import farheap; a = numpy.arange(1 << 23); farheap.evict(a); print(int(a.sum()), farheap.stats().far_bytes > 0)"])
"""

NO_NUMPY = """
import sys
sys.modules["numpy"] = None  # as if it were not installed
import farheap
try:
    with farheap.memory():
        pass
except farheap.FarheapError as error:
    print(farheap.is_far(memoryview(b"bytes")[::-1]), error)
"""


class Package(unittest.TestCase):
    """One environment for all tests: Python itself, the package, and what build/venv-python has."""

    @classmethod
    def setUpClass(cls):
        support.need(support.VENV_OF_PACKAGE_PYTHON.exists(), f"there is no {support.VENV_OF_PACKAGE_PYTHON}; run "
                     "evaluation/apps/flights/setup build/venv-python python/tests/requirements.txt")
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        built = support.run([support.SOURCE / "scripts" / "make-wheel", support.BUILD, cls.folder])
        if built.code != 0:
            raise AssertionError(built)
        cls.wheel = pathlib.Path(built.out.strip())
        cls.python = cls.folder / "venv" / "bin" / "python"
        subprocess.run([support.VENV_OF_PACKAGE_PYTHON, "-m", "venv", "--without-pip", cls.folder / "venv"], check=True)
        subprocess.run([support.VENV_OF_PACKAGE_PYTHON, "-m", "pip", "--python", cls.python, "install", "--quiet", "--no-index",
                        "--no-deps", "--disable-pip-version-check", cls.wheel], check=True, capture_output=True,
                       env=dict(os.environ, PATH="/nonexistent"))  # no compiler, nor any other program
        packages = next((cls.folder / "venv" / "lib").glob("python3*/site-packages"))
        others = next(support.VENV_OF_PACKAGE_PYTHON.parents[1].glob("lib/python3*/site-packages"))
        (packages / "others.pth").write_text(f"{others}\n")

    def write(self, text):
        path = self.folder / f"{self.id().rsplit('.')[-1]}.py"
        path.write_text(text)
        return path

    def output_of(self, *words, prefix=()):
        outcome = support.run([*prefix, self.python, *words], environment={"PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(outcome.code, 0, outcome)
        return outcome

    def test_wheel(self):
        self.assertRegex(self.wheel.name, r"^farheap-\d+\.\d+\.\d+-py3-none-manylinux_2_\d\d_x86_64\.whl$")
        with zipfile.ZipFile(self.wheel) as wheel:
            names = wheel.namelist()
        for name in ("farheap/py.typed", "farheap/bin/farheapd", "farheap/lib/libfarheap-preload.so"):
            self.assertIn(name, names)
        version = self.output_of("-c", "import farheap; print(farheap.__version__)").out.strip()
        self.assertIn(f"-{version}-", self.wheel.name)

    def test_programs_need_nothing_of_the_system(self):
        folder = next((self.folder / "venv" / "lib").glob("python3*/site-packages/farheap"))
        for program in ("farheap", "farheapd"):
            listed = subprocess.run(["ldd", folder / "bin" / program], check=True, text=True, capture_output=True).stdout
            outside = [line for line in listed.splitlines() if "=> /" in line and str(folder) not in str(
                pathlib.Path(line.split()[2]).resolve()) and not line.strip().startswith(("libc.", "libm."))]
            self.assertEqual(outside, [], listed)

    def check_job(self, command):
        stats = self.folder / "stats.json"
        stats.unlink(missing_ok=True)
        job = self.write(JOB)
        outcome = self.output_of(*command(["run", "--local", BUDGET, "--far", "memory:", "--stats-json", stats], job))
        self.assertEqual(outcome.out, f"{sum(range(96))} ['-x', 'y'] {self.python}\n")
        self.assertGreater(json.loads(stats.read_text())["evicted_pages"], 0)

    def test_module_runs_a_script(self):
        self.check_job(lambda options, job: ["-m", "farheap", *options, job, "-x", "y"])

    def test_module_runs_a_program(self):
        self.check_job(lambda options, job: ["-m", "farheap", *options, "--", self.python, job, "-x", "y"])

    def test_command(self):
        self.check_job(lambda options, job: [self.python.with_name("farheap"), *options, "--", self.python, job, "-x", "y"])
        self.assertIn("--listen", self.output_of(self.python.with_name("farheapd"), "--help").out)

    def test_documentation(self):
        """The code of docs/python.md runs, from top to bottom, in both ways."""
        blocks = re.findall(r"^```python\n(.*?)^```$", (support.SOURCE / "docs/python.md").read_text(), re.M | re.S)
        self.assertGreaterEqual(len(blocks), 2)
        program = self.write("\n".join(blocks))
        for command in ([], ["-m", "farheap", "run", "--local", "32M", "--far", "memory:"]):
            with self.subTest(command):
                self.assertRegex(self.output_of(*command, program).out, r"^local .* of 32 MiB, far ")

    def test_suite(self):
        """The package's own tests, in a process with `farheap.memory()`, and under `farheap run`."""
        under_run = (self.python, "-m", "farheap", "run", "--local", BUDGET, "--far", "memory:", "--")
        for prefix in support.of_today([(), under_run]):
            with self.subTest(prefix=prefix):
                self.check_suite(prefix)

    def check_suite(self, prefix):
        outcome = support.run([*prefix, self.python, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider", "--durations", "8",
                               support.SOURCE / "python" / "tests"], environment={"PYTHONDONTWRITEBYTECODE": "1"},
                              deadline_s=400)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, r"\b\d\d+ passed")
        print(outcome.out[-3000:], flush=True)

    def test_without_permission(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        support.need(pathlib.Path("/proc/sys/vm/unprivileged_userfaultfd").read_text() == "0\n", "this machine permits it")
        self.folder.chmod(0o755)
        said = self.output_of("-c", NO_PERMISSION).out
        self.assertRegex(said, r"^no far memory: .*userfaultfd.*`farheap run`")

    def test_an_ordinary_user_runs_programs(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        self.folder.chmod(0o755)
        self.assertEqual(self.output_of("-c", RUN_DOOR).out, f"{sum(range(1 << 23))} True\n")

    def test_without_numpy(self):
        self.assertRegex(self.output_of("-c", NO_NUMPY).out, r"^False .*not installed; install numpy, or use `farheap run`\n$")

    def test_the_source_folder_is_not_a_package(self):
        """pip says what to do when it is given python/ itself."""
        done = subprocess.run([support.VENV_OF_PACKAGE_PYTHON, support.SOURCE / "python" / "setup.py", "--version"], text=True,
                              capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("run `make wheel`", done.stderr)


if __name__ == "__main__":
    support.main()
