"""Static arrays of the executable are far memory, at the place where they were."""

import unittest

import support

BUDGET = 24 * support.MIB


class Statics(unittest.TestCase):
    def check(self, program, mode, far):
        outcome = support.run_far([support.PROGRAMS / program], BUDGET, far=far, mode=mode)
        self.assertEqual((outcome.code, outcome.out), (0, "statics: done\n"), outcome)
        self.assertGreater(outcome.stats["peak_far_bytes"], 64 * support.MIB, outcome)
        # The budget may be exceeded by one batch of pages on their way; and its child has its pages, too, until both come down.
        self.assertLessEqual(outcome.stats["peak_local_bytes"], 2 * BUDGET + 64 * 4096, outcome)
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)
        # The arrays alone are 96 MiB.
        self.assertLess(outcome.stats["peak_rss_bytes"], 80 * support.MIB, outcome)

    def test_wherever_the_loader_puts_them(self):
        for mode in ("thread", "inline"):
            self.check("statics", mode, "file:")

    def test_at_the_place_that_the_linker_chose(self):
        for mode in ("thread", "inline"):
            self.check("statics-fixed", mode, "file:")

    def test_what_fits_costs_nothing(self):
        outcome = support.run_far([support.PROGRAMS / "statics"], 256 * support.MIB, far="file:")
        self.assertEqual((outcome.code, outcome.out), (0, "statics: done\n"), outcome)
        self.assertEqual(outcome.stats["evicted_pages"], 0, outcome.stats)


if __name__ == "__main__":
    support.main()
