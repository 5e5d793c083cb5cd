"""Static arrays of the executable are far memory, at the place where they were."""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import support

BUDGET = 24 * support.MIB
SANITIZED = """
#include <stdio.h>
#include <stdlib.h>
static char fixed[64 << 20];
int main(void) {
  char* const made = malloc(40 << 20);
  long sum = 0;
  for (int round = 0; round < 2; ++round) {
    for (long i = 0; i < (long)sizeof fixed; i += 4096) fixed[i] += i % 97;
    for (long i = 0; i < 40 << 20; i += 4096) made[i] = (char)(i % 89 + round);
  }
  for (long i = 0; i < (long)sizeof fixed; i += 4096) sum += fixed[i];
  for (long i = 0; i < 40 << 20; i += 4096) sum += made[i];
  free(made);
  return printf("statics: %ld\\n", sum) < 0;
}
"""


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

    # The runtime calls the sanitizer's functions, whose tables are static, to bring a page.
    @unittest.skipUnless(shutil.which("gcc"), "there is no gcc")
    def test_those_of_a_program_with_address_sanitizer_stay_local(self):
        with tempfile.TemporaryDirectory() as directory:
            source, program = pathlib.Path(directory) / "sanitized.c", pathlib.Path(directory) / "sanitized"
            source.write_text(SANITIZED)
            subprocess.run(["gcc", "-O1", "-fsanitize=address", "-static-libasan", source, "-o", program], check=True)
            without_leaks = {"ASAN_OPTIONS": "detect_leaks=0"}
            native = support.run([program], environment=without_leaks)
            self.assertEqual(native.code, 0, native)
            for mode in ("thread", "inline"):
                with self.subTest(mode=mode):
                    outcome = support.run_far([program], BUDGET, "memory:", mode, environment=without_leaks)
                    self.assertEqual((outcome.code, outcome.out), (0, native.out), outcome)
                    self.assertGreater(outcome.stats["evicted_pages"], 4000, outcome.stats)
                    self.assertLess(outcome.stats["peak_far_bytes"], 48 * support.MIB, outcome)


if __name__ == "__main__":
    support.main()
