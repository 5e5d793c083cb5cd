"""Limits on address space and data that a program sets, or was started with, are for its own memory."""

import itertools
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import support

NOBODY = 65534
MODES = ("thread", "inline")


# Memory of the C library's own (a thread's stack), of the program's, and of a program that is started.
LIMITED_BY_ANOTHER = """
import mmap, os, resource, sys, threading
asks = sys.argv[1] == "True"
os.system(f"prlimit --pid {os.getpid()} --as=734003200:")
if asks:
    print(resource.getrlimit(resource.RLIMIT_AS)[0])
thread = threading.Thread(target=lambda: print("thread"))
thread.start()
thread.join()
mmap.mmap(-1, 300 << 20)
try:
    blocks = [bytearray(64 << 20) for _ in range(20)]
    print("no limit")
except MemoryError:
    print("limit")
sys.stdout.flush()
os.system("ulimit -S -v")
print(resource.getrlimit(resource.RLIMIT_AS)[0])
print("done")
"""


def may_raise_hard_limits():
    return support.run(["bash", "-c", "ulimit -v 491520 && ulimit -v unlimited"]).code == 0


def budget():
    return 16 * support.MIB


class Limits(unittest.TestCase):
    def far(self, program, mode, **options):
        return support.run_far(program, budget(), "memory:", mode, deadline_s=240, **options)

    def test_a_program_that_limits_itself(self):
        for kind in ("as", "data"):
            native = support.run([support.PROGRAMS / "limiter", kind])
            self.assertEqual((native.code, native.out), (0, "first: 480 MiB\nagain: 480 MiB\ndone\n"), native)
            for mode in MODES:
                with self.subTest(kind, mode=mode):
                    outcome = self.far([support.PROGRAMS / "limiter", kind], mode)
                    self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
                    # With a limit on data from the start, the far heap's tables find no room (docs/run.md).
                    self.assertEqual("runs natively" in outcome.err, kind == "data", outcome)
                    if kind == "as":
                        self.assertGreater(outcome.stats["misses"], 0, outcome)

    def test_a_shell_that_limits_what_it_starts(self):
        for how in ("-S -v", "-v"):
            with self.subTest(how):
                script = f'ulimit {how} 491520; ulimit -S -v; exec "$@"'
                outcome = self.far(["bash", "-c", script, "bash", support.PROGRAMS / "limiter", "as", "again"], "thread")
                expected = support.run(["bash", "-c", script, "bash", support.PROGRAMS / "limiter", "as", "again"])
                self.assertEqual((outcome.code, outcome.out), (expected.code, expected.out), outcome)
                self.assertIn("491520\n", outcome.out)
                self.assertNotIn("natively", outcome.err)

    def test_programs_that_are_started(self):
        # Where nobody may raise a hard limit again, that of started programs stays what it was (decision 112).
        hard_limits_follow = may_raise_hard_limits()
        for limited, kind, environment in itertools.product(("self", "child"), ("as", "data"), ("native", "far")):
            command = [support.PROGRAMS / "spawner", limited, kind, environment]
            native = support.run(command)
            self.assertEqual((native.code, native.out[-5:]), (0, "done\n"), native)
            for mode in MODES:
                with self.subTest(limited, kind=kind, environment=environment, mode=mode):
                    outcome = self.far(command, mode)
                    expected, got = native.out, outcome.out
                    if not hard_limits_follow:
                        expected, got = (re.sub(", at most.*", "", text) for text in (expected, got))
                    self.assertEqual((outcome.code, got), (0, expected), outcome)

    def test_what_the_process_reads_of_its_limits(self):
        script = """
ulimit -S -v 716800
grep -E 'address|data|Limit' /proc/self/limits
while read line; do case $line in *address*|*data*) echo "$line" ;; esac; done < /proc/self/limits
/usr/bin/python3 -c 'print([line for line in open("/proc/thread-self/limits") if "address" in line])'
"""
        native = support.run(["bash", "-c", script])
        self.assertEqual((native.code, native.out.count("734003200")), (0, 3), native)
        for mode in MODES:
            with self.subTest(mode):
                outcome = self.far(["bash", "-c", script], mode)
                self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)

    def test_a_limit_before_the_start(self):
        program = [support.PROGRAMS / "limiter", "as", "again"]
        for how, far in (("-S -v", True), ("-v", may_raise_hard_limits())):
            with self.subTest(how):
                limited = ["bash", "-c", f'ulimit {how} 491520 && exec "$@"', "bash"]
                outcome = support.run([*limited, *support.farheap_command(program, budget(), "file:")])
                self.assertEqual((outcome.code, outcome.out), (0, "again: 480 MiB\ndone\n"), outcome)
                self.assertEqual("runs natively" not in outcome.err, far, outcome)

    def test_a_limit_that_another_process_sets(self):
        support.need(shutil.which("prlimit"), "there is no prlimit")
        for asks in (True, False):
            native = support.run(["/usr/bin/python3", "-c", LIMITED_BY_ANOTHER, str(asks)])
            self.assertEqual((native.code, native.out[-5:]), (0, "done\n"), native)
            for mode in MODES:
                with self.subTest(asks=asks, mode=mode):
                    outcome = self.far(["/usr/bin/python3", "-c", LIMITED_BY_ANOTHER, str(asks)], mode)
                    self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)

    def test_a_limit_on_threads(self):
        """Where the runtime's threads do not fit, the program runs natively, or is not started, with one line."""
        support.need(os.geteuid() == 0, "only root can become another user")
        nobody_else = 54321
        with tempfile.TemporaryDirectory() as place:
            run = self.copy_of_farheap(place)
            for most in range(1, 8):
                limited = ["setpriv", f"--reuid={nobody_else}", "--clear-groups", "bash", "-c",
                           f'ulimit -u {most} && exec "$@"', "bash"]
                for far in ("memory:", "file:"):
                    with self.subTest(most=most, far=far):
                        command = support.farheap_command(["cat", __file__], budget(), far)
                        outcome = support.run([*limited, run, *command[1:]], environment={"FARHEAP_DISABLE": "io_uring"})
                        if outcome.code != 0:
                            self.assertEqual(outcome.code, 1, outcome)
                        else:
                            self.assertEqual(outcome.out, pathlib.Path(__file__).read_text(), outcome)
                        self.assertNotIn("terminate", outcome.err, outcome)
                        if most < 3 or outcome.code != 0:
                            self.assertIn("ulimit -u", outcome.err, outcome)

    def copy_of_farheap(self, place):
        """Where other users can run it."""
        os.chmod(place, 0o755)
        for name in ("bin/farheap", "lib/libfarheap-preload.so"):
            target = pathlib.Path(place, name)
            target.parent.mkdir()
            shutil.copy(support.BUILD / name, target)
        return pathlib.Path(place, "bin/farheap")

    def test_a_limit_that_nobody_may_raise(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        limited = ["bash", "-c", 'ulimit -v 491520 && exec "$@"', "bash", "setpriv", f"--reuid={NOBODY}", "--clear-groups"]
        with tempfile.TemporaryDirectory() as place:
            command = support.farheap_command(["cat", "/proc/self/limits"], budget(), "file:")
            outcome = support.run([*limited, self.copy_of_farheap(place), *command[1:]])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, "Max address space +503316480 ")
        self.assertIn("ulimit -v", outcome.err)
        self.assertIn("runs natively", outcome.err)


if __name__ == "__main__":
    support.main()
