"""Limits on address space and data that a program sets, or was started with, are for its own memory."""

import os
import pathlib
import shutil
import tempfile
import unittest

import support

NOBODY = 65534
MODES = ("thread", "inline")


def budget():
    return 16 * support.MIB


class Limits(unittest.TestCase):
    def far(self, program, mode, **options):
        return support.run_far(program, budget(), "memory:", mode, deadline_s=60, **options)

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

    def test_a_limit_before_the_start(self):
        program = [support.PROGRAMS / "limiter", "as", "again"]
        raises_hard_limits = support.run(["bash", "-c", "ulimit -v 491520 && ulimit -v unlimited"]).code == 0
        for how, far in (("-S -v", True), ("-v", raises_hard_limits)):
            with self.subTest(how):
                limited = ["bash", "-c", f'ulimit {how} 491520 && exec "$@"', "bash"]
                outcome = support.run([*limited, *support.farheap_command(program, budget(), "file:")])
                self.assertEqual((outcome.code, outcome.out), (0, "again: 480 MiB\ndone\n"), outcome)
                self.assertEqual("runs natively" not in outcome.err, far, outcome)

    def test_a_limit_that_nobody_may_raise(self):
        support.need(os.geteuid() == 0, "only root can become another user")
        limited = ["bash", "-c", 'ulimit -v 491520 && exec "$@"', "bash", "setpriv", f"--reuid={NOBODY}", "--clear-groups"]
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            for name in ("bin/farheap", "lib/libfarheap-preload.so"):
                target = pathlib.Path(place, name)
                target.parent.mkdir()
                shutil.copy(support.BUILD / name, target)
            command = support.farheap_command(["cat", "/proc/self/limits"], budget(), "file:")
            outcome = support.run([*limited, pathlib.Path(place, "bin/farheap"), *command[1:]])
        self.assertEqual(outcome.code, 0, outcome)
        self.assertRegex(outcome.out, "Max address space +503316480 ")
        self.assertIn("ulimit -v", outcome.err)
        self.assertIn("runs natively", outcome.err)


if __name__ == "__main__":
    support.main()
