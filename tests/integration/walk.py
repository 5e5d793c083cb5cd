"""A program that is busy with its memory under farheap, for tests that change the world around it."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading

import support

# The memory of a process besides the far heap's frames: code, stacks, the runtime's own memory.
OVERHEAD_BYTES = 64 * support.MIB


class Walk:
    """The program `walker` under farheap. Use it in a `with` statement, which ends it."""

    def __init__(self, mib, budget_bytes, environment=None, far="file:", mode=None, cgroup=None):
        self.directory = tempfile.TemporaryDirectory()
        self.stats_path = pathlib.Path(self.directory.name, "stats.json")
        self.errors = open(pathlib.Path(self.directory.name, "errors"), "w+")
        program = [support.PROGRAMS / "walker", mib]
        self.process = support.start(
            support.farheap_command(program, budget_bytes, far, mode, self.stats_path), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            env=dict(os.environ, **(environment or {})), preexec_fn=cgroup.join if cgroup else None)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(iter(self.process.stdout.readline, "")))
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        support.end(self.process)
        self.process.wait(support.DEADLINE_S)
        self.reader.join(support.DEADLINE_S)
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()
        self.directory.cleanup()

    def pid(self):
        text = support.wait_until(lambda: self.lines[0] if self.lines else None, "the walker's first line",
                                  process=self.process)
        return int(re.fullmatch(r"pid (\d+)\n", text)[1])

    def wait_for_passes(self, count):
        """Until the walker has gone `count` more times over all of its memory."""
        wanted = len(self.lines) + count
        support.wait_until(lambda: len(self.lines) >= wanted, f"{count} more passes",
                           process=self.process)

    def wait_for_resident(self, condition, expected, beside=(), deadline_s=support.DEADLINE_S):
        """`beside`: other walks that have a part in it; they are in the message of a failure, too."""
        try:
            support.wait_until(lambda: condition(support.resident_bytes(self.pid())), expected, deadline_s, self.process)
        except TimeoutError as error:
            raise AssertionError("; ".join([str(error), *(walk.described() for walk in (self, *beside))])) from error

    def described(self):
        if self.process.poll() is not None:
            return f"it has ended: {self.error_text()}"
        counters = support.run([support.FARHEAP, "stats", self.pid()])
        return f"it holds {support.resident_bytes(self.pid()) >> 20} MiB: {counters.out}{counters.err}{self.error_text()}"

    def error_text(self):
        return pathlib.Path(self.errors.name).read_text()

    def finish(self):
        """Tells the walker to stop. Returns how it went."""
        self.process.stdin.close()
        self.process.stdin = open("/dev/null")
        return self.wait_for_end()

    def wait_for_end(self):
        """Until the walker ends, by itself. Returns how it went."""
        self.process.wait(support.DEADLINE_S)
        self.reader.join(support.DEADLINE_S)
        stats = json.loads(self.stats_path.read_text()) if self.stats_path.exists() else None
        return support.Outcome(self.process.returncode, "".join(self.lines), self.error_text(), 0, stats)
