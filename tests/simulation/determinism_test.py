#!/usr/bin/env python3
"""A seed makes the same run whatever runs beside it and before it: in each world the digests of some seeds, one by one,
as the only seed of a process with one processor, heap blocks full of rubbish and a trace, add up to that of a process
with all of them in turn."""

import os
import re
import subprocess
import sys

FIRST_SEED = 101
SEEDS = 2
WORLDS = ([], ["--replicated"], ["--parity"], ["--network"])


def digest(program, arguments, **conditions):
    command = [program, *arguments, "--operations", "15"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, **conditions)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    found = re.search(r"digest ([0-9a-f]{16}),", done.stdout.splitlines()[-1])
    return int(found.group(1), 16)


def on_one_processor():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def one_by_one(program, world):
    total = 0
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        total += digest(program, [*world, "--seed", str(seed), "--verbose"],
                        env={**os.environ, "MALLOC_PERTURB_": "165"}, cwd="/", preexec_fn=on_one_processor)
    return total % 2**64


def main():
    program = os.path.abspath(sys.argv[1])
    failures = 0
    for world in WORLDS:
        together = digest(program, [*world, "--seed", str(FIRST_SEED), "--seeds", str(SEEDS)])
        alone = one_by_one(program, world)
        if alone == together and together != 0:
            continue
        failures += 1
        print(f"{' '.join(world) or 'plain'}: digest {together:016x} of the seeds in turn, {alone:016x} one by one")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
