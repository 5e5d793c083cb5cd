"""The swap that benchmarks/compare.py makes, with commands that only say that they were called: none is ever made here."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

from far_memory import MIB, only_in_process, wait_until

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import ram_swap  # noqa: E402

# Each writes a line, and fails if its name and first word are in the file of failures.
COMMAND = """#!/bin/sh
echo "$(basename $0) $*" >> {folder}/called
if grep -q "^$(basename $0)$" {folder}/failing 2>/dev/null; then echo "$(basename $0) did not work" >&2; exit 1; fi
"""
SAYS = {"stat": 'cat {folder}/kind', "losetup": 'if [ "$1" = --find ]; then echo /dev/loop-no-such; fi',
        "umount": 'rm -f "$1"/device'}

# A comparison that waits to be ended.
COMPARISON = """
    import signal, sys, time
    sys.path.insert(0, sys.argv[1])
    import compare, ram_swap
    signal.signal(signal.SIGTERM, compare.end_in_order)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background commands do not heed it
    with ram_swap.swap_in_ram(1 << 20, 0):
        print("inside", flush=True)
        time.sleep(1000)
    """


@only_in_process
class RamSwap(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        commands = self.folder / "commands"
        commands.mkdir()
        for name in ("mount", "umount", "stat", "losetup", "mkswap", "swapon", "swapoff"):
            path = commands / name
            path.write_text((COMMAND + SAYS.get(name, "") + "\n").format(folder=self.folder))
            path.chmod(0o755)
        (self.folder / "kind").write_text("ramfs\n")
        (self.folder / "tmp").mkdir()
        self.enterContext(mock.patch.dict(os.environ, PATH=f"{commands}:{os.environ['PATH']}", TMPDIR=str(self.folder / "tmp")))
        self.enterContext(mock.patch("builtins.print"))

    def called(self):
        path = self.folder / "called"
        return [line.split()[0] for line in path.read_text().splitlines()] if path.exists() else []

    def check_nothing_is_left(self):
        self.assertEqual(os.listdir(self.folder / "tmp"), [])

    def let_fail(self, *names):
        (self.folder / "failing").write_text("\n".join(names))

    def swap(self):
        return ram_swap.swap_in_ram(2 * MIB, 0)

    def test_made_and_undone(self):
        with self.swap():
            self.assertEqual(self.called(), ["mount", "stat", "losetup", "mkswap", "swapon"])
            device = next((self.folder / "tmp").glob("*/device"))
            self.assertEqual(device.stat().st_blocks * 512, 2 * MIB)
        self.assertEqual(self.called()[5:], ["swapoff", "losetup", "umount"])
        self.assertIn("losetup --detach /dev/loop-no-such", (self.folder / "called").read_text())
        self.check_nothing_is_left()
        with self.assertRaises(KeyError), self.swap():
            raise KeyError
        self.assertEqual(self.called()[8:], self.called()[:8])

    def test_never_on_tmpfs(self):
        (self.folder / "kind").write_text("tmpfs\n")
        with self.assertRaisesRegex(ram_swap.SwapError, "is tmpfs and not ramfs"), self.swap():
            raise AssertionError("it was made")
        self.assertEqual(self.called(), ["mount", "stat", "umount"])
        self.check_nothing_is_left()

    def test_what_fails_is_undone(self):
        for name, undone in (("mount", []), ("losetup", ["umount"]), ("mkswap", ["losetup", "umount"]),
                             ("swapon", ["losetup", "umount"])):
            with self.subTest(name):
                (self.folder / "called").unlink(missing_ok=True)
                self.let_fail(name)
                with self.assertRaisesRegex(ram_swap.SwapError, f"no swap was made: .*{name} did not work"), self.swap():
                    raise AssertionError("it was made")
                calls = self.called()
                self.assertEqual(calls[calls.index(name) + 1:], undone)
                self.check_nothing_is_left()

    def test_swap_that_cannot_be_switched_off_keeps_its_device(self):
        with self.assertRaisesRegex(ram_swap.SwapError, "swapoff did not work; .*run: swapoff /dev/loop-no-such && losetup --detach "
                                                        "/dev/loop-no-such && umount .* && rmdir "), self.swap():
            self.let_fail("swapoff")
        self.assertEqual(self.called()[5:], ["swapoff"])
        self.assertEqual(len(list((self.folder / "tmp").glob("*/device"))), 1)

    def test_comparisons_that_are_ended(self):
        program = textwrap.dedent(COMPARISON)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
            with self.subTest(number):
                (self.folder / "called").unlink(missing_ok=True)
                child = subprocess.Popen([sys.executable, "-c", program, BENCHMARKS], stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL)
                self.assertEqual(child.stdout.readline(), b"inside\n")
                child.send_signal(number)
                child.wait()
                child.stdout.close()
                wait_until(lambda: self.called()[5:] == ["swapoff", "losetup", "umount"])
                wait_until(lambda: os.listdir(self.folder / "tmp") == [])

    def test_the_keeper_outlives_signals(self):
        keeper = subprocess.Popen([sys.executable, BENCHMARKS / "ram_swap.py", str(MIB)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        self.assertRegex(keeper.stdout.readline(), "^ready swapoff ")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            keeper.send_signal(number)
        self.assertIsNone(keeper.poll())
        keeper.stdin.close()
        self.assertEqual(keeper.wait(), 0)
        keeper.stdout.close()
        self.assertEqual(self.called()[5:], ["swapoff", "losetup", "umount"])

    def test_a_keeper_that_is_killed(self):
        """Nothing can undo it then, but the user learns how."""
        real = subprocess.Popen
        started = []

        def start(*words, **options):
            started.append(real(*words, **options))
            return started[0]

        with (mock.patch("subprocess.Popen", start),
              self.assertRaisesRegex(ram_swap.SwapError, "was ended; when memory is free, run: swapoff /dev/loop-no-such && "),
              self.swap()):
            started[0].kill()

    def test_room(self):
        meminfo = f"MemTotal: 99999999 kB\nMemAvailable:    {4 << 20} kB\n"  # 4 GiB
        ram_swap.check_room(1 << 30, 1 << 30, meminfo)
        for size, job in (((1 << 30) + (1 << 20), 1 << 30), (1 << 30, (1 << 30) + 1)):
            with self.assertRaisesRegex(ram_swap.SwapError, "4096 MiB are available; compare fewer rows with --count"):
                ram_swap.check_room(size, job, meminfo)
        (self.folder / "meminfo").write_text("MemAvailable: 1048576 kB\n")
        with (mock.patch("ram_swap.MEMINFO", self.folder / "meminfo"),
              self.assertRaisesRegex(ram_swap.SwapError, "1024 MiB are available"), self.swap()):
            raise AssertionError("it was made")
        self.assertEqual(self.called(), [])


if __name__ == "__main__":
    unittest.main()
