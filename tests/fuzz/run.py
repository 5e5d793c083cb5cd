#!/usr/bin/env python3
"""Runs one libFuzzer target for FARHEAP_FUZZ_SECONDS (20), beginning with its seeds and its corpus.

    tests/fuzz/run.py build/fuzz/tests/fuzz_wire

Inputs that it finds on the way are kept beside the target, in fuzz-TARGET/found, so that the next run begins there. An
input that breaks the target ends the run; it is kept too, and the command that replays it is printed. Exits with 1
then.
"""

import collections
import os
import pathlib
import subprocess
import sys
import time

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"
LONGEST_INPUT = 16384
EXPECTED = "farheap: error: far tier "


def main():
    target = pathlib.Path(sys.argv[1]).resolve()
    seconds = int(os.environ.get("FARHEAP_FUZZ_SECONDS", "20"))
    work = target.parent / f"fuzz-{target.name}"
    found, seeds = work / "found", work / "seeds"
    for folder in (found, seeds):
        folder.mkdir(parents=True, exist_ok=True)
    start = time.time()
    command = [target, f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=2048", f"-max_len={LONGEST_INPUT}",
               f"-artifact_prefix={work}/broken-", "-print_final_stats=1", "-verbosity=1",
               found, seeds, *filter(pathlib.Path.is_dir, [CORPUS / target.name])]
    print(f"{target.name}: {seconds} s; its findings are kept in {found}", flush=True)
    # libFuzzer ends itself, also when one input takes too long.
    run = subprocess.Popen(command, env={**os.environ, "FARHEAP_FUZZ_SEEDS": str(seeds)}, text=True, errors="replace",
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    # A client says when it loses its session; under a fuzzer it does so all the time.
    lines = collections.deque((line for line in run.stdout if not line.startswith(EXPECTED)), maxlen=200)
    run.wait()
    if run.returncode == 0:
        print("".join(line for line in lines if line.startswith(("Done ", "stat::"))), end="")
        return
    print("".join(lines))
    for path in sorted(work.glob("broken-*")):
        if path.stat().st_mtime < start - 1:
            continue  # of an earlier run
        print(f"replay with: {target} {path}")
        print(f"once it is repaired, keep the input: install -D -t {CORPUS / target.name} {path}")
    sys.exit(f"{target.name}: broken, exit code {run.returncode}")


if __name__ == "__main__":
    main()
