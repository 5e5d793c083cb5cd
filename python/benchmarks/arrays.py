#!/usr/bin/env python3
"""The cost of far memory for arrays: `arrays.py small` and `arrays.py large`, in an environment with NumPy and farheap.

small: the time to make an array of one size, in far memory and without, in turns, in one process; medians of rounds.
large: a job of walks, temporaries and a sort, natively, in a block of farheap.memory(), and under `farheap run`, with
a quarter of its peak as the budget, in turns, each in a process of its own; medians of runs. The far tier is memory:.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import time

import farheap
import numpy

FAR = "memory:"


def far_block():
    return farheap.memory(local="4G", far=FAR)


def time_of(body, count):
    started = time.perf_counter()
    for _ in range(count):
        body()
    return (time.perf_counter() - started) / count


def small(rounds):
    print(f"{'bytes':>10} {'made by':>8} {'local, us':>10} {'far, us':>10} {'ratio':>6}  spread")
    for size in (64, 1 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20):
        for name, make in (("empty", numpy.empty), ("ones", numpy.ones)):
            count = max(20, min(5000, (8 << 20) // size))
            pairs = []
            for _ in range(rounds + 1):
                local = time_of(lambda: make(size, numpy.uint8), count)
                with far_block():
                    pairs.append((local, time_of(lambda: make(size, numpy.uint8), count)))
            pairs = pairs[1:]
            ratios = sorted(far / local for local, far in pairs)
            local, far = (statistics.median(one) * 1e6 for one in zip(*pairs))
            print(f"{size:>10} {name:>8} {local:>10.2f} {far:>10.2f} {statistics.median(ratios):>6.2f}  "
                  f"{ratios[len(ratios) // 4]:.2f} to {ratios[-len(ratios) // 4]:.2f}", flush=True)


def job(count):
    """Some 5 times `count` * 8 bytes at its peak."""
    keys = numpy.arange(count, dtype=numpy.int64) * 2654435761 % 1000003
    values = numpy.sqrt(keys.astype(numpy.float64))
    total = 0.0
    for _ in range(3):
        total += float((values * 2 + keys).sum())
    order = numpy.argsort(keys[: count // 4])
    return total + float(values[: count // 4][order].sum())


def large(runs, count):
    budget = str(5 * 8 * count // 4)
    here = [sys.executable, __file__, "job", "--count", str(count)]
    ways = {"native": here, "farheap.memory()": [*here, "--local", budget]}
    for mode in ("thread", "inline"):
        ways[f"run, {mode}"] = [sys.executable, "-m", "farheap", "run", "--local", budget, "--far", FAR, "--fault-mode", mode,
                                *here[1:]]
    taken = {name: [] for name in ways}
    for _ in range(runs):
        for name, command in ways.items():
            done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            taken[name].append(float(done.stdout))
    native = statistics.median(taken["native"])
    for name, times in taken.items():
        print(f"{name:<18} {statistics.median(times):6.2f} s  {statistics.median(times) / native:5.2f}  "
              f"({min(times):.2f} to {max(times):.2f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmark", choices=("small", "large", "job"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--count", type=int, default=30_000_000, help="elements of the large arrays")
    parser.add_argument("--local", help="for job: the budget")
    chosen = parser.parse_args()
    if chosen.benchmark == "small":
        small(chosen.rounds)
    elif chosen.benchmark == "large":
        large(chosen.runs, chosen.count)
    else:
        with farheap.memory(local=chosen.local, far=FAR) if chosen.local else contextlib.nullcontext():
            started = time.perf_counter()
            job(chosen.count)
            print(time.perf_counter() - started)


if __name__ == "__main__":
    main()
