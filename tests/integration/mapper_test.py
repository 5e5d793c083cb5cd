"""Memory calls of unusual programs: under Farheap, `mapper` prints what it prints natively."""

import subprocess
import unittest

import support
from support import MIB

MAPPER = support.PROGRAMS / "mapper"
BUDGET_BYTES = 32 * MIB


def scenarios():
    return subprocess.run([str(MAPPER)], capture_output=True, text=True, check=True).stdout.split()


# So that a scenario is in the other mode each day.
WAYS = [("thread", "memory:"), ("inline", "file:"), ("thread", "file:"), ("inline", "memory:")]


class MemoryCalls(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.native = {name: support.run([MAPPER, name]) for name in scenarios()}

    def test_every_scenario(self):
        for number, (name, native) in enumerate(self.native.items()):
            for mode, far in support.of_today(WAYS, number):
                with self.subTest(scenario=name, mode=mode, far=far):
                    self.assertEqual(native.code, 0, native)
                    outcome = support.run_far([MAPPER, name], BUDGET_BYTES, far=far, mode=mode)
                    self.assertEqual(outcome.code, 0, outcome)
                    self.assertEqual(outcome.out, native.out, outcome.err)

    def test_without_moving_pages(self):
        for name in ("foreign_neighbours", "inaccessible_pages", "moved", "locked"):
            with self.subTest(scenario=name):
                outcome = support.run_far([MAPPER, name], BUDGET_BYTES, environment={"FARHEAP_DISABLE": "move"})
                self.assertEqual(outcome.code, 0, outcome)
                self.assertEqual(outcome.out, self.native[name].out, outcome.err)


class Charges(unittest.TestCase):
    """The memory that counts against the budget, by the statistics."""

    def test_a_reservation_is_not_charged(self):
        outcome = support.run_far([MAPPER, "reserver"], BUDGET_BYTES)
        self.assertEqual(outcome.code, 0, outcome)
        static_arrays = 16 * MIB  # the program has them for another scenario, and they count
        self.assertLess(outcome.stats["peak_local_bytes"], static_arrays + 8 * MIB, outcome.stats)

    def test_a_reservation_that_moves_out_takes_no_memory(self):
        outcome = support.run_far([MAPPER, "reservation_moved_out"], BUDGET_BYTES)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertLess(outcome.peak_bytes, 400 * MIB, outcome)  # of a reservation of 1 GiB

    def test_inaccessible_pages_leave(self):
        outcome = support.run_far([MAPPER, "inaccessible_pages"], BUDGET_BYTES)
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)

    def test_a_reserved_terabyte_is_far(self):
        outcome = support.run_far([MAPPER, "terabyte"], BUDGET_BYTES)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertGreater(outcome.stats["evicted_pages"], 64 * MIB // 4096, outcome.stats)
        self.assertLess(outcome.peak_bytes, 192 * MIB, outcome)  # of which it fills 192 MiB

    def test_memory_at_proposed_places_is_far(self):
        outcome = support.run_far([MAPPER, "used_and_given_back"], BUDGET_BYTES)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertLess(outcome.peak_bytes, 100 * MIB, outcome)  # of which it fills 128 MiB

    def test_what_is_sent_is_fetched_once(self):
        outcome = support.run_far([MAPPER, "much_sent"], BUDGET_BYTES, far="memory:", mode="inline")
        self.assertEqual((outcome.code, outcome.stats["over_budget_pages"]), (0, 0), outcome)
        self.assertLess(outcome.stats["fetched_pages"], 3 * 96 * MIB // 4096, outcome.stats)

    def test_mlockall_fills_nothing_of_the_runtime(self):
        outcome = support.run_far([MAPPER, "all_locked"], BUDGET_BYTES)
        self.assertLess(outcome.peak_bytes, 400 * MIB, outcome)
        self.assertEqual(outcome.err.count("mlockall locks"), 1, outcome)


if __name__ == "__main__":
    support.main()
