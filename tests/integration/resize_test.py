"""The budget can be changed while the program runs, both ways, and the program's memory follows."""

import unittest

import support
from walk import OVERHEAD_BYTES, Walk

WORKING_SET_MIB = 256


class Resize(unittest.TestCase):
    def resize(self, pid, size):
        outcome = support.run([support.FARHEAP, "resize", pid, size], deadline_s=240)
        self.assertEqual(outcome.code, 0, outcome)

    def test_both_ways(self):
        mib = support.MIB
        with Walk(WORKING_SET_MIB, 192 * mib) as walk:
            walk.wait_for_passes(2)
            walk.wait_for_resident(lambda held: held > 150 * mib, "using most of 192 MiB")
            self.resize(walk.pid(), "48M")
            walk.wait_for_resident(lambda held: held < 48 * mib + OVERHEAD_BYTES, "shrinking to 48 MiB")
            walk.wait_for_passes(2)
            self.assertLess(support.resident_bytes(walk.pid()), 48 * mib + OVERHEAD_BYTES)
            self.resize(walk.pid(), "1G")
            walk.wait_for_passes(2)
            walk.wait_for_resident(lambda held: held > 240 * mib, "growing until all fits")
            self.resize(walk.pid(), "64M")
            walk.wait_for_resident(lambda held: held < 64 * mib + OVERHEAD_BYTES, "shrinking to 64 MiB")
            walk.wait_for_passes(1)
            outcome = walk.finish()
        self.assertEqual(outcome.code, 0, outcome)
        self.assertTrue(outcome.out.endswith("all data right\n"), outcome)
        self.assertEqual(outcome.stats["budget_bytes"], 64 * mib)

    def test_size_without_sense_changes_nothing(self):
        mib = support.MIB
        with Walk(WORKING_SET_MIB, 96 * mib) as walk:
            walk.wait_for_passes(1)
            for size in ["banana", "64K", "-1M"]:
                outcome = support.run([support.FARHEAP, "resize", walk.pid(), size], deadline_s=240)
                self.assertGreater(outcome.code, 0, outcome)
                self.assertEqual(len(outcome.err.splitlines()), 1, outcome)
            walk.wait_for_passes(1)
            outcome = walk.finish()
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.stats["budget_bytes"], 96 * mib)


if __name__ == "__main__":
    support.main()
