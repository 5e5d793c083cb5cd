"""`--local auto`: the budget follows what the cgroup can spare, down before the kernel kills, and up again."""

import subprocess
import sys
import time
import unittest

import support
from walk import Walk

LIMIT_MIB = 512
WORKING_SET_MIB = 320
NEIGHBOUR_MIB = 300
STEP_MIB = 4
# A third of what an automatic budget of this size leaves to others: who takes more in one step than is there is killed,
# however soon the budget would follow.
LEFT_MIB = 20
# Takes a step more for each line.
NEIGHBOUR = """
import sys
held = []
for line in sys.stdin:
    held.append(b"x" * int(line))
    print("taken", flush=True)
"""


class Auto(unittest.TestCase):
    def setUp(self):
        self.cgroup = support.Cgroup(LIMIT_MIB * support.MIB)
        self.enterContext(self.cgroup)

    def neighbour(self):
        process = support.start([sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, text=True, preexec_fn=self.cgroup.join)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait, support.DEADLINE_S)
        self.addCleanup(support.end, process)
        return process

    def fill(self, neighbour):
        """80 MiB a second, or less: no more than is there, because the budget follows as fast as the machine can store."""
        for _ in range(NEIGHBOUR_MIB // STEP_MIB):
            support.wait_until(lambda: self.cgroup.available_bytes() > LEFT_MIB * support.MIB, "giving back", process=neighbour)
            neighbour.stdin.write(f"{STEP_MIB * support.MIB}\n")
            neighbour.stdin.flush()
            self.assertEqual(neighbour.stdout.readline(), "taken\n", "the kernel killed the neighbour")
            time.sleep(0.05)

    def test_gives_back_and_takes_again(self):
        mib = support.MIB
        with Walk(WORKING_SET_MIB, "auto", cgroup=self.cgroup) as walk:
            # It begins with half of what is available.
            walk.wait_for_resident(lambda held: held > WORKING_SET_MIB * mib, "growing until all fits")
            neighbour = self.neighbour()
            self.fill(neighbour)
            walk.wait_for_resident(lambda held: held < (LIMIT_MIB - NEIGHBOUR_MIB) * mib, "giving back")
            walk.wait_for_passes(1)
            neighbour.stdin.close()
            self.assertEqual(neighbour.wait(support.DEADLINE_S), 0)
            walk.wait_for_resident(lambda held: held > WORKING_SET_MIB * mib, "growing again")
            outcome = walk.finish()
        self.assertEqual(outcome.code, 0, outcome)
        self.assertTrue(outcome.out.endswith("all data right\n"), outcome)

    def test_two_programs_share(self):
        mib = support.MIB
        with Walk(WORKING_SET_MIB, "auto", cgroup=self.cgroup) as first:
            first.wait_for_resident(lambda held: held > WORKING_SET_MIB * mib, "the first growing until all fits")
            with Walk(WORKING_SET_MIB, "auto", cgroup=self.cgroup) as second:
                # Parts become equal by small steps, which wait for a disk.
                second.wait_for_resident(lambda held: held > LIMIT_MIB // 4 * mib, "the second getting its part",
                                         beside=[first])
                for walk in (second, first):
                    outcome = walk.finish()
                    self.assertEqual(outcome.code, 0, outcome)
                    self.assertTrue(outcome.out.endswith("all data right\n"), outcome)

    def test_a_size_ends_it(self):
        mib = support.MIB
        with Walk(WORKING_SET_MIB, "auto", cgroup=self.cgroup) as walk:
            walk.wait_for_passes(1)
            outcome = support.run([support.FARHEAP, "resize", walk.pid(), "48M"])
            self.assertEqual(outcome.code, 0, outcome)
            walk.wait_for_resident(lambda held: held < 150 * mib, "shrinking to 48 MiB")
            walk.wait_for_passes(2)
            outcome = walk.finish()
        self.assertEqual(outcome.stats["budget_bytes"], 48 * mib)

    def test_not_with_a_budget_for_each(self):
        outcome = support.run([support.FARHEAP, "run", "--local", "auto", "--local-each", "--", "true"])
        self.assertEqual((outcome.code, len(outcome.err.splitlines())), (2, 1), outcome)


if __name__ == "__main__":
    support.main()
