"""Memory stays within its bounds: the analysis of evaluation/apps/flights survives in a memory cgroup of its budget and 200
MiB, where it is killed natively; many processes with the default far tier stay within a cgroup; and what Farheap needs for itself is below a hundredth of the far heap."""

import re
import sys
import unittest

import support

YEARS = 18 if support.SOAK else 4
SLACK_BYTES = 200 * support.MIB
PROGRAM = [support.VENV_PYTHON, support.SOURCE / "evaluation/apps/flights/analysis.py", "--years", YEARS]
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def checksum(outcome):
    found = re.search(r"^checksum ([0-9a-f]+)$", outcome.out, re.MULTILINE)
    return found and found[1]


class Cap(unittest.TestCase):
    def test_analysis_in_a_cgroup(self):
        support.need(support.VENV_PYTHON.exists(), f"there is no {support.VENV_PYTHON}; run evaluation/apps/flights/setup")
        native = support.run(PROGRAM, environment=ENVIRONMENT)
        self.assertEqual(native.code, 0, native)
        self.assertIsNotNone(checksum(native), native)
        budget_bytes = native.peak_bytes // 4

        with support.Cgroup(budget_bytes + SLACK_BYTES) as cgroup:
            # First proof that the cgroup does what it is made for.
            self.assertNotEqual(support.run(PROGRAM, environment=ENVIRONMENT, cgroup=cgroup).code, 0,
                                "the cgroup did not limit the native run")
            outcome = support.run_far(PROGRAM, budget_bytes, far="file:", environment=ENVIRONMENT, cgroup=cgroup)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(checksum(outcome), checksum(native), outcome)
        self.assertIsNotNone(outcome.stats, outcome)
        self.assertEqual(outcome.stats["over_budget_pages"], 0, outcome.stats)

    def test_many_processes_of_the_default_far_tier(self):
        """Each has compressed memory of its own, and all together leave memory to others."""
        walkers = 10
        script = (f'for i in $(seq {walkers}); do {support.PROGRAMS}/walker 40 & walkers="$walkers $!"; done; '
                  'for walker in $walkers; do wait $walker || exit; done')
        with support.Cgroup(288 * support.MIB) as cgroup:
            outcome = support.run_far(["sh", "-c", script], walkers * 16 * support.MIB, cgroup=cgroup)
        self.assertEqual(outcome.code, 0, outcome)
        self.assertEqual(outcome.out.count("all data right"), walkers, outcome)
        self.assertGreater(outcome.stats["evicted_pages"], 0, outcome)

    def test_metadata_of_a_far_heap(self):
        """Every page repeats one byte, so that compressed memory stores nothing but its tables."""
        script = ("import sys; memory = bytearray(int(sys.argv[1]))\n"
                  "for at in range(0, len(memory), 4096): memory[at:at + 4096] = bytes([at // 4096 % 255 + 1]) * 4096\n"
                  "assert all(memory[at] == at // 4096 % 255 + 1 for at in range(0, len(memory), 4096))")

        def peak_bytes(far, heap_bytes):
            outcome = support.run_far([sys.executable, "-c", script, heap_bytes], 32 * support.MIB, far=far)
            self.assertEqual(outcome.code, 0, outcome)
            self.assertGreater(outcome.stats["peak_far_bytes"], heap_bytes - 32 * support.MIB, outcome.stats)
            return outcome.stats["peak_rss_bytes"]

        small, large = 128 * support.MIB, 896 * support.MIB
        for far in ("file:", None):
            with self.subTest(far=far):
                # The budget, the program and fixed buffers are the same in both. What they hold at their peaks besides
                # differs from run to run, by a tenth of the limit.
                growths = (peak_bytes(far, large) - peak_bytes(far, small) for _ in range(3))
                self.assertTrue(any(growth < (large - small) // 100 for growth in growths))


if __name__ == "__main__":
    support.main()
