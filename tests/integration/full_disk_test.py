"""A full disk loses nothing: eviction stops with one warning, and goes on when space returns."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import support
from walk import OVERHEAD_BYTES, Walk

WORKING_SET_MIB = 256
BUDGET_MIB = 64


def mount(*arguments):
    return subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True, timeout=support.DEADLINE_S)


def unmount(directory):
    return subprocess.run(["umount", str(directory)], capture_output=True, timeout=support.DEADLINE_S).returncode == 0


class FullDisk(unittest.TestCase):
    def setUp(self):
        support.need(os.geteuid() == 0, "mounting a small disk needs root")
        support.need(shutil.which("mount"), "there is no mount command on this machine")
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.disk = pathlib.Path(directory.name)
        done = mount("-t", "tmpfs", "-o", "size=64M", "farheap-test", self.disk)
        support.need(done.returncode == 0, f"a small disk cannot be mounted here: {done.stderr.strip()}")
        # Busy until the last process that has a file there is gone.
        self.addCleanup(support.wait_until, lambda: unmount(self.disk), f"unmounting {self.disk}")

    def test_survives_and_resumes(self):
        budget_bytes = BUDGET_MIB * support.MIB
        with Walk(WORKING_SET_MIB, budget_bytes, environment={"FARHEAP_DIR": str(self.disk)}) as walk:
            # 64 MiB here and 64 MiB there: the rest has nowhere to go but over the budget.
            walk.wait_for_passes(3)
            walk.wait_for_resident(lambda held: held > budget_bytes + OVERHEAD_BYTES,
                                   "keeping what the disk cannot take")
            warnings = [line for line in walk.error_text().splitlines() if "budget" in line]
            self.assertEqual(len(warnings), 1, walk.error_text())
            self.assertRegex(warnings[0], r"(?i)space|full")

            done = mount("-o", "remount,size=1G", self.disk)
            self.assertEqual(done.returncode, 0, done.stderr)
            walk.wait_for_resident(lambda held: held < budget_bytes + OVERHEAD_BYTES,
                                   "resuming when space has returned")
            walk.wait_for_passes(2)
            outcome = walk.finish()
        self.assertEqual(outcome.code, 0, outcome)
        self.assertTrue(outcome.out.endswith("all data right\n"), outcome)
        self.assertGreater(outcome.stats["over_budget_pages"], 0, outcome.stats)


if __name__ == "__main__":
    support.main()
