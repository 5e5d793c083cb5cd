"""A program that checks every byte of its memory runs under farheap, in a tenth of that memory, as it does natively."""

import functools
import re
import unittest

import support

SEED = 7
SHAPE = ["--threads", "4", "--operations", "4000" if support.SOAK else "300",
         "--live-mib", "2048" if support.SOAK else "128", "--largest-mib", "64" if support.SOAK else "16"]


def verifier(*options):
    return [support.PROGRAMS / "verifier", "--seed", str(SEED), *SHAPE, *options]


@functools.cache
def native():
    return support.run(verifier())


class Verifier(unittest.TestCase):
    def test_passes_natively(self):
        self.assertEqual(native().code, 0, native())
        self.assertRegex(native().out, r"^verifier: checksum [0-9a-f]{16} after \d+ operations\n$")

    def test_notices_a_flipped_byte(self):
        outcome = support.run([support.PROGRAMS / "verifier", "--operations", "100", "--live-mib", "64",
                               "--largest-mib", "8", "--break"])
        self.assertEqual(outcome.code, 1, outcome)
        self.assertIn("verifier: corrupt", outcome.out)

    def check_under_farheap(self, far, mode="thread"):
        budget_bytes = native().peak_bytes // 10
        outcome = support.run_far(verifier(), budget_bytes, far=far, mode=mode)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out, native().out, outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        # It did live in far memory, and within the budget.
        self.assertGreater(outcome.stats["fetched_pages"], 0)
        self.assertGreater(outcome.stats["peak_far_bytes"], budget_bytes)
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)
        self.assertEqual(outcome.stats["backend_errors"], 0, outcome.stats)

    def test_memory_tier(self):
        self.check_under_farheap("memory:")

    def test_compressed_tier(self):
        self.check_under_farheap("zmem:1G", "inline")

    def test_stacked_tiers(self):
        self.check_under_farheap("zmem:64M,file:")

    def test_file_tier(self):
        self.check_under_farheap("file:")

    def test_large_blocks_grow_where_others_come_and_go(self):
        outcome = support.run_far([support.PROGRAMS / "grower"], 64 * support.MIB, far="memory:")
        self.assertEqual((outcome.code, outcome.out), (0, "grower: done\n"), outcome)

    def test_addresses_are_used_again(self):
        outcome = support.run_far([support.PROGRAMS / "churner"], 64 * support.MIB, far="memory:")
        self.assertEqual(outcome.code, 0, outcome)
        self.assertGreater(outcome.stats["fetched_pages"], 0, outcome)  # else jemalloc has given nothing back
        grown = re.fullmatch(r"page tables grew by (-?\d+) kB\n", outcome.out)
        self.assertIsNotNone(grown, outcome)
        self.assertLess(int(grown[1]), 512, "page tables of 12 blocks of at most 24 MiB at a time")


if __name__ == "__main__":
    support.main()
