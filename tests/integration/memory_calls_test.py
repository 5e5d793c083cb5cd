"""Random programs of memory calls (tests/memory_calls): the kernel's own behaviour is the model, natively and far.

Each day has seeds of its own, which are printed. FARHEAP_CALLS_SEED=N chooses others; FARHEAP_CALLS_SECONDS=N a time for
the random configurations (10 by default, 3600 in a soak); FARHEAP_CALLS_WITHOUT=NAMES what is left out besides. They are
not FARHEAP_FUZZ_...: those are libFuzzer's, and set to 0 where no fuzz target is to run.
"""

import datetime
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import tempfile
import time
import unittest

import support

PROGRAM = support.PROGRAMS / "memory_calls" / "memory_calls"
SEED = int(os.environ.get("FARHEAP_CALLS_SEED", datetime.date.today().toordinal() * 1000))
SECONDS = float(os.environ.get("FARHEAP_CALLS_SECONDS", 3600 if support.SOAK else 10))
DEADLINE_S = 300
ADDR_NO_RANDOMIZE = "setarch -R"  # the same addresses again, when a seed is repeated

# Left out in inline mode, which does not look at the targets of their pointers (docs/decisions/0005).
WITHOUT_INLINE = "ring,populate-read,populate-write"

POLICIES = ["2q", "second-chance", "fifo", "lru", "priority"]
DISABLED = ["", "", "", "move", "process_madvise", "pagemap", "exact_address", "membarrier", "io_uring"]


def configuration(chance):
    """Options of farheap and the environment: any combination that works."""
    far = chance.choice(["memory:", "memory:", "memory:?latency=20us", "memory:?latency=200us", "file:", "file:?direct=0"])
    options = ["--local", chance.choice(["16M", "16M", "24M", "64M"]), "--far", far,
               "--fault-mode", chance.choice(["thread", "thread", "inline"]), "--policy", chance.choice(POLICIES)]
    disabled = chance.choice(DISABLED)
    return options, {"FARHEAP_DISABLE": disabled} if disabled else {}


def program(seed, operations, inline, more=()):
    parts = (WITHOUT_INLINE if inline else "", os.environ.get("FARHEAP_CALLS_WITHOUT", ""))
    without = ",".join(part for part in parts if part)
    return [PROGRAM, "--seed", seed, "--operations", operations, "--without", without, *more]


def far_mappings(pid):
    """(start, end, resident bytes) of the far heap's mappings: the largest one, which is the part never used, and what
    lies below it without a gap. All of it is without reservation of swap space, so what is not is the kernel's: a
    thread's stack, for instance, that mlockall has filled."""
    found = []
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            found.append([int(place[1], 16), int(place[2], 16), 0])
        elif line.startswith("Rss:"):
            found[-1][2] = int(line.split()[1]) << 10
        elif line.startswith("VmFlags:") and "nr" not in line.split():
            found[-1][2] = 0
    at = max(range(len(found)), key=lambda i: found[i][1] - found[i][0])
    first = at
    while first > 0 and found[first - 1][1] == found[first][0]:
        first -= 1
    return found[first:at + 1]


