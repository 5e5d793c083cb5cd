"""The common parts of the integration tests: where things are, running programs under a deadline, cgroups, skipping."""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("FARHEAP_BUILD", SOURCE / "build")).absolute()
FARHEAP = BUILD / "bin" / "farheap"
PROGRAMS = BUILD / "tests"
VENV_PYTHON = SOURCE / "build" / "venv" / "bin" / "python"
# The same with what the Python package works with: Arrow, Polars, Jupyter (python/tests/requirements.txt).
VENV_OF_PACKAGE_PYTHON = SOURCE / "build" / "venv-python" / "bin" / "python"
SOAK = os.environ.get("FARHEAP_SOAK") == "1"
DAY = int(time.time()) // 86_400  # where a run tests one of several ways, it is another one every day
MODES = ("thread", "inline")  # --fault-mode
MIB = 1 << 20
DEADLINE_S = 900 if SOAK else 240
# Of the programs beside which servers fail; in the memory that ProgramsBesideFailures leaves them.
VERIFIER_SIZES = ["--live-mib", "256" if SOAK else "96", "--largest-mib", "32" if SOAK else "16"]
SKIPPED = 77  # the exit code by which ctest knows that everything was skipped


@dataclasses.dataclass
class Outcome:
    """How a program ended. A negative code is the signal that ended it."""

    code: int
    out: str
    err: str
    peak_bytes: int
    stats: dict | None = None

    def __str__(self):
        return (f"exit code {self.code}\n--- standard output:\n{self.out[-3000:]}\n"
                f"--- standard error:\n{self.err[-3000:]}")


def of_today(ways, number=0):
    """All `ways` of a test in the soak; otherwise one of them, another one every day. `number`: its place among tests that
    do not all have the same one, so that every run sees each way in some of them."""
    return tuple(ways) if SOAK else (ways[(DAY + number) % len(ways)],)


def end(process):
    """Ends a process started by `start`, and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def start(command, **options):
    """Starts a program in a session of its own, so that `end` reaches its children."""
    return subprocess.Popen([str(part) for part in command], start_new_session=True, **options)


def run(command, environment=None, cgroup=None, deadline_s=DEADLINE_S):
    """Runs a program to its end and tells how it went. Raises TimeoutError, with what it printed, after deadline_s."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                        env=dict(os.environ, **(environment or {})), preexec_fn=cgroup.join if cgroup else None)
        limit = time.monotonic() + deadline_s
        late = False
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if not late and time.monotonic() > limit:
                late = True
                end(process)
            time.sleep(0.01)
        process.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    outcome = Outcome(process.returncode, *texts, usage.ru_maxrss * 1024)
    if late:
        raise TimeoutError(f"{' '.join(map(str, command))} did not end within {deadline_s} s; {outcome}")
    return outcome


def farheap_command(program, budget_bytes, far=None, mode=None, stats=None, policy=None):
    options = ["--local", str(budget_bytes)]
    for name, value in [("--far", far), ("--fault-mode", mode), ("--stats-json", stats), ("--policy", policy)]:
        options += [name, str(value)] if value else []
    return [FARHEAP, "run", *options, "--", *program]


def run_far(program, budget_bytes, far=None, mode=None, policy=None, **options):
    """Runs a program under farheap. The statistics are those of the program itself, None if it left none."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "stats.json")
        outcome = run(farheap_command(program, budget_bytes, far, mode, path, policy), **options)
        if path.exists():
            outcome.stats = json.loads(path.read_text())
    return outcome


def wait_until(condition, expected, deadline_s=DEADLINE_S, process=None):
    """Waits for a condition and returns it. Raises TimeoutError at the deadline, or when the process has ended."""
    limit = time.monotonic() + deadline_s
    while not (value := condition()):
        if process and process.poll() is not None:
            raise TimeoutError(f"the program ended, with code {process.returncode}, before {expected}")
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {deadline_s} s: {expected}")
        time.sleep(0.02)
    return value


_reserved = []  # sockets


def reserve_port(*more_addresses):
    """A port of the loopback interface for one server after another, as long as this program runs: of 127.0.0.1, and of
    these addresses. It is bound, though not listened on, so the kernel gives it to nobody who asks for any port, or who
    connects. A server that names it may listen there, because both say SO_REUSEADDR, as servers do."""
    while True:
        port = 0
        held = []
        try:
            for address in ("127.0.0.1", *more_addresses):
                held.append(socket.socket())
                held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held[-1].bind((address, port))
                port = held[0].getsockname()[1]
            _reserved.extend(held)
            return port
        except OSError as taken:
            for one in held:
                one.close()
            if taken.errno != errno.EADDRINUSE or port == 0:
                raise


def resident_bytes(pid):
    """The physical memory that a process holds now."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Cgroup:
    """A memory cgroup with a limit and no swap, of either version. Use it in a `with` statement, which removes it."""

    V1 = pathlib.Path("/sys/fs/cgroup/memory")
    V2 = pathlib.Path("/sys/fs/cgroup")

    def __init__(self, limit_bytes):
        self.limit_bytes = limit_bytes
        self.path = None

    def __enter__(self):
        name = f"farheap-test-{os.getpid()}"
        try:
            if (self.V1 / "memory.limit_in_bytes").exists():
                self._make(self.V1 / name, {"memory.limit_in_bytes": self.limit_bytes},
                           {"memory.memsw.limit_in_bytes": self.limit_bytes, "memory.swappiness": 0})
            elif (self.V2 / "cgroup.controllers").exists():
                if "memory" not in (self.V2 / "cgroup.subtree_control").read_text().split():
                    (self.V2 / "cgroup.subtree_control").write_text("+memory")
                self._make(self.V2 / name, {"memory.max": self.limit_bytes}, {"memory.swap.max": 0})
            else:
                raise unittest.SkipTest("this machine mounts no memory cgroup controller")
        except OSError as error:
            self.__exit__()
            raise unittest.SkipTest(f"a memory cgroup cannot be made here: {error}") from error
        return self

    def _make(self, path, required, optional):
        path.mkdir()
        self.path = path
        for name, value in required.items():
            (path / name).write_text(str(value))
        for name, value in optional.items():
            # Absent where the kernel counts no swap: then there is none to forbid.
            if (path / name).exists():
                (path / name).write_text(str(value))

    def join(self):
        """Moves the calling process into the cgroup."""
        (self.path / "cgroup.procs").write_text("0" if self.path.parent == self.V2 else str(os.getpid()))

    def available_bytes(self):
        """What its processes may still take before the kernel ends one of them."""
        usage = self.path / ("memory.current" if self.path.parent == self.V2 else "memory.usage_in_bytes")
        counters = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return self.limit_bytes - int(usage.read_text()) + int(counters["inactive_file"])

    def __exit__(self, *_):
        if self.path is None:
            return
        for pid in (self.path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        limit = time.monotonic() + 10
        while True:
            try:
                self.path.rmdir()  # EBUSY until the last of its processes is gone
                return
            except OSError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)


