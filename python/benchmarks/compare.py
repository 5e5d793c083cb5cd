#!/usr/bin/env python3
"""One job over arrays that do not fit: far memory beside numpy.memmap, Dask and the kernel's swap.

    compare.py [--count N] [--share 25] [--runs 3] [--far TIER] [--make-swap]
                                                       in an environment with NumPy and farheap; Dask and swap if there

The job makes two columns of N numbers, walks over them, groups one by the other, and sorts a part; each way computes
the same result, which is compared. `native` has all memory. The others have SHARE percent of its peak:

    farheap.memory()    the budget of a block; the far tier is a file, or TIER: beside swap in RAM, memory: is its equal
    farheap run         the same for the whole program
    numpy.memmap        the arrays are files, and the program goes through them by pieces, as its temporaries would not
                        fit; in a memory cgroup of that limit, so that the page cache counts
    dask.array          chunks of a 16th, in such a cgroup; computed block by block, nothing kept
    swap                the program as it is, in such a cgroup, on the swap that the machine has; with --make-swap, as
                        root, on a loop device over a file in RAM that exists while the script runs (ram_swap.py)

A way that this machine does not allow is named with the reason. Prints medians, spread, and the ratio to native.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from ram_swap import SwapError, swap_in_ram

MIB = 1 << 20
GROUPS = 1000
PIECE = 1 << 20  # rows
KEY_FACTOR = 2654435761
PR_SET_PDEATHSIG = 1
SAME = 1e-9  # sums are added in other orders


def columns(count, make):
    """Keys and values, filled by pieces so that no temporary is large."""
    import numpy

    keys, values = make("keys", numpy.int64), make("values", numpy.float64)
    for first in range(0, count, PIECE):
        places = numpy.arange(first, min(first + PIECE, count), dtype=numpy.int64)
        keys[first:first + PIECE] = places * KEY_FACTOR % 1_000_003
        values[first:first + PIECE] = numpy.sqrt(keys[first:first + PIECE])
    return keys, values


def work(keys, values, step=None):
    """Walks, a grouping, temporaries and a sort. Without `step` as a program writes it that knows of no limit."""
    import numpy

    step = step or len(keys)
    total = 0.0
    sums = numpy.zeros(GROUPS)
    for _ in range(2):
        for first in range(0, len(keys), step):
            total += float((values[first:first + step] * 2 + keys[first:first + step]).sum())
    for first in range(0, len(keys), step):
        sums += numpy.bincount(keys[first:first + step] % GROUPS, weights=values[first:first + step], minlength=GROUPS)
    order = numpy.argsort(keys[: len(keys) // 4], kind="stable")
    return total + float(sums.max()) + float(values[: len(keys) // 4][order][::1000].sum())


def job_in_memory(count):
    import numpy

    return work(*columns(count, lambda name, kind: numpy.empty(count, kind)))


def job_memmap(count, folder):
    import numpy

    def make(name, kind):
        return numpy.memmap(pathlib.Path(folder, name), kind, "w+", shape=(count,))

    return work(*columns(count, make), step=PIECE)


def job_dask(count):
    """The same, as a user of Dask writes it. A sort over chunks is none of its own, so that part goes to NumPy."""
    import dask
    import dask.array as da
    import numpy

    with dask.config.set(scheduler="single-threaded"):
        places = da.arange(count, chunks=max(count // 16, 1), dtype=numpy.int64)
        keys = places * KEY_FACTOR % 1_000_003
        values = da.sqrt(keys.astype(numpy.float64))
        total = 0.0
        for _ in range(2):
            total += float((values * 2 + keys).sum().compute())
        sums = da.bincount(keys % GROUPS, weights=values, minlength=GROUPS).compute()
        part, of_part = keys[: count // 4].compute(), values[: count // 4].compute()
        order = numpy.argsort(part, kind="stable")
        return total + float(sums.max()) + float(of_part[order][::1000].sum())


def run_job(chosen):
    """The child: prints seconds, the result, and its peak."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        if chosen.job == "memmap":
            result = job_memmap(chosen.count, folder)
        elif chosen.job == "dask":
            result = job_dask(chosen.count)
        elif chosen.job == "block":
            import farheap

            with farheap.memory(local=chosen.local, far=chosen.far or f"file:{folder}"):
                result = job_in_memory(chosen.count)
        else:
            result = job_in_memory(chosen.count)
    print(time.perf_counter() - started, result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


class Limit:
    """A memory cgroup for one child, of version 2 or 1. Requires root; raises OSError where there is none."""

    def __init__(self, limit_bytes, with_swap):
        root = pathlib.Path("/sys/fs/cgroup")
        modern = (root / "cgroup.controllers").exists()
        self.folder = (root if modern else root / "memory") / f"farheap-compare-{os.getpid()}"
        self.folder.mkdir()
        try:
            (self.folder / ("memory.max" if modern else "memory.limit_in_bytes")).write_text(str(limit_bytes))
            if modern and not with_swap:
                (self.folder / "memory.swap.max").write_text("0")
        except OSError:
            self.close()
            raise

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def close(self):
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def end_in_order(*_):
    sys.exit("compare: ended by a signal")


def has_swap():
    return len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1


def ways(chosen, budget):
    """(name, command, limit in bytes or None), or (name, reason)."""
    here = [sys.executable, __file__, "--count", str(chosen.count), "--folder", chosen.folder, "--local", str(budget),
            *(["--far", chosen.far] if chosen.far else []), "--job"]
    yield "native", [*here, "memory"], None
    yield "farheap.memory()", [*here, "block"], None
    for mode in ("thread", "inline"):
        yield (f"farheap run, {mode}", [sys.executable, "-m", "farheap", "run", "--local", str(budget), "--far",
                                         chosen.far or f"file:{chosen.folder}", "--fault-mode", mode, *here[1:], "memory"], None)
    yield "numpy.memmap", [*here, "memmap"], budget
    if importlib.util.find_spec("dask") is None:
        yield "dask.array", "Dask is not installed here; pip install 'dask[array]'"
    else:
        yield "dask.array", [*here, "dask"], budget
    if has_swap():
        yield "swap", [*here, "memory"], budget
    else:
        yield "swap", "the machine has none; see swapon(8), or --make-swap"


def run_once(command, limit_bytes, with_swap, patience_s):
    """Seconds, result and peak of a child, or the reason why not. The child ends with this process."""
    try:
        limit = Limit(limit_bytes, with_swap) if limit_bytes is not None else None
    except OSError as error:
        return f"no memory cgroup can be made: {error}"
    def begin():
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if limit:
            limit.enter()

    try:
        done = subprocess.run(command, text=True, capture_output=True, preexec_fn=begin, timeout=patience_s)
    except subprocess.TimeoutExpired:
        return f"it was given up after {patience_s} s"
    finally:
        if limit:
            limit.close()
    if done.returncode != 0:
        return f"it ended with {done.returncode}: {(done.stderr.strip().splitlines() or ['killed: out of memory'])[-1]}"
    return tuple(map(float, done.stdout.split()))


def compare(chosen):
    try:
        with contextlib.ExitStack() as undo:
            compare_all(chosen, undo)
    except SwapError as error:
        sys.exit(f"compare: {error}")


def compare_all(chosen, undo):
    first = run_once([sys.executable, __file__, "--count", str(chosen.count), "--folder", chosen.folder, "--job", "memory"], None,
                     False, chosen.patience)
    if isinstance(first, str):
        sys.exit(f"the job does not run: {first}")
    budget = int(first[2] * chosen.share / 100)
    print(f"peak {first[2] / MIB:.0f} MiB, limit {budget / MIB:.0f} MiB, {chosen.count} rows, medians of {chosen.runs} runs in turns")
    if chosen.make_swap and not has_swap():
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, end_in_order)
        undo.enter_context(swap_in_ram(int(first[2] * 1.25), budget))
    taken, reasons = {}, {}
    for _ in range(chosen.runs):
        for name, command, *limit in ways(chosen, budget):
            outcome = run_once(command, limit[0], name == "swap", chosen.patience) if limit else command
            print(f"compare: {name}: {outcome if isinstance(outcome, str) else f'{outcome[0]:.2f} s'}", file=sys.stderr, flush=True)
            if isinstance(outcome, str):
                reasons[name] = outcome
                continue
            if abs(outcome[1] - first[1]) > SAME * abs(first[1]):
                sys.exit(f"{name} computed {outcome[1]} and not {first[1]}")
            taken.setdefault(name, []).append(outcome[0])
    native = statistics.median(taken["native"])
    for name, times in taken.items():
        print(f"{name:<20} {statistics.median(times):7.2f} s  {statistics.median(times) / native:6.2f}  "
              f"({min(times):.2f} to {max(times):.2f})", flush=True)
    for name, reason in reasons.items():
        print(f"{name:<20} not measured: {reason}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000_000, help="rows")
    parser.add_argument("--share", type=int, default=25, help="of the native peak, in percent")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--patience", type=int, default=600, metavar="SECONDS", help="for one run of a job (default: %(default)s)")
    parser.add_argument("--make-swap", action="store_true", help="make swap in RAM for the comparison, as root")
    parser.add_argument("--far", metavar="TIER", help="where far memory is (default: a file in the folder)")
    parser.add_argument("--folder", default="/var/tmp", help="for files: of far memory, and of numpy.memmap")
    parser.add_argument("--job", choices=("memory", "block", "memmap", "dask"), help=argparse.SUPPRESS)
    parser.add_argument("--local", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    (run_job if chosen.job else compare)(chosen)


if __name__ == "__main__":
    main()