class Accounting(unittest.TestCase):
    """The memory that is charged to the budget, against the frames that the kernel says are there."""

    # Blocks that malloc keeps for itself count (docs/run.md), and what the kernel maps there is not the budget's.
    NO_HEAP = "malloc,realloc,jump"
    SLACK_BYTES = 4 * support.MIB

    def stats(self, pid):
        answer = subprocess.run([support.FARHEAP, "stats", str(pid), "--json"], capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(answer.returncode, 0, answer.stderr)
        return json.loads(answer.stdout)

    def settled(self, process, budget_bytes, expected, holds):
        """Waits until the two accounts agree: pages may be on their way."""
        last = {}

        def agree():
            resident = sum(bytes for _, _, bytes in far_mappings(process.pid))
            last.update(self.stats(process.pid), resident_bytes=resident)
            return last["local_bytes"] <= budget_bytes and holds(last)

        try:
            support.wait_until(agree, expected, process=process)
        except TimeoutError as late:
            shown = {name: last.get(name) for name in ("local_bytes", "resident_bytes", "far_bytes", "budget_bytes")}
            self.fail(f"{late}: {shown}")

    def check(self, seed, options, environment):
        budget_bytes = 16 * support.MIB
        with tempfile.TemporaryDirectory() as folder:
            fifo = pathlib.Path(folder, "go")
            os.mkfifo(fifo)
            # Open all the time, for reading as well: a writer who opens it anew may find the reader of before, who is
            # about to close it, and the byte is gone; and a reader who finds the writer of before reads the end.
            gate = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)
            command = program(seed, 300, True, ["--quiet", fifo])
            command[command.index("--without") + 1] += "," + self.NO_HEAP
            process = support.start([*ADDR_NO_RANDOMIZE.split(), support.FARHEAP, "run", "--local", "16M", *options,
                                     "--", *command], stdout=subprocess.PIPE, text=True,
                                    env=dict(os.environ, **environment))
            try:
                command_line = shlex.join(map(str, process.args))
                self.assertEqual(process.stdout.readline(), "quiet: full\n", command_line)
                self.settled(process, budget_bytes, f"every frame is counted; {command_line}",
                             lambda now: now["resident_bytes"] <= now["local_bytes"] + self.SLACK_BYTES)
                os.write(gate, b"g")
                self.assertEqual(process.stdout.readline(), "quiet: empty\n", command_line)
                self.settled(process, budget_bytes, f"what is freed counts nowhere; {command_line}",
                             lambda now: max(now["local_bytes"], now["far_bytes"],
                                             now["resident_bytes"]) <= self.SLACK_BYTES)
                os.write(gate, b"g")
                self.assertEqual(process.wait(timeout=DEADLINE_S), 0, command_line)
            finally:
                os.close(gate)
                support.end(process)
                process.wait()
                process.stdout.close()

    def test_counts_are_those_of_the_kernel(self):
        for step, (mode, far) in enumerate([("thread", "memory:"), ("inline", "file:"), ("thread", "file:"),
                                            ("inline", "memory:")]):
            if step >= 2 and not support.SOAK:
                break
            self.check(SEED + step, ["--far", far, "--fault-mode", mode], {})


class MemoryCalls(unittest.TestCase):
    def run_one(self, command, environment=None, deadline_s=DEADLINE_S):
        words = [f"{name}={value}" for name, value in (environment or {}).items()]
        command_line = shlex.join([*words, *ADDR_NO_RANDOMIZE.split(), *map(str, command)])
        try:
            outcome = support.run([*ADDR_NO_RANDOMIZE.split(), *command], environment=environment, deadline_s=deadline_s)
        except TimeoutError as late:
            self.fail(f"hangs: {late}\nrepeat: {command_line}")
        self.assertEqual(outcome.code, 0, f"{outcome}\nrepeat: {command_line}")
        return outcome

    def test_natively(self):
        print(f"seed {SEED}", flush=True)
        self.run_one([PROGRAM, "--seed", SEED, "--seeds", 6, "--operations", 250])

    def test_configurations_by_chance(self):
        chance = random.Random(SEED)
        limit = time.monotonic() + SECONDS
        seed = SEED
        runs = 0
        while time.monotonic() < limit or runs == 0:
            options, environment = configuration(chance)
            more = ["--working-set", chance.choice([48, 64, 96])]
            if chance.random() < 0.2:
                more.append("--timer")
            command = program(seed, chance.choice([60, 120]) if not support.SOAK else 300, "inline" in options, more)
            if environment.get("FARHEAP_DISABLE") == "move":  # then devices may not use far memory
                command[command.index("--without") + 1] += ",direct,ring,pipe"
            self.run_one([support.FARHEAP, "run", *options, "--", *command], environment)
            seed += 1
            runs += 1
        print(f"{runs} programs from seed {SEED} on", flush=True)


if __name__ == "__main__":
    support.main()
