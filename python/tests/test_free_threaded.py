"""Threads that make and use far arrays at the same time; without the global lock where there is such a Python."""

import pathlib
import shutil
import subprocess
import sys
import unittest

import farheap
from far_memory import only_in_process

# Each thread has blocks of its own, beside threads that have none, and verifies what it has written after others have
# pushed it out.
PROGRAM = """
import sys, threading
import farheap, numpy
wrong = []
def work(number, inside):
    for step in range(6):
        if inside:
            with farheap.memory(local="32M", far="memory:"):
                arrays = [numpy.full(1 << 18, number * 1000 + step * 10 + i) for i in range(8)]
        else:
            arrays = [numpy.full(1 << 18, number * 1000 + step * 10 + i) for i in range(8)]
        for i, array in enumerate(arrays):
            if farheap.is_far(array) != inside or not (array == number * 1000 + step * 10 + i).all():
                wrong.append((number, step, i))
threads = [threading.Thread(target=work, args=(n, n % 3 != 0)) for n in range(6)]
for one in threads: one.start()
for one in threads: one.join()
print("wrong", wrong, "locked", getattr(sys, "_is_gil_enabled", lambda: True)())
"""


def free_threaded():
    """An interpreter without the global lock that has NumPy, or None."""
    for minor in range(13, 20):
        found = shutil.which(f"python3.{minor}t")
        if found and subprocess.run([found, "-c", "import numpy"], capture_output=True).returncode == 0:
            return found
    return None


@only_in_process
class ThreadsAtOnce(unittest.TestCase):
    def check(self, python, locked):
        package = pathlib.Path(farheap.__file__).parents[1]
        program = f"import sys; sys.path.insert(0, {str(package)!r})\n{PROGRAM}"
        done = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, done.stdout), (0, f"wrong [] locked {locked}\n"), done.stderr)

    def test_with_the_global_lock(self):
        self.check(sys.executable, getattr(sys, "_is_gil_enabled", lambda: True)())

    def test_without_the_global_lock(self):
        python = free_threaded()
        if python is None:
            self.skipTest("no free-threaded Python with NumPy here (python3.13t or later)")
        self.check(python, False)


if __name__ == "__main__":
    unittest.main()