def need(condition, reason):
    """Skips the test, and says why, unless the condition holds."""
    if not condition:
        raise unittest.SkipTest(reason)


class ProgramsBesideFailures(unittest.TestCase):
    """Programs that run under farheap in the background, while a test lets servers fail."""

    local_bytes = (48 if SOAK else 20) * MIB
    surroundings = ()  # the command that runs farheap's

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def begin(self, program, far, mode=None, stdin=subprocess.DEVNULL):
        """Starts a program under farheap; its output goes to files that outlive it."""
        files = [open(self.folder / name, "w+", encoding="utf-8") for name in ("out", "err")]
        for file in files:
            self.addCleanup(file.close)
        process = start([*self.surroundings, *farheap_command(program, self.local_bytes, far, mode)], stdin=stdin, stdout=files[0],
                        stderr=files[1])
        self.addCleanup(process.wait)
        self.addCleanup(end, process)
        return process

    def verifier(self):
        """The smallest one with far memory: each thread does as many operations until its input has ended."""
        return [PROGRAMS / "verifier", "--seed", "21", "--threads", "4", "--operations", "25", *VERIFIER_SIZES]

    def begin_verifier(self, far, mode=None):
        """Starts a verifier that goes on until finish_verifier()."""
        process = self.begin([*self.verifier(), "--until-input-ends"], far, mode, stdin=subprocess.PIPE)
        self.addCleanup(process.stdin.close)
        return process

    def finish_verifier(self, process):
        """Lets it end: it has printed what a native one prints after as many operations. Returns its errors."""
        process.stdin.close()
        process.wait(DEADLINE_S)
        out, err = self.texts()
        self.assertEqual(process.returncode, 0, err[-3000:])
        operations = re.search(r" after (\d+) operations$", out, re.MULTILINE)
        self.assertIsNotNone(operations, out)
        self.assertEqual(out, run([*self.verifier(), "--operations", operations[1]]).out, err[-3000:])
        return err

    def texts(self):
        return [(self.folder / name).read_text(encoding="utf-8") for name in ("out", "err")]

    def finish(self, process, expected):
        """Waits for the program's end: it has printed what it prints natively."""
        process.wait(DEADLINE_S)
        out, err = self.texts()
        self.assertEqual((process.returncode, out), (0, expected), err[-3000:])
        return err


def cpu_seconds():
    """What this process and its children that have ended took of the processors."""
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class TimedResult(unittest.TextTestResult):
    """Says how long each test took, and of the processors, so that the log of `make test` shows the slow ones."""

    def startTest(self, test):
        self.started = time.monotonic(), cpu_seconds()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        start, cpu = self.started
        self.stream.writeln(f"  {time.monotonic() - start:.1f} s, {cpu_seconds() - cpu:.1f} s of CPU")


def main():
    """Runs the tests of the calling file. All skipped: exit code SKIPPED, and the reasons are printed."""
    if not os.access(FARHEAP, os.X_OK):
        sys.exit(f"integration tests: there is no {FARHEAP}; run 'make build' first")
    runner = unittest.TextTestRunner(verbosity=2, resultclass=TimedResult)
    result = unittest.main(module="__main__", testRunner=runner, exit=False).result
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}", flush=True)
    if not result.wasSuccessful():
        sys.exit(1)
    if result.testsRun and len(result.skipped) == result.testsRun:
        sys.exit(SKIPPED)
